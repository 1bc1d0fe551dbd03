"""Everything measured about recall: `python tests/bench/recall.py DATA [--onnx FOLDER] [--ablation] [--size N]`.

DATA: conversations with questions in the LoCoMo format. `--onnx`: a folder with `model.onnx` and `tokenizer.json` of a
sentence model of the MiniLM class (384 dimensions, mean pooling). `--size`: documents of the largest scope.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from istar_lite import Memory
from istar_lite.bench.recall import ablation, ablation_lines, compare, lines, load, measure_cost
from istar_lite.embedders import FastEmbedder


def embedders(onnx: Path | None) -> dict[str, Any]:
    """The rows of the table."""
    chosen: dict[str, Any] = {"istar-lite, words only": None, "istar-lite, static (default)": "static"}
    if onnx is not None:
        neural = FastEmbedder("all-MiniLM-L6-v2", folder=onnx, dimension=384)
        chosen["istar-lite, MiniLM"] = neural
        chosen["istar-lite, MiniLM + static"] = [neural, "static"]
    return chosen


def costs(data: Path, largest: int) -> Iterator[str]:
    """What a query costs in scopes of 1,000 documents and more, and in a session of 500 within the largest file."""
    conversations = load(data)
    texts = [text for one in conversations for text in one.turns.values()]
    questions = [question.text for one in conversations for question in one.questions]
    chance = random.Random(1)
    chance.shuffle(questions)
    count = 1000
    while count <= largest:
        with tempfile.TemporaryDirectory() as folder, Memory(Path(folder) / "size.db") as memory:
            memory.import_conversation(
                [
                    {
                        "speaker": "Ann",
                        "content": chance.choice(texts),
                        "session": f"s{at // 500}",
                        "timestamp": 1.7e9 + at,
                    }
                    for at in range(count)
                ],
                format="messages",
            )
            memory.status()
            middle = memory.sessions()[count // 1000]["name"]
            for name, session in ((f"{count} documents in scope", None), (f"500 of {count} documents", middle)):
                cost = measure_cost(memory, name, questions[:100], session)
                yield (
                    f"{name}: {cost.cpu_median * 1000:.2f} ms CPU median, {cost.cpu_p95 * 1000:.2f} p95,"
                    f" {cost.wall_median * 1000:.2f} ms wall median; the first {cost.first * 1000:.0f} ms"
                )
        count *= 10


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--onnx", type=Path)
    parser.add_argument("--ablation", action="store_true")
    parser.add_argument("--pooled", action="store_true")
    parser.add_argument("--size", type=int, default=0)
    chosen = parser.parse_args()
    for line in lines(compare(chosen.data, embedders=embedders(chosen.onnx), pooled=chosen.pooled)):
        print(line, flush=True)
    if chosen.ablation:
        for line in ablation_lines(ablation(chosen.data)):
            print(line, flush=True)
    for line in costs(chosen.data, chosen.size):
        print(line, flush=True)


if __name__ == "__main__":
    main()
