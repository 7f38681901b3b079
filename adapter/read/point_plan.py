"""Statements about the row under one whole unique key, compiled: SELECT, UPDATE and DELETE.

A `PointPlan` finds the row and makes of it what the statement selects, on tuples of data
(`foreshore.expr.pointwise`): columns of one value each cost more than all else that it does.

The scalars are over one tuple: first the *givens*, arguments and what is asked of the environment,
then the row.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from foreshore.adapter.read.access_path import PeekPlan
from foreshore.catalog.catalog import Planned
from foreshore.compute.keys.layout import takes_tuples
from foreshore.constraint import Unique
from foreshore.errors import DataError
from foreshore.expr.ir import And, Filter, Get, Map, Project, Relation, Scalar, walk_relations
from foreshore.expr.pointwise import Cell, compiled
from foreshore.expr.scalars import scalars_of
from foreshore.ids import GlobalId
from foreshore.sql.rewrite.bind_parameters import Givens
from foreshore.table_rows import Row
from foreshore.types import Datum

Step = Callable[[list[Datum]], list[Datum] | None]


@dataclass(frozen=True, slots=True)
class PointPlan:
    """What a statement selects of the row of `table` under one key."""

    table: GlobalId
    constraint: Unique
    planned: Planned  # the table as it was planned
    unique: tuple[Unique, ...]  # all of its unique constraints
    givens: Givens
    cells: tuple[Cell, ...]  # of the key, over the givens
    steps: tuple[Step, ...]

    def key(self, givens: Sequence[Datum]) -> Row | None:
        """Return the key; None if no row can have it, as a part is NULL or out of range."""
        try:
            key = tuple([cell(givens) for cell in self.cells])
        except DataError:
            return None
        return None if None in key else key

    def selected(self, givens: Sequence[Datum], row: Row) -> Row | None:
        """Return the selected columns of a row, None if it is filtered out; raises DataError."""
        found = [*givens, *row]
        for step in self.steps:
            left = step(found)
            if left is None:
                return None
            found = left
        return tuple(found[len(self.givens) :])


def plan_point(peek: PeekPlan, planned: Mapping[GlobalId, Planned]) -> PointPlan | None:
    """Return `peek` compiled, if it is about one key and the table's keys can be tuples."""
    lookup, query = peek.key, peek.query
    if lookup is None or len(lookup.keys) != 1 or query.changes or query.row_outputs:
        return None
    limits = (query.limit, query.offset, query.finishing.limit, query.finishing.offset or None)
    table = planned[lookup.table]
    unique = tuple(table.unique)
    if not all(takes_tuples(each, table.desc) for each in unique):
        return None
    if any(each is not None for each in limits):
        return None
    givens = Givens.of([*lookup.keys[0], *_scalars(lookup.relation)])

    def cell(scalar: Scalar) -> Cell:
        return compiled(givens.placed(scalar))

    first = len(givens)
    steps = _steps(lookup.relation, cell, first)
    steps.append(_projecting([*range(first), *(first + i for i in query.finishing.project)]))
    return PointPlan(
        lookup.table,
        lookup.constraint,
        table,
        unique,
        givens,
        tuple(map(cell, lookup.keys[0])),
        tuple(steps),
    )


def _scalars(relation: Relation) -> list[Scalar]:
    return [scalar for node in walk_relations(relation) for scalar in scalars_of(node)]


def _steps(relation: Relation, cell: Callable[[Scalar], Cell], first: int) -> list[Step]:
    """Return the steps of `relation`, which is Map, Filter and Project over a Get."""
    match relation:
        case Get():
            return []
        case Map(input=input, scalars=scalars):
            return [*_steps(input, cell, first), _mapping(list(map(cell, scalars)))]
        case Filter(input=input, predicates=predicates):
            whole = predicates[0] if len(predicates) == 1 else And(predicates)
            return [*_steps(input, cell, first), _filtering(cell(whole))]
        case Project(input=input, outputs=outputs):
            places = [*range(first), *(first + i for i in outputs)]
            return [*_steps(input, cell, first), _projecting(places)]
        case _:
            raise AssertionError(f"not about one row: {relation}")


def _mapping(cells: Sequence[Cell]) -> Step:
    def step(row: list[Datum]) -> list[Datum]:
        for cell in cells:
            row.append(cell(row))
        return row

    return step


def _filtering(predicate: Cell) -> Step:
    return lambda row: row if predicate(row) is True else None


def _projecting(places: Sequence[int]) -> Step:
    return lambda row: [row[i] for i in places]
