"""Lines of files that are no rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from foreshore.errors import BadCopyFileFormat

BLOCK_BYTES = 8 << 20
MOST_BAD = 100  # lines of a file, after which the rest is not read
MOST_BYTES = 10_000  # of a line that are kept


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line by its number, from 1; what it has, and why it is no row."""

    number: int
    data: bytes
    error: str


class BadLines:
    """Gathers the bad lines of one file, whose name is `file`."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._found: list[BadLine] = []
        self._count = 0

    def add(self, number: int, data: bytes, error: str) -> None:
        """Keep a line; raises BadCopyFileFormat if there are too many."""
        self._count += 1
        self._found.append(BadLine(number, data[:MOST_BYTES], error))
        self.check()

    def check(self) -> None:
        """Raise BadCopyFileFormat if there are too many."""
        if self._count > MOST_BAD:
            raise BadCopyFileFormat(
                f'file "{self._file}" has more than {MOST_BAD} lines that are no rows'
            )

    def handler(self, row: Any) -> str:
        """Take a row of pyarrow's CSV reader that has another number of columns."""
        self._count += 1
        if self._count <= MOST_BAD:
            said = f"the line has {row.actual_columns} columns instead of {row.expected_columns}"
            data = str(row.text).encode()[:MOST_BYTES]
            self._found.append(BadLine(row.number or 0, data, said))
        return "skip"

    def taken(self) -> Sequence[BadLine]:
        """Return those that were found since the last call."""
        found, self._found = self._found, []
        return found
