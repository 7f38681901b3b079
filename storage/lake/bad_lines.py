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
    place: int  # how many rows are before it


class BadLines:
    """Gathers the bad lines of one file, whose name is `file`; perhaps its first is a header.

    Readers find them ahead of the rows, further at one time than at another.
    """

    def __init__(self, file: str, *, header: bool = False) -> None:
        self._file = file
        self._header = header
        self._found: list[BadLine] = []
        self._numbers: list[int] = []
        self._count = 0

    def add(self, number: int, data: bytes, error: str) -> None:
        """Keep a line; raises BadCopyFileFormat if there are too many."""
        self._keep(number, data, error)
        self.check()

    def check(self) -> None:
        """Raise BadCopyFileFormat if there are too many."""
        if self._count > MOST_BAD:
            raise BadCopyFileFormat(
                f'file "{self._file}" has more than {MOST_BAD} lines that are no rows'
            )

    def handler(self, row: Any) -> str:
        """Take a row of pyarrow's CSV reader that has another number of columns."""
        said = f"the line has {row.actual_columns} columns instead of {row.expected_columns}"
        self._keep(row.number or 0, str(row.text).encode(), said)
        return "skip"

    def _keep(self, number: int, data: bytes, error: str) -> None:
        if self._count < MOST_BAD:
            place = number - 1 - self._header - self._count
            self._numbers.append(number)
            self._found.append(BadLine(number, data[:MOST_BYTES], error, place))
        self._count += 1

    def line_of(self, row: int) -> int:
        """Return the number of the line that is a row; its number among the rows is from 1."""
        line = row + self._header
        for bad in sorted(self._numbers):
            line += bad <= line
        return line

    def taken(self, rows: int | None = None) -> Sequence[BadLine]:
        """Return those that are before the end of so many rows, or all, but each once."""
        taken = [each for each in self._found if rows is None or each.place < rows]
        for each in taken:
            self._found.remove(each)  # in place, as the reader may be adding some in its thread
        return taken
