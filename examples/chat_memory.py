"""A chat in the terminal that remembers: across restarts, with corrections, and tells what it knows.

    python examples/chat_memory.py [MEMORY.db]

Without a model's key it talks to a small scripted model, so it runs anywhere and asks no network. With a real client it
is one line: see `the_model`. Typed lines are the conversation; `/memories` lists what is known, `/forget WORD` forgets,
`/quit` ends. With input that is no terminal, a short prepared conversation is played.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from istar_lite import Memory

STORY = (
    "My name is Marta and my dog is called Rex.",
    "I live in Leith, close to the harbour.",
    "Where do I live?",
    "I moved, I live in Oslo now.",
    "Where do I live?",
    "What is the name of my dog?",
    "/memories",
    "/forget Rex",
    "What is the name of my dog?",
)


def the_model() -> Any:
    """Whoever answers and takes out the memories. For a real one: `return anthropic.Anthropic()`, `openai.OpenAI()` or
    `ollama.Client()`, and `Memory(..., llm=the_model(), model="its name")`."""
    return scripted


def scripted(messages: list[dict[str, str]], *, tag: str | None = None) -> str:
    """A model of a few rules. Memories (tag "extract"): each sentence about "my" or "I". Else it answers from what
    the prompt's memory block says."""
    said = messages[-1]["content"]
    if tag == "extract":
        return json.dumps({"memories": list(statements(said))})
    block, _, question = said.rpartition("</istar_memory>")
    known = re.findall(r"^- \(.*?\) (.*)$", block, re.MULTILINE)
    if not question.strip().endswith("?"):
        return "Noted."
    return f"You told me: {known[0]}" if known else "I do not know that."


def statements(request: str) -> Iterable[dict[str, Any]]:
    """Memories out of the request to extract; a new home replaces a known one."""
    known, _, said = request.partition("The user said")
    said = said.partition(":\n")[2].partition("The assistant replied:")[0]
    for sentence in re.split(r"(?<=[.!])\s+", said.strip()):
        if sentence.endswith("?") or not re.search(r"\b(my|I)\b", sentence, re.IGNORECASE):
            continue
        homes = [int(number) for number in re.findall(r"^(\d+)\. .*\blive\b", known, re.MULTILINE)]
        yield {"text": sentence, "importance": 0.8, "replaces": homes if "live" in sentence else []}


def reply(memory: Memory, line: str) -> str:
    """One round: what matters now goes into the prompt, the answer comes back, both are stored."""
    chat = memory.chat("terminal")
    recalled = chat.retrieve(line)
    answer = scripted([{"role": "user", "content": f"{recalled.to_prompt()}\n{line}"}])
    chat.store(line, answer)
    return answer


def command(memory: Memory, line: str) -> str:
    """`/memories` and `/forget WORD`."""
    name, _, argument = line.partition(" ")
    if name == "/memories":
        rows = memory.list("memory")
        return "\n".join(f"  {row.id}. {row.text} ({row.status})" for row in rows) or "  nothing yet"
    if name == "/forget" and argument.strip():
        return f"forgotten: {dict(memory.forget(text=argument.strip()).counts)}"
    return "commands: /memories, /forget WORD, /quit"


def typed() -> Iterable[str]:
    """Lines of the terminal; the prepared story where there is none."""
    if not sys.stdin.isatty():
        yield from STORY
        return
    while (line := input("you> ").strip()) != "/quit":
        if line:
            yield line


def main(path: Path) -> None:
    """Talks until the lines end."""
    with Memory(path, llm=the_model()) as memory:
        for line in typed():
            if not sys.stdin.isatty():
                print(f"you> {line}")
            print(command(memory, line) if line.startswith("/") else f"bot> {reply(memory, line)}")
        print(f"kept in {path}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(Path(folder) / "chat.db")
