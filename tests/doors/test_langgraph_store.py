"""`BaseStore` of LangGraph: what its SQLite and in-memory stores do, on a memory file."""

from __future__ import annotations

import asyncio
import json
import math
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar, TypedDict

import pytest

pytest.importorskip("langgraph", reason="needs the extra `langgraph`")

from hypothesis import given
from hypothesis import strategies as st
from langchain_core.embeddings import Embeddings
from langgraph.graph import END, START, StateGraph
from langgraph.store.base import (
    BaseStore,
    GetOp,
    InvalidNamespaceError,
    ListNamespacesOp,
    MatchCondition,
    PutOp,
    SearchOp,
)
from langgraph.store.memory import InMemoryStore

from istar_lite import BadInput, Memory
from istar_lite.adapters.langgraph_store import AsyncIstarStore, IstarStore
from istar_lite.testing import FixedClock

NOON = "2026-03-01T12:00:00Z"


class Letters(Embeddings):
    """A vector of how often each letter occurs, of length one."""

    dims = 26

    def embed_query(self, text: str) -> list[float]:
        counts = Counter(text.lower())
        raw = [float(counts[chr(97 + at)]) for at in range(self.dims)]
        length = math.sqrt(sum(value * value for value in raw)) or 1.0
        return [value / length for value in raw]

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.embed_query(text) for text in texts]


class Points(Embeddings):
    """Known texts at known points of a plane."""

    at: ClassVar = {"a": [1.0, 0.0], "b": [2.0, 0.1], "c": [0.0, 1.0]}

    def embed_query(self, text: str) -> list[float]:
        return self.at[json.loads(text)["text"] if text.startswith("{") else text]

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.embed_query(text) for text in texts]


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock(NOON)


@pytest.fixture
def memory(tmp_path: Path, clock: FixedClock) -> Iterator[Memory]:
    with Memory(tmp_path / "agent.db", embedder=None, clock=clock) as memory:
        yield memory


@pytest.fixture
def store(memory: Memory) -> IstarStore:
    return IstarStore(memory)


def indexed(memory: Memory, embed: Any = None, **config: Any) -> IstarStore:
    embedder = embed or Letters()
    return IstarStore(memory, index={"embed": embedder, "dims": getattr(embedder, "dims", 2), **config})


def keys(found: Any) -> list[str]:
    return [item.key for item in found]


# --- put, get, delete -----------------------------------------------------------------------------------------


def test_what_is_put_is_got(store: IstarStore, clock: FixedClock) -> None:
    value = {"title": "é", "n": [1, 2.5, None, True], "deep": {"er": {}}}
    store.put(("users", "1"), "prefs", value)
    first = store.get(("users", "1"), "prefs")
    assert first is not None
    assert (first.namespace, first.key, first.value) == (("users", "1"), "prefs", value)
    clock.advance(60)
    store.put(("users", "1"), "prefs", {"other": 1})
    second = store.get(("users", "1"), "prefs")
    assert second is not None
    assert second.value == {"other": 1}
    assert second.created_at == first.created_at
    assert second.updated_at == first.updated_at + timedelta(minutes=1)
    store.delete(("users", "1"), "prefs")
    assert store.get(("users", "1"), "prefs") is None
    store.delete(("users", "1"), "prefs")


def test_results_of_a_batch_are_in_order_and_reads_see_the_state_before_it(store: IstarStore) -> None:
    store.put(("test", "foo"), "k1", {"data": "v1"})
    store.put(("test", "bar"), "k2", {"data": "v2"})
    results = store.batch(
        [
            SearchOp(("test",), filter={"data": "v1"}),
            PutOp(("test",), "k3", {"data": "first"}),
            GetOp(("test",), "k3"),
            PutOp(("test",), "k3", {"data": "last"}),
            PutOp(("test", "bar"), "k2", None),
            GetOp(("test", "bar"), "k2"),
            ListNamespacesOp(),
        ]
    )
    assert [keys(results[0]), *results[1:5]] == [["k1"], None, None, None, None]
    assert results[5].value == {"data": "v2"}
    assert results[6] == [("test", "bar"), ("test", "foo")]
    assert store.get(("test",), "k3").value == {"data": "last"}  # type: ignore[union-attr]
    assert store.get(("test", "bar"), "k2") is None


