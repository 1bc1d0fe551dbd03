"""Search over a real file: filters, scopes, scripts, explanations."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from istar_lite import Memory, recall
from istar_lite.database import sqlite3
from istar_lite.errors import BadInput
from istar_lite.models import Hit, Results, Source
from istar_lite.testing import FixedClock, WordEmbedder

GARDEN = (
    "Tomatoes want six hours of sun", "Prune the roses in late winter", "The compost heap is behind the shed",
    "Slugs eat the lettuce at night", "Water the beans at the root", "The apple tree was grafted in spring",
    "Mulch keeps the soil moist", "Basil dies in the first frost", "Plant garlic in October",
    "The greenhouse glass is cracked", "Sow carrots thinly", "Lavender likes poor soil", "Tie up the raspberries",
    "Ladybirds eat greenfly", "The pond froze over", "Potatoes are chitting in the cellar", "Rhubarb needs forcing",
    "Cut the hedge before nesting", "Seed packets are in the blue tin", "The fig lost its leaves",
)  # fmt: skip


@pytest.fixture
def static(tmp_path: Path, clock: FixedClock) -> Iterator[Memory]:
    """A memory with the default embedder."""
    with Memory(tmp_path / "static.db", clock=clock) as opened:
        yield opened


def say(memory: Memory, *texts: str, session: str = "s", start: int = 0, **more: Any) -> None:
    """Messages of a conversation, a minute apart."""
    rows = [
        {"speaker": "Ann", "content": text, "session": session, "timestamp": 1_767_225_600 + 60 * (start + at), **more}
        for at, text in enumerate(texts)
    ]
    assert memory.import_conversation(rows, format="messages").messages == len(rows)


def texts(results: Results) -> list[str]:
    """What was found, best first."""
    return [hit.text for hit in results]


def with_floor(memory: Memory, query: str) -> Results:
    """What would go into a prompt."""
    return recall.search(memory._services, recall.make_request(memory.namespace, query, floor=True))


# --- the least ------------------------------------------------------------------------------------------------


def test_a_store_of_one_memory_finds_it_by_one_of_its_words(memory: Memory, static: Memory) -> None:
    for one in (memory, static):
        one.remember("The spare key hangs behind the clock")
        (hit,) = one.search("clock")
        assert hit.kind == "memory" and 0 < hit.score < 1


@pytest.mark.parametrize("query", ["", "  ", "\n", "?!", '"', "*", "--", "\U0001f600", "\u200b"])
def test_a_query_without_words_finds_nothing(static: Memory, query: str) -> None:
    static.remember("something")
    assert static.search(query).hits == () and static.search(query).mode == "empty"


def test_k_0_is_empty_and_negative_or_no_k_is_bad_input(memory: Memory) -> None:
    memory.remember("something")
    assert len(memory.search("something", k=0)) == 0
    for wrong in (-1, None, "many", 2.5):
        with pytest.raises(BadInput, match="k"):
            memory.search("something", k=wrong)  # type: ignore[arg-type]


def test_wrong_arguments_are_named(memory: Memory) -> None:
    for name, value in {"kinds": ["mesage"], "status": "gone", "min_score": 2, "since": "soon", "session": 5}.items():
        with pytest.raises(BadInput, match=name):
            memory.search("x", **{name: value})  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="query"):
        memory.search(None)  # type: ignore[arg-type]


def test_an_unknown_namespace_or_session_is_empty_not_an_error(memory: Memory) -> None:
    memory.remember("something")
    assert len(memory.in_namespace("nobody").search("something")) == 0
    assert len(memory.search("something", session="nowhere")) == 0
    assert "nowhere" in memory.search("something", session="nowhere").explain_missing("memory", 1)


def test_ties_are_stable_and_go_to_the_newer(memory: Memory) -> None:
    memory.remember_many([f"the same words {at}" for at in "abcdefgh"])
    first = texts(memory.search("same words"))
    assert first == texts(memory.search("same words")) == sorted(first, reverse=True)
    assert texts(memory.search("same words", k=3)) == first[:3]


# --- filters come before ranking ------------------------------------------------------------------------------


def test_a_filter_never_starves_the_result(tmp_path: Path, clock: FixedClock) -> None:
    with Memory(tmp_path / "many.db", embedder=WordEmbedder(), clock=clock) as memory:
        other = memory.in_namespace("B")
        other.remember_many([f"red apple pie number {at}" for at in range(200)])
        mine = memory.in_namespace("A")
        mine.remember("an apple of another kind", tags=["fruit"], occurred_at="2025-06-01T00:00:00Z")
        mine.remember_many([f"red apple pie for sale {at}" for at in range(200)])
        say(mine, "one red apple", session="small")
        assert len(other.search("red apple pie", k=5)) == 5
        assert [hit.session for hit in mine.search("red apple pie", k=5, session="small")] == ["small"]
        for choices in ({"tags": "fruit"}, {"since": "2025-05-01", "until": "2025-07-01"}):
            assert texts(mine.search("red apple pie", k=5, **choices)) == ["an apple of another kind"]  # type: ignore[arg-type]
        assert len(mine.search("red apple pie", k=5, kinds="message")) == 1


def test_rows_that_ended_do_not_take_the_places_of_live_ones(memory: Memory) -> None:
    memory.remember_many([f"the office is in street {at}" for at in range(300)])
    memory.db.execute("update memory set status = 'superseded' where id <> 7")
    memory.db.conn.commit()
    assert [hit.id for hit in memory.search("office street", k=5)] == [7]
    assert len(memory.search("office street", k=5, status="superseded")) == 5
    assert len(memory.search("office street", k=500, status="any")) == 300


def test_as_of_finds_what_held_on_that_day(memory: Memory, clock: FixedClock) -> None:
    old = memory.remember("The meeting is on Monday", occurred_at="2025-01-01T00:00:00Z")
    memory.supersede(old.id, "The meeting is on Friday", occurred_at="2025-03-01T00:00:00Z")
    assert texts(memory.search("meeting")) == ["The meeting is on Friday"]
    assert texts(memory.search("meeting", as_of="2025-02-01")) == ["The meeting is on Monday"]
    assert texts(memory.search("meeting", as_of="2024-02-01")) == []


def test_when_is_looked_for_by_the_questions_that_ask_it_whatever_was_asked_before(path: Path) -> None:
    texts = ["We repaired the roof last week", "We repaired the roof with Tom", "The roof is of slate"]

    def factors(*queries: str) -> list[dict[str, float]]:
        with Memory(path, embedder=None) as memory:
            if not memory.list("memory"):
                memory.remember_many(texts)
            for query in queries:
                results = memory.search(query)
            return [hit.explain["factors"] for hit in sorted(results, key=lambda hit: hit.text)]

    asked_at_once = factors("When did we repair the roof?")
    assert asked_at_once == factors("roof of slate", "When did we repair the roof?")
    assert any("time" in one for one in asked_at_once)


def test_a_missing_row_is_asked_for_by_kind_and_number(memory: Memory) -> None:
    results = memory.search("something")
    assert "there is no" in results.explain_missing("memory \ud83d", 1)
    with pytest.raises(BadInput, match="id"):
        results.explain_missing("memory", "1")  # type: ignore[arg-type]


def test_expired_memories_are_not_found(memory: Memory, clock: FixedClock) -> None:
    memory.remember("the code of the gate is 4711", ttl=60)
    assert len(memory.search("gate code")) == 1
    clock.advance(61)
    assert len(memory.search("gate code")) == 0
    assert "expired" in memory.search("gate code").explain_missing("memory", 1)


def test_all_tags_have_to_be_there(memory: Memory) -> None:
    memory.remember("blue house", tags=["a"])
    memory.remember("blue boat", tags=["a", "b"])
    assert texts(memory.search("blue", tags=["a", "b"])) == ["blue boat"]
    assert len(memory.search("blue", tags=["a"])) == 2
    assert len(memory.search("blue", tags=["'; drop table tag"])) == 0


# --- a scope is a world of its own ----------------------------------------------------------------------------


def test_other_namespaces_and_sessions_change_neither_order_nor_scores(tmp_path: Path, clock: FixedClock) -> None:
    def answers(memory: Memory, **choices: Any) -> list[tuple[str, float]]:
        return [
            (hit.text, hit.score)
            for query in ("roses in winter", "what eats the lettuce", "soil")
            for hit in memory.search(query, **choices)
        ]

    with Memory(tmp_path / "alone.db", clock=clock) as memory:
        say(memory, *GARDEN)
        alone = answers(memory)
    with Memory(tmp_path / "shared.db", clock=clock) as memory:
        for number in range(5):
            say(
                memory.in_namespace(f"n{number}"), *[f"{text} soil roses winter {at}" for at, text in enumerate(GARDEN)]
            )
        say(memory, *GARDEN)
        say(memory, *[f"lettuce and soil, lettuce and roses {at}" for at in range(50)], session="another")
        assert answers(memory, session="s") == alone
        assert answers(memory.in_namespace("n0")) != alone


def test_a_scope_in_memory_keeps_up_with_every_kind_of_change(tmp_path: Path, clock: FixedClock) -> None:
    path = tmp_path / "busy.db"
    with Memory(path, clock=clock) as memory:
        say(memory, *GARDEN)
        memory.search("garlic")

        def agrees() -> None:
            with Memory(path, clock=clock) as fresh:
                for query in ("garlic in October", "what eats leaves", "glass", "moved"):
                    mine = [(hit.kind, hit.id, round(hit.score, 6)) for hit in memory.search(query, k=50)]
                    assert mine == [(hit.kind, hit.id, round(hit.score, 6)) for hit in fresh.search(query, k=50)]

        memory.remember("Garlic was moved to the cold frame")
        agrees()
        shell = sqlite3.connect(path)
        shell.execute("update message set content = 'The glass was moved' where id = 3")
        shell.commit()
        agrees()
        shell.execute("delete from message where id in (5, 9)")
        shell.execute("insert into message (session, speaker, content) values (1, 'Bob', 'Garlic again, moved')")
        shell.commit()
        shell.close()
        agrees()
        with Memory(path, clock=clock) as other:
            say(other, "The glass was mended", "Moved by Bob", start=100)
        agrees()
        memory.forget(kind="message", id=9)
        memory.forget(text="glass")
        agrees()
        assert not [hit for hit in memory.search("glass", k=50) if "glass" in hit.text]


def test_words_and_vectors_of_a_small_session_do_not_read_the_file(tmp_path: Path, clock: FixedClock) -> None:
    """Counted in what the scope holds, since time would depend on the machine."""
    with Memory(tmp_path / "large.db", embedder=None, clock=clock) as memory:
        for number in range(20):
            say(memory, *[f"{text} {at}" for at, text in enumerate(GARDEN * 5)], session=f"s{number}")
        memory.search("soil", session="s3")
        kept = memory._services.scopes
        assert kept is not None and [len(one.scope) for one in kept._kept.values()] == [100]


# --- scripts and sizes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "query",
    ["pre-edit", "don't", '"', "C++", "foo(bar", "a:b", "*", "{a b}", "^x", "GB/s", "--", "'x; DROP TABLE t'",
     "\U0001f600", "x\n" * 5000, '{"key": [1, 2], "and": "or NOT near("}', "NEAR(a b)", "a AND", "col:text", "\x00"],
)  # fmt: skip
def test_user_text_is_no_query_language(static: Memory, query: str) -> None:
    static.remember("a pre-edit hook; don't run foo(bar) at 3 GB/s in C++")
    assert isinstance(static.search(query), Results)
    assert static.search("pre-edit")[0].explain["signals"]["words"]["value"] > 0


def test_parts_of_words_without_spaces_are_found(memory: Memory) -> None:
    stored = (
        "我昨天去了东京塔旁边的咖啡馆",
        "カタカナとひらがなで書いた手紙です",
        "서울에서 기차를 탔습니다",
        "我用Python写爬虫",
    )
    for text in (*stored, "Plain English about coffee"):
        memory.remember(text)
    for query, text in (
        ("东京", stored[0]), ("咖啡馆", stored[0]), ("塔", stored[0]), ("ひらがな", stored[1]), ("手紙", stored[1]),
        ("기차", stored[2]), ("서울", stored[2]), ("Python", stored[3]), ("爬虫", stored[3]),
    ):  # fmt: skip
        assert memory.search(query)[0].text == text, query
    assert texts(memory.search("coffee")) == ["Plain English about coffee"]


@pytest.mark.parametrize(
    ("stored", "asked"),
    [("ein schönes Café", "schones cafe"), ("カタカナの本", "ｶﾀｶﾅ"), ("ｶﾞｲﾄﾞの本", "ガイド"), ("ＡＢＣ株式会社", "ABC"),
     ("about ABC", "ＡＢＣ"), ("한국어 책", "한국어"), ("ガイドの本", "ガイド"), ("豈有此理", "豈有")],
)  # fmt: skip
@pytest.mark.parametrize("form", ["NFC", "NFD"])
@pytest.mark.parametrize("asked_form", ["NFC", "NFD"])
def test_forms_that_unicode_counts_as_the_same_find_each_other(
    memory: Memory, stored: str, asked: str, form: str, asked_form: str
) -> None:
    memory.remember(unicodedata.normalize(form, stored))
    assert len(memory.search(unicodedata.normalize(asked_form, asked))) == 1


def test_the_last_line_of_a_megabyte_is_found(static: Memory) -> None:
    line = "Day {}: the harbour was quiet, the ships lay at anchor and the crew mended nets.\n"
    static.remember("".join(line.format(at) for at in range(12_000)) + "The vault opens with the number 7381.")
    static.remember_many(GARDEN)
    assert static.search("number of the vault")[0].text.endswith("7381.")


# --- nothing relevant -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("embedder", ["static", None])
@pytest.mark.parametrize(
    "prompt", ["QQQQ zzxy", "how do I rotate TLS keys", "ok", "Hello, good morning!", "thanks a lot", "1 + 1", "+++"]
)
def test_a_prompt_that_nothing_fits_gets_nothing(tmp_path: Path, clock: FixedClock, embedder: Any, prompt: str) -> None:
    with Memory(tmp_path / "garden.db", embedder=embedder, clock=clock) as memory:
        memory.remember_many(GARDEN)
        held = with_floor(memory, prompt)
        assert held.hits == ()
        shown = memory.search(prompt)
        assert held.filtered == len(shown)
        assert all(hit.score < 0.5 for hit in shown)


@pytest.mark.parametrize("embedder", ["static", None])
@pytest.mark.parametrize(
    ("prompt", "text"), [("What eats the lettuce?", GARDEN[3]), ("when should I plant garlic", GARDEN[8])]
)
def test_a_prompt_that_something_fits_gets_it(
    tmp_path: Path, clock: FixedClock, embedder: Any, prompt: str, text: str
) -> None:
    with Memory(tmp_path / "garden.db", embedder=embedder, clock=clock) as memory:
        memory.remember_many(GARDEN)
        assert with_floor(memory, prompt)[0].text == text


def test_min_score_holds_back_and_counts(memory: Memory) -> None:
    memory.remember_many(GARDEN)
    everything = memory.search("soil")
    least = everything[0].score
    cut = memory.search("soil", min_score=least)
    assert len(cut) + cut.filtered == len(everything) and all(hit.score >= least for hit in cut)
    assert "min_score" in memory.search("soil", min_score=0.99).explain_missing("memory", everything[0].id)


# --- results --------------------------------------------------------------------------------------------------


def test_an_explanation_adds_up_exactly(static: Memory) -> None:
    say(static, "Where is the Louvre?", "In Paris, we went there last week", "Lovely", "Next stop is Rome")
    say(static, *GARDEN, session="garden")
    for hit in static.search("When did Ann go to Paris in January 2026?", k=30):
        told = hit.explain
        total = sum(signal["part"] for signal in told["signals"].values()) + sum(told["shares"].values())
        for factor in told["factors"].values():
            total *= factor["factor"]
            assert factor["why"]
        assert total == pytest.approx(told["raw"], rel=1e-12)
        assert told["raw"] / (told["raw"] + 10.0) == hit.score == told["score"]
        for signal in told["signals"].values():
            assert signal["part"] == signal["z"] * signal["weight"]


def test_a_message_brings_those_beside_it(memory: Memory) -> None:
    say(memory, "first", "second thing", "third")
    (hit,) = memory.search("thing", k=1)
    assert [source.text for source in hit.sources] == ["first", "third"]
    assert memory.search("thing", k=1, sources=False)[0].sources == ()


def test_a_hit_that_nothing_validated_is_the_one_that_validation_makes(memory: Memory) -> None:
    say(memory, "the roses bloom", "in June they do", session="talk")
    (hit, *_) = memory.search("roses")
    assert hit.sources
    assert Hit(**{name: getattr(hit, name) for name in Hit.model_fields}) == hit
    for source in hit.sources:
        assert Source(**{name: getattr(source, name) for name in Source.model_fields}) == source


def test_a_higher_layer_brings_the_messages_it_rests_on(memory: Memory) -> None:
    say(memory, "the cat is called Tom", "and the dog Rex")
    item = memory.remember("The pets are Tom and Rex")
    memory.db.execute(
        "insert into source (kind, row, source_kind, source_row)"
        " values ('memory', ?, 'message', 2), ('memory', ?, 'message', 1)",
        (item.id, item.id),
    )
    memory.db.conn.commit()
    (hit,) = memory.search("pets", kinds="memory")
    assert [source.text for source in hit.sources] == ["the cat is called Tom", "and the dog Rex"]


def test_what_is_missing_is_explained_step_by_step(memory: Memory) -> None:
    memory.remember("red door", tags=["x"])
    memory.in_namespace("other").remember("red roof")
    say(memory, "red wall", "red floor")
    for choices, kind, id, sentence in (
        ({}, "memory", 99, "no memory 99"),
        ({}, "memory", 2, "another namespace"),
        ({"session": "s"}, "memory", 1, "another session"),
        ({"kinds": "message"}, "memory", 1, "kind"),
        ({"tags": "y"}, "memory", 1, "tags"),
        ({"since": "2027-01-01"}, "memory", 1, "since"),
        ({"until": "2020-01-01"}, "memory", 1, "until"),
        ({"as_of": "2020-01-01"}, "memory", 1, "as_of"),
        ({"status": "merged"}, "memory", 1, "status"),
        ({"k": 1}, "memory", 1, "ranks"),
        ({}, "memory", 1, "among the hits"),
    ):
        results = memory.search("red wall", **choices)  # type: ignore[arg-type]
        assert sentence in results.explain_missing(kind, id), (choices, results.explain_missing(kind, id))


def test_what_the_caller_knows_beforehand_is_a_factor(memory: Memory) -> None:
    memory.remember_many(["red door", "red roof"])
    request = recall.make_request(
        "default", "red", prior=lambda rows: [2.0 if row == ("memory", 1) else 1.0 for row in rows]
    )
    first, second = recall.search(memory._services, request)
    assert first.id == 1 and first.explain["raw"] == pytest.approx(2 * second.explain["raw"])


def test_a_read_only_file_is_searched_and_left_as_it_is(tmp_path: Path, clock: FixedClock) -> None:
    path = tmp_path / "there.db"
    with Memory(path, clock=clock) as memory:
        memory.remember_many(GARDEN)
    before = path.read_bytes()
    with Memory(path, read_only=True, clock=clock) as memory:
        assert memory.search("garlic")[0].text == GARDEN[8] and memory.search("garlic").mode == "hybrid"
    assert path.read_bytes() == before


def test_one_who_reads_an_older_state_is_given_as_many_hits(tmp_path: Path, clock: FixedClock) -> None:
    from threading import Thread

    with Memory(tmp_path / "a.db", embedder=None, clock=clock) as memory:
        memory.remember_many([f"a long and old fact about roses, number {at}" for at in range(5)])
        with memory._services.file.reading() as older:
            assert older.execute("select count(*) from document").fetchone()[0] == 5

            def write_and_search() -> None:
                memory.remember_many([f"roses {at}" for at in range(5)])
                assert all(hit.id > 5 for hit in memory.search("roses", k=5))

            other = Thread(target=write_and_search)
            other.start()
            other.join()
            assert {hit.id for hit in memory.search("roses", k=5)} == {1, 2, 3, 4, 5}


def test_threads_search_while_another_writes(tmp_path: Path, clock: FixedClock) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with Memory(tmp_path / "threads.db", clock=clock) as memory, ThreadPoolExecutor(4) as pool:
        memory.remember_many(GARDEN)
        searches = [pool.submit(memory.search, "garlic in October", k=5) for _ in range(40)]
        for number in range(20):
            memory.remember(f"note {number} on garlic")
        assert all(len(search.result()) == 5 for search in searches)
        assert memory.check() == []


def test_matrix_numpy_and_sqlite_vec_give_the_same_order(tmp_path: Path, clock: FixedClock) -> None:
    import numpy as np

    from istar_lite.driver import load_vectors
    from istar_lite.recall import vectors
    from istar_lite.recall.loading import Place, Scopes

    def told(compared: vectors.Compared) -> dict[int, float]:
        best: dict[int, float] = {}
        for ids, cosines in compared:
            for id, cosine in zip(ids.tolist(), cosines.tolist(), strict=True):
                best[id] = max(best.get(id, -1.0), cosine)
        return best

    with Memory(tmp_path / "vectors.db", clock=clock) as memory:
        memory.remember_many([*GARDEN, "A long text. " + "It says much about soil and roses. " * 200])
        memory.status()
        services = memory._services
        connection = sqlite3.connect(tmp_path / "vectors.db")
        if not load_vectors(connection):
            pytest.skip("this Python cannot load sqlite-vec")
        ((embedder, model),) = services.embedding.usable(services.file.reader())
        query = services.embedding.query(embedder, "what do roses need", model.dimension)
        assert query is not None
        scope, _ = Scopes(patience=0).get(services.file.reader(), Place(1), [model])
        ids = scope.ids.tolist()
        matrix = dict(zip(ids, vectors.by_matrix(scope.vectors[model.id], query, len(scope)).tolist(), strict=True))
        numpy = told(vectors.by_numpy(connection, Place(1), model, query))
        extension = told(vectors.by_extension(connection, Place(1), model, query))
        connection.close()

    def order(cosines: dict[int, float]) -> list[int]:
        return sorted(cosines, key=lambda id: -cosines[id])

    assert order(matrix) == order(numpy) == order(extension)
    assert np.allclose([matrix[id] for id in ids], [numpy[id] for id in ids], atol=1e-5)
    assert np.allclose([matrix[id] for id in ids], [extension[id] for id in ids], atol=1e-5)
