"""Calls with VARIADIC: the elements of an array in place of the last arguments.

    concat(VARIADIC ARRAY[a, b])        concat(a, b)
    concat_ws(',', VARIADIC x)          array_to_string(x, ',')
    jsonb_extract_path(j, VARIADIC x)   j #> x

An array that is not written out is passed to a function that takes arrays, if there is one.
"""

from collections.abc import Iterator

import msgspec

from foreshore.errors import FeatureNotSupported
from foreshore.expr.columns import type_of
from foreshore.expr.ir import Call, Scalar
from foreshore.sql import ast
from foreshore.sql.bind.binder import Binder
from foreshore.sql.bind.positions import at_of
from foreshore.types import JSON, JSONB, TEXT, array_of, item_of

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
    return msgspec.structs.replace(expr, args=(*expr.args[:-1], *_items(last)), variadic=False)


def _items(array: ast.ArrayOf) -> Iterator[ast.Expression]:
    """Yield the elements of an array that is written out, row by row."""
    for item in array.items:
        if isinstance(item, ast.ArrayOf) and item.kind == "array":
            yield from _items(item)
        else:
            yield item


def over_array(binder: Binder, expr: ast.FunctionCall) -> Scalar:
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
    scalars = tuple(map(_plain, scalars))
    return binder.call(function, scalars, expr.at, offsets)


def _plain(scalar: Scalar) -> Scalar:
    """Return the elements of an array of any shape as a plain array; any other value as it is."""
    type = type_of(scalar)
    if type.name != "shaped":
        return scalar
    return Call("shaped_items(anyshaped)", (scalar,), array_of(item_of(type)))
