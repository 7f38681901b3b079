"""Parameters: values of JSON as the texts of a statement's parameters $1, $2, ...

A string is the parameter's text, and null is NULL. A number, true and false are their texts, an
object is its JSON. An array is an array of SQL where the statement expects one, and its JSON where
it expects json. Numbers keep all their digits (`decoder`).
"""

from collections.abc import Sequence
from decimal import Decimal
from typing import Annotated, Any, TypeVar

import msgspec

from foreshore.array_text import quote_element
from foreshore.errors import DataError, DatatypeMismatch
from foreshore.types import SqlType

T = TypeVar("T")
Params = Annotated[
    tuple[Any, ...],
    msgspec.Meta(
        description="the values of the parameters $1, $2, ...: texts, numbers, true, false, null,"
        " arrays for arrays, objects for json"
    ),
]
DEPTH = 6  # of arrays within arrays, as many dimensions as PostgreSQL's arrays have

_JSON_TYPES = frozenset({"json", "jsonb"})
_ARRAY_TYPES = frozenset({"array", "shaped", "list"})
_encoder = msgspec.json.Encoder(decimal_format="number")


def decoder(kind: type[T]) -> "msgspec.json.Decoder[T]":
    """Return a decoder of JSON that keeps all digits of numbers in parameters."""
    return msgspec.json.Decoder(kind, float_hook=Decimal)


def text_of(value: Any, kind: SqlType) -> str | None:
    """Return a value as the text of a parameter of type `kind`; None is NULL.

    Raises DatatypeMismatch if the value is an array and the parameter is none.
    """
    if isinstance(value, list | tuple) and kind.name not in _JSON_TYPES:
        if kind.name not in _ARRAY_TYPES:
            raise DatatypeMismatch(
                f"a JSON array cannot be a parameter of type {kind}",
                hint="Cast the parameter, as in $1::int[] or $1::jsonb.",
            )
        return _array(value, DEPTH)
    return _scalar(value)


def check_text(text: str) -> None:
    """Raise DataError if a text has the character that texts cannot have."""
    if "\0" in text:
        raise DataError('invalid byte sequence for encoding "UTF8": 0x00', sqlstate="22021")


def check_values(values: Sequence[Any]) -> None:
    """Raise DataError if a text of parameters has the character that texts cannot have."""
    for value in values:
        if isinstance(value, str):
            check_text(value)


def _scalar(value: Any) -> str | None:
    match value:
        case None | str():
            return value
        case Decimal():
            return str(value)
        case _:
            return _encoder.encode(value).decode()


def _array(values: Sequence[Any], depth: int) -> str:
    if not depth:
        raise DataError(f"arrays have at most {DEPTH} dimensions", sqlstate="54000")
    return "{" + ",".join(_element(each, depth) for each in values) + "}"


def _element(value: Any, depth: int) -> str:
    if isinstance(value, list | tuple):
        return _array(value, depth - 1)
    text = _scalar(value)
    if text is None:
        return "NULL"
    check_text(text)
    return quote_element(text)
