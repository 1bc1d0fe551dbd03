"""Vectors: who makes them, what the file knows of it, what happens when the embedder fails or is another."""

from __future__ import annotations

import subprocess
import sys
import types
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from istar_lite import Memory
from istar_lite.database import warn_once
from istar_lite.embedders import (
    EmbedderUnavailable,
    FastEmbedder,
    StaticEmbedder,
    _Pieces,
    _wheel_folder,
    adapt,
)
from istar_lite.embedding import PASSAGE, passages, quantise, scale_for
from istar_lite.errors import BadInput
from istar_lite.testing import FixedClock, WordEmbedder

FACTS = ("the cat sleeps on the sofa", "trains leave from platform nine", "rent is due on the first")


@pytest.fixture(autouse=True)
def fresh_warnings() -> None:
    """Warnings that a process is told once are told again in each test."""
    warn_once.cache_clear()


@pytest.fixture
def opened(path: Path, clock: FixedClock) -> Any:
    """Opens the memory of the test with an embedder; all are closed in the end."""
    memories: list[Memory] = []

    def open_memory(embedder: Any, **choices: Any) -> Memory:
        for memory in memories:
            memory.close()
        memories.append(Memory(path, embedder=embedder, clock=clock, **choices))
        return memories[-1]

    yield open_memory
    for memory in memories:
        memory.close()


def vectors_of(memory: Memory) -> list[tuple[str, int, bytes]]:
    """Model, document and blob of all vectors in the file."""
    return [
        tuple(row)
        for row in memory.db.execute(
            "select name, document, vector from embedding join embedding_model on embedding_model.id = model"
            " order by name, document, part"
        ).fetchall()
    ]


class Unsure:
    """An embedder that fails at its first `failures` calls."""

    def __init__(self, failures: int, error: Exception | None = None) -> None:
        self.inner = WordEmbedder()
        self.model_id = self.inner.model_id
        self.dimension = self.inner.dimension
        self.left = failures
        self.calls = 0
        self.error = error or OSError("the model file is gone")

    def embed(self, texts: Sequence[str]) -> Any:
        self.calls += 1
        if self.left > 0:
            self.left -= 1
            raise self.error
        return self.inner.embed(texts)


class Fixed:
    """An embedder that gives what it is told."""

    def __init__(self, give: Callable[[Sequence[str]], Any], model_id: str = "test/fixed", dimension: int = 4) -> None:
        self.model_id = model_id
        self.dimension = dimension
        self.embed = give


# --- the static table -----------------------------------------------------------------------------------------


def test_pieces_are_those_of_the_tokenizer_that_the_table_was_made_with() -> None:
    tokenizers = pytest.importorskip("tokenizers")
    file = _wheel_folder() / "tokenizers" / "l2_supercat_tokenizer_config.json"
    theirs, mine = tokenizers.Tokenizer.from_file(str(file)), _Pieces(file)
    texts = [*FACTS, "Straße café ñandú 北京 日本語 \U0001f600", "foo_bar(baz[1]) == 3.14e-7", "don't", "ok!!!", "ÅÄÖ"]
    for text in texts:
        assert mine.ids(text) == theirs.encode(text, add_special_tokens=False).ids


def test_static_vectors_are_unit_and_alike_for_like_texts() -> None:
    embedder = StaticEmbedder()
    dog, puppy, tax = embedder.embed(["my dog barks", "a puppy that is barking", "the tax form is late"])
    assert dog.shape == (256,) and dog.dtype == np.float32
    assert np.linalg.norm(dog) == pytest.approx(1)
    assert dog @ puppy > dog @ tax + 0.2
    assert not embedder.embed([" \n"]).any()


def test_opening_and_writing_read_no_model_and_import_neither_numpy_nor_fastembed(path: Path) -> None:
    script = (
        "import sys; from istar_lite import Memory\n"
        f"m = Memory({str(path)!r}); m.remember('a fact'); \n"
        "print({'numpy', 'fastembed', 'tokenizers', 'wordllama', 'sqlite_vec'} & set(sys.modules))"
    )
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "set()"


# --- passages and int8 ----------------------------------------------------------------------------------------


@given(st.text(alphabet=st.sampled_from("ab. \n。"), max_size=6000))
def test_passages_cover_a_text_exactly(text: str) -> None:
    parts = passages(text)
    assert "".join(text[start : start + length] for start, length in parts) == text
    assert all(0 < length <= PASSAGE for _, length in parts) or not text


