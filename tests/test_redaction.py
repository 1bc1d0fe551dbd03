"""The ready-made redaction, and the hook: nothing is stored before it was redacted."""

from __future__ import annotations

import random
import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from istar_lite import BadInput, Memory, TurnRecord, redaction
from istar_lite.redaction import redact_secrets
from istar_lite.testing import FixedClock

_DICE = random.Random(1)


def letters(count: int, of: str = string.ascii_letters + string.digits) -> str:
    return "".join(_DICE.choice(of) for _ in range(count))


# Made here, so that no scanner takes this file for a leak.
SECRETS = {
    "aws": "AKIA" + letters(16, string.ascii_uppercase + string.digits),
    "github": "ghp_" + letters(36),
    "github fine": "github_pat_" + letters(60),
    "gitlab": "glpat-" + letters(20),
    "openai": "sk-proj-" + letters(48),
    "anthropic": "sk-ant-api03-" + letters(60),
    "google": "AIza" + letters(35),
    "hugging face": "hf_" + letters(34),
    "slack": "xoxb-" + letters(12, string.digits) + "-" + letters(24),
    "stripe": "sk_live_" + letters(24),
    "npm": "npm_" + letters(36),
    "jwt": "eyJ" + letters(30) + ".eyJ" + letters(40) + "." + letters(43),
    "private key": f"-----BEGIN RSA PRIVATE KEY-----\n{letters(64)}\n{letters(64)}\n-----END RSA PRIVATE KEY-----",
}


@pytest.mark.parametrize("kind", SECRETS)
@pytest.mark.parametrize(
    "around", ["{}", "my key is {} , keep it", "TOKEN={}\nnext line", '{{"key": "{}"}}', "東京{}。"]
)
def test_a_secret_is_taken_out_and_the_words_around_it_stay(kind: str, around: str) -> None:
    if around.startswith("東京") and kind != "private key":
        around = "東京 {} 。"
    redacted = redact_secrets(around.format(SECRETS[kind]))
    assert SECRETS[kind][8:] not in redacted and "[redacted: " in redacted
    before, after = around.format("\0").split("\0")
    assert redacted.startswith(before) and redacted.endswith(after)


def test_a_bearer_token_and_a_password_in_an_address_are_taken_out() -> None:
    token = letters(40)
    assert redact_secrets(f"Authorization: Bearer {token}") == "Authorization: Bearer [redacted: Bearer Token]"
    assert redact_secrets("postgres://ann:hunter22@db.local/x") == "postgres://[redacted: Password]@db.local/x"


@pytest.mark.parametrize(
    "text",
    [
        "I like sk-ating and the AKIAN language",
        "commit 3f786850e387550fdab836ed7e6dc881de23001b fixed it",
        "uuid 123e4567-e89b-12d3-a456-426614174000, port 49222, T12 · 42.5 EUR",
        "see https://example.com:8080/a/b?c=d and mail ann@example.com",
        "task-based bearer of news; the token was lost",
        "",
    ],
)
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert redact_secrets(text) == text


def test_a_key_cut_off_before_its_end_is_taken_out_to_the_end_of_the_text() -> None:
    assert redact_secrets("-----BEGIN PRIVATE KEY-----\nabc\ndef") == "[redacted: Private Key]"


@given(st.text(max_size=500))
def test_redacting_twice_is_redacting_once(text: str) -> None:
    once = redact_secrets(text)
    assert redact_secrets(once) == once


def test_a_long_text_is_redacted_quickly_enough_to_be_used() -> None:
    text = ("word " * 20 + SECRETS["github"] + " ") * 1000
    assert redact_secrets(text).count("[redacted: GitHub Token]") == 1000
    for odd in ("sk-", "://", "eyJ.", "//a:", "npm_", "-----BEGIN ", "aws_key='"):
        redact_secrets(odd * 5000)


def test_it_works_without_the_library_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction.importlib.util, "find_spec", lambda name: None)
    redaction._patterns.cache_clear()
    try:
        for secret in SECRETS.values():
            assert "[redacted: " in redact_secrets(f"key {secret} end")
    finally:
        redaction._patterns.cache_clear()


def test_no_secret_reaches_the_file_by_any_door(tmp_path: Path, clock: FixedClock) -> None:
    secret = SECRETS["github"]
    path = tmp_path / "a.db"
    with Memory(path, embedder=None, clock=clock, redact=redact_secrets) as memory:
        memory.remember(f"the key is {secret}", tags=[secret, f"about {secret}"])
        chat = memory.chat("c")
        chat.store(f"use {secret}", f"I used {secret}")
        chat.retrieve(f"what about {secret}", pairs=0)
        memory.search(secret)
        memory.agent("run").record_turn(
            TurnRecord(turn=1, reward=1, events=[f"got {secret}"], actions_taken=[{"use": secret}], extra={"k": secret})
        )
        with memory.observe("o", context_window=10_000, background=None) as log:
            log.add("user", f"my key {secret}")
        memory.import_conversation([{"role": "user", "content": f"key {secret}"}])
    assert secret.encode() not in path.read_bytes()


def test_a_tag_is_found_and_forgotten_by_the_name_it_was_given(tmp_path: Path) -> None:
    with Memory(tmp_path / "a.db", embedder=None, redact=lambda text: text.replace("4711", "[key]")) as memory:
        memory.remember("the gate opens at noon", tags=["key 4711"])
        assert memory.db.execute("select tag from tag").fetchall() == [("key [key]",)]
        assert len(memory.search("gate", tags=["key 4711"])) == 1
        assert memory.forget(tag="key 4711").total == 1


def test_a_tag_that_is_redacted_away_is_left_out(tmp_path: Path) -> None:
    with Memory(tmp_path / "a.db", embedder=None, redact=lambda text: text.replace("4711", "")) as memory:
        assert memory.remember("the gate opens at noon", tags=["4711", "gate"]).tags == ("gate",)


def test_a_redaction_that_gives_no_text_is_told_before_anything_is_written(tmp_path: Path) -> None:
    with Memory(tmp_path / "a.db", embedder=None, redact=lambda text: None) as memory:  # type: ignore[arg-type,return-value]
        with pytest.raises(BadInput) as caught:
            memory.remember("likes tea")
        assert caught.value.field == "redact" and len(memory.list("memory")) == 0
