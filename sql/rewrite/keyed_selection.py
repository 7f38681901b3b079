"""Selections from the rows with one key, compiled when a statement is prepared.

Columns of one value each cost more than all else that a statement about one row does. So scalars
are compiled (`foreshore.expr.pointwise`) over one tuple: first the *givens*, arguments and what is
asked of the environment, then the row.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from foreshore.errors import DataError
from foreshore.expr.cost import LONG, has_growing_call, is_heavy, size_of
from foreshore.expr.ir import Relation, Scalar, single_input
from foreshore.expr.keys import Elements, Key
from foreshore.expr.pointwise import Cell, Step, compiled, projecting, row_steps
from foreshore.expr.scalars import scalars_of
from foreshore.expr.traversal import walk_relations
from foreshore.sql.rewrite.bind_parameters import Givens
from foreshore.table_rows import Row
from foreshore.types import Datum


@dataclass(frozen=True, slots=True)
class KeyedSelection:
    """The key, and the selection from the rows that have it, over the givens."""

    givens: Givens
    cells: tuple[Cell, ...]  # of the key
    steps: tuple[Step, ...]
    grows: bool  # whether it may make much longer values of those that are given

    def key(self, givens: Sequence[Datum]) -> Row | None:
        """Return the key; None if no row can have it, as a part is NULL or out of range."""
        try:
            key = tuple([cell(givens) for cell in self.cells])
        except DataError:
            return None
        return None if None in key else key

    def may_be_selected(self, givens: Sequence[Datum], row: Row) -> bool:
        """Whether selecting from a row takes little time and memory."""
        return not self.grows or all(size_of(each) <= LONG for each in chain(givens, row))

    def selected(self, givens: Sequence[Datum], row: Row) -> Row | None:
        """Return the selected columns of a row, None if it is filtered out; raises DataError."""
        found = [*givens, *row]
        for step in self.steps:
            left = step(found)
            if left is None:
                return None
            found = left
        return tuple(found)


def compile_selection(
    key: Key, relation: Relation, project: Sequence[int]
) -> KeyedSelection | None:
    """Return the columns `project` of `relation` over the rows with `key`, compiled.

    None if the key has elements of an array, or if `relation` is heavy or not Map, Filter and
    Project over one collection.
    """
    parts: list[Scalar] = [each for each in key if not isinstance(each, Elements)]
    if len(parts) < len(key) or single_input(relation) is None or is_heavy(relation):
        return None
    scalars = [each for node in walk_relations(relation) for each in scalars_of(node)]
    givens = Givens.of([*parts, *scalars])
    first = len(givens)
    steps = row_steps(relation, lambda scalar: compiled(givens.placed(scalar)), first)
    steps.append(projecting([first + i for i in project]))
    cells = tuple(compiled(givens.placed(scalar)) for scalar in parts)
    return KeyedSelection(givens, cells, tuple(steps), has_growing_call(relation))
