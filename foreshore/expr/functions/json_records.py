"""Records of JSON objects: json_to_record, json_populate_record, and those of sets.

Each is a scalar function that returns the array of its records. A column takes the value of its
name: a string or number by the input of the column's type, an object as a record, an array as an
array. A column without a value keeps the one of the base record, or is NULL.
"""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from foreshore.array_text import NOT_PLAIN
from foreshore.datum import from_array
from foreshore.errors import DataError
from foreshore.expr.functions.function import Kernel, Outcome, Signature, hidden
from foreshore.expr.functions.jsontext import dumps, loads
from foreshore.expr.functions.rows import collect, fail
from foreshore.shaped import Shaped, from_rows, stored_shaped
from foreshore.structured import stored, values_of
from foreshore.text import parse_text
from foreshore.types import Datum, SqlType, item_of

# By the number of documents: one object, or an array of them.
ONE, SEVERAL = "json_record(any)", "json_recordset(any)"


def _datum(value: Any, type: SqlType) -> Datum:
    """Return a value of a document as a datum of `type`."""
    if value is None:
        return None
    if type.name in ("json", "jsonb"):
        return dumps(value)
    if type.name == "record" and isinstance(value, dict):
        return _record(value, type, (None,) * len(type.members))
    if type.element is not None and not isinstance(value, str):
        if not isinstance(value, list):
            raise fail("22P02", "expected JSON array")
        element = type.element
        if element.name not in ("json", "jsonb") and any(isinstance(each, list) for each in value):
            raise fail("0A000", NOT_PLAIN)
        return tuple(_datum(item, element) for item in value)
    if type.name == "shaped" and not isinstance(value, str):
        return stored_shaped(_array(value, item_of(type)), type)
    return parse_text(value if isinstance(value, str) else dumps(value), type)


def _array(value: Any, element: SqlType) -> Shaped:
    """Return the array of arrays within arrays."""
    if not isinstance(value, list):
        raise fail("22P02", "expected JSON array")
    try:
        array = from_rows(value)
    except DataError as wrong:
        is_deep = wrong.sqlstate == "54000"
        raise wrong if is_deep else fail("22P02", "malformed JSON array") from None
    return array._replace(items=tuple(_datum(item, element) for item in array.items))


def _record(document: dict[str, Any], type: SqlType, base: Sequence[Datum]) -> bytes:
    values = [
        _datum(document[member.name], member.type) if member.name in document else kept
        for member, kept in zip(type.members, base, strict=True)
    ]
    return stored(values, type)


def _objects(text: str, *, several: bool) -> list[dict[str, Any]]:
    """Return the objects of a document."""
    document = loads(text)
    if not several:
        if isinstance(document, dict):
            return [document]
        raise fail("22023", f"cannot call populate_composite on {_kind(document)}")
    if not isinstance(document, list):
        raise fail("22023", f"cannot call a function of recordsets on {_kind(document)}")
    if not all(isinstance(each, dict) for each in document):
        raise fail("22023", "argument must be an array of objects")
    return document


def _kind(document: Any) -> str:
    if isinstance(document, dict):
        return "an object"
    return "an array" if isinstance(document, list) else "a scalar"


def _records(*, several: bool) -> Kernel:
    """Return the kernel over documents, or base records and documents."""

    def kernel(types: Signature, *arrays: pa.Array) -> Outcome:
        record = types.result.element
        assert record is not None, types
        nothing = (None,) * len(record.members)

        def made(base: Any, text: Any) -> tuple[bytes, ...]:
            (datum,) = base
            kept = nothing if datum is None else values_of(datum, record)
            found = _objects(text, several=several)
            return tuple(_record(each, record, kept) for each in found)

        texts = arrays[-1].to_pylist()
        bases: list[Datum] = [None] * len(texts)
        if len(arrays) > 1:
            bases = from_array(arrays[0], types.args[0])
        return collect(types, made, zip(((base,) for base in bases), texts, strict=True))

    return kernel


def _first(types: Signature, records: pa.Array) -> Outcome:
    """Return the only record of each array."""
    found = [None if each is None else each[0] for each in records.to_pylist()]
    return pa.array(found, pa.binary())


hidden(ONE, "any", "any", _records(several=False), strict=False, fallible=True, variadic=True)
hidden(SEVERAL, "any", "any", _records(several=True), strict=False, fallible=True, variadic=True)
hidden("only_record(anyarray)", "anyarray", "any", _first)
