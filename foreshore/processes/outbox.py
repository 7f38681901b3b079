"""Large tables on their way to a replica of the same machine: files that it maps into its memory.

A table that was loaded at once would fill the socket's buffers, once for each dataflow over it. So
the sender writes it to a file, once for as long as it is in memory, and each message has a link to
that file. The receiver maps the file and removes the link. What nobody maps any more is gone, and
the directory is removed with the replica.
"""

import os
import weakref
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from threading import Lock

import pyarrow as pa

from foreshore.few_updates import FewUpdates

LARGE = 8 << 20  # bytes of the tables of a message, beyond which they go through files
LEAST = 1 << 20  # bytes of a table in a file of its own


def are_large(tables: Sequence[pa.Table | FewUpdates]) -> bool:
    """Whether the tables of a message go through files."""
    return bool(tables) and sum(int(table.nbytes) for table in tables) > LARGE


class Outbox:
    """The files of one sender to one receiver, in a directory of the receiver."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._numbers = count()
        self._files: dict[int, Path] = {}  # by the table's identity, while it is in memory
        self._lock = Lock()

    def put(self, table: pa.Table | FewUpdates) -> str | None:
        """Write a table, unless it is there; return the name of a link, None for a small one.

        It blocks. Raises OSError if the file cannot be written.
        """
        if isinstance(table, FewUpdates) or table.nbytes < LEAST:
            return None
        with self._lock:
            file = self._files.get(id(table))
            if file is None:
                file = self._written(table)
                self._files[id(table)] = file
                weakref.finalize(table, self._forget, id(table))
            link = self._directory / f"sent-{next(self._numbers)}.arrow"
            os.link(file, link)
        return link.name

    def _written(self, table: pa.Table) -> Path:
        file = self._directory / f"table-{next(self._numbers)}.arrow"
        try:
            with pa.OSFile(str(file), "wb") as out, pa.ipc.new_file(out, table.schema) as writer:
                writer.write_table(table)
        except BaseException:
            file.unlink(missing_ok=True)
            raise
        return file

    def _forget(self, identity: int) -> None:
        file = self._files.pop(identity, None)
        if file is not None:
            file.unlink(missing_ok=True)


def take(directory: Path, name: str) -> pa.Table:
    """Return the table in a file that `Outbox.put` has named, mapped, and remove the name.

    Raises OSError if there is no such file, and ValueError if that is no name of one.
    """
    if not name.startswith("sent-") or "/" in name or "\0" in name:
        raise ValueError(f"{name!r} is no file of a table")
    path = directory / name
    with pa.memory_map(str(path)) as source:
        table = pa.ipc.open_file(source).read_all()
    path.unlink()
    return table
