"""Arrays of any shape in rows of Python: lists of lists, made of the texts in Arrow tables."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from foreshore.embedded.python_values import python_values, value_of_json, without_zeros

TYPE = b"foreshore.type"  # in a field's metadata
# Types whose values Arrow has as SQL does. Numerics and documents are made of texts, and all others
# are texts.
_PLAIN = frozenset(
    "bool int2 int4 int8 float4 float8 date time timestamp timestamptz bytea".split()
)


def is_nested(field: pa.Field) -> bool:
    """Return whether a column has arrays of any shape, which are texts in Arrow."""
    name = (field.metadata or {}).get(TYPE, b"")
    return bool(pa.types.is_string(field.type) and name.endswith(b"[]"))


def nested_lists(field: pa.Field, column: pa.ChunkedArray) -> list[Any]:
    """Return the arrays of a column as lists of lists. Bounds are left out."""
    from foreshore.shaped import nested, parse_shaped

    arrays = [
        None if text is None else parse_shaped(text, lambda part: part)
        for text in column.to_pylist()
    ]
    texts = [item for array in arrays if array is not None for item in array.items]
    values = _values(texts, field.metadata[TYPE].decode().removesuffix("[]"))
    found: list[Any] = []
    at = 0
    for array in arrays:
        end = at if array is None else at + len(array.items)
        row = tuple(values[at:end])
        found.append(None if array is None else nested(array._replace(items=row)))
        at = end
    return found


def _values(texts: Sequence[Any], type_name: str) -> Sequence[Any]:
    """Return the values of texts, of a type as messages call it."""
    from foreshore.datum import to_array
    from foreshore.text import parse_text
    from foreshore.types import TYPES, SqlType

    if type_name == "numeric":
        return [None if text is None else without_zeros(Decimal(text)) for text in texts]
    if type_name in ("json", "jsonb"):
        return [None if text is None else value_of_json(text) for text in texts]
    name = next((each for each in _PLAIN if TYPES[each].display == type_name), None)
    if name is None:
        return texts
    type = SqlType(name)
    data = [None if text is None else parse_text(text, type) for text in texts]
    return python_values(to_array(data, type))
