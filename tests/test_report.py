"""The page of a memory file: it holds what it shows, shows one owner's memory and nothing forgotten, and cannot be
broken by stored text. How it behaves in a browser is in browser/test_page.py."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import os
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from conftest import Shell
from hypothesis import given
from hypothesis import strategies as st
from rows import fill

from istar_lite import BadInput, Memory, NotAMemoryFile, TurnRecord
from istar_lite.report import report
from istar_lite.report.plane import plane
from istar_lite.report.shelf import TEXT, embed_json, ranges
from istar_lite.testing import FixedClock, ScriptedLLM

NASTY = (
    "</script><script>document.title='run'</script><!-- {{program}} {{data}} <img src=x onerror=alert(1)>"
    " \u2028\u2029 & '\"\\"
)


def page_of(path: Path, **options: Any) -> str:
    out = path.with_suffix(".html")
    report(path, out, **options)
    return out.read_text(encoding="utf-8")


def data_of(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found
    return json.loads(found[1])


def texts(data: dict[str, Any]) -> set[str]:
    return {row["text"] for row in data["rows"].values() if "text" in row}


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of a file with rows in every table."""
    return page_of(fill(tmp_path_factory.mktemp("full") / "full.db"))


# --- what it shows ------------------------------------------------------------------------------------------------


def test_every_kind_that_holds_now_is_known(full: str) -> None:
    known = data_of(full)["known"]
    assert known["memory"] == [3, 1] or known["memory"] == [1, 3]
    assert known["atom"] == [5, 4, 3]
    assert (known["episode"], known["profile"], known["file"], known["item"]) == ([2, 1], [1], [2], [1])
    assert (known["observation"], known["reflection"]) == ([2], [1])


def test_memories_stand_in_the_order_of_their_strength(path: Path) -> None:
    with Memory(path, embedder=None) as memory:
        memory.remember_many([{"text": f"fact {n}", "importance": n / 10} for n in (3, 9, 1, 7)])
    data = data_of(page_of(path))
    assert [data["rows"][f"memory-{id}"]["text"] for id in data["known"]["memory"]] == [
        "fact 9", "fact 7", "fact 3", "fact 1"
    ]  # fmt: skip
    assert data["rows"]["memory-2"]["decay"] == pytest.approx(1, abs=1e-3)


def test_what_ended_expired_or_is_stale_is_not_known(path: Path, clock: FixedClock) -> None:
    with Memory(path, embedder=None, clock=clock) as memory:
        old = memory.remember("port is 22")
        memory.supersede(old.id, "port is 49222")
        memory.remember("the guest stays a day", ttl=timedelta(days=1))
        stale = memory.remember("rests on sand")
        with memory._services.file.write() as tx:
            tx.execute("update memory set stale = 1 where id = ?", (stale.id,))
    data = data_of(page_of(path))
    assert [data["rows"][f"memory-{id}"]["text"] for id in data["known"]["memory"]] == ["port is 49222"]
    assert data["ended"] == [f"memory-{old.id}"]
    assert data["rows"][f"memory-{old.id}"]["ended_by"] == "memory 2"
    assert {(row["status"], row["rows"]) for row in data["counts"] if row["kind"] == "memory"} == {
        ("active", 1), ("superseded", 1), ("expired", 1), ("stale", 1)
    }  # fmt: skip


def test_every_step_from_a_memory_to_what_was_said_is_linked(path: Path) -> None:
    extracted = json.dumps({"memories": [{"text": "likes green tea", "importance": 0.9, "emotion": "joy"}]})
    with Memory(path, embedder=None, llm=ScriptedLLM([extracted])) as memory:
        memory.chat("kitchen").store("I like green tea best.", "Noted.")
    data = data_of(page_of(path))
    way, seen = ["memory-1"], []
    while way:
        key = way.pop()
        seen.append(data["rows"][key].get("text", key))
        way += [f"{kind}-{id}" for _, kind, first, last in data["links"].get(key, []) for id in range(first, last + 1)]
    assert "I like green tea best." in seen


def test_an_episode_leads_to_all_its_turns(full: str) -> None:
    data = data_of(full)
    assert ["from", "turn", 1, 2] in data["links"]["episode-1"]
    assert ["from", "episode", 1, 2] in data["links"]["profile-1"]
    assert {"turn-1", "turn-2"} <= set(data["rows"])


def test_the_trail_gives_each_return_and_what_was_left_before(path: Path, clock: FixedClock) -> None:
    with Memory(path, embedder=None, clock=clock) as memory:
        memory.remember("the green tea is in the kitchen")
        for _ in range(2):
            clock.advance(86_400)
            assert memory.chat().retrieve("where is the green tea in the kitchen?").memories
    row = data_of(page_of(path))["rows"]["memory-1"]
    assert row["access_count"] == 2
    assert [at[:10] for at, _, _ in row["returns"]] == ["2026-01-02", "2026-01-03"]
    first, second = (decay for _, _, decay in row["returns"])
    assert 0 < first < second < 1, "it fades more slowly after the first return"


