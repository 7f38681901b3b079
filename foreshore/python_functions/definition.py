"""Python functions in plans: each call has a key with all that is needed to call it.

The key of a call is `python:NAME(JSON)`. So replicas, processes of queries and Spark's workers can
run a plan without a catalog, and a function with another body has another key.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal as OneOf

import msgspec

from foreshore.types import (
    BOOL,
    BYTEA,
    DATE,
    FLOAT4,
    FLOAT8,
    INT2,
    INT4,
    INT8,
    INTERVAL,
    TEXT,
    TIME_OF_DAY,
    TIMESTAMP,
    TIMESTAMPTZ,
    SqlType,
    array_of,
    record_of,
)

PREFIX = "python:"
# Types whose values are sent as they are; all others are sent as text.
_SENT = {
    type.name: type
    for type in (
        BOOL, INT2, INT4, INT8, FLOAT4, FLOAT8, TEXT, BYTEA, DATE, TIME_OF_DAY, TIMESTAMP,
        TIMESTAMPTZ, INTERVAL,
    )
}  # fmt: skip
_OF_TEXT = {
    "numeric": "decimal",
    "number": "decimal",
    "uuid": "uuid",
    "json": "json",
    "jsonb": "json",
}


class PythonFunction(msgspec.Struct, frozen=True, omit_defaults=True):
    """A function for hosts: `name` is that of what its source defines.

    `kinds` say how arguments become Python's values, `result` the reverse.
    A kind is a type's name, `decimal`, `uuid` or `json`, with `[]` for arrays.
    `columns`, with names and kinds, are those of the rows of RETURNS TABLE.
    With `retracts` it is the class of an aggregate that takes values back. `step` is then a part of
    its work: `fold` changes states, `outcome` reads the value or the error of one (`folds.py`).
    """

    name: str
    source: str
    kinds: tuple[str, ...]
    result: str
    vectorized: bool = False
    strict: bool = False
    volatility: str = "immutable"
    columns: tuple[tuple[str, str], ...] = ()
    retracts: bool = False
    step: OneOf["", "fold", "outcome"] = ""


def kind_of(type: SqlType) -> str:
    """Return the kind of the values of a type."""
    if type.element is not None:
        return f"{kind_of(type.element)}[]"
    if type.name in _OF_TEXT:
        return _OF_TEXT[type.name]
    return type.name if type.name in _SENT else "text"


def sent_type(type: SqlType) -> SqlType:
    """Return the type in which values of a type are sent to a host, or come from it."""
    if type.element is not None:
        return array_of(sent_type(type.element))
    return _SENT.get(type.name, TEXT)


def record_sent(columns: Sequence[tuple[str, str]]) -> SqlType:
    """Return the type in which rows with columns of these names and kinds are sent."""
    return record_of([name for name, _ in columns], [_type_of_kind(kind) for _, kind in columns])


def _type_of_kind(kind: str) -> SqlType:
    if kind.endswith("[]"):
        return array_of(_type_of_kind(kind.removesuffix("[]")))
    return _SENT.get(kind, TEXT)


def key_of(function: PythonFunction) -> str:
    """Return the key of calls of a function."""
    return f"{PREFIX}{function.name}({msgspec.json.encode(function).decode()})"


def is_python(key: str) -> bool:
    """Whether a key is that of a Python function."""
    return key.startswith(PREFIX)


def name_in(key: str) -> str:
    """Return the name of a function, given its key."""
    return function_of(key).name


@lru_cache(1024)
def function_of(key: str) -> PythonFunction:
    """Return the function with a key."""
    start = key.index("({")
    return msgspec.json.decode(key[start + 1 : -1], type=PythonFunction)
