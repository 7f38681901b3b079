"""Whether a relation calls functions in Python."""

from foreshore.expr.ir import Call, FlatMap, Relation
from foreshore.expr.scalars import scalars_of
from foreshore.expr.traversal import walk_relations, walk_scalars
from foreshore.python_functions.definition import is_python


def calls_python(relation: Relation) -> bool:
    """Return whether a call of a function in Python is somewhere in a relation."""
    for node in walk_relations(relation):
        if isinstance(node, FlatMap) and is_python(node.function):
            return True
        for scalar in scalars_of(node):
            for part in walk_scalars(scalar):
                if isinstance(part, Call) and is_python(part.function):
                    return True
    return False
