"""Functions of Python modules as sources.

One yields rows by itself, another one is called for each row of a relation and its answers are
kept.
"""

import msgspec

from foreshore.sources.outputs import Column


class PythonSource(msgspec.Struct, frozen=True, tag="python"):
    """What a generator function yields; `function` is `module:function`."""

    function: str
    columns: tuple[Column, ...]
    arguments: dict[str, str] = {}

    @property
    def module(self) -> str:
        """Return the name of the module."""
        return self.function.partition(":")[0]


class MemoSource(msgspec.Struct, frozen=True, tag="memo"):
    """The results of a function for each distinct row of a relation, which are kept.

    The function gets a row as a dictionary, or `batch` rows at most as an Arrow table. Its results
    are `columns`. A row for which it fails has NULL in these and the error in `error_column`;
    without that column it is among the source's errors.
    """

    function: str
    inputs: tuple[Column, ...]  # the relation's
    columns: tuple[Column, ...]
    arguments: dict[str, str] = {}
    concurrency: int = 8  # calls that run, or whose results are not durable yet
    batch: int | None = None  # None: one row in each call
    retries: int = 3  # after a failure
    timeout_ms: int = 300_000  # of a call
    forget: bool = False  # whether the answer of a row that is deleted is deleted too
    error_column: str | None = None

    @property
    def module(self) -> str:
        """Return the name of the module."""
        return self.function.partition(":")[0]

    @property
    def written(self) -> tuple[Column, ...]:
        """Return the columns of the source: those of the row, the results, the error."""
        error = () if self.error_column is None else (Column(self.error_column, "text"),)
        return (*self.inputs, *self.columns, *error)


INPUT = "input"  # the part of a memo's position that is the time before which it has all changes
UPDATES = "updates"  # the part that counts what it has written
