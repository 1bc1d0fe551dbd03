"""The command line: the memory file first, JSON on request, exit status 0, 1 or 2, errors in one line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from conftest import Shell

from istar_lite import Memory, TurnRecord, __version__
from istar_lite.cli import main
from istar_lite.cli.common import printable
from istar_lite.cli.showing import LOOK
from istar_lite.testing import WordEmbedder


@pytest.fixture
def filled(path: Path) -> Path:
    with Memory(path) as memory:
        memory.remember("The spare key is with Ada", tags=["keys"])
        memory.remember("Trams stop at midnight")
        run = memory.agent("market", extract_every=2)
        for turn in range(1, 5):
            run.tick(TurnRecord(turn=turn, reward=10.0 - turn * 4, reward_unit="EUR", events=["storm"]))
        memory.import_conversation([{"speaker": "Ana", "content": f"message {n}"} for n in range(5)], session="kitchen")
    return path


def leaves(command: click.Command) -> list[click.Command]:
    if isinstance(command, click.Group):
        return [leaf for each in command.commands.values() for leaf in leaves(each)]
    return [command]


def test_every_command_tells_what_it_does_and_prints_json() -> None:
    for command in leaves(main):
        names = {name for parameter in command.params for name in parameter.opts}
        assert command.help and ("--json" in names or command.name in ("mcp", "view", "report")), command.name


def test_the_memory_file_is_the_first_argument_of_every_command() -> None:
    for name, command in main.commands.items():
        if name != "bench":
            first = next(parameter for parameter in command.params if isinstance(parameter, click.Argument))
            assert first.name == "file", name


def test_the_demo_leaves_a_file_with_all_layers_whose_queries_run(shell: Shell, path: Path) -> None:
    output = shell("demo", path, "--turns", 60).output
    assert "rules" in output and f"sqlite3 -box {path}" in output
    with Memory(path, embedder=None) as memory:
        counts = memory.stats()["kinds"]
        assert counts["turn"] == 120 and counts["atom"] and counts["episode"] and counts["profile"]
        for query in LOOK:
            assert memory.db.execute(query).fetchall(), query
        assert memory.check() == []
    assert set(shell.json("demo", path, "--turns", 60)) == {"path", "runs", "memory_block"}


def test_the_report_is_a_page_and_the_memory_is_never_its_place(shell: Shell, filled: Path, tmp_path: Path) -> None:
    page = tmp_path / "memory.html"
    assert shell.json("report", filled, "-o", page)["bytes"] == page.stat().st_size
    assert "spare key" in page.read_text(encoding="utf-8")
    assert "rows shown whole" in shell("report", filled, "-o", page).output
    assert "memory file itself" in shell("report", filled, "-o", filled, code=2).stderr


def test_help_and_version_ask_no_file(shell: Shell) -> None:
    assert "search" in shell("--help").output
    assert __version__ in shell("--version").output


def test_search_finds_and_says_when_nothing_is_found(shell: Shell, filled: Path) -> None:
    assert "The spare key is with Ada" in shell("search", filled, "who has the key?", "-k", 1).output
    found = shell.json("search", filled, "spare key", "--kind", "memory")
    assert found["hits"][0]["text"] == "The spare key is with Ada"
    assert {"query", "mode", "filtered", "hits"} <= set(found)
    nothing = shell("search", filled, "spare key", "--session", "nowhere", code=1)
    assert nothing.stdout == "" and "nothing found" in nothing.stderr
    assert shell.json("search", filled, "   ", code=1)["hits"] == []


def test_search_explains_each_score(shell: Shell, filled: Path) -> None:
    output = shell("search", filled, "spare key", "-k", 1, "--explain").output
    assert "words:" in output and "score" in output


def test_looking_changes_no_byte_and_works_on_a_file_that_cannot_be_written(shell: Shell, filled: Path) -> None:
    before = filled.read_bytes()
    filled.chmod(0o400)
    for arguments in (["search", filled, "key"], ["show", filled], ["stats", filled], ["status", filled]):
        shell(*arguments)
    shell("context", filled, "spare key")
    shell("check", filled)
    assert filled.read_bytes() == before
    assert [each.name for each in filled.parent.iterdir()] == [filled.name]


def test_import_tells_what_came_what_was_known_and_what_was_bad(shell: Shell, path: Path, tmp_path: Path) -> None:
    source = tmp_path / "chat.jsonl"
    source.write_text('{"role": "user", "content": "hello"}\nnonsense\n')
    told = shell("import", path, source, code=1)
    assert "1 message in 1 session; 1 problem" in told.stdout
    assert f"{source}:2: is not JSON" in told.stderr
    assert shell.json("import", path, source, code=1)["skipped"] == 1
    source.write_text('{"role": "user", "content": "hello"}\n{"role": "user", "content": "bye"}\n')
    assert shell.json("import", path, source, "--dry-run") == {
        "messages": 1,
        "memories": 0,
        "skipped": 1,
        "forgotten": 0,
        "sessions": 1,
        "errors": [],
        "dry_run": True,
    }
    assert "would import 1 message" in shell("import", path, source, "--dry-run").output


def test_remember_reads_from_stdin_and_counts_what_it_knows(shell: Shell, path: Path) -> None:
    shell("remember", path, "-", "--tag", "a", "--tag", "b", input="likes tea\n")
    kept = shell.json("remember", path, "Likes tea.")
    assert (kept["text"], kept["mention_count"], kept["tags"]) == ("likes tea", 2, ["a", "b"])
    assert "told 3 times" in shell("remember", path, "likes tea").output


def test_forget_wants_to_be_told_what(shell: Shell, filled: Path) -> None:
    assert "--tag" in shell("forget", filled, code=2).stderr
    assert shell.json("forget", filled, "--tag", "keys")["counts"]["memory"] == 1
    assert "forgot 0 rows" in shell("forget", filled, "--tag", "keys", code=1).output
    assert shell.json("forget", filled, "--id", 1, "--id", 2, "--kind", "turn")["total"] >= 2
    assert shell.json("forget", filled, "--everything")["total"] > 0
    assert shell.json("stats", filled)["kinds"]["memory"] == 0


def test_verify_forget_tells_gone_from_not_gone(shell: Shell, filled: Path) -> None:
    text = "The spare key is with Ada"
    assert shell.json("verify-forget", filled, text, code=1)["ok"] is False
    shell("forget", filled, "--text", text, "--secure")
    assert "stays away" in shell("verify-forget", filled, text).output


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        ("sessions", "market"),
        ("turns", "-2 EUR"),
        ("atoms", "reward_turned_negative"),
        ("memories", "Trams"),
        ("memory", "Trams"),
        ("messages", "Ana"),
        ("namespaces", "default"),
        ("tasks", "atoms"),
    ],
)
def test_show_prints_rows_of_a_kind(shell: Shell, filled: Path, kind: str, word: str) -> None:
    assert word in shell("show", filled, kind).output
    assert set(shell.json("show", filled, kind)) == {"kind", "items", "has_more", "after"}


def test_show_pages_through_all_rows_once(shell: Shell, filled: Path) -> None:
    seen, after = [], 0
    while True:
        page = shell.json("show", filled, "messages", "--limit", 2, "--after", after)
        seen += [item["content"] for item in page["items"]]
        after = page["after"]
        if not page["has_more"]:
            break
    assert seen == [f"message {n}" for n in range(5)]
    assert "--after 2" in shell("show", filled, "messages", "--limit", 2).output


def test_show_one_row_and_no_rows(shell: Shell, filled: Path) -> None:
    assert shell.json("show", filled, "turn", "--id", 2)["turn"] == 2
    assert "T2 · 2 EUR" in shell("show", filled, "turns", "--id", 2).output
    shell("show", filled, "turns", "--id", 99, code=1)
    assert "no episodes" in shell("show", filled, "episodes", code=1).stderr
    shell("show", filled, "-n", "somebody else", code=1)


def test_stats_and_status_have_a_stable_shape(shell: Shell, filled: Path) -> None:
    stats = shell.json("stats", filled)
    assert {"namespace", "kinds", "sessions", "bytes", "driver"} <= set(stats)
    assert (stats["kinds"]["turn"], stats["kinds"]["memory"], stats["sessions"]) == (4, 2, 2)
    status = shell.json("status", filled)
    assert {"due", "failed", "claimed", "pending_vectors", "mode", "last_error", "calls", "tokens"} <= set(status)
    assert {"tables", "free", "per_1000_turns", "growth"} <= set(stats)
    assert "document_fts" in stats["tables"] and "too early" in stats["growth"]["rests_on"]
    assert "document_fts" in shell("stats", filled).output and "too early" in shell("stats", filled).output
    assert "driver" in shell("stats", filled).output and "hybrid" in shell("status", filled).output


MODEL = """
from istar_lite.testing import ScriptedLLM
model = ScriptedLLM([], default='{"memories": [{"text": "plays chess", "importance": 0.9, "emotion": "joy"}]}')
broken = ScriptedLLM([], default=TimeoutError("no answer"))
"""


def test_work_asks_the_model_that_is_named(
    shell: Shell, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Memory(path, embedder=None) as memory, pytest.warns(UserWarning, match="no model given"):
        memory.chat().store("I play chess", "Nice.")
    (tmp_path / "scripted_model.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    assert shell.json("work", path, "--llm", "scripted_model:broken", code=1)["failed"] == 1
    told = shell.json("work", path, "--llm", "scripted_model:model", "--force")
    assert (told["done"], told["due"], told["failed"]) == (1, 0, 0)
    assert "plays chess" in shell("show", path, "memories").output
    for wrong in ("scripted_model", "scripted_model:absent", "no_such_module:x"):
        assert "--llm" in shell("work", path, "--llm", wrong, code=2).stderr


READER = """
import re
def model(messages):
    asked = messages[-1]["content"]
    if "Valid phases" in asked:
        return "[BOOM | T1-T2]\\nPrices rose and the stock was sold while the permits grew dear, and money was made."
    if "Result" in asked:
        return "[RUN RETROSPECTIVE]\\nRoot cause: the permits were bought late.\\nRule: IF dear THEN wait (T3)"
    if "Messages:" in asked:
        return "no idea"
    return asked