@given(st.lists(st.floats(-1, 1), min_size=32, max_size=32), st.floats(0.01, 1000))
def test_int8_keeps_the_direction_whatever_the_length(values: list[float], length: float) -> None:
    vector = np.asarray(values, np.float32)
    size = float(np.linalg.norm(vector))
    if size < 0.1:
        return
    (blob,) = quantise(vector[None] / size * length, scale_for(32))
    steps = np.frombuffer(blob, np.int8).astype(np.float32)
    assert steps @ vector / (np.linalg.norm(steps) * size) > 0.999


def test_zero_nan_and_infinite_vectors_are_no_vectors() -> None:
    rows = np.asarray([[0, 0], [np.nan, 1], [np.inf, 1], [3, 4]], np.float32)
    assert [len(blob) for blob in quantise(rows, scale_for(2))] == [0, 0, 0, 2]


# --- the file's models ----------------------------------------------------------------------------------------


def test_the_file_records_model_and_dimension(opened: Any) -> None:
    memory = opened(WordEmbedder(32))
    memory.remember_many(FACTS)
    assert memory.search("cat").mode == "hybrid"
    row = memory.db.execute("select name, dimension from embedding_model").fetchone()
    assert tuple(row) == ("test/words-32", 32)
    assert [len(blob) for _, _, blob in vectors_of(memory)] == [32, 32, 32]
    assert memory.status().pending_vectors == 0


@pytest.mark.parametrize("other", [WordEmbedder(48), Fixed(lambda texts: np.ones((len(texts), 32)), "test/other", 32)])
def test_another_embedder_is_noticed_words_go_on_and_nothing_is_dropped(opened: Any, other: Any) -> None:
    memory = opened(WordEmbedder(32))
    memory.remember_many(FACTS)
    memory.search("cat")
    before = vectors_of(memory)
    memory = opened(other)
    with pytest.warns(UserWarning, match=r"test/words-32 \(32 dimensions\).*reembed"):
        found = memory.search("cat")
    assert found.mode == "words" and found[0].text == FACTS[0]
    memory.remember("a dog barks outside")
    assert memory.search("dog")[0].text == "a dog barks outside"
    assert vectors_of(memory) == before
    assert memory.status().pending_vectors == 4
    memory = opened(WordEmbedder(32))
    assert memory.search("cat").mode == "hybrid"
    assert memory.status().pending_vectors == 0


