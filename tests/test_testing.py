"""The stand-ins keep their word."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from istar_lite.llm import Answer, Ask, adrive, drive
from istar_lite.testing import AsyncScriptedLLM, FixedClock, ScriptedLLM, ScriptError, SlowLLM, WordEmbedder


def request(text: str = "Name a colour.") -> list[Any]:
    return [{"role": "system", "content": "Be brief."}, {"role": "user", "content": text}]


def one_question(tag: str = "extract") -> Generator[Ask, Answer, Answer]:
    return (yield Ask(request(), tag))


def test_answers_are_given_in_order() -> None:
    llm = ScriptedLLM(["red", "blue"])
    assert [llm(request()), llm(request())] == ["red", "blue"]


def test_the_default_answers_what_the_script_does_not() -> None:
    llm = ScriptedLLM({"episode": ["first"]}, default="else")
    assert [llm(request(), tag="episode"), llm(request(), tag="episode"), llm(request())] == ["first", "else", "else"]


def test_the_tag_wins_over_the_text_and_the_text_is_the_users_last() -> None:
    llm = ScriptedLLM({"colour": "red", "extract": "by tag", "brief": "by the system's text"})
    assert llm(request(), tag="extract") == "by tag"
    assert llm(request(), tag="retro") == "red"
    earlier = [{"role": "user", "content": "brief"}, {"role": "assistant", "content": "brief"}, *request()]
    assert llm(earlier) == "red"


def test_one_answer_for_a_key_is_given_each_time_and_a_list_is_used_up() -> None:
    llm = ScriptedLLM({"extract": "always", "retro": ("once",)})
    assert [llm(request(), tag="extract") for _ in range(3)] == ["always"] * 3
    assert llm(request(), tag="retro") == "once"
    with pytest.raises(ScriptError):
        llm(request(), tag="retro")


def test_a_script_is_not_changed_by_its_use() -> None:
    answers = {"extract": ["red"]}
    ScriptedLLM(answers)(request(), tag="extract")
    assert answers == {"extract": ["red"]}


def test_exceptions_are_raised_and_functions_called_with_the_messages() -> None:
    failure = OSError("down")
    llm = ScriptedLLM([failure, TimeoutError, lambda messages: messages[-1]["content"].upper()])
    with pytest.raises(OSError, match="down"):
        llm(request())
    with pytest.raises(TimeoutError):
        llm(request())
    assert llm(request()) == "NAME A COLOUR."


def test_every_request_is_listed_with_its_options() -> None:
    llm = ScriptedLLM(default="red")
    llm(request(), tag="extract", schema={"type": "object"}, max_tokens=5, temperature=0.3)
    (call,) = llm.calls
    assert call.messages == request()
    assert (call.tag, call.schema, call.max_tokens, call.temperature) == ("extract", {"type": "object"}, 5, 0.3)
    assert call.last_user == "Name a colour."


@pytest.mark.parametrize("scripted", [ScriptedLLM, AsyncScriptedLLM])
@pytest.mark.parametrize("timeout", [None, 30.0])
def test_a_script_that_has_run_out_reaches_the_test_past_every_guard(scripted: Any, timeout: float | None) -> None:
    with pytest.raises(ScriptError, match=r"request 1, tag 'extract': 'Name a colour\.'"):
        drive(one_question(), scripted([]), timeout=timeout)
    with pytest.raises(ScriptError, match="tag 'extract'"):
        asyncio.run(adrive(one_question(), scripted({"retro": "red"}), timeout=timeout))
    assert not issubclass(ScriptError, Exception)


def test_an_assertion_in_an_answer_reaches_the_test_too() -> None:
    def answer(messages: list[Any]) -> str:
        raise AssertionError("the prompt lacks the date")

    with pytest.raises(ScriptError, match="the prompt lacks the date"):
        drive(one_question(), ScriptedLLM([answer]), timeout=None)


def test_a_text_in_place_of_a_script_is_refused() -> None:
    with pytest.raises(TypeError, match="default"):
        ScriptedLLM("red")


def test_a_slow_model_waits_for_its_release() -> None:
    slow = SlowLLM("red")
    assert isinstance(drive(one_question(), slow, timeout=0.05).error, TimeoutError)
    assert slow.started.is_set()
    slow.release.set()
    assert drive(one_question(), slow, timeout=30.0).text == "red"


def test_word_vectors_are_unit_vectors_of_the_given_shape() -> None:
    embedder = WordEmbedder(dimension=16)
    vectors = embedder.embed(["a red house", "", "?!", "雨"])
    assert vectors.shape == (4, 16)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, rtol=1e-6)
    assert embedder.embed([]).shape == (0, 16)
    assert embedder.embed_query("a red house").shape == (16,)
    np.testing.assert_array_equal(embedder.embed_query("a red house"), vectors[0])


def test_texts_that_share_words_are_closer_than_texts_that_share_none() -> None:
    house, barn, price = WordEmbedder().embed(["the red house", "THE RED barn", "price fell sharply"])
    assert house @ barn > 0.5 > house @ price


def test_word_vectors_are_the_same_in_every_process() -> None:
    assert np.flatnonzero(WordEmbedder(8).embed_query("house")).tolist() == [3]
    assert WordEmbedder(8).model_id == "test/words-8" != WordEmbedder(16).model_id


@pytest.mark.parametrize("start", [1_767_225_600, "2026-01-01T00:00:00Z", datetime(2026, 1, 1, tzinfo=UTC)])
def test_a_fixed_clock_stands_until_it_is_advanced(start: Any) -> None:
    clock = FixedClock(start)
    assert clock() == clock() == 1_767_225_600.0
    assert clock.advance(1.5) == 1_767_225_601.5
    clock.advance(timedelta(days=1))
    assert clock() == 1_767_225_601.5 + 86_400
