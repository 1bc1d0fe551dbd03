"""How well recall finds the turns that answer a question, on conversations in the LoCoMo format.

Every turn of one conversation is indexed (text, and the caption of a picture), session time as `occurred_at`; the
questions of categories 1–4 are asked; gold are the turns named as evidence. Turn Recall@10 is the share of the gold
turns among the first ten, averaged over questions; session Recall@5 the share of the gold sessions among the first
five distinct ones.
"""

from __future__ import annotations

import importlib.util
import json
import math
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from istar_lite import recall
from istar_lite.database import sqlite3
from istar_lite.memory import Memory
from istar_lite.recall.query import STOP_WORDS
from istar_lite.recall.signals import WEIGHTS, Weights

CATEGORIES = {1: "several turns", 2: "time", 3: "open domain", 4: "one turn"}
METRICS = (
    "Turn Recall@10", "Turn Recall@5", "Turn Recall@20", "Hit@10", "MRR", "nDCG@10", "Session Recall@5",
)  # fmt: skip
_EVIDENCE = re.compile(r"D\s*:?\s*(\d+)\s*:\s*(\d+)")
Search = Callable[[str], Sequence[str]]  # a question → ids of turns, best first


@dataclass(frozen=True)
class Question:
    """A question and the turns that answer it."""

    text: str
    category: int
    gold: tuple[str, ...]


@dataclass(frozen=True)
class Conversation:
    """One conversation: turns by their ids (`D<session>:<number>`), and its questions."""

    name: str
    source: Mapping[str, Any]
    turns: Mapping[str, str]
    questions: tuple[Question, ...]


def load(path: str | Path) -> list[Conversation]:
    """The conversations of a file in the LoCoMo format. Evidence that names no turn is dropped, and then questions
    that have none."""
    return [_conversation(item) for item in json.loads(Path(path).read_text(encoding="utf-8"))]


def _conversation(item: Mapping[str, Any]) -> Conversation:
    turns = {
        turn["dia_id"]: f"{turn.get('text', '')} {turn.get('blip_caption') or ''}".strip()
        for key, session in item["conversation"].items()
        if re.fullmatch(r"session_\d+", key)
        for turn in session
    }
    questions = []
    for asked in item["qa"]:
        named = (f"D{int(a)}:{int(b)}" for text in asked.get("evidence", ()) for a, b in _EVIDENCE.findall(text))
        gold = tuple(dict.fromkeys(id for id in named if id in turns))
        if gold and asked["category"] in CATEGORIES:
            questions.append(Question(asked["question"], asked["category"], gold))
    return Conversation(str(item["sample_id"]), item, turns, tuple(questions))


