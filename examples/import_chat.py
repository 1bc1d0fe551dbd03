"""Bring a chat log into a memory, ask it, and bring it in again: nothing doubles.

    python examples/import_chat.py [CHAT.jsonl] [QUESTION]

Without arguments it writes a small log into a temporary folder and uses that. No network is asked.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from istar_lite import Memory

LOG = [
    ("gardener", "2025-11-03T09:12:00Z", "The greenhouse heater failed again, the third time since October."),
    ("neighbour", "2025-11-03T09:15:00Z", "Same fuse as before? The electrician said the wiring was fine."),
    ("gardener", "2025-11-03T09:16:00Z", "Same fuse. I put in a 16 ampere one and it held."),
    ("neighbour", "2025-11-20T18:40:00Z", "The orchids survived the frost, all but two."),
    ("gardener", "2025-11-21T08:02:00Z", "Good. Let us order the replacement from the nursery in Delft."),
]


def sample(folder: Path) -> Path:
    """A log as JSON lines, one message each, one line spoilt."""
    lines = [json.dumps({"speaker": who, "timestamp": when, "text": text}) for who, when, text in LOG]
    path = folder / "greenhouse.jsonl"
    path.write_text("\n".join([*lines, "this line is no message"]) + "\n", encoding="utf-8")
    return path


def main(log: Path, question: str, folder: Path) -> None:
    """Imports the log twice and asks it once."""
    with Memory(folder / "chat.db") as memory:
        for attempt in ("first", "second"):
            done = memory.import_conversation(log)
            print(f"{attempt} time: {done.messages} new, {done.skipped} known, {len(done.errors)} bad")
        for number, reason in done.errors:
            print(f"  line {number}: {reason}")
        print(f"\n{question}")
        for hit in memory.search(question, k=3):
            print(f"  {hit.occurred_at:%Y-%m-%d} {hit.speaker}: {hit.text}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        where = Path(temporary)
        source = Path(sys.argv[1]) if len(sys.argv) > 1 else sample(where)
        main(source, sys.argv[2] if len(sys.argv) > 2 else "what kept breaking the heating?", where)
