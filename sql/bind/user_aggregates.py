"""Calls of users' aggregates: a function of the array of a group's values.

`agg(DISTINCT x ORDER BY y) FILTER (WHERE p)` is the aggregate's body over `array_agg` of the same,
so it is right in maintained views, and may be a window function.
"""

from dataclasses import replace as replaced

import msgspec

from foreshore.expr.columns import type_of
from foreshore.expr.ir import Scalar
from foreshore.sql import ast
from foreshore.sql.bind.binder import Binder, Clause
from foreshore.sql.bind.coerce import cast
from foreshore.sql.bind.user_functions import UserCall, bind_value, find_call
from foreshore.sql_function import FunctionParameter
from foreshore.types import array_of


def bind_user_aggregate(binder: Binder, expr: ast.FunctionCall) -> Scalar | None:
    """Return the value of a call of a user's aggregate, None for a call of anything else."""
    functions = binder.planning.catalog.functions_named(expr.name)
    if expr.star or expr.names or not any(each.is_aggregate for _, each in functions):
        return None
    inner = binder.over(Clause("aggregate", nested=True))
    args = tuple(inner.bind(arg) for arg in expr.args)
    plain = ast.FunctionCall(expr.name, expr.args, expr.at)
    found = find_call(inner, plain, args, aggregate=True)
    if found is None:
        return None
    values = binder.bind(msgspec.structs.replace(expr, name=("array_agg",)))
    type = array_of(found.function.types[0])
    if type_of(values) != type:
        values = cast(binder.planning, values, type, expr.at)
    over = replaced(found.function, parameters=(FunctionParameter("", type),), is_aggregate=False)
    return bind_value(binder, UserCall(found.id, over, (values,), expr.at))
