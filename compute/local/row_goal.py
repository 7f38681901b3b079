"""Row goals: the number of rows after which a recursion may stop.

PostgreSQL computes a recursion as its rows are asked for, so a LIMIT above ends it. Here the rows
between a LIMIT and the recursion are counted as they come. That works if each new row of the
recursion only adds rows above it: through Map, Filter, Project, FlatMap, Union, and a Join that
reads the recursion once. An aggregate, an ORDER BY or a DISTINCT in between needs all rows.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from foreshore.expr.evaluate import fold
from foreshore.expr.ir import (
    Aggregate,
    Call,
    Column,
    Filter,
    FlatMap,
    Get,
    Join,
    Let,
    Literal,
    Map,
    Project,
    Reduce,
    Relation,
    Scalar,
    TopK,
    Union,
)
from foreshore.expr.traversal import inputs_of, sources_of
from foreshore.ids import GlobalId
from foreshore.types import BOOL, INT8

COUNT = Aggregate("count", (), INT8)
ANY_ROW = Call("gt", (Column(0, INT8, nullable=False), Literal(0, INT8)), BOOL)


@dataclass(frozen=True, slots=True)
class RowGoal:
    """`count` rows of `relation`, to which each row of the recursion adds its own."""

    relation: Relation
    count: int


RowGoals = frozenset[RowGoal] | None  # None: a reader needs all rows


def row_goals(relation: Relation, result: GlobalId, rows_wanted: int | None) -> RowGoals:
    """Return the goal of each reader of `result` if `rows_wanted` rows of `relation` are enough."""
    if result not in sources_of(relation):
        return frozenset()
    return _goals(relation, result, relation, rows_wanted)


def _goals(node: Relation, result: GlobalId, top: Relation, count: int | None) -> RowGoals:
    """Return the goals of the readers in `node` if `count` rows of `top` above it are enough."""
    if (counted := _tested_for_rows(node)) is not None:
        return _goals(counted, result, counted, 1)
    match node:
        case Get(id=id):
            assert id == result, id
            return None if count is None else frozenset([RowGoal(_growing(top, result), count)])
        case Map(input=input) | Filter(input=input) | Project(input=input) | FlatMap(input=input):
            return _goals(input, result, top, count)
        case Union(inputs=inputs):
            readers = [each for each in inputs if result in sources_of(each)]
            return _all(_goals(each, result, top, count) for each in readers)
        case TopK(input=input, group_key=(), order_key=(), limit=limit, offset=offset):
            return _goals(input, result, input, _sum(limit, offset))
        case Let(value=value, body=body) if result not in sources_of(value):
            return _goals(body, result, top, count)
        case Join(inputs=inputs):
            readers = [each for each in inputs if result in sources_of(each)]
            if len(readers) == 1:
                return _goals(readers[0], result, top, count)
    below = [each for each in inputs_of(node) if result in sources_of(each)]
    return _all(_goals(each, result, each, None) for each in below)


def _tested_for_rows(node: Relation) -> Relation | None:
    """Return the relation under `node` if `node` only tests whether it has a row, as EXISTS does.

    It is then a count, compared with 0 and projected away.
    """
    if not isinstance(node, Project) or 0 in node.outputs:
        return None
    match node.input:
        case Map(input=Reduce() as count, scalars=tests):
            pass
        case Filter(input=Reduce() as count, predicates=tests):
            pass
        case _:
            return None
    if count.group_key or count.aggregates != (COUNT,) or any(test != ANY_ROW for test in tests):
        return None
    return count.input


def _all(readers: Iterable[RowGoals]) -> RowGoals:
    found: frozenset[RowGoal] = frozenset()
    for each in readers:
        if each is None:
            return None
        found |= each
    return found


def _growing(relation: Relation, result: GlobalId) -> Relation:
    """Return `relation` without the parts of unions that do not read `result`."""
    match relation:
        case Map(input=input, scalars=scalars):
            return Map(_growing(input, result), scalars)
        case Filter(input=input, predicates=predicates):
            return Filter(_growing(input, result), predicates)
        case Project(input=input, outputs=outputs):
            return Project(_growing(input, result), outputs)
        case Union(inputs=inputs):
            return Union(
                tuple(_growing(each, result) for each in inputs if result in sources_of(each))
            )
        case _:
            return relation


def _sum(limit: Scalar | None, offset: Scalar | None) -> int | None:
    """Return the sum of LIMIT and OFFSET if both are constants, else None."""
    if limit is None:
        return None
    total = 0
    for bound in (limit, offset):
        if bound is not None:
            known = fold(bound)
            if not isinstance(known, Literal) or known.value is None:
                return None
            total += known.value
    return total
