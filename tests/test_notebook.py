"""Results show themselves: as tables in a notebook, as aligned text in a terminal, and stored text stays text."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from istar_lite import Memory, Results, TurnRecord
from istar_lite.notebook import Share, pairs, plain, table
from istar_lite.testing import ScriptedLLM


class Reader(HTMLParser):
    """The tags of a page and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


class Paper:
    """IPython's printer, as far as it is used."""

    def __init__(self, shown: Any) -> None:
        self.written = ""
        shown._repr_pretty_(self, False)

    def text(self, text: str, /) -> None:
        self.written += text


@pytest.fixture
def results(memory: Memory) -> Results:
    memory.remember("likes <b>green</b> tea", importance=0.9, tags=["drinks"])
    memory.chat("kitchen").store("Is there green tea?", "There is.")
    return memory.search("green tea", k=5)


@pytest.mark.filterwarnings("ignore:no model given")
def test_results_show_a_line_for_each_hit(results: Results) -> None:
    shown = Reader(results._repr_html_())
    assert shown.tags.count("tr") == 1 + len(results) >= 3
    assert "likes <b>green</b> tea" in shown.text and "b" not in shown.tags
    assert "“green tea”" in shown.text


@pytest.mark.filterwarnings("ignore:no model given")
def test_results_are_plain_text_in_a_terminal(results: Results) -> None:
    lines = Paper(results).written.splitlines()
    assert len(lines) == 2 + len(results)
    assert lines[1].split() == ["score", "what", "when", "where", "who", "text"]
    assert not any("</" in line.replace("</b>", "") for line in lines)


@pytest.mark.filterwarnings("ignore:no model given")
def test_a_hit_shows_what_it_rests_on(results: Results) -> None:
    said = next(hit for hit in results if hit.kind == "message")
    assert all(source.text in Reader(said._repr_html_()).text for source in said.sources)
    assert said.text in Paper(said).written


def test_a_memory_shows_what_is_known_of_it_and_no_more(memory: Memory) -> None:
    kept = memory.remember("port is 49222", importance=0.9, tags=["net"])
    text = Reader(kept._repr_html_()).text
    assert "port is 49222" in text and "0.90" in text and "net" in text
    assert "ended" not in text and "None" not in text
    assert "port is 49222" in Paper(kept).written


def test_a_run_shows_its_episode_and_working_set_without_counting(memory: Memory) -> None:
    run = memory.agent("market", extract_every=2, episode_every=4)
    for turn, reward in enumerate([1.0, -2.0, 3.0, -4.0], start=1):
        run.tick(TurnRecord(turn=turn, reward=reward))
    shown = Reader(run._repr_html_())
    assert all(atom.content in shown.text for atom in run.atoms()) and run.atoms()
    assert "run market" in Paper(run).written.splitlines()[0]
    assert memory.list("recall").items == (), "looking is not handing out"


def test_the_current_episode_comes_first(path: Any) -> None:
    with Memory(path, embedder=None, llm=ScriptedLLM([], default="[GROWTH | T1-T2]\nIt grew.")) as memory:
        run = memory.agent("market", extract_every=2, episode_every=2)
        for turn in (1, 2, 3):
            run.tick(TurnRecord(turn=turn, reward=-turn))
        assert Paper(run).written.splitlines()[2].startswith("GROWTH T1–T2")


def test_nothing_found_shows_that(memory: Memory) -> None:
    nothing = memory.search("tea")
    assert "0 found" in Reader(nothing._repr_html_()).text
    assert Paper(nothing).written.startswith("0 found")


@given(st.text(), st.floats(0, 1))
def test_no_text_becomes_markup_or_steers_a_terminal(text: str, share: float) -> None:
    row = {"share": Share(share), "text": text, text: 1}
    assert set(Reader(table([row], text)).tags) <= {"table", "caption", "thead", "tbody", "tr", "th", "td", "span"}
    assert set(Reader(pairs(row, text)).tags) <= {"table", "caption", "tbody", "tr", "th", "td", "span"}
    cells = plain([{"share": Share(share), "text": text}], "caption")
    assert "\x1b" not in cells and cells.count("\n") == 2
