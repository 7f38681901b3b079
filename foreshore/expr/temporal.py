"""Temporal filters: predicates on mz_now() in the plan of a maintained relation.

    Filter(t, mz_now() < t.until AND a > 1)    TemporalFilter(Filter(t, a > 1), lt #2)

In a query mz_now() is the time of the read, a constant. A maintained relation has contents at every
time, so its predicates on mz_now() become a `TemporalFilter`: rows enter and leave as time passes.
This is possible where a row is there during one interval: for comparisons of mz_now() with an
expression over the row, joined by AND.
"""

from collections.abc import Iterator, Sequence
from typing import Literal as OneOf

from foreshore.errors import FeatureNotSupported
from foreshore.expr.columns import columns_of, type_of
from foreshore.expr.ir import (
    And,
    Call,
    Column,
    Environment,
    Filter,
    Let,
    LetRec,
    Literal,
    LocalGet,
    Map,
    Project,
    Relation,
    Scalar,
    TemporalFilter,
)
from foreshore.expr.scalars import scalars_of
from foreshore.expr.split import can_fail
from foreshore.expr.traversal import inputs_of, walk_relations, walk_scalars, with_inputs
from foreshore.types import BOOL, MZ_TIMESTAMP

Operator = OneOf["lt", "le", "ge", "gt"]
Condition = tuple[Operator, Scalar]  # mz_now() `operator` scalar

_TURNED: dict[str, Operator] = {"lt": "gt", "le": "ge", "ge": "le", "gt": "lt"}
_OPPOSITE: dict[str, Operator] = {"lt": "ge", "le": "gt", "ge": "lt", "gt": "le"}
_AS_THEY_ARE: dict[str, Operator] = {operator: operator for operator in _OPPOSITE}  # type: ignore


def reads_now(scalar: Scalar) -> bool:
    """Whether `scalar` contains mz_now()."""
    return any(isinstance(s, Environment) and s.name == "mz_now" for s in walk_scalars(scalar))


def has_temporal_filter(relation: Relation) -> bool:
    """Whether a lowered relation changes as time passes."""
    return any(isinstance(node, TemporalFilter) for node in walk_relations(relation))


def temporal_filters(relation: Relation) -> Relation:
    """Return a lowered relation with its predicates on mz_now() as temporal filters.

    Raises FeatureNotSupported if mz_now() is used in any other way.
    """
    inputs = inputs_of(relation)
    converted = tuple(map(temporal_filters, inputs))
    if any(a is not b for a, b in zip(inputs, converted, strict=True)):
        relation = with_inputs(relation, converted)
    if isinstance(relation, LetRec):
        check_outside(relation)
    if not any(map(reads_now, scalars_of(relation))):
        return relation
    if not isinstance(relation, Filter):
        raise _unsupported("outside of WHERE and HAVING")
    return _temporal_filter(relation)


def check_outside(loop: LetRec) -> None:
    """Raise FeatureNotSupported if a temporal filter of a recursion is over what it computes."""
    varying = set(loop.numbers)

    def reads(node: Relation) -> bool:
        found = walk_relations(node)
        return any(isinstance(each, LocalGet) and each.number in varying for each in found)

    def check(node: Relation) -> None:
        if isinstance(node, Let) and reads(node.value):
            varying.add(node.number)
        if isinstance(node, TemporalFilter) and reads(node):
            raise _unsupported("over the rows of a recursion")
        for each in inputs_of(node):
            check(each)

    for value in loop.values:
        check(value)


def at_time(relation: Relation, time: int) -> Relation:
    """Return a relation with its temporal filters as filters for the rows at one time."""
    inputs = inputs_of(relation)
    changed = tuple(at_time(each, time) for each in inputs)
    if any(a is not b for a, b in zip(inputs, changed, strict=True)):
        relation = with_inputs(relation, changed)
    if not isinstance(relation, TemporalFilter):
        return relation
    now, columns = Literal(time, MZ_TIMESTAMP), columns_of(relation)
    predicates = [
        Call(operator, (now, Column(i, MZ_TIMESTAMP, columns[i].nullable)), BOOL)
        for operator, i in relation.conditions
    ]
    return Filter(relation.input, tuple(predicates))


def _temporal_filter(filter: Filter) -> Relation:
    """Return the rows of a filter, in which a predicate reads mz_now().

    Predicates that may fail come last, so that they fail only for rows that are there.
    """
    parts = list(_conjuncts(filter.predicates))
    rest = [each for each in parts if not reads_now(each)]
    conditions = [each for part in parts if reads_now(part) for each in _conditions(part)]
    first = tuple(each for each in rest if not can_fail(each))
    last = tuple(each for each in rest if can_fail(each))
    found = Filter(filter.input, first) if first else filter.input
    found = _over_bounds(found, conditions)
    return Filter(found, last) if last else found


def _over_bounds(input: Relation, conditions: Sequence[Condition]) -> Relation:
    """Return the rows of `input` that satisfy `conditions`, whose scalars become columns."""
    width = len(columns_of(input))
    computed: dict[Scalar, int] = {}
    places: list[tuple[Operator, int]] = []
    for operator, scalar in conditions:
        if isinstance(scalar, Column):
            places.append((operator, scalar.index))
        else:
            places.append((operator, computed.setdefault(scalar, width + len(computed))))
    if not computed:
        return TemporalFilter(input, tuple(places))
    found = TemporalFilter(Map(input, tuple(computed)), tuple(places))
    return Project(found, tuple(range(width)))


def _conjuncts(predicates: Sequence[Scalar]) -> Iterator[Scalar]:
    for predicate in predicates:
        if isinstance(predicate, And):
            yield from _conjuncts(predicate.args)
        else:
            yield predicate


def _conditions(predicate: Scalar) -> list[Condition]:
    """Return the comparisons with mz_now() of which a predicate is the conjunction."""
    match predicate:
        case Call(function="not", args=(Call(function=name, args=(a, b)),)) if name in _OPPOSITE:
            return _compared(_OPPOSITE[name], a, b)
        case Call(function="eq", args=(a, b)):
            return [*_compared("ge", a, b), *_compared("le", a, b)]
        case Call(function=name, args=(a, b)) if name in _OPPOSITE:
            return _compared(_AS_THEY_ARE[name], a, b)
        case _:
            raise _unsupported("in a condition that is not a comparison")


def _compared(operator: Operator, a: Scalar, b: Scalar) -> list[Condition]:
    """Return the comparison `a operator b` with mz_now() on the left."""
    if not _is_now(a):
        a, b, operator = b, a, _TURNED[operator]
    if not _is_now(a) or reads_now(b) or type_of(b) != MZ_TIMESTAMP:
        raise _unsupported("in an expression")
    return [(operator, b)]


def _is_now(scalar: Scalar) -> bool:
    return isinstance(scalar, Environment) and scalar.name == "mz_now"


def _unsupported(where: str) -> FeatureNotSupported:
    return FeatureNotSupported(
        f"mz_now() {where} is not supported in a relation that is maintained",
        detail="Conditions joined by AND in WHERE or HAVING may compare mz_now() by <, <=, =, >= or"
        " > with an expression over the row.",
    )
