"""The error of a text that is no value of its type."""

from foreshore.errors import InvalidTextRepresentation
from foreshore.types import SqlType


def invalid_syntax(type: SqlType, text: str) -> InvalidTextRepresentation:
    """Return PostgreSQL's error for `text` that cannot be read as `type`."""
    return InvalidTextRepresentation(f'invalid input syntax for type {_input_name(type)}: "{text}"')


def _input_name(type: SqlType) -> str:
    """Return the type's name in input errors."""
    return {"time": "time", "timestamp": "timestamp"}.get(type.name) or str(type)
