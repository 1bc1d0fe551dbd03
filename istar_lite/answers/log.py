"""The observation log: dated lines with a mark and a time, read in the forms that models write, written in one.

Date: Mar 3, 2026
* ! (09:10) User wants the nightly report as CSV
  * -> never before 07:00
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

CRITICAL, MEDIUM, LOW, DONE = "!", "-", "~", "v"
MARKS = {CRITICAL: "critical", MEDIUM: "medium", LOW: "low", DONE: "done"}

_MARKS_READ = {
    **dict.fromkeys(("!", "!!", "🔴", "❗", "‼"), CRITICAL),
    **dict.fromkeys(("-", "–", "*", "**", "***", "•", "🟡", "🟠", " "), MEDIUM),
    **dict.fromkeys(("~", "🟢", "⚪", "🔵"), LOW),
    **dict.fromkeys(("v", "x", "✓", "✔", "✅", "☑"), DONE),
}
_SYMBOLS = "|".join(re.escape(mark) for mark in sorted(_MARKS_READ, key=len, reverse=True) if mark not in "vx ")
_BULLET = re.compile(r"([ \t]*)(?:[*•+–-]|\d{1,3}[.)])(?=[ \t\[(!🔴🟡🟢✅])[ \t]*")
_BARE_MARK = re.compile(r"([ \t]*)(?=(?:!|🔴|🟡|🟢|✅)[ \t]*\(|\(\d{1,2}:\d\d)")
_ARROW = re.compile(r"(?:->|→|=>)[ \t]*")
_MARK = re.compile(rf"(?:\[({_SYMBOLS}|[vVxX ])\]|({_SYMBOLS})\ufe0f?(?=[ \t(\[]|$)|(v)(?=[ \t]))[ \t]*")
_TIME = re.compile(
    r"[(\[](~?\d{1,2}[:.]\d{2}(?:[:.]\d{2})?(?:[ \t]*[-–][ \t]*\d{1,2}[:.]\d{2})?(?:[ \t]*[ap]\.?m\.?)?)[)\]]"
    r"[ \t]*:?[ \t]*|(\d{1,2}:\d{2})[ \t]+(?:[-–:][ \t]+)?",
    re.IGNORECASE,
)
_DATE = re.compile(r"[ \t>#*_]*date[*_]*[ \t]*[:：][*_]*[ \t]*\[?([^\[\]\n]{1,60}?)\]?[*_]*[ \t.:]*\Z", re.IGNORECASE)
_BARE_DATE = re.compile(r"[ \t>#*_\[]*((?=[^\n]{0,40}\d{4})(?=[^\n]*\d)[A-Za-z\d ,./-]{6,40}?)[\]*_]*[ \t.:]*\Z")
_MONTH_OR_NUMBER = re.compile(r"\d|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec", re.IGNORECASE)
_MOST_MARKS = 6  # marks and times before the text of one line
_RULER = re.compile(r"[\W_]*\Z")


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line. `mark` is one of MARKS or "" (none was written); `time` as written, without brackets, or "";
    `detail`: it belongs to the line above; `date`: of the header above it, or ""."""

    text: str
    mark: str = ""
    time: str = ""
    date: str = ""
    detail: bool = False


def parse_log(text: str) -> list[LogLine]:
    """The lines of a log in any of the forms that models write; lines before the first bullet are no part of it,
    lines without a bullet go on the one above."""
    lines: list[LogLine] = []
    date = ""
    for raw in text.splitlines():
        if (found := _date_of(raw)) is not None:
            date = found
        elif (bullet := _BULLET.match(raw) or _BARE_MARK.match(raw)) is not None:
            if line := _line(raw[bullet.end() :], date, indent=len(bullet[1].expandtabs(4)), first=not lines):
                lines.append(line)
        elif lines and not _RULER.match(raw):
            last = lines[-1]
            lines[-1] = LogLine(f"{last.text} {raw.strip()}", last.mark, last.time, last.date, last.detail)
    return lines


def is_of_log(raw: str) -> bool:
    """Whether a line is a bullet or a date header, and no prose."""
    return _date_of(raw) is not None or (_BULLET.match(raw) or _BARE_MARK.match(raw)) is not None


def format_log(lines: Iterable[LogLine]) -> str:
    """A log in the one form that we keep: dates as headers, `* mark (time) text`, details below as `  * -> text`."""
    written: list[str] = []
    date = ""
    for line in lines:
        if line.date and line.date != date:
            date = line.date
            written.append(f"Date: {date}")
        if line.detail:
            written.append(f"  * -> {line.text}")
        else:
            time = f"({line.time}) " if line.time else ""
            written.append(f"* {line.mark or MEDIUM} {time}{line.text}")
    return "\n".join(written)


def _date_of(raw: str) -> str | None:
    if (labelled := _DATE.match(raw)) is not None:
        return " ".join(labelled[1].split()).strip(" .")
    if len(raw) < 60 and (bare := _BARE_DATE.match(raw)) is not None and not _BULLET.match(raw):
        words = re.findall(r"[A-Za-z]+|\d+", bare[1])
        if len(words) <= 5 and all(_MONTH_OR_NUMBER.match(word) or _is_weekday(word) for word in words):
            return " ".join(bare[1].split()).strip(" .")
    return None


def _is_weekday(word: str) -> bool:
    return word[:3].casefold() in ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


def _line(rest: str, date: str, *, indent: int, first: bool) -> LogLine | None:
    """The line after its bullet; None when it holds a mark or a time and nothing else."""
    arrow = _ARROW.match(rest)
    rest = rest[arrow.end() :] if arrow else rest
    mark, time = "", ""
    for _ in range(_MOST_MARKS):
        found = _MARK.match(rest) or _TIME.match(rest)
        if found is None:
            break
        if found.re is _TIME:
            if time:
                break
            time = found[1] or found[2]
        else:
            written = next(group for group in found.groups() if group is not None)
            mark = _stronger(mark, _MARKS_READ[written.casefold()])
        rest = rest[found.end() :]
    text = " ".join(rest.split())
    if _RULER.match(text):
        return None
    detail = not first and (arrow is not None or (indent >= 2 and not mark and not time))
    return LogLine(text, "" if detail else mark, "" if detail else time, date, detail)


def _stronger(one: str, other: str) -> str:
    order = (CRITICAL, DONE, LOW, MEDIUM, "")  # `- ! (09:10)`: the bullet was written as a mark
    return min(one, other, key=order.index)
