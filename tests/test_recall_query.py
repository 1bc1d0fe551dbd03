"""What is read from a query and from a text at a glance: pure functions."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from istar_lite.database import sqlite3
from istar_lite.recall.marks import read_marks
from istar_lite.recall.query import Date, read_query
from istar_lite.recall.scope import NAMES, QUESTION, TIME


def labels(text: str, participants: tuple[str, ...] = ()) -> list[str]:
    """What a query looks up."""
    return [term.label for term in read_query(text, participants).terms]


def test_stop_words_go_and_neighbouring_words_are_phrases() -> None:
    assert labels("When did she join the support group?") == ["join", "support", "group", "support group"]


def test_a_query_of_stop_words_alone_keeps_them() -> None:
    assert labels("to be or not to be")[:4] == ["to", "be", "or", "not"]


def test_participants_names_are_no_words_but_tell_who_is_meant() -> None:
    query = read_query("What does Mary Ann paint?", ["Mary Ann", "Tom", "user"])
    assert [term.label for term in query.terms] == ["paint"]
    assert query.named == {"Mary Ann"} and query.plain == "What does paint"


def test_a_query_that_is_a_name_alone_asks_for_the_name() -> None:
    assert labels("Caroline?", ("Caroline",)) == ["caroline"]


@pytest.mark.parametrize(
    ("text", "named"),
    [("Will Will come?", {"Will"}), ("I will come", set()), ("in may we met", set()), ("What did May say?", {"May"})],
)
def test_names_that_are_common_words_count_with_their_capital(text: str, named: set[str]) -> None:
    assert read_query(text, ["Will", "May"]).named == named


def test_roles_are_nobodys_names() -> None:
    assert labels("which user was it", ("user", "assistant")) == ["user"]


@pytest.mark.parametrize(
    ("text", "dates"),
    [
        ("on May 3, 2023?", [Date(2023, 5, 3)]),
        ("on the 3rd of May 2023", [Date(2023, 5, 3)]),
        ("2023-05-03", [Date(2023, 5, 3)]),
        ("in July 2022 or in 2021", [Date(2022, 7), Date(2021)]),
        ("between August 11 and August 15 2023", [Date(None, 8, 11), Date(2023, 8, 15)]),
        ("what may happen in may", [Date(None, 5)]),
        ("they march on", []),
        ("2023-13-45 and 99 June", [Date(None, 6), Date(2023)]),
    ],
)
def test_dates_are_read(text: str, dates: list[Date]) -> None:
    assert list(read_query(text).dates) == dates


@pytest.mark.parametrize("text", ["When was it?", "how long ago", "what year did it open", "How many weeks?"])
def test_questions_for_a_time_are_known(text: str) -> None:
    assert read_query(text).asks_time


def test_greetings_ask_for_nothing() -> None:
    assert read_query("Hello, good morning!").small_talk and read_query("ok").small_talk
    assert not read_query("hello, where is the key?").small_talk


def test_characters_without_spaces_are_looked_up_in_pairs() -> None:
    assert labels("我去东京塔") == ["我去", "去东", "东京", "京塔"]
    assert labels("塔") == ["塔"]
    assert labels("用Python写") == ["python", "用", "写"]


@given(st.text(max_size=300))
def test_whatever_is_asked_is_valid_full_text_syntax(text: str) -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute("create virtual table t using fts5(text, cjk, scope, tokenize='porter unicode61')")
    encodable = text.encode("utf-8", "replace").decode()
    for term in read_query(encodable, ["Ann", "Ωμέγα"]).terms:
        connection.execute("select rowid from t where t match ?", (f"scope: n1 AND ({term.expression})",)).fetchall()
    connection.close()


@given(st.text(alphabet="éüñåかガ한ﾊﾟ 1", max_size=20))
def test_composed_and_decomposed_queries_are_one(text: str) -> None:
    assert labels(unicodedata.normalize("NFC", text)) == labels(unicodedata.normalize("NFD", text))


@pytest.mark.parametrize(
    ("text", "marks"),
    [
        ("Have you been there?", QUESTION),
        ("(a photo of a dog) What is it?", QUESTION),
        ("Really? I doubt it.", 0),
        ("I met her at the Louvre.", NAMES),
        ("I loved “the name of the wind”", NAMES),
        ("Hello. Then I'm off, Bob", 0),
        ("We left last week", TIME),
        ("It was in 1987", TIME),
        ("I've had them for three years", TIME),
        ("the weekly market", 0),
    ],
)
def test_a_glance_at_a_text(text: str, marks: int) -> None:
    assert read_marks(text, {"bob"}) & (QUESTION | NAMES | TIME) == marks
