"""An assistant whose conversation outgrows its context window, and that still knows what was said at the start.

    python examples/long_context.py [MEMORY.db]

A night of operations: 120 rounds with tool calls, some 6,000 tokens, through a window of 2,000. While it runs, an
observer turns older messages into a dated log; when the window fills, the log takes their place; when the log grows, a
reflector condenses it. At the end the assistant looks up the exact words of something that no longer stands anywhere
in its context. Without a model's key it observes with a small scripted model, so it runs anywhere and asks no network;
for a real one see `the_model`.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from istar_lite import Memory, ObservationConfig, ObservationEvent, ReflectionEvent

WINDOW = 2_000
# The defaults suit windows of 32,000 tokens and more; so small a one is observed in smaller steps.
CONFIG = ObservationConfig(buffer_min_tokens=300)
HOSTS = ("auriga", "bootes", "cygnus", "draco")


def the_model() -> Any:
    """Whoever observes and condenses; a small, cheap model will do. For a real one: `return anthropic.Anthropic()`,
    `openai.OpenAI()` or `ollama.Client()`, and `Memory(..., llm=the_model(), model="its name")`."""
    return scripted


def scripted(messages: list[dict[str, str]], *, tag: str | None = None) -> str:
    """A model of a few rules: it notes what is said to be a rule or has failed, and forgets the rest when it must."""
    asked = messages[-1]["content"]
    if tag == "reflect":
        log = asked[asked.index("<observations>") + len("<observations>") : asked.rindex("</observations>")]
        kept = [line for line in log.strip().splitlines() if not line.startswith(("* ~", "* v"))]
        return "<observations>\n" + "\n".join(kept) + "\n</observations>"
    return "<observations>\n" + "\n".join(noted(asked.split("Messages:\n")[1])) + "\n</observations>"


def noted(said: str) -> Iterator[str]:
    """The lines of the log that these messages are worth."""
    for line in said.splitlines():
        if line.startswith("Date: "):
            yield line
        found = re.match(r"\*\*(\w+) \((\d\d:\d\d)\)\*\*(?: result of \w+)?: (.*)", line)
        if found is None:
            continue
        who, time, text = found.groups()
        if "always" in text.lower() or "never" in text.lower():
            yield f"* ! ({time}) {who}: {text.split('. ')[0]}"
        elif "FAILED" in text:
            yield f"* - ({time}) {text}"
        elif who == "user":
            yield f"* ~ ({time}) asked: {text[:40]}"


def night() -> Iterator[dict[str, Any]]:
    """What is said: rules at the start, then checks through the night; one of them fails."""
    yield {
        "role": "user",
        "content": "Never reboot draco by day. The spare key of rack 7 is under the fern, code 4711.",
    }
    yield {"role": "assistant", "content": "Understood: draco is not rebooted by day."}
    for number in range(120):
        host = HOSTS[number % len(HOSTS)]
        failed = number == 57
        yield {"role": "user", "content": f"Round {number}: is {host} well?"}
        call = {"type": "tool_use", "id": f"call-{number}", "name": "check", "input": {"host": host, "round": number}}
        yield {"role": "assistant", "content": [call]}
        report = (
            f"FAILED: {host} has 0 bytes left on /var" if failed else f"{host} ok, load 0.{number % 10}" + " ." * 40
        )
        result = {"type": "tool_result", "tool_use_id": f"call-{number}", "content": report}
        yield {"role": "user", "content": [result]}
        yield {"role": "assistant", "content": f"{host} needs room on /var." if failed else f"{host} is well."}


def play(memory: Memory) -> None:
    """The night, turn by turn, as a host would drive it."""
    observing = memory.observe("night shift", context_window=WINDOW, config=CONFIG, background="thread")
    recall = observing.recall_tool()  # given to the main model beside its other tools
    sizes: list[int] = []
    said = 0

    @observing.on_observation
    def tell(event: ObservationEvent) -> None:
        print(f"  observed messages {event.first_id}–{event.last_id}{' at once' if event.sync else ''}")

    @observing.on_reflection
    def tell_too(event: ReflectionEvent) -> None:
        print(f"  condensed the log: {len(event.before)} → {len(event.after)} characters, level {event.level}")

    for number, message in enumerate(night()):
        said += observing.add(**message, occurred_at=1_772_000_000 + 30 * number).tokens or 0
        if message["role"] == "user":
            context = observing.context()  # what the main model would be sent now
            sizes.append(context.tokens)
        else:
            observing.turn_end()
            observing.wait(10)  # a host need not wait; this makes the story the same each time
    state = observing.state()
    print(f"\nsaid {said} tokens, never sent more than {max(sizes)} of {WINDOW}; the log has {state.tokens} tokens")
    print("\n".join(show(observing.context())))
    print("\nrecall('code of the spare key'):\n" + recall("code of the spare key").splitlines()[2][:120])


def show(context: Sequence[dict[str, Any]]) -> Iterator[str]:
    """The log as the main model sees it, and how much stands after it."""
    yield from context[0]["content"].split("<observations>")[1].split("</observations>")[0].strip().splitlines()[:8]
    yield f"… and {len(context) - 1} messages as they were said"


def main() -> None:
    """Plays the night, then opens the file again and finds everything where it was."""
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp()) / "night.db"
    with Memory(path, llm=the_model()) as memory:
        play(memory)
    with Memory(path) as memory:
        again = memory.observe("night shift", context_window=WINDOW, config=CONFIG, background=None)
        print(f"\nopened again, nobody asked: {len(again.context())} messages, generation {again.state().generation}")


if __name__ == "__main__":
    main()
