"""Whether a plan with parameters in the place of a text's literals is the plan of that text.

The plan of a shape (`sql/parse/shapes.py`) is that of a statement with parameters, so it is good
for whatever arguments. What is to be shown is that the statement with parameters is the statement
with literals. Names, types and functions are resolved by the classes of the literals; where the
binder looks at a value, and makes of it what it could not make of a parameter, the two plans differ
once the values are put in, as the optimizer computes what is constant in both.
"""

from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from msgspec.structs import replace

from foreshore.expr.evaluate import fold
from foreshore.expr.ir import Call, Literal, Node, Parameter, Relation, Scalar
from foreshore.expr.scalars import Replace, bind_scalar
from foreshore.sql.optimize.pipeline import optimize
from foreshore.sql.plan import Plan
from foreshore.sql.plan.query import Query
from foreshore.sql.rewrite.bind_parameters import bind_relation
from foreshore.types import Datum, RelationDesc

_COUNTED = frozenset(("finishing", "limit", "offset"))
_TOTAL = "_total("  # in the key of a function that cannot fail, as its literal is known


def is_plan_of(shape: Plan, args: Sequence[Datum], text: Plan, *, few_rows: bool) -> bool:
    """Return whether a plan with these arguments is the plan of a text.

    For `few_rows` it may call functions that look at each value, where the text's plan knows of a
    literal that it is a pattern or a unit.
    """

    def given(scalar: Scalar) -> Scalar | None:
        if isinstance(scalar, Parameter):
            return Literal(args[scalar.number - 1], scalar.type)
        if few_rows and isinstance(scalar, Call) and _TOTAL in scalar.function:
            called = tuple([bind_scalar(arg, given) for arg in scalar.args])
            return replace(scalar, function=scalar.function.replace(_TOTAL, "("), args=called)
        return None

    return bool(_computed(shape, given) == _computed(text, given))


def _computed(part: Any, given: Replace) -> Any:
    """Return what of a plan can be compared, with values put in and computed."""
    if isinstance(part, Query):
        return _query(part, given)
    if isinstance(part, RelationDesc):
        return part.names, [each.type for each in part.columns], part.origins
    if isinstance(part, Relation):
        return optimize(bind_relation(part, given))
    if isinstance(part, Scalar):
        return _scalar(part, given)
    if isinstance(part, tuple | list):
        return [_computed(each, given) for each in part]
    if is_dataclass(part):
        return type(part), [_computed(getattr(part, each.name), given) for each in fields(part)]
    if isinstance(part, Node):
        values = [_computed(getattr(part, name), given) for name in part.__struct_fields__]
        return type(part), values
    return part


def _query(query: Query, given: Replace) -> Any:
    """Return a query with its limit and offset as numbers."""
    finishing = query.finishing
    counts = (
        finishing.limit if query.limit is None else _count(query.limit, given),
        finishing.offset if query.offset is None else _count(query.offset, given),
    )
    names = [each.name for each in fields(query) if each.name not in _COUNTED]
    parts = [getattr(query, name) for name in names]
    return _computed((finishing.order_by, finishing.project, *counts, *parts), given)


def _count(scalar: Scalar, given: Replace) -> Any:
    found = _scalar(scalar, given)
    return found.value if isinstance(found, Literal) else found


def _scalar(scalar: Scalar, given: Replace) -> Scalar:
    return fold(bind_scalar(scalar, given))
