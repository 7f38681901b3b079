"""Whether a relation calls functions in Python."""

from foreshore.expr.ir import Call, FlatMap, Relation
from foreshore.expr.scalars import scalars_of
from foreshore.expr.traversal import walk_relations, walk_scalars
from foreshore.python_functions.definition import is_python


def calls_python(relation: Relation) -> bool:
    """Return whether a call of a function in Python is somewhere in a relation."""
    return any(map(asks_hosts, walk_relations(relation)))


def asks_hosts(node: Relation) -> bool:
    """Return whether an operator itself calls a function in Python."""
    if isinstance(node, FlatMap) and is_python(node.function):
        return True
    return any(
        isinstance(part, Call) and is_python(part.function)
        for scalar in scalars_of(node)
        for part in walk_scalars(scalar)
    )