"""


def test_bench_prompts_tells_how_many_answers_can_be_read(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = Path(__file__).parent / "data" / "model_answers_free.jsonl"
    (tmp_path / "reading_model.py").write_text(READER)
    monkeypatch.chdir(tmp_path)
    told = {one["purpose"]: one for one in shell.json("bench", "prompts", data, "--llm", "reading_model:model", code=1)}
    assert (told["episode"]["asked"], told["episode"]["readable"]) == (3, 3)
    assert (told["retro"]["asked"], told["retro"]["readable"]) == (2, 2)
    assert (told["observe"]["asked"], told["observe"]["readable"]) == (2, 0)
    assert "observe: " in shell("bench", "prompts", data, "--llm", "reading_model:model", code=1).stderr
    other = tmp_path / "other.jsonl"
    other.write_text('{"purpose": "sing", "request": [{"content": "x"}]}')
    assert "line 1" in shell("bench", "prompts", other, "--llm", "reading_model:model", code=2).stderr


def test_snapshot_merge_and_export_move_a_memory(shell: Shell, filled: Path, tmp_path: Path) -> None:
    copy, rows = tmp_path / "copy.db", tmp_path / "rows.jsonl"
    assert shell.json("snapshot", filled, copy)["bytes"] == copy.stat().st_size
    assert "--overwrite" in shell("snapshot", filled, copy, code=2).stderr
    shell("snapshot", filled, copy, "--overwrite")
    assert shell.json("merge", filled, copy, "--dry-run", code=1) == {"differences": []}
    shell("remember", copy, "only in the copy")
    assert [each["text"] for each in shell.json("merge", filled, copy, "--dry-run")["differences"]] == [
        "only in the copy"
    ]
    assert shell.json("merge", filled, copy)["added"]["memory"] == 1
    assert shell.json("merge", filled, copy)["total"] == 0
    assert shell.json("export", filled, rows)["rows"]["memory"] == 3
    shell("import", tmp_path / "new.db", rows)
    assert shell.json("stats", tmp_path / "new.db")["kinds"] == shell.json("stats", filled)["kinds"]


def test_check_tells_what_is_wrong_and_mends_it(shell: Shell, filled: Path) -> None:
    assert shell.json("check", filled) == {"problems": [], "whole": True}
    with Memory(filled, embedder=None) as memory:
        memory.db.execute("insert into document_fts (document_fts) values ('delete-all')")
        memory.db.conn.commit()
    assert shell("check", filled, code=1).output.strip()
    shell("check", filled, "--fix")
    assert "whole" in shell("check", filled).output


def test_a_seal_tells_what_was_changed_at_rest(shell: Shell, filled: Path) -> None:
    shell("seal", filled, "--key", "k")
    shell("check", filled, "--key", "k")
    with Memory(filled, embedder=None) as memory:
        memory.db["memory"].update(1, {"importance": 0.1})
    assert "memory" in shell("check", filled, "--key", "k", code=1).output


def test_reembed_makes_the_vectors_that_are_missing(shell: Shell, path: Path) -> None:
    with Memory(path, embedder=None) as memory:
        memory.remember_many(["likes tea", "plays chess"])
    assert shell.json("reembed", path) == {"documents": 2}
    assert "0 documents" in shell("reembed", path, "--embedder", "static").output
    assert shell.json("search", path, "tea", "--embedder", "static")["mode"] == "hybrid"


def test_context_prints_the_block_or_why_it_is_empty(shell: Shell, filled: Path) -> None:
    assert "spare key" in shell("context", filled, "where is the spare key?").output
    block = shell.json("context", filled, "where is the spare key?", "--budget", 200)
    assert block["tokens"] <= 200 and block["items"]
    assert shell("context", filled, "zzqq xxyy", code=1).stderr.strip()


def test_namespaces_do_not_see_each_other(shell: Shell, path: Path) -> None:
    shell("remember", path, "a secret of Ana", "-n", "ana")
    assert shell.json("search", path, "secret", code=1)["hits"] == []
    assert shell.json("search", path, "secret", "-n", "ana")["hits"]


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["search"], "FILE"),
        (["serach", "x.db", "q"], "search"),
        (["search", "absent.db", "q"], "absent.db"),
        (["work", "absent.db"], "absent.db"),
        (["export", "absent.db", "rows.jsonl"], "absent.db"),
        (["search", "text.db", "q"], "text.db"),
        (["remember", "agent.db", "x", "--importance", "7"], "importance"),
        (["remember", "agent.db", "x", "--occurred-at", "2026-02-30"], "occurred_at"),
        (["remember", "nowhere/agent.db", "x"], "nowhere"),
        (["remember", "agent.db", "  "], "blank"),
        (["import", "agent.db", "absent.json"], "absent.json"),
        (["import", "agent.db", "text.db"], "text"),
        (["search", "agent.db", "q", "-k", "-1"], "k"),
        (["search", "agent.db", "q", "--since", "yesterday"], "since"),
        (["show", "agent.db", "dragons"], "dragons"),
    ],
)
def test_an_error_is_one_line_that_names_the_thing_and_no_traceback(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], word: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.db").write_text("this is no database")
    if arguments[1:2] == ["agent.db"] and arguments[0] in ("search", "show"):
        Memory("agent.db", embedder=None).close()
    result = shell(*arguments, code=2)
    assert result.stdout == ""
    assert result.stderr.startswith("istar-lite: ") and result.stderr.count("\n") == 1
    assert word in result.stderr
    assert not (tmp_path / "absent.db").exists()


def test_what_was_stored_cannot_steer_the_terminal(shell: Shell, path: Path) -> None:
    shell("remember", path, "evil \x1b[2J\x1b]0;title\x07 text\u202e")
    output = shell("show", path, "memories").output
    assert "\x1b" not in output and "\x07" not in output and "\u202e" not in output
    assert printable("a\nb\tc") == "a b c"


def run(*arguments: object, **more: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "istar_lite", *map(str, arguments)]
    root = str(Path(__file__).parent.parent)
    more.setdefault("env", {"PATH": "/usr/bin:/bin", "PYTHONPATH": root})
    return subprocess.run(command, capture_output=True, text=True, check=False, **more)


def test_a_terminal_that_lacks_the_characters_still_gets_its_answer(shell: Shell, path: Path) -> None:
    shell("remember", path, "likes 緑茶 and crème")
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path(__file__).parent.parent), "PYTHONIOENCODING": "latin-1"}
    assert "likes ?? and cr" in run("show", path, "memories", env=env, encoding="latin-1").stdout
    told = json.loads(run("show", path, "memories", "--json", env=env, encoding="latin-1").stdout)
    assert told["items"][0]["text"] == "likes 緑茶 and crème"


def test_closed_standard_streams_are_no_crash(shell: Shell, path: Path) -> None:
    shell("remember", path, "likes tea")
    command = f"{sys.executable} -m istar_lite"
    for line, status in (
        (f"search {path} tea >&-", 0),
        (f"remember {path} - <&-", 2),
        (f"forget {path} --everything <&-", 0),
    ):
        told = subprocess.run(
            ["/bin/sh", "-c", f"{command} {line}"], capture_output=True, text=True, check=False,
            env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path(__file__).parent.parent)},
        )  # fmt: skip
        assert (told.returncode, "Traceback" in told.stderr) == (status, False), told.stderr


def test_a_warning_is_one_line_too(shell: Shell, path: Path) -> None:
    with Memory(path, embedder=WordEmbedder()) as memory:
        memory.remember("likes tea")
    told = run("search", path, "tea")
    assert told.returncode == 0 and "likes tea" in told.stdout
    assert told.stderr.startswith("istar-lite: ") and told.stderr.count("\n") == 1


def test_as_a_module_it_is_the_same_command(shell: Shell, path: Path) -> None:
    assert run("remember", path, "hello").returncode == 0
    missing = run("search", path.with_name("absent.db"), "x")
    assert (missing.returncode, missing.stdout, missing.stderr.count("\n")) == (2, "", 1)


def test_progress_is_drawn_in_a_terminal_only(shell: Shell, path: Path, tmp_path: Path) -> None:
    source = tmp_path / "chat.jsonl"
    source.write_text('{"content": "x"}\n')
    assert run("import", path, source).stderr == ""


def test_the_shell_completes_commands_and_kinds(path: Path) -> None:
    complete = {"COMP_WORDS": f"istar-lite show {path} ep", "COMP_CWORD": "3", "_ISTAR_LITE_COMPLETE": "bash_complete"}
    result = CliRunner().invoke(main, [], prog_name="istar-lite", env=complete)
    assert "plain,episodes" in result.output