def test_lanes_of_a_run_hold_its_turns_atoms_and_who_evicted_whom(full: str) -> None:
    lanes = next(one for one in data_of(full)["sessions"] if one["kind"] == "run")["lanes"]
    atoms = [dict(zip(lanes["atoms"]["columns"], mark, strict=True)) for mark in lanes["atoms"]["marks"]]
    assert [turn[1] for turn in lanes["turns"]["marks"]] == [1, 2, 3, 4, 5]
    assert [(atom["turn"], atom["status"], atom["ended_turn"]) for atom in atoms][:2] == [
        (1, "evicted", 4), (2, "evicted", 5)
    ]  # fmt: skip


def test_work_that_waits_and_what_the_model_cost_is_told(full: str) -> None:
    data = data_of(full)
    assert any("TimeoutError" in work["why"] for work in data["due"])
    assert sum(call["calls"] for call in data["calls"]) == 2
    assert sum(call["failed"] for call in data["calls"]) == 1


def test_an_empty_file_has_a_page_too(path: Path) -> None:
    Memory(path, embedder=None).close()
    data = data_of(page_of(path))
    assert (data["rows"], data["sessions"]) == ({}, [])


# --- whose memory -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("owner", ["a", "ab", "A", "a%", "a_", "a/b"])
def test_a_page_shows_one_owner_and_nobody_else(path: Path, owner: str) -> None:
    with Memory(path, embedder=None, llm=ScriptedLLM([], default='{"memories": []}')) as memory:
        for name in ("a", "ab", "A", "a%", "a_", "a/b"):
            own = memory.in_namespace(name)
            own.remember(f"secret of [{name}]")
            own.chat("same session").store(f"said by [{name}]", "so be it")
            own.agent("same run").record_turn(TurnRecord(turn=1, reward=1.0, events=[f"event of [{name}]"]))
            own.chat("same session").retrieve(f"secret of [{name}]")
            own.forget(text="so be it")
    page = page_of(path, namespace=owner)
    assert set(re.findall(r"\[(a[^\]]{0,2}|A)\]", "".join(texts(data_of(page))))) == {owner}
    data = data_of(page)
    assert sum(call["calls"] for call in data["calls"]) == 1
    with Memory(path, owner, embedder=None, read_only=True) as memory:
        assert sum(row["rows"] for row in data["forgotten"]) == len(memory.list("tombstone")) > 0
    assert all(recall["query"] in (f"secret of [{owner}]",) for recall in data["recalls"])


def test_an_owner_that_is_not_there_is_an_error(path: Path) -> None:
    Memory(path, embedder=None).close()
    with pytest.raises(BadInput, match="'nobody'"):
        page_of(path, namespace="nobody")


def test_nothing_of_what_was_forgotten_is_in_the_page(path: Path) -> None:
    with Memory(path, embedder=None) as memory:
        memory.remember("the safe opens with 8261")
        memory.remember("the shop opens at nine")
        memory.forget(text="8261")
    page = page_of(path)
    assert "8261" not in page
    (told,) = data_of(page)["forgotten"]
    assert set(told) == {"kind", "day", "first_at", "last_at", "rows"} and told["kind"] == "memory"


# --- what stored text can do: nothing -----------------------------------------------------------------------------


def test_stored_text_cannot_leave_its_place(path: Path) -> None:
    with Memory(path, embedder=None) as memory:
        memory.remember(NASTY, tags=["</script><b>"])
        memory.chat("</title><script>").store(NASTY, NASTY)
        memory.agent(NASTY).record_turn(TurnRecord(turn=1, reward=1.0, events=[NASTY]))
    page = page_of(path)
    assert page.count("<script") == page.count("</script") == 2
    assert "<!--" not in page and "<img" not in page
    assert NASTY in texts(data_of(page)), "and it is shown as it was stored"


