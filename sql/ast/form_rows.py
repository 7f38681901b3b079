"""Rows of a text that have one form: the same syntax, with other literals.

    VALUES (1, '2024-01-01'::date, DEFAULT), (2, '2024-01-02'::date, DEFAULT), (3, now(), 1 + 1)

A cell of a form is a literal, perhaps with casts and a sign before them, or DEFAULT. The syntax has
one row of each form; the literals of all of its rows are columns. A row with any other cell is kept
as it is.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

# The literals of a column, written as numbers, 'strings', NULL, TRUE, FALSE or $1; None: DEFAULT.
Literals = list[str] | None


class Run(NamedTuple):
    """Rows in sequence that have the form of one row that is kept, or are this row alone."""

    kept: int
    rows: int


class FormRows:
    """A list of rows in [start, end) of `text`, of which the syntax has those that are kept.

    `gaps` are the ranges between these, which the syntax has not. `columns` has the literals of
    each form, by the number of its kept row; those of a run follow those of the run before it.
    `parse` returns all rows as syntax; the parser adds it.
    """

    __slots__ = ("columns", "end", "gaps", "is_in_list", "parse", "runs", "start", "text")

    def __init__(
        self,
        text: str,
        start: int,
        end: int,
        gaps: Sequence[tuple[int, int]],
        runs: Sequence[Run],
        columns: Mapping[int, Sequence[Literals]],
        *,
        is_in_list: bool,
    ) -> None:
        self.text = text
        self.start = start
        self.end = end
        self.gaps = gaps
        self.runs = runs
        self.columns = columns
        self.is_in_list = is_in_list
        self.parse: Callable[[], tuple[Any, ...]]

    def __len__(self) -> int:
        return sum(run.rows for run in self.runs)

    @property
    def only_form(self) -> Sequence[Literals] | None:
        """The columns of all rows if they have one form."""
        return self.columns.get(0) if len(self.runs) == 1 else None

    @property
    def has_parameters(self) -> bool:
        """Whether a literal is a parameter."""
        return any(map(are_parameters, self.columns.values()))


def are_parameters(columns: Sequence[Literals]) -> bool:
    """Whether a literal of a form is a parameter."""
    return any(text[0] == "$" for texts in columns if texts is not None for text in texts)
