"""`memory.db`: sqlite-utils on the same file, for everything the library did not think of."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlite_utils

from istar_lite.database import BUSY_SECONDS, add_missing_functions, sqlite3

if TYPE_CHECKING:
    from istar_lite.database import File


def open_database(file: File) -> sqlite_utils.Database:
    """A database object on a connection of its own, with the settings that the library's own connections have."""
    target = file.path.as_uri() + "?mode=ro" if file.read_only else str(file.path)
    connection = sqlite3.connect(target, uri=file.read_only, timeout=BUSY_SECONDS, check_same_thread=False)
    for pragma in ("foreign_keys = on", "recursive_triggers = on", "secure_delete = on"):
        connection.execute(f"pragma {pragma}")
    add_missing_functions(connection)
    return sqlite_utils.Database(connection)
