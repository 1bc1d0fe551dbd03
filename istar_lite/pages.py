"""How many pages each table and index of the file occupies, from the published file format.

SQLite's own answer, the virtual table `dbstat`, is in few builds (the wheel of pysqlite3 has none), and it reads every
page. Two SQLite libraries on one file in one process destroy it, and a process of its own cannot be counted on
everywhere, so the pages are read here, a few of them: all leaves of a b-tree lie at one depth, so its interior pages
tell how many there are, and what no tree and no free list holds is overflow: rows too long for their page. Which trees
own that overflow is told by their leaves: by all of them where they are few, by a sample of each tree else.
"""

from __future__ import annotations

import contextlib
import os
import struct
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from istar_lite.errors import IstarError
from istar_lite.migrations import wal_path

if TYPE_CHECKING:
    from istar_lite.database import File

LOOKED_AT = 400  # leaves of one tree that are read for overflow; of a tree with no more of them, all
LOCK_BYTE = 2**30  # the page that holds it is never used
_INTERIOR, _TABLE = (2, 5), (5, 13)  # page types: 2 and 10 belong to indexes, 5 and 13 to tables

Read = Callable[[int, int], bytes]


class Unreadable(IstarError):
    """The pages of the file cannot be counted here."""


@dataclass(frozen=True, slots=True)
class Tree:
    """A b-tree of the file and its pages. `owner`: the table that an index belongs to, else the table itself."""

    name: str
    owner: str
    pages: int  # interior and leaf pages
    overflow: int = 0


@dataclass(frozen=True, slots=True)
class Layout:
    """What the pages of a file are used for. `exact`: nothing was sampled; the sum is exact in any case."""

    page_size: int
    pages: int
    free: int  # pages that were given up and wait for new rows
    trees: tuple[Tree, ...]
    exact: bool


def layout(file: File) -> Layout:
    """Counts the pages of every tree, as of one moment. Raises `Unreadable` where they cannot be read."""
    with file.reading() as connection:
        roots = [("sqlite_schema", "sqlite_schema", 1)] + [
            (row[0], row[1], row[2])
            for row in connection.execute("select name, tbl_name, rootpage from sqlite_master where rootpage > 0")
        ]
        size, vacuuming = (
            int(connection.execute(f"pragma {name}").fetchone()[0]) for name in ("page_size", "auto_vacuum")
        )
        with _pages(file.path, size) as get:
            # Not by pragma: somebody may have written between the beginning of our transaction and the look at the log.
            pages, free = (int(struct.unpack_from(">I", get(1), at)[0]) for at in (28, 36))
            walks = [_Walk(get, size, name, owner, root) for name, owner, root in roots]
            other = _unowned(get, size, pages, bool(vacuuming))
            spare = pages - free - other - sum(walk.tree.pages for walk in walks)
            if spare < 0:  # a tree that leads somewhere else, or pages that changed under us
                raise Unreadable(f"{file.path}: its pages do not add up; `check` may tell more")
            trees, exact = _with_overflow(walks, spare)
    return Layout(size, pages, free, tuple(trees), exact)


