"""Statements about one row, compiled: SELECT, UPDATE and DELETE by a whole unique key, and rules.

A `PointPlan` finds a row by one key and makes of it what the statement selects; `RowRules` are what
a table asks of a row. Both compute on tuples of data (`foreshore.expr.pointwise`): columns of one
value each cost more than all else that such a statement does.

The scalars are over one tuple: first the *givens*, arguments and what is asked of the environment,
then the row.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from foreshore.adapter.read.access_path import PeekPlan
from foreshore.adapter.write.newest_rows import PLAIN
from foreshore.adapter.write.values import Row
from foreshore.catalog.catalog import Planned
from foreshore.constraint import Check, Unique
from foreshore.errors import DataError
from foreshore.expr.ir import And, Filter, Get, Map, Project, Relation, Scalar, walk_relations
from foreshore.expr.pointwise import Cell, compiled
from foreshore.expr.scalars import scalars_of
from foreshore.ids import GlobalId
from foreshore.sql.rewrite.bind_parameters import Givens, is_open_scalar
from foreshore.types import Datum

Step = Callable[[list[Datum]], list[Datum] | None]


@dataclass(frozen=True, slots=True)
class RowRules:
    """What a table asks of each of its rows."""

    planned: Planned
    required: tuple[int, ...]  # columns in which no NULL may be
    checks: tuple[Cell, ...]  # which must not be FALSE
    unique: tuple[Unique, ...]

    def allow(self, row: Row) -> bool:
        """Whether a row may be there, but for its keys; raises DataError if a check fails."""
        for place in self.required:
            if row[place] is None:
                return False
        return all(check(row) is not False for check in self.checks)


def rules_of(planned: Planned) -> RowRules | None:
    """Return the rules of a table; None if its rows cannot be looked at one by one."""
    columns = planned.desc.columns
    unique = tuple(each for each in planned.constraints if isinstance(each, Unique))
    checks = sorted(
        (each for each in planned.constraints if isinstance(each, Check)),
        key=lambda each: each.name,
    )
    if any(is_open_scalar(each.condition) for each in checks):
        return None
    for each in unique:
        types = [columns[i].type.name for i in each.columns]
        if not each.nulls_distinct or not PLAIN.issuperset(types):
            return None
    return RowRules(
        planned,
        tuple(i for i, each in enumerate(columns) if not each.nullable),
        tuple(compiled(each.condition) for each in checks),
        unique,
    )


@dataclass(frozen=True, slots=True)
class PointPlan:
    """What a statement selects of the row of `table` under one key."""

    table: GlobalId
    constraint: Unique
    rules: RowRules
    givens: Givens
    cells: tuple[Cell, ...]  # of the key, over the givens
    steps: tuple[Step, ...]

    def key(self, givens: Sequence[Datum]) -> Row | None:
        """Return the key; None if it is one that no row has: with a NULL, or out of range."""
        try:
            key = tuple([cell(givens) for cell in self.cells])
        except DataError:
            return None
        return None if None in key else key

    def selected(self, givens: Sequence[Datum], row: Row) -> Row | None:
        """Return what is selected of a row; None if that is nothing.

        Raises DataError if it cannot be computed.
        """
        found = [*givens, *row]
        for step in self.steps:
            left = step(found)
            if left is None:
                return None
            found = left
        return tuple(found[len(self.givens) :])


def plan_point(peek: PeekPlan, planned: Mapping[GlobalId, Planned]) -> PointPlan | None:
    """Return `peek` compiled, if it is about one key of a table whose rules allow that."""
    lookup, query = peek.key, peek.query
    if lookup is None or len(lookup.keys) != 1 or query.changes or query.row_outputs:
        return None
    limits = (query.limit, query.offset, query.finishing.limit, query.finishing.offset or None)
    rules = rules_of(planned[lookup.table])
    if rules is None or any(each is not None for each in limits):
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
        rules,
        givens,
        tuple(map(cell, lookup.keys[0])),
        tuple(steps),
    )


def _scalars(relation: Relation) -> list[Scalar]:
    return [scalar for node in walk_relations(relation) for scalar in scalars_of(node)]


def _steps(relation: Relation, cell: Callable[[Scalar], Cell], first: int) -> list[Step]:
    """Return what `relation`, Map, Filter and Project over a Get, does to a row, step by step."""
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
