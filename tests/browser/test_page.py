"""The page in a browser: it opens without a complaint, asks nobody, and works by mouse, keyboard and screen reader."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import chromium
from chromium import Page, browsing

from istar_lite import Memory, TurnRecord
from istar_lite.report import report

EXAMPLE = Path(__file__).parents[2] / "examples" / "look_inside.py"
NASTY = (
    "</script><script>document.title='run'</script><img src=x onerror=\"document.title='run'\"><!-- \u2028 ‮ {{data}}"
)

pytestmark = [
    pytest.mark.skipif(chromium.find() is None, reason="no Chromium on this machine: the page was not opened"),
    pytest.mark.skipif(sys.platform == "win32", reason="the debugging pipe is driven by POSIX file descriptors"),
    pytest.mark.filterwarnings("ignore:the static table is missing"),
]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browsing(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the example's file: something in every section."""
    spec = importlib.util.spec_from_file_location("look_inside", EXAMPLE)
    assert spec and spec.loader
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    folder = tmp_path_factory.mktemp("desk")
    example.fill(folder / "desk.db", datetime(2026, 3, 1, tzinfo=UTC))
    report(folder / "desk.db", folder / "memory.html")
    return folder / "memory.html"


@pytest.fixture(autouse=True)
def plain_screen(page: Page) -> None:
    page.show()


def first_entry(page: Page) -> str:
    return str(page.js("document.querySelector('.entry .text').textContent"))


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (390, False), (320, True)])
def test_it_opens_without_a_complaint_asks_nobody_and_fits_the_screen(
    page: Page, desk: Path, width: int, dark: bool
) -> None:
    page.show(width=width, dark=dark)
    page.open(desk)
    page.until("document.querySelectorAll('#lanes svg[role], #curves svg[role], #plane svg[role]').length === 3")
    assert page.said == []
    assert page.asked == [desk.as_uri()]
    assert page.js("document.documentElement.scrollWidth <= innerWidth")


def test_search_finds_words_in_any_form_and_says_how_many(page: Page, desk: Path) -> None:
    page.open(desk)
    page.js("document.getElementById('search').focus()")
    page.write("BÜRNER goes")
    page.until("document.getElementById('found').textContent.startsWith('1 row')")
    assert first_entry(page) == "Unit 2 must not run below 40 MW: the burner goes out"
    assert page.js("[...document.querySelectorAll('.entry mark')].map((each) => each.textContent)") == [
        "burner",
        "goes",
    ]
    page.write(" nowhere")
    page.until("document.getElementById('found').textContent.startsWith('Nothing')")
    assert page.js("document.querySelectorAll('.entry').length") == 0


def test_what_was_said_is_searched_when_it_is_chosen(page: Page, desk: Path) -> None:
    page.open(desk)
    page.js("document.querySelector('#kinds input[value=message]').click()")
    page.js("document.getElementById('search').focus()")
    page.write("bearing")
    page.until("document.querySelector('.entry.x, .entry .text mark')")
    assert "earing" in first_entry(page)
    assert page.js("[...document.querySelectorAll('#groups h3')].some((each) => each.textContent === 'what was said')")


def test_a_memory_leads_to_the_sentence_it_came_from_and_back(page: Page, desk: Path) -> None:
    page.open(desk)
    page.js("document.querySelector('.entry').focus()")
    page.key("Enter")
    page.until("document.getElementById('detail').open")
    assert page.js("document.activeElement.id") == "detail-title"
    said = page.js("[...document.querySelectorAll('#detail mark')].map((each) => each.textContent)")
    assert said == ["Unit 2 may never run below 40 MW, the burner goes out under that."]
    page.key("Escape")
    page.until("!document.getElementById('detail').open")
    assert page.js("document.activeElement.className") == "entry"
    assert page.js("location.hash") == ""


def test_every_step_of_a_merged_memory_is_there(page: Page, desk: Path) -> None:
    page.open(desk, "#memory-12")
    page.until("document.getElementById('detail').open")
    kinds = page.js("[...document.querySelectorAll('#detail .steps .kind')].map((each) => each.textContent)")
    assert kinds == ["memory", "message", "memory", "message"]
    assert "merged from" in page.js("document.querySelector('#detail .steps').textContent")


def test_a_link_goes_from_row_to_row_and_the_way_back_works(page: Page, desk: Path) -> None:
    page.open(desk, "#profile-2")
    page.until("document.querySelector('#detail .steps a[href^=\"#episode\"]')")
    page.js("document.querySelector('#detail .steps a[href^=\"#episode\"]').click()")
    page.until("document.getElementById('detail-title').textContent.startsWith('episode')")
    page.js("history.back()")
    page.until("document.getElementById('detail-title').textContent.startsWith('lesson')")


@pytest.mark.parametrize("hash", ["#memory-99999", "#%E0%A4%A", "#constructor-1", "#nothing", "#-1"])
def test_a_link_to_nowhere_breaks_nothing(page: Page, desk: Path, hash: str) -> None:
    page.open(desk, hash)
    assert page.said == []
    assert first_entry(page)