def _unowned(get: Callable[[int], bytes], size: int, pages: int, vacuuming: bool) -> int:
    """Pages that are neither in a tree nor free: that of the lock byte, and the maps of a file with auto_vacuum."""
    locked = int(pages > LOCK_BYTE // size)
    if not vacuuming:
        return locked
    return locked + (pages - 2) // ((size - get(1)[20]) // 5 + 1) + 1


# --- one tree -------------------------------------------------------------------------------------------------


class _Walk:
    """The interior pages of one tree, and as many leaves as are asked for."""

    def __init__(self, get: Callable[[int], bytes], size: int, name: str, owner: str, root: int) -> None:
        self._get = get
        self._usable = size - get(1)[20]
        self._interior: list[int] = []
        level = [root]
        for _ in range(self._depth(root)):
            self._interior += level
            self._parents = level
            if len(self._interior) > len(set(self._interior)):
                raise Unreadable(f"{name}: its pages lead in a circle")
            # Each child is listed in its parent: the leaves themselves are not read.
            counts = [_cells(get(number)) + 1 for number in level]
            self._before = [0, *accumulate(counts)]
            level = [child for number in level for child in self._children(number)] if self._deeper(level) else []
        self.leaves = self._before[-1] if self._interior else 1
        self._root = root
        self.tree = Tree(name, owner, len(self._interior) + self.leaves)

    def _depth(self, root: int) -> int:
        depth, number = 0, root
        while self._type(number) in _INTERIOR:
            depth, number = depth + 1, self._children(number)[0]
            if depth > 40:
                raise Unreadable(f"page {root}: its pages lead in a circle")
        return depth

    def _deeper(self, level: Sequence[int]) -> bool:
        return self._type(self._children(level[0])[0]) in _INTERIOR

    def _type(self, number: int) -> int:
        page = self._get(number)
        kind = page[_header(number)]
        if kind not in (*_INTERIOR, 10, 13):
            raise Unreadable(f"page {number} is no page of a table or an index")
        return kind

    def _children(self, number: int) -> list[int]:
        page, at = self._get(number), _header(number)
        cells = [struct.unpack_from(">I", page, offset)[0] for offset in _offsets(page, at, at + 12)]
        return [*cells, struct.unpack_from(">I", page, at + 8)[0]]

    def _leaf(self, ordinal: int) -> int:
        """Page number of a leaf by its place in the tree."""
        if not self._interior:
            return self._root
        parent = bisect_right(self._before, ordinal) - 1
        return self._children(self._parents[parent])[ordinal - self._before[parent]]

    def overflow(self) -> tuple[float, bool]:
        """Overflow pages of this tree, and whether all of its pages were looked at."""
        found, whole = self._sampled(range(self.leaves), self._leaf)
        if self._interior and self._type(self._interior[0]) not in _TABLE:  # in an index these hold rows too
            more, all_ = self._sampled(range(len(self._interior)), self._interior.__getitem__)
            return found + more, whole and all_
        return found, whole

    def _sampled(self, among: range, number: Callable[[int], int]) -> tuple[float, bool]:
        step = max(1, -(-len(among) // LOOKED_AT))
        chosen = among[step // 2 :: step]
        return sum(self._overflow_of(number(one)) for one in chosen) * len(among) / len(chosen), step == 1

    def _overflow_of(self, number: int) -> int:
        """Overflow pages of the rows of one page."""
        page, at, usable = self._get(number), _header(number), self._usable
        interior, table = page[at] in _INTERIOR, page[at] in _TABLE
        most = usable - 35 if table else (usable - 12) * 64 // 255 - 23
        least = (usable - 12) * 32 // 255 - 23
        count = 0
        for offset in _offsets(page, at, at + (12 if interior else 8)):
            payload = _varint(page, offset + 4 if interior else offset)
            if payload > most:
                local = least + (payload - least) % (usable - 4)
                count += -(-(payload - (local if local <= most else least)) // (usable - 4))
        return count


def _header(number: int) -> int:
    return 100 if number == 1 else 0  # the first page begins with the header of the file


def _cells(page: bytes) -> int:
    at = 100 if page.startswith(b"SQLite format 3\0") else 0
    return int(struct.unpack_from(">H", page, at + 3)[0])


def _offsets(page: bytes, at: int, first: int) -> tuple[int, ...]:
    (count,) = struct.unpack_from(">H", page, at + 3)
    found: tuple[int, ...] = struct.unpack_from(f">{count}H", page, first)
    return found


def _varint(page: bytes, at: int) -> int:
    value = 0
    for byte in page[at : at + 8]:
        value = value << 7 | byte & 127
        if byte < 128:
            return value
    return value << 8 | page[at + 8]


def _with_overflow(walks: Sequence[_Walk], spare: int) -> tuple[list[Tree], bool]:
    """The trees with their share of `spare`, the number of all overflow pages, which is known exactly."""
    if not spare:
        return [walk.tree for walk in walks], True
    told: list[tuple[float, bool]] = []
    total, complete = 0.0, True
    for walk in walks:
        # The schema comes first, and its long statements are often all there is: then no other leaf need be read.
        found, whole = (0.0, True) if complete and total == spare else walk.overflow()
        total, complete = total + found, complete and whole
        told.append((found, whole))
    exact = total == spare and complete
    shares = [pages * spare / total if total else 0.0 for pages, _ in told]
    # Rounded so that the sum stays what it is.
    edges = [round(edge) for edge in accumulate(shares, initial=0.0)]
    counts = [after - before for before, after in pairwise(edges)]
    return [replace(walk.tree, overflow=count) for walk, count in zip(walks, counts, strict=True)], exact


# --- where pages come from ------------------------------------------------------------------------------------


@contextlib.contextmanager
def _pages(path: Path, size: int) -> Iterator[Callable[[int], bytes]]:
    """Reads pages as a transaction that began just now would see them: those that still lie in the log are read there.

    The caller has a read transaction open, which keeps everybody from copying later pages into the file.
    """
    with contextlib.ExitStack() as stack, _as_unreadable(path):
        read = stack.enter_context(_file_bytes(path))
        log, read_log = _log(stack, path, size)

        def get(number: int) -> bytes:
            at = log.get(number)
            page = read(size, (number - 1) * size) if at is None else read_log(size, at)
            if len(page) < size:
                raise Unreadable(f"{path}: page {number} is not there")
            return page

        before = read_log(32, 0)
        yield get
        if read_log(32, 0) != before:
            raise Unreadable(f"{path}: was rewritten while its pages were counted; ask again")


@contextlib.contextmanager
def _as_unreadable(path: Path) -> Iterator[None]:
    """What bytes that are no such page raise, or a disk that fails."""
    try:
        yield
    except (OSError, struct.error, IndexError) as error:
        raise Unreadable(f"{path}: its pages cannot be read ({error}); `check` may tell more") from error


@contextlib.contextmanager
def _file_bytes(path: Path) -> Iterator[Read]:
    """Bytes of the file by length and offset.

    Not by opening it: POSIX locks belong to the process, and closing any descriptor of a file drops the locks of
    all connections of this process to it, upon which others write in between. So SQLite's own descriptor is looked
    up and read from, which moves nothing. Windows keeps locks by handle, and has no way to do this.
    """
    if os.name == "nt":
        with open(path, "rb") as handle:

            def read_handle(length: int, offset: int) -> bytes:
                handle.seek(offset)
                return handle.read(length)

            yield read_handle
        return
    descriptor = _own_descriptor(path)
    yield lambda length, offset: os.pread(descriptor, length, offset)
    if not _is_of(descriptor, path):  # closed by another thread meanwhile, and its number given to another file
        raise Unreadable(f"{path}: was closed while its pages were counted; ask again")


def _own_descriptor(path: Path) -> int:
    try:
        numbers = sorted(int(name) for name in os.listdir("/dev/fd") if name.isdigit())
    except OSError as error:
        raise Unreadable(f"{path}: this system does not tell which descriptors are open") from error
    for number in numbers:
        if _is_of(number, path):
            return number
    raise Unreadable(f"{path}: is not open in this process")


def _is_of(descriptor: int, path: Path) -> bool:
    try:
        here, there = os.fstat(descriptor), os.stat(path)
    except OSError:
        return False
    return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)


def _log(stack: contextlib.ExitStack, path: Path, size: int) -> tuple[dict[int, int], Read]:
    """Page number → offset in the write-ahead log, of what is committed there. (Nobody locks the log itself, so that
    it may be opened and closed.)"""
    if not wal_path(path).exists():
        return {}, lambda length, offset: b""
    handle = stack.enter_context(open(wal_path(path), "rb"))  # noqa: SIM115  (the stack closes it)

    def read(length: int, offset: int) -> bytes:
        handle.seek(offset)
        return handle.read(length)

    header = read(32, 0)
    found: dict[int, int] = {}
    pending: dict[int, int] = {}
    at = 32
    # A frame belongs to the present log if it repeats its salts, and counts once a commit follows.
    while len(frame := read(24, at)) == 24 and frame[8:16] == header[16:24]:
        number, commit = struct.unpack_from(">II", frame)
        pending[number] = at + 24
        at += 24 + size
        if commit:
            found.update(pending)
            pending.clear()
    return found, read
