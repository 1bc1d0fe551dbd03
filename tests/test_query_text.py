"""R11–R13, and R15 for queries: a question is text, in any script, of any length, whole or broken."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Shell
from hypothesis import given
from hypothesis import strategies as st

from istar_lite import BadInput, Memory, TurnRecord
from istar_lite.testing import FixedClock, ScriptedLLM

TOLD = {
    "pre-edit": "run the pre-edit hook before saving",
    "don't": "we don't deploy on Fridays",
    "C++": "the parser is written in C++ and C#",
    "foo(bar": "call foo(bar, baz) twice",
    "a:b": "the ratio a:b is 3",
    "GB/s": "the disk reads 3 GB/s",
    "/etc/hosts": "the entry is in /etc/hosts",
    "user@example.org": "write to user@example.org",
    "v1.2.3-rc.1": "release v1.2.3-rc.1 is out",
    "snake_case_name": "rename snake_case_name first",
    "50%": "the load is at 50% by noon",
}
SYNTAX = (
    '"',
    "*",
    "{a b}",
    "^x",
    "--",
    "'x; DROP TABLE t",
    "🦀",
    "AND",
    "NOT tea",
    "tea OR",
    "NEAR(a b, 2)",
    "text:tea",
    "cjk : x",
    "- text : tea",
    "(((",
    'tea"',
    "tea*",
    "+tea",
    "tea + AND",
    "\\",
    "\0",
    "{" * 50,
    '{"query": {"match": ["tea", null]}}',
    "x" * 20_000,
    "def f(a, b):\n    return a[0] * b['c'] != \"d\"\n" * 250,
    "SELECT * FROM memory WHERE text LIKE '%tea%'; --",
)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Memory]:
    with Memory(tmp_path_factory.mktemp("told") / "a.db", embedder=None, clock=FixedClock()) as memory:
        memory.remember_many(list(TOLD.values()))
        yield memory


@pytest.mark.parametrize("query", TOLD)
def test_words_with_signs_in_them_are_found_as_they_are_written(told: Memory, query: str) -> None:
    assert told.search(query)[0].text == TOLD[query]


@pytest.mark.parametrize("query", SYNTAX, ids=range(len(SYNTAX)))
def test_what_looks_like_query_syntax_is_text_and_raises_nothing(told: Memory, query: str) -> None:
    for hit in told.search(query):
        assert 0 <= hit.score < 1
    told.context(query, budget_tokens=100, touch=False)
    told.chat().retrieve(query, touch=False)


@pytest.mark.parametrize("query", ['"', "*", "--", "🦀", "^", "(((", "%&/", "…", "\\", "\0"])
def test_symbols_alone_find_nothing(told: Memory, query: str) -> None:
    assert told.search(query).hits == ()


@pytest.mark.parametrize("query", ["", "   ", "\n\t", "\u200b"])
def test_a_blank_query_finds_nothing(told: Memory, query: str) -> None:
    assert told.search(query).hits == ()


@pytest.mark.parametrize("query", ["the of and", "is it", "in"])
def test_a_query_of_stop_words_finds_what_holds_them_and_never_everything(told: Memory, query: str) -> None:
    # "The Who" is a question too: stop words count where there is nothing else.
    assert all(set(query.split()) & set(hit.text.split()) for hit in told.search(query, k=100))


@pytest.mark.parametrize("query", [None, 7, b"tea", ["tea"]])
def test_what_is_no_text_is_refused_by_name(told: Memory, query: Any) -> None:
    with pytest.raises(BadInput) as error:
        told.search(query)
    assert error.value.field == "query"


def test_k_is_checked_and_may_be_larger_than_all_there_is(told: Memory) -> None:
    assert told.search("the disk reads", k=0).hits == ()
    assert 1 <= len(told.search("the disk reads", k=5_000)) <= len(TOLD)
    for wrong in (-1, None, 1.5, "3", True):
        with pytest.raises(BadInput) as error:
            told.search("disk", k=wrong)  # type: ignore[arg-type]
        assert error.value.field == "k"


@given(st.text(max_size=60) | st.text(alphabet="\"*^(){}:+-'\\/ aNDORTe\0\ud83d緑", max_size=30))
def test_any_text_is_a_query(told: Memory, query: str) -> None:
    results = told.search(query)
    scores = [hit.score for hit in results]
    assert scores == sorted(scores, reverse=True)
    json.dumps(results.to_dict()).encode()


# --- R12 ------------------------------------------------------------------------------------------------------

SCRIPTS = {
    "Chinese": ("我明天要去北京大学参加会议", ["北京", "北京大学", "京", "会议"]),
    "Japanese": ("私は毎朝緑茶を飲みます", ["緑茶", "毎朝緑茶", "茶", "飲みます"]),
    "katakana": ("コンピューターを買った", ["ピュー", "コンピュー", "タ", "買った"]),
    "Korean": ("저는 내일 서울대학교에 갑니다", ["서울", "서울대학", "울", "내일"]),
    "mixed": ("请检查build_id_42文件的权限", ["文件", "文件的权限", "件", "build_id_42"]),
    "glued": ("使用numpy计算矩阵", ["计算", "计算矩阵", "算", "numpy"]),
    "Thai": ("ผู้ใช้ชอบดื่มชาเขียวตอนเช้า", ["ชาเขียว", "ดื่ม", "ชา", "ช", "เช้า"]),
    "Lao": ("ແມວນອນຫຼັບຢູ່ເທິງໂຕະ", ["ແມວ", "ນອນຫຼັບ", "ໂຕະ"]),
    "Burmese": ("ကျွန်တော်လက်ဖက်ရည်ကြိုက်တယ်", ["လက်ဖက်", "လက်ဖက်ရည်", "ကြိုက်"]),
    "Khmer": ("ខ្ញុំចូលចិត្តផឹកតែបៃតងពេលព្រឹក", ["តែបៃតង", "ផឹក", "ព្រឹក"]),
    "glued Thai": ("เซิร์ฟเวอร์ใช้numpyรุ่นเก่า", ["numpy", "เซิร์ฟเวอร์", "รุ่น", "เก่า"]),
}
CASES = [(name, part) for name, (_, parts) in SCRIPTS.items() for part in parts]


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Memory]:
    with Memory(tmp_path_factory.mktemp("scripts") / "a.db", embedder=None, clock=FixedClock()) as memory:
        memory.remember_many([text for text, _ in SCRIPTS.values()])
        memory.remember_many(["green tea every morning", "the university of Beijing", "天气很好", "물을 마신다"])
        yield memory


@pytest.mark.parametrize(("name", "part"), CASES)
def test_a_part_of_a_sentence_is_found_in_every_script(scripts: Memory, name: str, part: str) -> None:
    texts = [hit.text for hit in scripts.search(part)]
    assert SCRIPTS[name][0] in texts
    assert all(part in text for text in texts[:1])


def test_a_word_of_another_script_is_not_found(scripts: Memory) -> None:
    assert scripts.search("上海").hits == ()
    assert scripts.search("หมา").hits == ()


def test_english_is_found_as_before(scripts: Memory) -> None:
    assert scripts.search("teas in the mornings")[0].text == "green tea every morning"


def test_composed_and_decomposed_letters_find_each_other(memory: Memory) -> None:
    memory.remember("the caf\u00e9 opens at nine")
    memory.remember("een re\u0301sume\u0301 by post")
    assert memory.search("cafe\u0301")[0].id == 1
    assert memory.search("r\u00e9sum\u00e9")[0].id == 2


def test_parts_of_chinese_text_are_found_by_the_plain_shell(memory: Memory) -> None:
    memory.remember(SCRIPTS["Chinese"][0])
    query = "select text from document where id in (select rowid from document_fts where document_fts match ?)"
    assert memory.db.execute(query, ['cjk: "北 京 大 学"']).fetchone() == (SCRIPTS["Chinese"][0],)


# --- R13 ------------------------------------------------------------------------------------------------------

HALF = "\ud83d"


def test_half_an_emoji_is_stored_replaced_wherever_it_stands(memory: Memory) -> None:
    kept = memory.remember(f"ends with {HALF}", tags=[f"tag{HALF}"], key=f"key{HALF}")
    assert (kept.text, kept.tags, kept.key) == ("ends with \ufffd", ("tag\ufffd",), "key\ufffd")
    run = memory.agent(f"run{HALF}")
    run.record_turn(TurnRecord(turn=1, events=[HALF], extra={f"k{HALF}": f"v{HALF}"}, text=f"said {HALF}"))
    memory.in_namespace(f"owner{HALF}").remember("mine")
    assert "owner\ufffd" in memory.namespaces()
    assert memory.search(f"ends with {HALF}")[0].text == "ends with \ufffd"
    assert memory.search("ends", tags=[f"tag{HALF}"])[0].id == kept.id
    assert memory.remember(f"ends with {HALF}", key=f"key{HALF}").id == kept.id
    assert memory.db.execute("select extra from turn").fetchone() == ('{"k\ufffd":"v\ufffd"}',)


def test_one_broken_text_among_ten_does_not_lose_the_other_nine(memory: Memory) -> None:
    kept = memory.remember_many([f"fact number {n}" + (HALF if n == 5 else "") for n in range(10)])
    assert len({item.id for item in kept}) == 10


def test_two_halves_make_a_whole(memory: Memory) -> None:
    assert memory.remember("a crab \ud83e\udd80").text == "a crab 🦀"


def test_half_an_emoji_in_the_models_answer_is_stored_replaced(path: Path) -> None:
    answer = {"memories": [{"text": f"likes crabs {HALF}", "importance": 0.5, "emotion": "joy"}]}
    llm = ScriptedLLM({"extract": json.dumps(answer, ensure_ascii=False)})
    with Memory(path, embedder=None, llm=llm, clock=FixedClock()) as memory:
        stored = memory.chat(f"s{HALF}").store(f"I like crabs {HALF}", f"so do I {HALF}")
        assert stored.extraction == "done"
        assert [row.text for row in memory.list("memory")] == ["likes crabs \ufffd"]


def test_what_is_printed_and_exported_is_valid_utf8(path: Path, tmp_path: Path, shell: Shell) -> None:
    with Memory(path, embedder=None) as memory:
        memory.remember(f"broken {HALF}")
        memory.export(tmp_path / "rows.jsonl")
    (tmp_path / "rows.jsonl").read_text(encoding="utf-8")
    assert shell.json("show", path, "memories")["items"][0]["text"] == "broken \ufffd"
    assert shell.json("search", path, f"broken {HALF}")["hits"][0]["text"] == "broken \ufffd"


def test_half_an_emoji_in_a_key_of_an_item_finds_and_deletes_it(tmp_path: Path) -> None:
    with Memory(tmp_path / "agent.db", embedder=None) as memory, memory.items().writing() as shelf:
        shelf.put(("a",), "key\ud83d", {"v": 1})
        kept = shelf.get(("a",), "key\ud83d")
        assert kept is not None
        assert kept.key == "key\ufffd"
        shelf.delete(("a",), "key\ud83d")
        assert shelf.get(("a",), "key\ud83d") is None


def test_results_can_be_pickled_and_the_copy_says_that_it_is_one(tmp_path: Path) -> None:
    with Memory(tmp_path / "agent.db", embedder=None) as memory:
        memory.remember("the port is 49222")
        results = memory.search("port")
        copied = pickle.loads(pickle.dumps(results))
        assert copied.to_dict() == results.to_dict()
        assert "a copy" in copied.explain_missing("memory", 1)
        assert results.explain_missing("memory", 1) == "it is among the hits"