@pytest.mark.parametrize("labels", [("foo.bar",), ("foo", ""), ("foo", 1), ("foo", None)])
@pytest.mark.parametrize("kind", ["get", "put", "delete", "search", "prefix", "suffix"])
def test_one_bad_namespace_in_a_batch_changes_nothing(store: IstarStore, labels: Any, kind: str) -> None:
    operations: dict[str, Any] = {
        "get": GetOp(labels, "k"),
        "put": PutOp(labels, "k", {"changed": True}),
        "delete": PutOp(labels, "k", None),
        "search": SearchOp(labels),
        "prefix": ListNamespacesOp((MatchCondition("prefix", labels),)),
        "suffix": ListNamespacesOp((MatchCondition("suffix", labels),)),
    }
    store.put(("foo", "bar"), "k", {"original": True})
    with pytest.raises(InvalidNamespaceError):
        store.batch([PutOp(("valid",), "k", {}), operations[kind]])
    assert store.get(("foo", "bar"), "k").value == {"original": True}  # type: ignore[union-attr]
    assert store.get(("valid",), "k") is None


@pytest.mark.parametrize("value", [{"n": float("nan")}, {"o": object()}, {"n": 2**70}])
def test_a_value_that_json_cannot_hold_is_refused(store: IstarStore, value: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="value"):
        store.put(("a",), "k", value)
    assert store.search(("a",)) == []


# --- namespaces -----------------------------------------------------------------------------------------------

LABELS = ["foo", "foobar", "fo", "Foo", "f_o", "f%o", "star*", "starX", "q?m", "br[ack]et", "plus+", "a\n", "it's", "/"]


def test_a_namespace_holds_itself_and_what_is_below_it_label_by_label(store: IstarStore) -> None:
    for label in LABELS:
        for labels in ((label,), (label, "child"), (label, "child", "deep"), ("other", label)):
            store.put(labels, "k", {})
    for label in LABELS:
        family = {(label,), (label, "child"), (label, "child", "deep")}
        assert {item.namespace for item in store.search((label,), limit=100)} == family
        assert set(store.list_namespaces(prefix=(label,), limit=100)) == family
        assert set(store.list_namespaces(suffix=(label,), limit=100)) == {(label,), ("other", label)}
    assert len(store.search((), limit=100)) == 4 * len(LABELS)


def test_a_star_stands_for_one_label(store: IstarStore) -> None:
    for labels in (("u", "users", "alice"), ("u", "users", "malice"), ("u", "a", "b", "alice"), ("u",)):
        store.put(labels, "k", {})
    assert store.list_namespaces(prefix=("u", "*", "alice")) == [("u", "users", "alice")]
    assert store.list_namespaces(suffix=("*", "alice")) == [("u", "a", "b", "alice"), ("u", "users", "alice")]
    assert store.list_namespaces(prefix=("u", "*")) == [("u", "a", "b", "alice"), ("u", "users", "alice"),
                                                        ("u", "users", "malice")]  # fmt: skip


def test_depth_cuts_and_pages_count_what_is_left(store: IstarStore) -> None:
    for first in "abc":
        for second in "xy":
            store.put((first, second, "z"), "k", {})
    assert store.list_namespaces(max_depth=1) == [("a",), ("b",), ("c",)]
    assert store.list_namespaces(max_depth=2, limit=2, offset=1) == [("a", "y"), ("b", "x")]
    assert store.list_namespaces(limit=1, offset=5) == [("c", "y", "z")]