def test_no_embedder_finds_by_words_and_warns_of_nothing(opened: Any) -> None:
    memory = opened(WordEmbedder(32))
    memory.remember_many(FACTS)
    memory.search("cat")
    memory = opened(None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert memory.search("cat").mode == "words"


def test_reembed_rebuilds_and_the_old_vectors_go_last(opened: Any) -> None:
    memory = opened(WordEmbedder(32))
    memory.remember_many(FACTS)
    memory.search("cat")
    steps: list[tuple[int, int]] = []
    assert memory.reembed(WordEmbedder(48), on_progress=lambda done, total: steps.append((done, total))) == 3
    assert steps[-1] == (3, 3)
    assert {name for name, _, _ in vectors_of(memory)} == {"test/words-48"}
    assert memory.search("cat").mode == "hybrid"


def test_an_interrupted_reembed_loses_nothing_and_goes_on(opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("istar_lite.embedding.BATCH", 2)
    memory = opened(WordEmbedder(32))
    memory.remember_many([f"{fact} {number}" for fact in FACTS for number in range(3)])
    memory.search("cat")
    old = vectors_of(memory)
    calls = 0

    def breaks(texts: Sequence[str]) -> Any:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise RuntimeError("out of memory")
        return WordEmbedder(48).embed(texts)

    with pytest.raises(EmbedderUnavailable, match="out of memory"):
        memory.reembed(Fixed(breaks, "test/words-48", 48))
    assert [row for row in vectors_of(memory) if row[0] == "test/words-32"] == old
    assert memory.search("cat").mode == "hybrid"
    done = len(vectors_of(memory)) - len(old)
    assert done >= 2
    assert memory.reembed(WordEmbedder(48)) == 9 - done
    assert [name for name, _, _ in vectors_of(memory)] == ["test/words-48"] * 9


# --- failing embedders ----------------------------------------------------------------------------------------


def test_a_failing_embedder_leaves_documents_pending_and_later_they_are_done(opened: Any) -> None:
    memory = opened(Unsure(1))
    memory.remember_many(FACTS)
    with pytest.warns(UserWarning, match="the model file is gone"):
        assert memory.search("cat")[0].text == FACTS[0]
    assert memory.search("cat").mode == "hybrid"
    assert (memory.status().pending_vectors, memory.status().last_error) == (0, None)


def test_an_embedder_that_keeps_failing_is_not_asked_at_every_search(opened: Any) -> None:
    embedder = Unsure(100, ValueError("bad weights"))
    memory = opened(embedder)
    memory.remember_many(FACTS)
    with pytest.warns(UserWarning, match="bad weights"):
        for _ in range(10):
            assert memory.search("cat").mode == "words"
    assert embedder.calls == 3
    assert memory.status().pending_vectors == 3
    assert "bad weights" in memory.status().last_error


@pytest.mark.parametrize(
    "give",
    [
        lambda texts: np.ones((len(texts), 5)),
        lambda texts: np.ones(4),
        lambda texts: [[1.0, 2.0]] * (len(texts) + 1),
        lambda texts: [["a"]],
        lambda texts: None,
    ],
)
def test_vectors_of_a_wrong_shape_are_refused_and_words_find(opened: Any, give: Any) -> None:
    memory = opened(Fixed(give))
    memory.remember_many(FACTS)
    with pytest.warns(UserWarning, match="test/fixed"):
        assert memory.search("cat")[0].text == FACTS[0]
    assert vectors_of(memory) == []
    assert memory.status().pending_vectors == 3


def test_a_zero_or_nan_vector_is_no_vector_and_sorts_nowhere(opened: Any) -> None:
    def give(texts: Sequence[str]) -> Any:
        rows = {"zero": [0, 0, 0, 0], "nan": [float("nan"), 0, 0, 0], "near": [1, 0, 0, 0], "query": [1, 0, 0, 0]}
        return [rows[text.split()[0]] for text in texts]

    memory = opened(Fixed(give))
    memory.remember_many(["zero thing", "nan thing", "near thing"])
    with pytest.warns(UserWarning, match="NaN or infinite numbers for 1 of 3 texts"):
        found = memory.search("query")
    assert found[0].text == "near thing" and found[0].score > 0
    assert all(hit.score == 0 or hit.text == "near thing" for hit in found)
    assert memory.status().pending_vectors == 0


def test_an_embedder_that_gives_nan_for_all_texts_has_failed_and_heals(opened: Any) -> None:
    broken = [True]
    memory = opened(Fixed(lambda texts: [[float("nan") if broken[0] else 1.0, 0, 0, 0] for _ in texts]))
    memory.remember_many(FACTS)
    with pytest.warns(UserWarning, match="NaN"):
        assert memory.search("cat")[0].text == FACTS[0]
    status = memory.status()
    assert status.pending_vectors == len(FACTS)
    assert "NaN" in str(status.last_error)
    broken.clear()
    broken.append(False)
    assert memory.search("cat").mode == "hybrid"
    assert (memory.status().pending_vectors, memory.status().last_error) == (0, None)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("model_id", value) for value in (None, 5, "", "x\ud83d")),
        *(("dimension", value) for value in (None, -1, "8")),
        ("embed", None),
    ],
)
def test_an_embedder_that_cannot_work_is_refused_by_name_at_once(tmp_path: Path, name: str, value: object) -> None:
    embedder = Fixed(lambda texts: [[1.0, 0, 0, 0] for _ in texts])
    setattr(embedder, name, value)
    with pytest.raises(BadInput, match=f"embedder.{name}"):
        Memory(tmp_path / "a.db", embedder=embedder)
    assert not (tmp_path / "a.db").exists()


def test_vectors_of_any_length_give_the_same_scores(opened: Any, tmp_path: Path) -> None:
    def scores(factor: float) -> list[tuple[str, float]]:
        with Memory(
            tmp_path / f"{factor}.db", embedder=Fixed(lambda texts: WordEmbedder(64).embed(texts) * factor, "x", 64)
        ) as memory:
            memory.remember_many(FACTS)
            return [(hit.text, hit.score) for hit in memory.search("cat on the sofa")]

    assert scores(1.0) == scores(250.0)