@given(
    st.recursive(
        st.text() | st.integers() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_embedded_json_reads_back_and_holds_no_markup(value: Any) -> None:
    written = embed_json(value)
    assert not set("<>&\u2028\u2029") & set(written)
    assert json.loads(written) == value


def test_half_an_emoji_is_shown_as_a_replacement() -> None:
    assert json.loads(embed_json(["a\ud83d"])) == ["a?"]


def test_only_the_pages_own_style_and_program_may_act(full: str) -> None:
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', full)
    assert policy and "default-src 'none'" in policy[1] and "unsafe" not in policy[1]
    for name, content in (
        ("script-src", re.search(r"<script>(.*?)</script>", full, re.DOTALL)),
        ("style-src", re.search(r"<style>(.*?)</style>", full, re.DOTALL)),
    ):
        assert content
        digest = base64.b64encode(hashlib.sha256(content[1].encode()).digest()).decode()
        assert f"{name} 'sha256-{digest}'" in policy[1]


def test_the_page_asks_nothing_of_anybody(full: str) -> None:
    code = full.replace("http://www.w3.org/2000/svg", "")
    code = code.replace(json.dumps(data_of(full)), "")
    assert not re.findall(r"https?://|\bsrc=|@import|url\(|fetch\(|XMLHttpRequest|WebSocket|localStorage", code)
    assert not re.findall(
        r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\(", code.replace("no\n// innerHTML", "")
    )


def test_an_infinity_written_by_hand_does_not_break_it(path: Path) -> None:
    with Memory(path, embedder=None) as memory:
        memory.agent("run").record_turn(TurnRecord(turn=1, reward=1.0))
        with memory._services.file.write() as tx:
            tx.execute("update turn set reward = 9e999")
    assert data_of(page_of(path))["sessions"][0]["lanes"]["turns"]["marks"][0][2] is None


# --- the file and the page ----------------------------------------------------------------------------------------


def test_the_file_is_only_read(path: Path) -> None:
    fill(path)
    before, beside = path.read_bytes(), set(path.parent.iterdir())
    path.chmod(0o400)
    os.utime(path, (1, 1))
    out = path.parent / "pages"
    out.mkdir()
    report(path, out / "page.html")
    assert path.read_bytes() == before
    assert set(path.parent.iterdir()) == {*beside, out}
    assert list(out.iterdir()) == [out / "page.html"]


def test_a_page_is_made_while_somebody_writes(path: Path) -> None:
    with Memory(path, embedder=None) as memory:
        memory.remember("written a moment ago")
        assert "written a moment ago" in texts(data_of(page_of(path)))


def test_an_earlier_page_is_replaced_and_nothing_else(path: Path) -> None:
    Memory(path, embedder=None).close()
    page_of(path)
    page_of(path)
    other = path.with_name("letter.html")
    other.write_text("dear reader")
    with pytest.raises(BadInput, match="no page of ours"):
        report(path, other)
    assert other.read_text() == "dear reader"
    report(path, other, overwrite=True)
    assert other.read_text().startswith("<!doctype html>")


@pytest.mark.parametrize("overwrite", [False, True])
def test_the_memory_itself_is_never_replaced(path: Path, overwrite: bool) -> None:
    Memory(path, embedder=None).close()
    before = path.read_bytes()
    with pytest.raises(BadInput, match="is the memory file itself"):
        report(path, path, overwrite=overwrite)
    assert path.read_bytes() == before


def test_what_is_no_memory_file_gives_no_page(tmp_path: Path) -> None:
    (tmp_path / "notes.db").write_text("no database")
    with pytest.raises(NotAMemoryFile):
        report(tmp_path / "notes.db", tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_a_file_too_large_for_a_page_shows_the_best_part(path: Path) -> None:
    with Memory(path, embedder=None) as memory, memory._services.file.write() as tx:
        # Each of these characters takes six bytes in the page: the worst case.
        rows = ((f"{n} " + "<" * 3000, n / 5000) for n in range(1, 5001))
        tx.executemany("insert into memory (text, importance) values (?, ?)", rows)
        tx.execute("insert into session (id, name, kind) values (9, 'long', 'run')")
        tx.executemany("insert into turn (session, turn, reward) values (9, ?, ?)", ((n, n) for n in range(1, 4001)))
    page = page_of(path)
    data = data_of(page)
    assert len(page.encode()) < 5_000_000
    assert data["known"]["memory"][0] == 5000, "the strongest first"
    assert data["totals"]["memory"] == 5000 > len(data["known"]["memory"])
    shown = data["rows"]["memory-5000"]
    assert (len(shown["text"]), shown["characters"]) == (TEXT, 3005), "what is cut says how long it is"
    marks = data["sessions"][0]["lanes"]["turns"]["marks"]
    assert (data["sessions"][0]["rows"], marks[-1][1]) == (4000, 4000)
    assert len(marks) < 4000, "the latest turns"


def test_the_command_writes_the_page(path: Path, shell: Shell) -> None:
    fill(path)
    told = shell.json("report", path, "-o", path.with_suffix(".html"), "-n", "other")
    assert told["rows"] == told["shown"] == 3
    assert path.with_suffix(".html").stat().st_size == told["bytes"]


# --- parts --------------------------------------------------------------------------------------------------------


@given(st.sets(st.integers(0, 60)))
def test_ranges_tell_exactly_the_ids(ids: set[int]) -> None:
    spans = ranges(sorted(ids))
    assert [id for first, last in spans for id in range(first, last + 1)] == sorted(ids)
    assert all(left[1] + 1 < right[0] for left, right in itertools.pairwise(spans))


def test_vectors_of_two_meanings_lie_apart_on_the_plane() -> None:
    near, far = [bytes([100, n, 0, 2]) for n in range(5)], [bytes([3, n, 100, 0]) for n in range(5)]
    places, share = plane(near + far)
    left, right = [x for x, _ in places[:5]], [x for x, _ in places[5:]]
    assert max(left) < min(right) or max(right) < min(left)
    assert 0.9 < share <= 1
    assert plane(near + far) == (places, share)


@pytest.mark.parametrize("vectors", [[b"\1\2"], [b"\1\2", b"\1\2"], [b"\0\0", b"\0\0", b"\1\1"], [b"\5", b"\7"]])
def test_degenerate_vectors_have_places(vectors: list[bytes]) -> None:
    places, share = plane(vectors)
    assert all(-1 <= value <= 1 for place in places for value in place)
    assert 0 <= share <= 1
