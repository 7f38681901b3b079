"""Executions of one statement that run as one change: `executemany` of a driver.

A statement has a row of arguments for each execution (`StatementContext.many`); most have one. Each
makes its own rows, then all are locked, checked and staged at once, which costs a tenth. `Apart` is
raised before that if not all can. As staging comes last, nothing has happened then, or after an
error, so that the session runs the first of them only (`session/extended.py`), until the one is
left that has the error. `write/executions.py` says which may run as one.
"""

from collections.abc import Collection, Hashable, Iterable, Sequence
from typing import TypeVar

from foreshore.adapter.statement.context import StatementContext

T = TypeVar("T")


class Apart(Exception):
    """At most the first `count` executions of a statement may run as one."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.count = max(1, count)


def require_single(context: StatementContext, count: int = 1) -> None:
    """Raise Apart if there are several executions."""
    if len(context.many) > 1:
        raise Apart(count)


def require_distinct(keys: Iterable[Collection[Hashable]]) -> None:
    """Raise Apart if a key of an execution is one of an earlier execution, too."""
    seen: set[Hashable] = set()
    for number, own in enumerate(keys):
        if not seen.isdisjoint(own):
            raise Apart(number)
        seen.update(own)


def parts_of(rows: Sequence[T], counts: Sequence[int]) -> list[Sequence[T]]:
    """Return the parts of `rows` that the executions have, each so many."""
    parts, at = [], 0
    for count in counts:
        parts.append(rows[at : at + count])
        at += count
    return parts