def test_owners_do_not_see_each_others_items(memory: Memory) -> None:
    owners = ["a", "ab", "a%", "a_", "A", "a/b", "'; drop table item; --"]
    stores = {owner: IstarStore(memory, owner) for owner in owners}
    for owner, store in stores.items():
        store.put(("users",), "k", {"owner": owner})
    for owner, store in stores.items():
        assert [item.value["owner"] for item in store.search(())] == [owner]
        assert store.list_namespaces() == [("users",)]
    stores["a"].delete(("users",), "k")
    assert stores["ab"].get(("users",), "k") is not None


# --- filters --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "key", ["x') OR 1=1 --", "access') = 'public' OR '1'='1' OR json_extract(value, '$.", "a\"b", "a b", "a[0]", "",
            "é", "a\n", "$.a", "a'"],
)  # fmt: skip
def test_a_key_that_is_no_name_is_refused(store: IstarStore, key: str) -> None:
    store.put(("d",), "public", {"access": "public"})
    with pytest.raises(ValueError, match="Invalid filter key"):
        store.search(("d",), filter={key: "x"})
    with pytest.raises(ValueError, match="Invalid filter key"):
        store.search(("d",), filter={key: {"$gt": 1}})


@pytest.mark.parametrize("operator", ["$gt; DROP", "$in", "gt", "", "a"])
def test_an_operator_that_is_none_is_refused(store: IstarStore, operator: str) -> None:
    with pytest.raises(ValueError, match="Unsupported operator"):
        store.search(("d",), filter={"a": {operator: 1}})


def test_keys_with_hyphens_digits_and_dots_are_paths(store: IstarStore) -> None:
    store.put(("d",), "one", {"access-level": "x", "1a": 1, "user": {"access-level": "y", "1a": 2}})
    for key, value in (("access-level", "x"), ("1a", 1), ("user.access-level", "y"), ("user.1a", 2)):
        assert keys(store.search(("d",), filter={key: value})) == ["one"]
        assert store.search(("d",), filter={key: "z"}) == []


def test_texts_in_filters_are_only_texts(store: IstarStore) -> None:
    texts = ["company's", "100%", "a_b", "a\\b", "public' OR '1'='1", "''''", "nul\x00'", "x'; drop table item; --"]
    for at, text in enumerate(texts):
        store.put(("d",), f"k{at}", {"t": text})
    for at, text in enumerate(texts):
        expected = [] if "\0" in text else [f"k{at}"]  # SQLite's texts end at NUL: it is kept as U+FFFD
        assert keys(store.search(("d",), filter={"t": text})) == expected
    assert store.search(("d",), filter={"t": "a%b"}) == []


def test_numbers_compare_as_numbers(store: IstarStore) -> None:
    for at, price in enumerate((10, 20, 30.5, -1, "25", None, True)):
        store.put(("d",), f"k{at}", {"price": price})
    found = lambda filters: sorted(keys(store.search(("d",), filter={"price": filters}, limit=20)))  # noqa: E731
    assert found({"$gt": 15}) == ["k1", "k2"]
    assert found({"$gte": 20, "$lte": 30.5}) == ["k1", "k2"]
    assert found({"$lt": 0}) == ["k3"]
    assert found({"$lt": math.inf}) == found({"$gt": -math.inf}) == found({"$lt": 10**400}) == ["k0", "k1", "k2", "k3"]
    assert found({"$eq": math.nan}) == []
    assert found(20.0) == ["k1"]
    assert found("25") == ["k4"]
    assert found({"$gt": "2"}) == ["k4"]
    assert found(None) == ["k5"]
    assert found({"$ne": None}) == ["k0", "k1", "k2", "k3", "k4", "k6"]
    assert found(True) == ["k6"]
    assert found({"$ne": 20}) == ["k0", "k2", "k3", "k4", "k6"]


def test_lists_and_objects_are_equal_as_a_whole(store: IstarStore) -> None:
    store.put(("d",), "a", {"tags": ["x", "é"], "deep": {"in": {"a": 1}}})
    store.put(("d",), "b", {"tags": ["x"], "deep": {"in": {"a": 2}}})
    assert keys(store.search(("d",), filter={"tags": ["x", "é"]})) == ["a"]
    assert keys(store.search(("d",), filter={"deep.in": {"$eq": {"a": 2}}})) == ["b"]
    with pytest.raises(BadInput, match="has no order"):
        store.search(("d",), filter={"tags": {"$gt": ["x"]}})


SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["a", "b", ""])
FILTERS = st.dictionaries(st.sampled_from(["x", "y"]), SCALARS | st.fixed_dictionaries({"$eq": SCALARS}), max_size=2)


@given(st.lists(st.dictionaries(st.sampled_from(["x", "y", "z"]), SCALARS, max_size=3), max_size=8), FILTERS)
def test_equality_is_that_of_the_store_in_memory(
    memory: Memory, values: list[dict[str, Any]], filters: dict[str, Any]
) -> None:
    ours, theirs = IstarStore(memory), InMemoryStore()
    for item in ours.search((), limit=100):
        ours.delete(item.namespace, item.key)
    for at, value in enumerate(values):
        ours.put(("n",), f"k{at}", value)
        theirs.put(("n",), f"k{at}", value)
    found = [set(keys(store.search(("n",), filter=filters, limit=100))) for store in (ours, theirs)]
    assert found[0] == found[1]


def test_pages_are_of_the_newest_written(store: IstarStore, clock: FixedClock) -> None:
    for at in range(5):
        clock.advance(1)
        store.put(("d",), f"k{at}", {"n": at})
    clock.advance(1)
    store.put(("d",), "k0", {"n": 9})
    assert keys(store.search(("d",), limit=2)) == ["k0", "k4"]
    assert keys(store.search(("d",), limit=2, offset=2)) == ["k3", "k2"]
    assert keys(store.search(("d",), offset=4)) == ["k1"]
    assert keys(store.search(("d",), filter={"n": {"$lt": 4}}, limit=1, offset=1)) == ["k2"]
    assert store.search(("d",), limit=0) == []


@pytest.mark.parametrize("page", [{"limit": "1 OR 1"}, {"limit": -1}, {"offset": -1}, {"limit": 1.5}, {"limit": None}])
@pytest.mark.parametrize("query", [None, "words"])
def test_a_page_that_cannot_be_is_refused(store: IstarStore, page: dict[str, Any], query: str | None) -> None:
    store.put(("d",), "k", {"text": "words"})
    with pytest.raises(BadInput, match=r"limit|offset"):
        store.search(("d",), query=query, **page)
    with pytest.raises(BadInput, match=r"limit|offset"):
        store.list_namespaces(**page)


# --- vectors --------------------------------------------------------------------------------------------------


def test_the_hosts_embedder_ranks_by_cosine(memory: Memory) -> None:
    store = indexed(memory)
    for key, text in (("d1", "red apple"), ("d2", "red car"), ("d3", "green apple")):
        store.put(("t",), key, {"text": text, "color": text.split()[0]})
    found = store.search(("t",), query="apple", filter={"color": "red"})
    assert keys(found) == ["d1", "d2"]
    whole = Letters().embed_query(json.dumps({"color": "red", "text": "red apple"}, sort_keys=True))
    asked = Letters().embed_query("apple")
    assert found[0].score == pytest.approx(sum(a * b for a, b in zip(whole, asked, strict=True)), abs=1e-6)
    assert len(store.search(("t",), query="")) == len(store.search(("t",))) == 3
    assert store.search(("t",))[0].score is None


@pytest.mark.parametrize(
    ("distance", "expected"),
    [
        ("cosine", [("a", 1.0), ("b", 2 / math.sqrt(4.01)), ("c", 0.0)]),
        ("l2", [("a", 0.0), ("b", -math.sqrt(1.01)), ("c", -math.sqrt(2))]),
        ("inner_product", [("b", 2.0), ("a", 1.0), ("c", 0.0)]),
    ],
)
def test_the_nearest_come_first_by_any_distance(
    memory: Memory, distance: str, expected: list[tuple[str, float]]
) -> None:
    store = indexed(memory, Points(), distance_type=distance)
    for key in "abc":
        store.put(("d",), key, {"text": key})
    found = store.search(("d",), query="a")
    assert keys(found) == [key for key, _ in expected]
    assert [item.score for item in found] == pytest.approx([score for _, score in expected], abs=1e-5)


