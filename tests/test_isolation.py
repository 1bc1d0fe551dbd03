"""R24, R25: whose memory it is, is an exact name; and what a caller passes in never becomes SQL."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from istar_lite import Atom, BadInput, Memory, TurnRecord
from istar_lite.testing import FixedClock, ScriptedLLM, WordEmbedder

# Siblings by prefix, by pattern, by case, by separator, by Unicode form.
OWNERS = ("a", "ab", "a%", "a_", "A", "a/b", "a ", "*", "'", 'a"; --', "é", "e\u0301", "1", "default")
SECRET = "the safe opens with the word {} marmalade"


def word(at: int) -> str:
    """A word of its own for each owner, without a digit or prefix that others share."""
    return "code" + "abcdefghijklmnop"[at] * 3


class Quotes:
    """An extractor whose atoms hold the text of the turn."""

    def extract(self, window: Any, existing: Any) -> list[Atom]:
        return [Atom(turn=turn.turn, type="quote", content=turn.text) for turn in window[window.context :]]


def fill(memory: Memory, at: int) -> None:
    """Something of every kind, all of it holding the owner's word; the same names of sessions under each owner."""
    secret = SECRET.format(word(at))
    memory.remember(secret, tags=["shared tag"], key="shared key")
    memory.import_conversation([{"role": "user", "content": secret, "id": "shared id"}], session="shared")
    run = memory.agent("shared", atom_extractor=Quotes(), extract_every=1, episode_every=1)
    run.record_turn(TurnRecord(turn=1, reward=float(at), text=secret, events=["began"]))
    run.extract_atoms(1)
    run.update_episode(1)
    run.summarise_run("shared profile")
    memory.chat("shared").store(secret, "understood")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Any:
    clock = FixedClock()
    with Memory(
        tmp_path_factory.mktemp("shared") / "a.db", embedder=WordEmbedder(), clock=clock, llm=model()
    ) as memory:
        for at, owner in enumerate(OWNERS):
            fill(memory.in_namespace(owner), at)
            clock.advance(60)
        yield memory


def model() -> ScriptedLLM:
    """Answers that quote the secret of whoever asks."""

    def quoted(shape: str) -> Callable[[Any], str]:
        def answer(messages: Any) -> str:
            found = next(name for at in range(len(OWNERS)) if (name := word(at)) in messages[-1]["content"])
            return shape.replace("WORD", SECRET.format(found))

        return answer

    extracted = json.dumps({"memories": [{"text": "WORD again", "importance": 0.5, "emotion": "neutral"}]})
    return ScriptedLLM(
        {
            "episode": quoted("[OPENING | T1-T1]\nAn opening in which WORD was told and nothing else happened."),
            "retro": quoted("[RUN RETROSPECTIVE]\nRoot cause: WORD was known.\nIF somebody asks THEN say nothing (T1)"),
            "extract": quoted(extracted),
        }
    )


def others(at: int) -> list[str]:
    return [word(other) for other in range(len(OWNERS)) if other != at]


@pytest.mark.parametrize("at", range(len(OWNERS)), ids=[repr(owner) for owner in OWNERS])
def test_each_owner_sees_its_own_and_nothing_else(shared: Memory, at: int) -> None:
    memory = shared.in_namespace(OWNERS[at])
    run = memory.agent("shared")
    seen = {
        "search": [hit.to_dict() for hit in memory.search("which word opens the safe? marmalade", k=100)],
        "search by session": [hit.to_dict() for hit in memory.search("safe marmalade", k=100, session="shared")],
        "search by tag": [hit.to_dict() for hit in memory.search("safe marmalade", k=100, tags=["shared tag"])],
        "lists": [[row.to_dict() for row in memory.list(kind)] for kind in ("memory", "message", "turn", "atom")],
        "higher": [[row.to_dict() for row in memory.list(kind)] for kind in ("episode", "profile", "exchange")],
        "context": str(memory.context("safe marmalade", budget_tokens=5_000, touch=False)),
        "retrieve": memory.chat("shared").retrieve("which word opens the safe? marmalade", touch=False).to_dict(),
        "block": run.memory_block(count=False),
        "notes": memory.prior_run_notes("shared profile", last=99),
        "sessions": memory.sessions(),
    }
    for door, what in seen.items():
        text = json.dumps(what, default=str)
        assert not [name for name in others(at) if name in text], f"{door} shows another's"
        if door != "sessions":
            assert word(at) in text, f"{door} does not show one's own"


def test_counts_are_of_one_owner(shared: Memory) -> None:
    counts = {owner: shared.in_namespace(owner).stats()["kinds"] for owner in OWNERS}
    assert len({json.dumps(count) for count in counts.values()}) == 1
    assert counts["a"]["memory"] == 2 and counts["a"]["turn"] == 1
    assert shared.in_namespace("nobody").stats()["kinds"]["memory"] == 0
    assert shared.in_namespace("a").status().calls == 3


def test_another_owners_rows_do_not_change_scores(tmp_path: Path) -> None:
    texts = ["green tea in the morning", "black coffee at noon", "a tea pot of iron"]
    with (
        Memory(tmp_path / "one.db", clock=FixedClock()) as alone,
        Memory(tmp_path / "two.db", clock=FixedClock()) as full,
    ):
        for text in texts:
            alone.in_namespace("a").remember(text)
            full.in_namespace("a").remember(text)
            full.in_namespace("ab").remember_many([f"{text} {n} tea tea" for n in range(30)])
        one, two = (m.in_namespace("a").search("tea in the morning") for m in (alone, full))
        assert [(hit.text, round(hit.score, 9)) for hit in one] == [(hit.text, round(hit.score, 9)) for hit in two]