def test_arrow_keys_go_through_a_chart_which_is_one_tab_stop(page: Page, desk: Path) -> None:
    page.open(desk)
    page.until("document.querySelector('#lanes svg .mark')")
    assert page.js("document.querySelectorAll('#lanes .mark[tabindex=\"0\"]').length") == 1
    page.js("document.querySelector('#lanes .mark[tabindex=\"0\"]').focus()")
    page.key("ArrowRight")
    assert page.js("document.activeElement.getAttribute('aria-label')").startswith("T2 ")
    page.key("ArrowDown")
    assert "priority" in page.js("document.activeElement.getAttribute('aria-label')")
    assert page.js("!document.getElementById('tip').hidden"), "the keyboard sees the tip too"
    page.key("Enter")
    page.until("document.getElementById('detail').open")
    assert page.js("document.getElementById('detail-title').textContent").startswith("atom")


def test_every_session_has_its_lanes(page: Page, desk: Path) -> None:
    page.open(desk)
    named = {}
    for at in range(page.js("document.getElementById('session').length")):
        page.js(
            f"(() => {{ const pick = document.getElementById('session'); pick.selectedIndex = {at};"
            " pick.dispatchEvent(new Event('change')); })()"
        )
        page.until("document.querySelector('#lanes svg')")
        lanes = page.js("[...document.querySelectorAll('#lanes .names b')].map((each) => each.textContent)")
        named[page.js("document.getElementById('session').selectedOptions[0].textContent")] = lanes
    assert named == {
        "market-2 (120 turns)": ["Turns", "Atoms", "Episodes", "Lessons"],
        "market-1 (120 turns)": ["Turns", "Atoms", "Episodes", "Lessons"],
        "shift (16 messages)": ["Messages", "Observations", "Reflections"],
        "control desk (19 messages)": ["Messages", "Memories"],
    }
    assert page.said == []


def test_a_screen_reader_finds_a_name_for_everything_that_can_be_used(page: Page, desk: Path) -> None:
    page.open(desk)
    page.until("document.querySelector('#plane svg[role]')")
    roles = {"link", "button", "searchbox", "textbox", "checkbox", "combobox", "dialog", "heading"}
    found = [(role, name) for role, name in page.names() if role in roles]
    assert len(found) > 300
    assert [role for role, name in found if not name.strip()] == []
    levels = page.js("[...document.querySelectorAll('main h2, h1')].map((each) => each.tagName)")
    assert levels == ["H1"] + ["H2"] * 7


CONTRAST = (Path(__file__).parent / "contrast.js").read_text(encoding="utf-8")


@pytest.mark.parametrize("dark", [False, True])
def test_all_text_stands_out_from_its_ground(page: Page, desk: Path, dark: bool) -> None:
    page.show(dark=dark)
    page.open(desk, "#memory-12")
    assert page.js(CONTRAST) == []


def test_the_theme_can_be_switched(page: Page, desk: Path) -> None:
    page.open(desk)
    before = page.js("getComputedStyle(document.body).backgroundColor")
    page.js("document.getElementById('theme').click()")
    assert page.js("getComputedStyle(document.body).backgroundColor") != before


def test_nothing_moves_for_who_wants_no_motion(page: Page, desk: Path) -> None:
    page.show(still=True)
    page.open(desk, "#memory-1")
    assert page.js("getComputedStyle(document.documentElement).scrollBehavior") == "auto"
    assert page.js("getComputedStyle(document.getElementById('detail')).animationName") == "none"


def test_stored_text_is_shown_and_never_run(page: Page, tmp_path: Path) -> None:
    with Memory(tmp_path / "nasty.db", embedder=None) as memory:
        memory.remember(NASTY, tags=[NASTY])
        run = memory.agent(NASTY)
        for turn in range(1, 41):
            run.tick(TurnRecord(turn=turn, reward=-turn, reward_unit=NASTY, events=[NASTY]))
        memory.supersede(1, NASTY + " again")
    report(tmp_path / "nasty.db", tmp_path / "nasty.html")
    page.open(tmp_path / "nasty.html", "#memory-2")
    page.until("document.querySelector('#lanes svg')")
    assert page.js("document.title") == "nasty.db: what the agent remembers"
    assert page.js("document.querySelector('#detail .said').textContent") == NASTY + " again"
    assert page.js("document.querySelectorAll('script').length") == 2
    assert (page.js("document.images.length"), page.said) == (0, [])


def test_an_empty_memory_has_a_page_that_says_so(page: Page, tmp_path: Path) -> None:
    Memory(tmp_path / "new.db", embedder=None).close()
    report(tmp_path / "new.db", tmp_path / "new.html")
    page.open(tmp_path / "new.html")
    assert page.said == []
    assert page.js("document.querySelectorAll('.empty').length") >= 5
