"""Functions and classes that sinks of tests call."""

import json
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa

ENOUGH = threading.Event()


def told(changes: pa.Table, part: Any, file: str) -> None:
    """Append the changes with their bounds as a line of a file; fail as long as it says so."""
    if Path(f"{file}.fails").exists():
        raise OSError("the disk is full")
    line = [part.lower, part.upper, part.part, part.last, changes.to_pylist()]
    with Path(file).open("a") as opened:
        opened.write(json.dumps(line) + "\n")


def stuck(changes: pa.Table, part: Any) -> None:
    """Take longer than may be."""
    ENOUGH.wait()


class Copy:
    """A table of SQLite and the frontier in it, which change together."""

    def __init__(self, path: str, every: str = "0") -> None:
        self._every, self._commits = int(every), 0  # fail before each of so many commits
        self._database = sqlite3.connect(path)
        self._database.execute("CREATE TABLE IF NOT EXISTS t (k INT, v TEXT)")
        self._database.execute("CREATE TABLE IF NOT EXISTS frontier (upper INT)")

    def frontier(self) -> int | None:
        """Return the time before which the table has all changes."""
        found = self._database.execute("SELECT upper FROM frontier").fetchone()
        return found and int(found[0])

    def write(self, changes: pa.Table) -> None:
        """Change the table, in the transaction that commit() ends."""
        for row in changes.to_pylist():
            one = "SELECT rowid FROM t WHERE k IS ? AND v IS ? LIMIT 1"
            for _ in range(-row["mz_diff"]):
                self._database.execute(f"DELETE FROM t WHERE rowid = ({one})", (row["k"], row["v"]))
            for _ in range(row["mz_diff"]):
                self._database.execute("INSERT INTO t VALUES (?, ?)", (row["k"], row["v"]))

    def commit(self, upper: int) -> None:
        """Commit with the frontier."""
        self._commits += 1
        if self._every and self._commits % self._every == 0:
            raise RuntimeError("not this one")
        self._database.execute("DELETE FROM frontier")
        self._database.execute("INSERT INTO frontier VALUES (?)", (upper,))
        self._database.commit()

    def close(self) -> None:
        """Close the database."""
        self._database.close()


class Nothing:
    """No target at all."""