def test_the_best_of_several_fields_counts(memory: Memory) -> None:
    store = indexed(memory, fields=["key0", "key1", "many[*].t"])
    store.put(("t",), "d1", {"key1": "xxx", "key2": "yyy", "many": [{"t": "zzz"}, {"t": "qqq"}]})
    store.put(("t",), "d2", {"key0": "uuu", "key1": "vvv", "key2": "www"})
    for query, key in (("xxx", "d1"), ("qqq", "d1"), ("uuu", "d2"), ("vvv", "d2")):
        found = store.search(("t",), query=query)
        assert (found[0].key, len(found)) == (key, 2)
        assert found[0].score == pytest.approx(1.0, abs=1e-6)
    assert all(item.score == pytest.approx(0.0) for item in store.search(("t",), query="www"))  # not indexed


def test_an_operation_may_name_its_own_fields_or_none(memory: Memory) -> None:
    store = indexed(memory, text_fields=["key17"])
    store.put(("t",), "d3", {"key0": "aaa", "key1": "bbb", "key2": "ccc"}, index=["key0", "key1"])
    store.put(("t",), "d4", {"key0": "aaa"}, index=False)
    assert [(item.key, round(item.score or 0, 5)) for item in store.search(("t",), query="aaa")] == [("d3", 1.0)]
    assert store.search(("t",), query="ccc")[0].score == pytest.approx(0.0)
    assert len(store.search(("t",))) == 2


def test_a_new_value_has_new_vectors(memory: Memory) -> None:
    store = indexed(memory, fields=["text"])
    store.put(("t",), "d", {"text": "xyz"})
    store.put(("t",), "e", {"text": "abc"})
    store.put(("t",), "d", {"text": "abc"})
    assert [item.score for item in store.search(("t",), query="abc")] == pytest.approx([1.0, 1.0])
    memory.db.execute("update item set value = '{\"text\": \"pqr\"}' where key = 'e'")
    memory.db.conn.commit()
    assert keys(store.search(("t",), query="abc")) == ["d"]  # what was made of the old value is gone
    assert memory.check() == []


def test_pages_of_a_ranking_do_not_overlap(memory: Memory) -> None:
    store = indexed(memory, fields=["text"])
    for at in range(7):
        store.put(("t",), f"d{at}", {"text": "test" + "xyzuvwq"[at] * at})
    pages = [keys(store.search(("t",), query="test", limit=3, offset=offset)) for offset in (0, 3, 6)]
    assert [key for page in pages for key in page] == [f"d{at}" for at in range(7)]


def test_a_plain_or_async_function_may_embed(memory: Memory) -> None:
    async def slowly(texts: list[str]) -> list[list[float]]:
        return Letters().embed_documents(texts)

    store = indexed(memory, slowly, dims=26, fields=["text"])
    asyncio.run(store.aput(("t",), "d", {"text": "abc"}))
    assert asyncio.run(store.asearch(("t",), query="abc"))[0].score == pytest.approx(1.0)
    other = indexed(memory, Letters().embed_documents, dims=26)
    assert other.search(("t",), query="abc")[0].score == pytest.approx(1.0)


def test_without_an_index_the_memorys_own_search_ranks(tmp_path: Path) -> None:
    with IstarStore.from_conn_string(str(tmp_path / "agent.db")) as store:
        store.put(("u", "1"), "food", {"text": "I love pizza with olives"})
        store.put(("u", "1"), "work", {"text": "I repair bicycles"})
        store.put(("u", "1"), "hidden", {"text": "pizza pizza pizza"}, index=False)
        store.put(("u", "2"), "food", {"text": "pizza is what I eat"})
        found = store.search(("u", "1"), query="what pizza do I like?")
        assert found[0].key == "food"
        assert (found[0].score or 0) > (found[1].score or 0)
        assert {item.namespace for item in found} == {("u", "1")}
        assert [item.score for item in found if item.key == "hidden"] == [None]
        hits = store.memory.search("pizza")
        assert {hit.title for hit in hits[:2]} == {"u.1/food", "u.2/food"}
        assert "it holds no text" in hits.explain_missing("item", 3)


