"""Lateral joins: the rows for which their right side is computed.

    SELECT ... FROM t, LATERAL (SELECT ... FROM u WHERE u.b < t.a) AS s WHERE t.id = 1

The right side is computed for the columns of all rows of the left that it uses. Conditions on the
left alone come first, so that rows that they take away have no errors there, and cost nothing.
"""

from collections.abc import Sequence

from foreshore.expr.columns import columns_of
from foreshore.expr.ir import (
    Filter,
    FlatMap,
    Join,
    JoinOn,
    Map,
    Project,
    Relation,
    Scalar,
    Union,
)
from foreshore.expr.scalars import scalars_of
from foreshore.expr.split import Test, can_fail, columns_used, shift
from foreshore.expr.traversal import inputs_of
from foreshore.sql.lower.outer_columns import has_subquery
from foreshore.sql.lower.rows import filter_


def before_lateral(
    relation: Relation, predicates: Sequence[Scalar], fallible: Test
) -> tuple[Relation, list[Scalar]]:
    """Return `relation` with those of its predicates below its lateral joins, and the others.

    Predicates that may fail, or have a subquery, are left where they are.
    """
    left_over = list(predicates)
    match relation:
        case JoinOn(kind="inner" | "left", left=left, right=right) if _has_lateral(relation):
            inputs: tuple[Relation, ...] = (left,)
        case Join(equivalences=(), inputs=inputs) if _has_lateral(relation):
            pass
        case _:
            return relation, left_over
    found = []
    start = 0
    for input in inputs:
        own = range(start, start + len(columns_of(input)))
        moved = [each for each in left_over if _is_over(each, own, fallible)]
        left_over = [each for each in left_over if each not in moved]
        below, above = before_lateral(input, [shift(each, -start) for each in moved], fallible)
        found.append(filter_(below, above))
        start = own.stop
    if isinstance(relation, Join):
        return Join(tuple(found)), left_over
    return JoinOn(found[0], right, relation.kind, relation.on, relation.lateral), left_over


def _has_lateral(relation: Relation) -> bool:
    if isinstance(relation, JoinOn) and relation.lateral:
        return True
    inputs = inputs_of(relation) if isinstance(relation, Join | JoinOn) else ()
    return any(map(_has_lateral, inputs))


def _is_over(predicate: Scalar, columns: range, fallible: Test) -> bool:
    """Whether a predicate is over these columns, cannot fail and has no subquery."""
    used = columns_used(predicate)
    if not used or not used <= set(columns) or has_subquery(predicate):
        return False
    return not can_fail(predicate, fallible)


def is_of_one_row(relation: Relation) -> bool:
    """Whether a relation reads nothing: its rows are made of the row around it, one by one."""
    match relation:
        case Map(input=input) | Filter(input=input) | Project(input=input) | FlatMap(input=input):
            return is_of_one_row(input) and not any(map(has_subquery, scalars_of(relation)))
        case Union(inputs=inputs):
            return all(map(is_of_one_row, inputs))
        case Join(inputs=()):
            return True
        case _:
            return False
