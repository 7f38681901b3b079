"""Functions that act, over rows: taken out of a query, and called when its rows are there.

    SELECT nextval('s') + x FROM t     the rows of   SELECT NULL, x FROM t
                                       then   (nextval('s') + #1)   for each of them, in their order

No engine can give a number to each row once, or set something or signal a session for each. So
what is left to an engine has NULL in place of a column that calls such a function, and beside its
columns what the call needs of the row; the adapter computes the column from that, row by row, in
the order in which the client sees them. This is for calls in a select list, in what is inserted,
and in defaults. Elsewhere they are refused when they are evaluated. Over one row without FROM
nothing has to be taken out.
"""

from collections.abc import Sequence

from foreshore.errors import FeatureNotSupported
from foreshore.expr.functions.system import SET_CONFIG, SIGNALS
from foreshore.expr.ir import (
    Call,
    Column,
    Join,
    Literal,
    Map,
    Project,
    Relation,
    Scalar,
    columns_of,
    operands_of,
    type_of,
    walk_scalars,
    with_operands,
)
from foreshore.sql.bind.sequence import FUNCTIONS
from foreshore.sql.lower_outer import has_subquery
from foreshore.sql.planning import Planning
from foreshore.sql.rewrite import map_scalar
from foreshore.types import INT8

_ACTING = frozenset((*FUNCTIONS, *SIGNALS, SET_CONFIG))


def acts(scalar: Scalar) -> bool:
    """Whether `scalar` calls a function of sequences, or another that acts for each row."""
    return any(isinstance(each, Call) and each.function in _ACTING for each in walk_scalars(scalar))


def split_calls(relation: Relation) -> tuple[Relation, tuple[Scalar, ...]] | None:
    """Return what to compute first, and the columns of `relation` over that; None: all at once."""
    flat = _flat(relation)
    if flat is None:
        return None
    input, outputs = flat
    if not any(map(acts, outputs)):
        return None
    if input == Join(()) and not any(map(has_subquery, outputs)):
        return None
    below: list[Scalar] = [
        Literal(None, type_of(output)) if acts(output) else output for output in outputs
    ]
    over: list[Scalar] = []
    for i, output in enumerate(outputs):
        over.append(hoisted(output, below) if acts(output) else _column(below, i))
    width = len(columns_of(input))
    places = tuple(range(width, width + len(below)))
    return Project(Map(input, tuple(below)), places), tuple(over)


def hoisted(scalar: Scalar, below: list[Scalar]) -> Scalar:
    """Return `scalar` over `below`, to which what it needs of the row is added."""
    if isinstance(scalar, Literal):
        return scalar
    if not acts(scalar):
        if scalar not in below:
            below.append(scalar)
        return _column(below, below.index(scalar))
    return with_operands(scalar, tuple(hoisted(each, below) for each in operands_of(scalar)))


def _column(scalars: Sequence[Scalar], place: int) -> Column:
    return Column(place, type_of(scalars[place]))


def distinct_calls(planning: Planning, scalar: Scalar) -> Scalar:
    """Return `scalar` with its calls told apart from all others of the statement."""
    if not acts(scalar):
        return scalar
    operands = tuple(distinct_calls(planning, each) for each in operands_of(scalar))
    if isinstance(scalar, Call) and scalar.function in FUNCTIONS:
        planning.calls += 1
        operands = (*operands[:-1], Literal(planning.calls, INT8))
    return with_operands(scalar, operands)


def refuse_order(keys: Sequence[Scalar], over: Sequence[Scalar]) -> None:
    """Raise if rows are to be ordered by what is known only when they are ordered."""
    for key in keys:
        if any(isinstance(each, Column) and acts(over[each.index]) for each in walk_scalars(key)):
            raise FeatureNotSupported(
                "ORDER BY what a function that acts gives for each row is not supported"
            )


def _flat(relation: Relation) -> tuple[Relation, tuple[Scalar, ...]] | None:
    """Return `relation` as scalars over the first of its inputs that only computes no columns."""
    chain: list[Map | Project] = []
    while isinstance(relation, Map | Project):
        chain.append(relation)
        relation = relation.input
    if not chain:
        return None
    outputs: tuple[Scalar, ...] = tuple(
        Column(i, column.type, column.nullable) for i, column in enumerate(columns_of(relation))
    )
    for node in reversed(chain):
        if isinstance(node, Project):
            outputs = tuple(outputs[i] for i in node.outputs)
            continue
        for scalar in node.scalars:
            outputs = (*outputs, _put_in(scalar, outputs))
    return relation, outputs


def _put_in(scalar: Scalar, values: Sequence[Scalar]) -> Scalar:
    def replace(node: Scalar, depth: int) -> Scalar | None:
        return values[node.index] if isinstance(node, Column) and depth == 0 else None

    return map_scalar(scalar, replace)