# --- times to live --------------------------------------------------------------------------------------------


def test_an_item_is_there_until_a_sweep_after_its_time(memory: Memory, clock: FixedClock) -> None:
    store = IstarStore(memory, ttl={"default_ttl": 10})
    store.put(("t",), "default", {"text": "default"})
    store.put(("t",), "short", {"text": "short"}, ttl=1)
    store.put(("t",), "forever", {"text": "forever"}, ttl=None)
    clock.advance(61)
    assert store.get(("t",), "short") is not None
    assert [hit.text for hit in memory.search("short forever", kinds="item")] == ["forever"]  # at once
    assert store.sweep_ttl() == 1
    assert store.get(("t",), "short") is None
    clock.advance(600)
    assert store.sweep_ttl() == 1
    assert keys(store.search(("t",))) == ["forever"]
    assert memory.check() == []


@pytest.mark.parametrize("how", ["get", "search"])
def test_reading_gives_a_new_lease_where_the_config_says_so(memory: Memory, clock: FixedClock, how: str) -> None:
    def read(store: IstarStore, **options: Any) -> None:
        store.get(("t",), "k", **options) if how == "get" else store.search(("t",), **options)

    for config, options, kept in (
        ({"default_ttl": 10, "refresh_on_read": True}, {}, True),
        ({"default_ttl": 10, "refresh_on_read": True}, {"refresh_ttl": False}, False),
        ({"default_ttl": 10, "refresh_on_read": False}, {"refresh_ttl": True}, False),
        ({"default_ttl": 10}, {}, False),
    ):
        store = IstarStore(memory, ttl=config)  # type: ignore[arg-type]
        store.put(("t",), "k", {})
        clock.advance(9 * 60)
        read(store, **options)
        clock.advance(9 * 60)
        assert store.sweep_ttl() == (0 if kept else 1), (config, options)
        store.delete(("t",), "k")


def test_expired_items_may_be_left_out_of_every_reading(memory: Memory, clock: FixedClock) -> None:
    store = IstarStore(memory, ttl={"default_ttl": 5, "omit_expired": True, "refresh_on_read": True})
    for key in ("a", "x", "b", "c"):
        clock.advance(1)
        store.put(("page",), key, {"k": key}, ttl=1 if key == "x" else 60)
    store.put(("gone",), "x", {}, ttl=1)
    clock.advance(120)
    assert store.get(("page",), "x", refresh_ttl=True) is None
    assert keys(store.search(("page",), limit=2)) == ["c", "b"]
    assert keys(store.search(("page",), limit=2, offset=2)) == ["a"]
    assert store.list_namespaces() == [("page",)]
    assert store.sweep_ttl() == 2  # a reading that leaves it out does not give it a new lease


def test_the_sweeper_sweeps_until_it_is_stopped(memory: Memory, clock: FixedClock) -> None:
    store = IstarStore(memory, ttl={"default_ttl": 1})
    store.put(("t",), "k", {})
    clock.advance(61)
    swept = threading.Event()
    sweep = store.sweep_ttl
    store.sweep_ttl = lambda: (sweep(), swept.set())[0]  # type: ignore[method-assign]
    future = store.start_ttl_sweeper(sweep_interval_minutes=0.0001)
    assert swept.wait(10)
    assert store.stop_ttl_sweeper(timeout=10)
    assert future.done()
    assert store.get(("t",), "k") is None
    assert IstarStore(memory).start_ttl_sweeper().done()  # no times to live, nothing to do
    cancelled = store.start_ttl_sweeper(sweep_interval_minutes=100)
    assert cancelled.cancel()
    assert store.stop_ttl_sweeper(timeout=10)


