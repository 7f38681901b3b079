"""Whether a relation calls functions in Python."""

from collections.abc import Iterator

from foreshore.expr.ir import Call, FlatMap, Relation
from foreshore.expr.scalars import scalars_of
from foreshore.expr.traversal import walk_relations, walk_scalars
from foreshore.python_functions.definition import function_of, is_python


def calls_python(relation: Relation) -> bool:
    """Return whether a call of a function in Python is somewhere in a relation."""
    return any(map(asks_hosts, walk_relations(relation)))


def calls_volatile(relation: Relation) -> bool:
    """Return whether some function in Python is VOLATILE: each row, equal or not, is a call."""
    return any(
        function_of(key).volatility == "volatile"
        for node in walk_relations(relation)
        for key in _called(node)
    )


def asks_hosts(node: Relation) -> bool:
    """Return whether an operator itself calls a function in Python."""
    return any(True for _ in _called(node))


def _called(node: Relation) -> Iterator[str]:
    """Yield the keys of the functions in Python that an operator itself calls."""
    if isinstance(node, FlatMap) and is_python(node.function):
        yield node.function
    for scalar in scalars_of(node):
        for part in walk_scalars(scalar):
            if isinstance(part, Call) and is_python(part.function):
                yield part.function
