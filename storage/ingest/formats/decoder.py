"""Decoders: many messages to columns at once.

A message that cannot be decoded does not stop the others: it has NULLs in all columns, and an
error.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import msgspec
import pyarrow as pa

from foreshore.errors import DataError, StatementTooComplex

Values: TypeAlias = Sequence[bytes | None]


@dataclass(frozen=True, slots=True)
class Decoded:
    """Columns with a row for each message, NULLs where there is none, and errors by row.

    `deleted` are the rows of messages that say that there is no row.
    """

    columns: tuple[pa.Array, ...]
    errors: Mapping[int, str]
    deleted: frozenset[int] = frozenset()


class Decoder(Protocol):
    """Decodes messages of one format to columns of fixed types."""

    def decode(self, values: Values) -> Decoded:
        """Return the rows of messages; None stands for no message."""
        ...


def told(error: Exception) -> str:
    """Return why a message could not be decoded, in at most MOST_TOLD characters."""
    if isinstance(error, DataError | StatementTooComplex):
        return error.message
    return (str(error) or type(error).__name__)[:MOST_TOLD]


MOST_TOLD = 1_000
_WRONG = (
    DataError,
    pa.ArrowException,
    ValueError,
    TypeError,
    OverflowError,
    ArithmeticError,
    RecursionError,  # JSON of deep values
    StatementTooComplex,
)
# Of JSON that msgspec does not decode; RecursionError is for what is nested too deeply.
WRONG_JSON = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_PARTS = 16


def without_wrong(
    values: Sequence[Any],
    convert: Callable[[Sequence[Any]], pa.Array],
    errors: dict[int, str],
    first: int = 0,
) -> pa.Array:
    """Return the values converted, with NULL for wrong ones, which `errors` gets.

    Where some are wrong, parts are tried, and parts of these, until the wrong ones are found. The
    row of the first value is `first`. `convert` raises DataError, ArrowException, ValueError or the
    like.
    """
    try:
        return convert(values)
    except _WRONG as error:
        if len(values) == 1:
            errors.setdefault(first, told(error))
            return convert([None])
    size = -(-len(values) // _PARTS)
    return pa.concat_arrays(
        [
            without_wrong(values[start : start + size], convert, errors, first + start)
            for start in range(0, len(values), size)
        ]
    )
