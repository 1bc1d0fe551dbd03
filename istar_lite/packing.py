"""`memory.context`: what is worth knowing for the next prompt, packed to a budget of tokens.

Two parts. The stable one (lessons of earlier runs; the log of the session, if one is named) does not depend on the
query, is ordered by id, and stays the same text while nothing changed, so that caches of prompts hold. The changing
one holds the memories, messages, turns and the like that are relevant to the query; nothing relevant, nothing there.

The budget is kept by counting the whole block each time an item is tried: a host's counter need not be additive.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from istar_lite import exchanges, memories, places, recall
from istar_lite.clock import format_time
from istar_lite.frames import escape_frame, fence, one_line
from istar_lite.models import ContextBlock
from istar_lite.recall.query import STOP_WORDS
from istar_lite.text import is_blank, normalise
from istar_lite.trail import Handed, write_trail
from istar_lite.values import as_int, as_name, as_text

if TYPE_CHECKING:
    from istar_lite.database import sqlite3
    from istar_lite.services import Services

TITLE = "memory"
PROFILES = 3  # the newest ones are told unasked
STABLE_SHARE = 0.5  # of the budget, at most
BEST_SHARE = 2 / 3  # of the room, at most, for the best item when it has to be shortened and others wait
LONGEST_TOKEN = 20  # characters; what is longer than the budget at this rate is cut before it is counted
LEAST_SHORTENED = 40  # characters: below, an item says nothing
TOKENS_PER_ITEM = 10  # so many are looked for as would fit if all were this short
MOST_ITEMS = 200
FOUND_KINDS = ("message", "turn", "atom", "episode", "observation", "reflection")

_HEADINGS = {
    "profile": "Lessons of earlier runs:",
    "log": "Log of this conversation:",
    "memory": "Memories:",
    "episode": "What happened earlier:",
    "atom": "What stood out:",
    "turn": "Turns:",
    "message": "Said earlier:",
    "observation": "Noted earlier:",
    "reflection": "Noted earlier:",
}
_PLURALS = {"memory": "memories"}
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class _Item:
    """Something that may go into the block. `section`: under which heading; `lead`: what stands before its text."""

    kind: str
    id: int
    section: str
    lead: str
    text: str
    occurred_at: str
    trail: Handed

    @property
    def line(self) -> str:
        """As it stands in the block. The log has lines and marks of its own."""
        return escape_frame(self.text) if self.section == "log" else f"- {self.lead}{_escaped(self.text)}"


# Each item is rendered anew for each other one that is tried beside it.
_escaped = lru_cache(maxsize=512)(one_line)


def context(
    services: Services,
    namespace: str,
    query: object,
    *,
    budget_tokens: object,
    session: object = None,
    touch: bool = True,
) -> ContextBlock:
    """The block for a prompt; see `Memory.context`."""
    asked = as_text(query, "query", blank=True)
    budget = as_int(budget_tokens, "budget_tokens", low=0)
    name = None if session is None else as_name(session, "session")
    stable = _stable_items(services.file.reader(), namespace, name)
    found = _found_items(services, namespace, asked, name, min(MOST_ITEMS, budget // TOKENS_PER_ITEM + 1))
    block = _Packing(services.count_tokens, budget, asked).pack(stable, found)
    if not block:
        return ContextBlock(reason=_why_empty(services, namespace, bool(stable or found)), left_out=block.left_out)
    if touch and not services.file.read_only:
        _leave_trail(services, namespace, name, asked, block, [*stable, *found])
    return block


def _why_empty(services: Services, namespace: str, anything: bool) -> str:
    if anything:
        return "the budget is too small"
    row = services.file.reader().execute(
        "select 1 from document where namespace = (select id from namespace where name = ?) limit 1", (namespace,)
    )
    return memories.NOTHING_RELEVANT if row.fetchone() else memories.NO_MEMORIES


def _leave_trail(
    services: Services, namespace: str, session: str | None, query: str, block: ContextBlock, items: Sequence[_Item]
) -> None:
    trails = {(item.kind, item.id): item.trail for item in items}
    kept_query = services.stored_text(query, "query", blank=True)
    with services.file.write() as tx:
        now = services.now()
        memories.reinforce(tx, [id for kind, id in block.items if kind == "memory"], now)
        place = None if session is None else places.find_session(tx, namespace, session, "conversation")
        write_trail(tx, namespace, place, "context", kept_query, [trails[item] for item in block.items], now)


# --- what may go in -------------------------------------------------------------------------------------------


def _stable_items(connection: sqlite3.Connection, namespace: str, session: str | None) -> list[_Item]:
    """Lessons and log, in the order of their ids."""
    rows = connection.execute(
        "select * from (select id, profile_id, text, occurred_at from profile where status = 'active' and stale = 0"
        " and text <> '' and namespace = (select id from namespace where name = ?)"
        " and id in (select max(id) from profile where status = 'active' and stale = 0 group by namespace, profile_id)"
        " order by id desc limit ?) order by id",
        (namespace, PROFILES),
    )
    items = [_item("profile", row, "profile", f"{one_line(row['profile_id'])}: ") for row in rows]
    place = None if session is None else places.find_session(connection, namespace, session, "conversation")
    for kind in ("reflection", "observation"):
        rows = connection.execute(
            f"select id, text, occurred_at from {kind} where session = ? and stage = 'active' and status = 'active'"
            " and stale = 0 and text <> '' order by id",
            (place,),
        )
        items += [_item(kind, row, "log", "") for row in rows]
    return items


def _item(kind: str, row: sqlite3.Row, section: str, lead: str) -> _Item:
    trail = (kind, row["id"], None, None, None)
    return _Item(kind, row["id"], section, lead, row["text"], row["occurred_at"], trail)


def _found_items(services: Services, namespace: str, query: str, session: str | None, most: int) -> list[_Item]:
    """What is relevant to the query, best first; one of those that say the same."""
    if is_blank(query):
        return []
    scored: list[tuple[float, _Item]] = []
    for memory in exchanges.find(services, namespace, query, limit=most, ranking="balanced").memories:
        day = f"({memory.created_at:%Y-%m-%d} UTC) "
        at = format_time(memory.created_at)
        item = _Item("memory", memory.id, "memory", day, memory.text, at, exchanges.trail_of(memory))
        scored.append((memory.score, item))
    request = recall.make_request(
        namespace, query, k=most, kinds=FOUND_KINDS, session=session, floor=True, sources=False, explain=False
    )
    for hit in recall.search(services, request):
        speaker = f", {one_line(hit.speaker)}" if hit.speaker else ""
        lead = f"({hit.occurred_at:%Y-%m-%d} UTC{speaker}) "
        trail = (hit.kind, hit.id, hit.score, None, None)
        at = format_time(hit.occurred_at)
        scored.append((hit.score, _Item(hit.kind, hit.id, hit.kind, lead, hit.text, at, trail)))
    scored.sort(key=lambda pair: -pair[0])
    return list({normalise(item.text): item for _, item in reversed(scored)}.values())[::-1]


# --- packing --------------------------------------------------------------------------------------------------


class _Packing:
    """Chooses what fits. The block is put together and counted anew for each item that is tried."""

    def __init__(self, count_tokens: Callable[[str], int], budget: int, query: str) -> None:
        self._count = count_tokens
        self._budget = budget
        self._query = query

    def pack(self, stable: Sequence[_Item], found: Sequence[_Item]) -> ContextBlock:
        """The block; empty when not even its frame and one item fit."""
        kept = self._kept_stable(stable)
        known = {(item.kind, item.id) for item in kept}
        candidates = [item for item in found if (item.kind, item.id) not in known]
        total = [*stable, *(item for item in candidates if item.section != "log")]
        chosen: list[_Item] = []
        for at, item in enumerate(candidates):
            most = self._budget * LONGEST_TOKEN
            if len(item.text) <= most and self._fits(kept, [*chosen, item], total):
                chosen.append(item)
            elif at == 0 and (short := self._shortened(kept, item, total, alone=len(candidates) == 1)):
                chosen.append(short)
        return self._block(kept, chosen, total)

    def _kept_stable(self, stable: Sequence[_Item]) -> list[_Item]:
        """The newest stable items that fit their share of the budget, in their order. The share is the same whatever
        was found, or the part would not be stable; only who asks for nothing else gets it whole."""
        share = int(self._budget * (1.0 if is_blank(self._query) else STABLE_SHARE))
        kept: list[_Item] = []
        for item in reversed(stable):
            if self._count(_render([item, *kept], [], stable)) > share:
                break
            kept.insert(0, item)
        return kept

    def _fits(self, kept: Sequence[_Item], chosen: Sequence[_Item], total: Sequence[_Item]) -> bool:
        return self._count(_render(kept, chosen, total)) <= self._budget

    def _shortened(self, kept: Sequence[_Item], item: _Item, total: Sequence[_Item], *, alone: bool) -> _Item | None:
        """The longest excerpt of the best item that fits, or None."""
        share = 1.0 if alone else BEST_SHARE
        empty = self._count(_render(kept, [replace(item, text="")], total))
        room = empty + int((self._budget - empty) * share)
        # A text of a megabyte is searched for its best part once, not at each step.
        item = replace(item, text=excerpt(item.text, self._query, self._budget * LONGEST_TOKEN))
        low, high = 0, len(item.text)
        while low < high:
            middle = (low + high + 1) // 2
            short = replace(item, text=excerpt(item.text, self._query, middle))
            if self._count(_render(kept, [short], total)) <= room:
                low = middle
            else:
                high = middle - 1
        return replace(item, text=excerpt(item.text, self._query, low)) if low >= LEAST_SHORTENED else None

    def _block(self, kept: Sequence[_Item], chosen: Sequence[_Item], total: Sequence[_Item]) -> ContextBlock:
        left_out = _left_out([*kept, *chosen], total)
        if not kept and not chosen:
            return ContextBlock(left_out=left_out)
        text = _render(kept, chosen, total)
        # Even the smallest block can exceed a host's counter that is not additive: then there is none.
        tokens = self._count(text)
        if tokens > self._budget:
            return ContextBlock(left_out=_left_out([], total))
        return ContextBlock(
            text,
            tokens=tokens,
            stable=_stable_text(kept, text),
            items=tuple((item.kind, item.id) for item in (*kept, *_in_order(chosen))),
            left_out=left_out,
        )


def _render(kept: Sequence[_Item], chosen: Sequence[_Item], total: Sequence[_Item]) -> str:
    body = [*_lines(kept), *_lines(_in_order(chosen)), *_note([*kept, *chosen], total)]
    return fence(TITLE, "\n".join(body), escaped=True)


def _in_order(items: Sequence[_Item]) -> list[_Item]:
    """Under their headings, oldest first."""
    headings = list(_HEADINGS)
    return sorted(items, key=lambda item: (headings.index(item.section), item.occurred_at, item.id))


def _lines(items: Sequence[_Item]) -> list[str]:
    lines: list[str] = []
    heading = ""
    for item in items:
        if _HEADINGS[item.section] != heading:
            heading = _HEADINGS[item.section]
            lines.append(heading)
        lines.append(item.line)
    return lines


def _stable_text(kept: Sequence[_Item], text: str) -> str:
    """The part of the block that does not depend on the query: up to the end of its last stable line."""
    if not kept:
        return ""
    end = text.index("\n".join(_lines(kept))) + len("\n".join(_lines(kept)))
    return text[:end]


def _note(shown: Sequence[_Item], total: Sequence[_Item]) -> list[str]:
    left = _left_out(shown, total)
    if not left:
        return []
    told = (f"{count} {kind if count == 1 else _PLURALS.get(kind, kind + 's')}" for kind, count in left.items())
    return [f"(Left out for want of room: {', '.join(told)}.)"]


def _left_out(shown: Sequence[_Item], total: Sequence[_Item]) -> dict[str, int]:
    seen = {(item.kind, item.id) for item in shown}
    return dict(Counter(item.kind for item in total if (item.kind, item.id) not in seen))


def excerpt(text: str, query: str, length: int) -> str:
    """At most `length` characters of `text`, there where most words of the query stand, with an ellipsis where it is
    cut. A long text may hold what is asked for in its last line."""
    if len(text) <= length:
        return text
    if length < 3:
        return ""
    room = length - 2
    start = _best_start(text, set(_WORD.findall(query.casefold())) - STOP_WORDS, room)
    piece = text[start : start + room].strip()
    return ("…" if start else "") + piece + ("…" if start + room < len(text) else "")


def _best_start(text: str, wanted: set[str], room: int) -> int:
    """Where to begin so that most different words of the query stand in the first three quarters. Of places that are
    equal the last: it begins with a word that counts, not with filler before it."""
    places_of = [
        (match.start(), match.group().casefold())
        for match in _WORD.finditer(text)
        if match.group().casefold() in wanted
    ]
    best, start, last = 0, 0, 0
    within: Counter[str] = Counter()
    for begin, word in places_of:
        while last < len(places_of) and places_of[last][0] < begin + room * 3 // 4:
            within[places_of[last][1]] += 1
            last += 1
        if len(+within) >= best:
            best, start = len(+within), begin
        within[word] -= 1
    start = max(0, min(start - room // 4, len(text) - room)) if best else 0
    space = text.find(" ", start, start + 20) if start else -1
    return space + 1 if space >= 0 else start
