"""Calls with VARIADIC: the elements of an array in place of the last arguments.

    concat(VARIADIC ARRAY[a, b])        concat(a, b)
    concat_ws(',', VARIADIC x)          array_to_string(x, ',')
    jsonb_extract_path(j, VARIADIC x)   j #> x

An array that is not written out is passed to a function that takes arrays, if there is one.
"""

import msgspec

from foreshore.errors import FeatureNotSupported
from foreshore.expr.ir import Scalar
from foreshore.sql import ast
from foreshore.sql.bind.expression import ExpressionBinder
from foreshore.sql.bind.positions import at_of
from foreshore.types import JSON, JSONB, TEXT, array_of

# The function over an array, by name and number of arguments; `first` is the place of the array.
_OVER_ARRAYS = {
    ("concat_ws", 2): ("array_to_string", True),
    **{
        (f"{kind}_extract_path{end}", 2): (f"#>{'>' if end else ''}", False)
        for kind in ("json", "jsonb")
        for end in ("", "_text")
    },
    ("jsonb_build_array", 1): ("to_jsonb", False),
    ("json_build_array", 1): ("to_json", False),
}


def spread(expr: ast.FunctionCall) -> ast.FunctionCall:
    """Return a call whose VARIADIC argument is written out as one without."""
    last = expr.args[-1] if expr.args else None
    if not isinstance(last, ast.ArrayOf) or last.kind != "array" or not last.items:
        return expr
    return msgspec.structs.replace(expr, args=(*expr.args[:-1], *last.items), variadic=False)


def over_array(binder: ExpressionBinder, expr: ast.FunctionCall) -> Scalar:
    """Return a call with a VARIADIC array by the function over arrays."""
    name, args = expr.name[-1], expr.args
    if name == "concat" and len(args) == 1:
        name, args = "concat_ws", (ast.String("", expr.at), *args)
    found = _OVER_ARRAYS.get((name, len(args)))
    if found is None:
        raise FeatureNotSupported("VARIADIC is not supported", position=expr.at + 1)
    function, array_first = found
    given = args[::-1] if array_first else args
    scalars = tuple(binder.bind(arg) for arg in given)
    offsets = tuple(map(at_of, given))
    if name.endswith(("_path", "_path_text")):
        wanted = (JSONB if name.startswith("jsonb") else JSON, array_of(TEXT))
        scalars = binder.coerced(scalars, wanted, offsets)
    return binder.call(function, scalars, expr.at, offsets)
