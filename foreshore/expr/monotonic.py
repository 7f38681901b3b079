"""Whether a relation never loses rows, which operators with less state rely on."""

from collections.abc import Mapping

from foreshore.expr.ir import (
    Constant,
    Filter,
    FlatMap,
    Get,
    Join,
    JoinOn,
    Let,
    LetRec,
    LocalGet,
    Map,
    Negate,
    Project,
    Recursive,
    Reduce,
    Relation,
    TemporalFilter,
    Threshold,
    TopK,
    Union,
    Window,
)
from foreshore.expr.traversal import inputs_of


def is_monotonic(relation: Relation, values: Mapping[int, Relation] | None = None) -> bool:
    """Return whether `relation` never loses rows; `values` are those of Lets around it."""
    known = values or {}
    found: dict[int, bool] = {}

    def check(node: Relation) -> bool:
        match node:
            case Get(append_only=append_only):
                return append_only
            case LocalGet(number=number):
                if number not in found:
                    found[number] = number in known and check(known[number])
                return found[number]
            case Let(number=number, value=value, body=body):
                found[number] = check(value)  # another Let may have had the number before
                return check(body)
            case Constant(rows=rows):
                return all(count > 0 for _, count in rows)
            case Map() | Filter() | Project() | FlatMap() | Join() | Union():
                return all(map(check, inputs_of(node)))
            case Reduce(group_key=key, aggregates=()) if key:
                return check(node.input)
            case Threshold(input=input):
                return check(input)
            case Reduce() | TopK() | Window() | TemporalFilter() | Negate():
                return False
            case JoinOn() | LetRec() | Recursive():
                return False

    return check(relation)