@dataclass
class Score:
    """Metrics of one way of searching, per question; CPU seconds of each query and of indexing."""

    name: str
    rows: list[tuple[str, int, tuple[float, ...]]] = field(default_factory=list)
    query_seconds: list[float] = field(default_factory=list)
    index_seconds: float = 0.0
    turns: int = 0
    bytes: int = 0

    def ask(self, conversation: Conversation, search: Search) -> None:
        """Asks all questions of a conversation."""
        for question in conversation.questions:
            start = time.process_time()
            found = search(question.text)
            self.query_seconds.append(time.process_time() - start)
            self.rows.append((conversation.name, question.category, measure(list(found), question.gold)))

    def mean(self, category: int | None = None, conversation: str | None = None) -> tuple[float, ...]:
        """The metrics, averaged over the questions (of a category, of a conversation)."""
        chosen = [
            values for name, number, values in self.rows if category in (None, number) and conversation in (None, name)
        ]
        return tuple(sum(column) / len(column) for column in zip(*chosen, strict=True))

    def to_dict(self) -> dict[str, Any]:
        """Everything that the table shows, by name."""
        query = sorted(self.query_seconds)
        return {
            "name": self.name,
            "questions": len(self.rows),
            **dict(zip(METRICS, self.mean(), strict=True)),
            "Turn Recall@10 by category": {
                CATEGORIES[number]: self.mean(number)[0] for number in sorted({row[1] for row in self.rows})
            },
            "Turn Recall@10 by conversation": {
                name: self.mean(conversation=name)[0] for name in dict.fromkeys(row[0] for row in self.rows)
            },
            "index seconds per 1,000 turns (CPU)": self.index_seconds / self.turns * 1000 if self.turns else None,
            "query ms median (CPU)": query[len(query) // 2] * 1000 if query else None,
            "query ms p95 (CPU)": query[int(len(query) * 0.95)] * 1000 if query else None,
            "bytes per 1,000 turns": round(self.bytes / self.turns * 1000) if self.turns and self.bytes else None,
        }


def measure(found: list[str], gold: Sequence[str]) -> tuple[float, ...]:
    """The values of METRICS for one question."""
    wanted = set(gold)

    def recall(depth: int) -> float:
        return len(wanted & set(found[:depth])) / len(wanted)

    first = next((1 / rank for rank, id in enumerate(found, 1) if id in wanted), 0.0)
    gain = sum(1 / math.log2(rank + 1) for rank, id in enumerate(found[:10], 1) if id in wanted)
    ideal = sum(1 / math.log2(rank + 1) for rank in range(1, min(10, len(wanted)) + 1))
    sessions = list(dict.fromkeys(id.split(":")[0] for id in found))[:5]
    wanted_sessions = {id.split(":")[0] for id in wanted}
    return (
        recall(10),
        recall(5),
        recall(20),
        float(recall(10) > 0),
        first,
        gain / ideal,
        len(wanted_sessions & set(sessions)) / len(wanted_sessions),
    )


# --- ways of searching ----------------------------------------------------------------------------------------


def run_istar(
    conversations: Iterable[Conversation],
    embedder: Any,
    name: str,
    *,
    pooled: str | None = None,
    depth: int = 60,
    weights: Weights | None = None,
) -> Score:
    """This library. `pooled`: None, one file per conversation; "namespaces", one file with a namespace each;
    "one", all in one namespace; "sessions", the same, asked with the sessions of the conversation."""
    score = Score(name)
    with tempfile.TemporaryDirectory() as folder:
        if pooled is None:
            for conversation in conversations:
                path = Path(folder) / f"{conversation.name}.db"
                with Memory(path, embedder=embedder) as memory:
                    _index(score, memory, conversation)
                    score.ask(conversation, _search(memory, conversation, depth, weights=weights))
                score.bytes += path.stat().st_size
        else:
            _run_pooled(score, list(conversations), Path(folder) / "pooled.db", embedder, pooled, depth)
    return score


def _run_pooled(
    score: Score, conversations: list[Conversation], path: Path, embedder: Any, pooled: str, depth: int
) -> None:
    with Memory(path, embedder=embedder) as memory:
        views = [
            memory.in_namespace(conversation.name) if pooled == "namespaces" else memory
            for conversation in conversations
        ]
        for view, conversation in zip(views, conversations, strict=True):
            _index(score, view, conversation)
        for view, conversation in zip(views, conversations, strict=True):
            score.ask(conversation, _search(view, conversation, depth, by_session=pooled == "sessions"))
    score.bytes = path.stat().st_size


def _index(score: Score, memory: Memory, conversation: Conversation) -> None:
    start = time.process_time()
    memory.import_conversation([conversation.source], format="locomo")
    memory.status()  # makes the vectors
    score.index_seconds += time.process_time() - start
    score.turns += len(conversation.turns)


def _search(
    memory: Memory, conversation: Conversation, depth: int, *, by_session: bool = False, weights: Weights | None = None
) -> Search:
    mine = [row["name"] for row in memory.sessions() if str(row["name"]).startswith(f"{conversation.name}/")]
    session = mine if by_session else None

    def search(question: str) -> list[str]:
        request = recall.make_request(
            memory.namespace, question, k=depth, session=session, sources=False, weights=weights
        )
        hits = recall.search(memory._services, request)
        # Of a pooled store, turns of other conversations with the same id are no finds.
        return [
            str(hit.external_id) if (hit.session or "").startswith(f"{conversation.name}/") else f"X{hit.id}:0"
            for hit in hits
        ]

    return search


def run_fts5(conversations: Iterable[Conversation]) -> Score:
    """SQLite's full text: porter, `bm25()`; as good as it gets, without stop words and participants' names."""
    score = Score("SQLite FTS5 (porter, stop words and names out)")
    for conversation in conversations:
        start = time.process_time()
        connection = sqlite3.connect(":memory:")
        connection.execute("create virtual table turn using fts5(id unindexed, text, tokenize='porter unicode61')")
        connection.executemany("insert into turn values (?, ?)", conversation.turns.items())
        score.index_seconds += time.process_time() - start
        score.turns += len(conversation.turns)
        score.ask(conversation, _fts5_search(connection, conversation))
        connection.close()
    return score


def _fts5_search(connection: sqlite3.Connection, conversation: Conversation) -> Search:
    def search(question: str) -> list[str]:
        match = " OR ".join(f'"{word}"' for word in dict.fromkeys(_content(question, conversation))) or '"x"'
        rows = connection.execute("select id from turn where turn match ? order by bm25(turn) limit 60", (match,))
        return [row[0] for row in rows]

    return search


def run_rank_bm25(conversations: Iterable[Conversation]) -> Score | None:
    """The package rank_bm25 (BM25Okapi over words, without stop words and participants' names), if installed."""
    if importlib.util.find_spec("rank_bm25") is None:
        return None
    okapi = importlib.import_module("rank_bm25").BM25Okapi
    score = Score("rank_bm25 (BM25Okapi, stop words and names out)")
    for conversation in conversations:
        ids = list(conversation.turns)
        start = time.process_time()
        index = okapi([_words(text) for text in conversation.turns.values()])
        score.index_seconds += time.process_time() - start
        score.turns += len(ids)

        def search(
            question: str, index: Any = index, ids: list[str] = ids, conversation: Conversation = conversation
        ) -> list[str]:
            values = index.get_scores(_content(question, conversation))
            return [ids[at] for at in (-values).argsort(kind="stable")[:60]]

        score.ask(conversation, search)
    return score


def _content(question: str, conversation: Conversation) -> list[str]:
    speakers = (conversation.source["conversation"].get(key, "") for key in ("speaker_a", "speaker_b"))
    names = {word for speaker in speakers for word in _words(speaker)}
    return [word for word in _words(question) if word not in STOP_WORDS and word not in names]


def _words(text: str) -> list[str]:
    return [word.lower() for word in re.findall(r"[^\W_]+", text)]


# --- what search costs at size --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cost:
    """Query costs in a scope of so many documents; seconds."""

    name: str
    documents: int
    cpu_median: float
    cpu_p95: float
    wall_median: float
    first: float  # wall time of the first query, which reads the scope


def measure_cost(memory: Memory, name: str, questions: Sequence[str], session: str | None = None) -> Cost:
    """Asks all questions; the first one apart."""
    start = time.perf_counter()
    memory.search(questions[0], session=session)
    first = time.perf_counter() - start
    cpu, wall = [], []
    for question in questions:
        started, began = time.process_time(), time.perf_counter()
        memory.search(question, session=session)
        cpu.append(time.process_time() - started)
        wall.append(time.perf_counter() - began)
    cpu.sort()
    wall.sort()
    documents = memory.db["document"].count
    return Cost(name, documents, cpu[len(cpu) // 2], cpu[int(len(cpu) * 0.95)], wall[len(wall) // 2], first)


# --- the table ------------------------------------------------------------------------------------------------


def compare(
    path: str | Path, *, embedders: Mapping[str, Any] | None = None, others: bool = True, pooled: bool = False
) -> list[Score]:
    """All ways of searching over the conversations of a file. `embedders`: name of the row → what Memory takes."""
    conversations = load(path)
    chosen = (
        {"istar-lite, words only": None, "istar-lite, static (default)": "static"} if embedders is None else embedders
    )
    scores: list[Score | None] = [run_rank_bm25(conversations), run_fts5(conversations)] if others else []
    scores += [run_istar(conversations, embedder, name) for name, embedder in chosen.items()]
    if pooled:
        for way in ("one", "sessions", "namespaces"):
            scores.append(run_istar(conversations, "static", f"istar-lite, pooled ({way})", pooled=way))
    return [score for score in scores if score is not None]


def ablation(path: str | Path, embedder: Any = "static") -> list[Score]:
    """Everything, then each share and factor taken out by itself, and each signal."""
    conversations = load(path)
    kinds = ["words", "static"] if embedder == "static" else ["words", "neural", "static"]
    neutral = {
        **dict.fromkeys(("before", "after", "second_after", "answers", "session", "smooth", "date"), 0.0),
        **dict.fromkeys(("speaker", "question", "names", "time"), 1.0),
        **dict.fromkeys(
            (kind if kind != "static" or len(kinds) == 2 else "static_beside_neural" for kind in kinds), 0.0
        ),
    }
    scores = [run_istar(conversations, embedder, "everything", weights=WEIGHTS)]
    for name, value in neutral.items():
        scores.append(run_istar(conversations, embedder, f"without {name}", weights=replace(WEIGHTS, **{name: value})))
    return scores


def ablation_lines(scores: Sequence[Score]) -> Iterator[str]:
    """One line each: Turn Recall@10 and nDCG@10, and what was lost."""
    everything = dict(zip(METRICS, scores[0].mean(), strict=True))
    for score in scores:
        told = dict(zip(METRICS, score.mean(), strict=True))
        yield f"{score.name:24}" + "".join(
            f"  {name} {told[name]:.4f} ({told[name] - everything[name]:+.4f})"
            for name in ("Turn Recall@10", "nDCG@10")
        )


def lines(scores: Iterable[Score]) -> Iterator[str]:
    """The table as text, every metric under its full name."""
    for score in scores:
        told = score.to_dict()
        yield f"{told['name']}: {told['questions']} questions"
        yield "  " + "  ".join(f"{name} {told[name]:.3f}" for name in METRICS)
        by_category = told["Turn Recall@10 by category"].items()
        yield "  Turn Recall@10 by category: " + "  ".join(f"{name} {value:.3f}" for name, value in by_category)
        by_conversation = told["Turn Recall@10 by conversation"].items()
        yield "  Turn Recall@10 by conversation: " + "  ".join(f"{name} {value:.3f}" for name, value in by_conversation)
        size = told["bytes per 1,000 turns"]
        yield (
            f"  index {told['index seconds per 1,000 turns (CPU)']:.3f} s CPU per 1,000 turns"
            f"   query {told['query ms median (CPU)']:.2f} ms CPU median, {told['query ms p95 (CPU)']:.2f} p95"
            + (f"   {size / 1000:.0f} KB per 1,000 turns" if size else "")
        )


def categories(conversations: Iterable[Conversation]) -> Counter[str]:
    """How many questions there are of each category."""
    return Counter(CATEGORIES[question.category] for one in conversations for question in one.questions)