@pytest.mark.parametrize("owner", ["a", "a%", "a_"])
def test_to_forget_everything_of_one_owner_leaves_the_others(tmp_path: Path, owner: str) -> None:
    with Memory(tmp_path / "a.db", embedder=None, clock=FixedClock(), llm=model()) as memory:
        for at, name in enumerate(OWNERS):
            fill(memory.in_namespace(name), at)
        before = {name: memory.in_namespace(name).stats()["kinds"] for name in OWNERS if name != owner}
        memory.in_namespace(owner).forget(everything=True)
        assert {name: memory.in_namespace(name).stats()["kinds"] for name in OWNERS if name != owner} == before
        assert not any(memory.in_namespace(owner).stats()["kinds"].values())
        assert memory.check() == []


def test_one_owners_row_cannot_be_reached_by_its_id_from_another(shared: Memory) -> None:
    theirs = shared.in_namespace("ab").list("memory")[0].id
    memory = shared.in_namespace("a")
    assert memory.get("memory", theirs) is None
    assert memory.forget(id=theirs).total == 0
    with pytest.raises(BadInput):
        memory.supersede(theirs, "something else")
    assert shared.in_namespace("ab").get("memory", theirs).text.startswith("the safe")  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["", " ", "\u200b", None, 1, b"a", ["a"], True])
def test_what_is_no_name_is_refused(path: Path, memory: Memory, name: Any) -> None:
    with pytest.raises(BadInput) as error:
        memory.in_namespace(name)
    assert error.value.field == "namespace"
    with pytest.raises(BadInput):
        Memory(path, name, embedder=None)
    with pytest.raises(BadInput):
        memory.agent(name)
    with pytest.raises(BadInput):
        memory.chat(name)
    assert memory.namespaces() == ["default"]


# --- R25 ------------------------------------------------------------------------------------------------------

NASTY = (
    "x') OR 1=1 --",
    "'; drop table memory; --",
    'a"b',
    "a.b",
    "a[0]",
    "$gt; DROP",
    "name; DELETE FROM turn",
    "1 OR 1",
    "%",
    "_",
    "\\",
    "company's",
    "/* */",
    "?1",
    ":namespace",
    "{}",
    "東京",
)


@pytest.fixture
def told(memory: Memory) -> Memory:
    memory.remember("tea is green", tags=["drink"])
    memory.in_namespace("other").remember("tea is black", tags=["drink"])
    memory.agent("run").record_turn(TurnRecord(turn=1, reward=1.0, text="tea was sold"))
    return memory


def schema(memory: Memory) -> list[Any]:
    return memory.db.execute("select type, name, sql from sqlite_master order by 1, 2").fetchall()


@pytest.mark.parametrize("nasty", NASTY)
def test_a_name_is_a_name_whatever_it_looks_like(told: Memory, nasty: str) -> None:
    before = schema(told)
    assert told.search("tea", session=nasty).hits == ()
    assert told.search("tea", session=[nasty, "run"])[0].text == "tea was sold"
    assert told.search("tea", tags=[nasty]).hits == ()
    assert told.prior_run_notes(nasty) is None
    assert told.forget(tag=nasty).total == 0
    assert told.forget(session=nasty).total == 0
    told.remember(nasty, tags=[nasty], key=nasty)
    told.import_conversation([{"content": nasty, "speaker": nasty, "id": nasty, "session": nasty}])
    told.agent(nasty).record_turn(TurnRecord(turn=1, extra={nasty: nasty}, events=[nasty], reward_unit=nasty))
    assert [hit.text for hit in told.search("tea", kinds=["memory"], tags=["drink"])] == ["tea is green"]
    assert told.db.execute("select text from memory where key = ?", [nasty]).fetchone() == (nasty,)
    assert json.loads(told.db.execute("select extra from turn order by id desc").fetchone()[0]) == {nasty: nasty}
    assert told.forget(tag=nasty).counts["memory"] == 1
    assert schema(told) == before
    assert told.check() == []


@pytest.mark.parametrize("nasty", NASTY)
def test_what_must_be_one_of_a_few_is_refused_by_name(told: Memory, nasty: str) -> None:
    for field, call in {
        "kinds": lambda: told.search("tea", kinds=[nasty]),
        "status": lambda: told.search("tea", status=nasty),
        "kind": lambda: told.list(nasty),
        "kind ": lambda: told.get(nasty, 1),
        "k": lambda: told.search("tea", k=nasty),  # type: ignore[arg-type]
        "since": lambda: told.search("tea", since=nasty),
        "limit": lambda: told.list("memory", limit=nasty),  # type: ignore[arg-type]
        "after": lambda: told.list("memory", after=nasty),  # type: ignore[arg-type]
        "emotion": lambda: told.remember("x", emotion=nasty),
        "id": lambda: told.forget(id=nasty),  # type: ignore[arg-type]
        "before": lambda: told.forget(before=nasty),
        "format": lambda: told.import_conversation([], format=nasty),
    }.items():
        with pytest.raises(BadInput) as error:
            call()
        assert error.value.field.split("[")[0] == field.strip(), field
    assert told.stats()["kinds"]["memory"] == 1


@pytest.mark.parametrize("wild", ["%", "_", "te_", "t%a", "*", "TE%"])
def test_forget_by_text_means_the_text_and_no_pattern(told: Memory, wild: str) -> None:
    assert told.forget(text=wild).total == 0
    told.remember(f"sold at 5{wild}7")
    assert told.forget(text=f"5{wild}7").counts["memory"] == 1


def test_an_apostrophe_is_just_text(told: Memory) -> None:
    told.remember("the company's port is 22")
    assert told.search("company's port")[0].text == "the company's port is 22"