# --- async ----------------------------------------------------------------------------------------------------


def test_the_async_store_does_the_same(tmp_path: Path) -> None:
    async def talk() -> None:
        index: Any = {"embed": Letters(), "dims": 26, "fields": ["text"]}
        async with AsyncIstarStore.from_conn_string(
            str(tmp_path / "agent.db"), index=index, ttl={"default_ttl": 5}
        ) as s:
            await s.setup()
            await asyncio.gather(*(s.aput(("t", str(n % 2)), f"k{n}", {"text": "abc"[n % 3]}) for n in range(30)))
            assert (await s.aget(("t", "1"), "k1")).value == {"text": "b"}  # type: ignore[union-attr]
            assert (await s.asearch(("t",), query="b"))[0].score == pytest.approx(1.0)
            assert await s.alist_namespaces() == [("t", "0"), ("t", "1")]
            await s.adelete(("t", "1"), "k1")
            assert await s.aget(("t", "1"), "k1") is None
            assert await s.sweep_ttl() == 0
            for bad in (GetOp(("a.b",), "k"), PutOp(("a.b",), "k", {}), SearchOp(("a.b",))):
                with pytest.raises(InvalidNamespaceError):
                    await s.abatch([bad])
            with pytest.raises(asyncio.InvalidStateError):
                s.put(("t",), "k", {})
            assert (await asyncio.to_thread(s.get, ("t", "0"), "k0")).value == {"text": "a"}
            task = await s.start_ttl_sweeper(100)
            assert not task.done()
            assert await s.stop_ttl_sweeper(10)

    asyncio.run(talk())


def test_many_at_once_lose_nothing(memory: Memory) -> None:
    async def talk() -> int:
        store = IstarStore(memory)
        other = AsyncIstarStore(memory)
        await asyncio.gather(
            *(
                one.aput(("t",), f"{name}{n}", {"n": n})
                for name, one in (("a", store), ("b", other))
                for n in range(40)
            ),
            *(other.asearch(("t",)) for _ in range(10)),
        )
        await other.aclose()
        return len(await store.asearch(("t",), limit=200))

    assert asyncio.run(talk()) == 80
    assert memory.check() == []


# --- in a graph -----------------------------------------------------------------------------------------------


class State(TypedDict):
    user: str
    said: str
    known: list[str]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_compiled_graph_remembers_from_one_run_to_the_next(memory: Memory, asynchronous: bool) -> None:
    def remember(state: State, *, store: BaseStore) -> dict[str, Any]:
        store.put(("users", state["user"]), state["said"][:8], {"text": state["said"]})
        return {}

    def recall(state: State, *, store: BaseStore) -> dict[str, Any]:
        found = store.search(("users", state["user"]), query=state["said"])
        return {"known": [item.value["text"] for item in found]}

    async def aremember(state: State, *, store: BaseStore) -> dict[str, Any]:
        await store.aput(("users", state["user"]), state["said"][:8], {"text": state["said"]})
        return {}

    async def arecall(state: State, *, store: BaseStore) -> dict[str, Any]:
        found = await store.asearch(("users", state["user"]), query=state["said"])
        return {"known": [item.value["text"] for item in found]}

    builder = StateGraph(State)
    builder.add_node("recall", arecall if asynchronous else recall)
    builder.add_node("remember", aremember if asynchronous else remember)
    builder.add_edge(START, "recall")
    builder.add_edge("recall", "remember")
    builder.add_edge("remember", END)
    graph = builder.compile(store=IstarStore(memory))

    def say(user: str, said: str) -> list[str]:
        state: Any = {"user": user, "said": said, "known": []}
        result = asyncio.run(graph.ainvoke(state)) if asynchronous else graph.invoke(state)
        return list(result["known"])

    assert say("1", "I live in Oslo") == []
    assert say("1", "Oslo, was it?") == ["I live in Oslo"]
    assert say("2", "Oslo, was it?") == []
    assert memory.search("Oslo")[0].title == "users.1/I live i"