# --- keeping up -----------------------------------------------------------------------------------------------


def test_an_edit_by_plain_sql_gets_a_new_vector(opened: Any) -> None:
    memory = opened(WordEmbedder(32))
    memory.remember_many(FACTS)
    memory.search("cat")
    memory.db.execute("update memory set text = 'a parrot talks' where text like '%cat%'")
    memory.db.conn.commit()
    assert memory.db.execute("select count(*) from embedding").fetchone()[0] == 2
    assert memory.search("parrot")[0].text == "a parrot talks"
    assert memory.db.execute("select count(*) from embedding").fetchone()[0] == 3


def test_a_long_text_gets_a_vector_for_each_passage(opened: Any) -> None:
    memory = opened("static")
    filler = "The weather was mild and nothing much happened in the village that day. " * 60
    memory.remember(filler + "The spare key hangs behind the blue clock in the pantry.")
    memory.remember("Somebody talked about the weather.")
    assert memory.search("where can I find something to unlock the door?")[0].text.startswith("The weather was mild")
    assert memory.db.execute("select count(*) from embedding").fetchone()[0] == len(passages(filler)) + 1


def test_settling_again_reads_nothing(opened: Any) -> None:
    embedder = Unsure(0)
    memory = opened(embedder)
    memory.remember_many(FACTS)
    memory.search("cat")
    made = embedder.calls
    memory.status()
    assert embedder.calls == made


# --- who is accepted ------------------------------------------------------------------------------------------


def test_a_callable_is_an_embedder(opened: Any) -> None:
    def by_words(texts: list[str]) -> Any:
        return WordEmbedder(16).embed(texts)

    memory = opened(by_words)
    memory.remember_many(FACTS)
    assert memory.search("cat").mode == "hybrid"
    assert memory.db.execute("select name from embedding_model").fetchone()[0].endswith("by_words")


def test_two_embedders_rank_together(opened: Any) -> None:
    memory = opened([WordEmbedder(32), "static"])
    memory.remember_many(FACTS)
    assert set(memory.search("cat")[0].explain["signals"]) == {"words", "neural", "static"}


@pytest.mark.parametrize("wrong", ["statik", 7, object()])
def test_what_is_no_embedder_is_refused_at_open(path: Path, wrong: Any) -> None:
    with pytest.raises(BadInput, match="embedder"):
        Memory(path, embedder=wrong)


def test_fastembed_comes_with_the_static_table() -> None:
    main, beside = adapt("fastembed")
    assert isinstance(main, FastEmbedder) and isinstance(beside, StaticEmbedder)


def test_fastembed_without_its_model_says_so_and_static_goes_on(
    opened: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[dict[str, Any]] = []

    def text_embedding(model: str, **choices: Any) -> Any:
        asked.append(choices)
        raise ValueError(f"could not find {model}")

    monkeypatch.setitem(sys.modules, "fastembed", types.SimpleNamespace(TextEmbedding=text_embedding))
    monkeypatch.setenv("FASTEMBED_CACHE_PATH", str(tmp_path / "models"))
    memory = opened("fastembed")
    memory.remember_many(FACTS)
    with pytest.warns(UserWarning, match=r"could not be loaded.*folder="):
        found = memory.search("cat")
    assert found[0].text == FACTS[0] and "static" in found[0].explain["signals"]
    assert asked == [{"cache_dir": str(tmp_path / "models"), "local_files_only": True}]
    memory.search("train")
    assert len(asked) == 1  # a failed load is not repeated at every search


def test_a_model_asked_for_by_name_fails_within_seconds_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def text_embedding(model: str, **choices: Any) -> Any:
        assert choices.get("local_files_only"), "the network was asked although nobody answers there"
        raise ValueError("not here")

    def nobody(address: tuple[str, int], timeout: float) -> Any:
        assert timeout <= 10
        raise OSError("unreachable")

    monkeypatch.setitem(sys.modules, "fastembed", types.SimpleNamespace(TextEmbedding=text_embedding))
    monkeypatch.setattr("istar_lite.embedders.socket.create_connection", nobody)
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(EmbedderUnavailable, match=r"cannot be reached.*local folder"):
        FastEmbedder("some/model", download=True).embed(["a"])
