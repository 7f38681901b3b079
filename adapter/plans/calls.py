"""The calls of functions with side effects in a plan."""

from collections.abc import Iterable

from foreshore.expr.ir import Call, Relation, Scalar
from foreshore.expr.scalars import scalars_of
from foreshore.expr.traversal import walk_relations, walk_scalars

SETTINGS = ("current_setting(text)", "current_setting(text,bool)")


def calls_in(relation: Relation) -> list[Call]:
    """Return the calls with side effects in `relation`, each once, in order."""
    return calls_of(scalar for node in walk_relations(relation) for scalar in scalars_of(node))


def call_nextval(calls: Iterable[Call]) -> bool:
    """Return whether one of `calls` is of nextval."""
    return any(call.function == "nextval" for call in calls)


def calls_of(scalars: Iterable[Scalar]) -> list[Call]:
    """Return the calls with side effects in `scalars`, each once, in order."""
    found = {
        each: None
        for scalar in scalars
        for each in walk_scalars(scalar)
        if isinstance(each, Call) and (each.number or each.function in SETTINGS)
    }
    return list(found)
