"""The map in tests/README.md leads to tests that are there."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent


def test_every_test_that_the_map_names_is_there() -> None:
    code = "\n".join(path.read_text(encoding="utf-8") for path in HERE.rglob("test_*.py"))
    there = set(re.findall(r"def test_(\w+)", code))
    rows = [line for line in (HERE / "README.md").read_text(encoding="utf-8").splitlines() if line.startswith("| R")]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert named - there == set()


def test_the_map_holds_every_report_with_two_more_of_its_kind() -> None:
    rows = [line for line in (HERE / "README.md").read_text(encoding="utf-8").splitlines() if line.startswith("| R")]
    assert [row[2:5] for row in rows] == [f"R{number:02}" for number in range(1, 28)]
    assert all(len(re.findall(r"`\w+`", row.split("|")[4])) >= 2 for row in rows)
