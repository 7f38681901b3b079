"""Functions and classes of Python modules that an administrator has allowed, and their rows."""

import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from foreshore.errors import InvalidParameterValue
from foreshore.storage.lake.columns import for_file
from foreshore.types import RelationDesc


def function_of(named: str) -> Callable[..., Any]:
    """Return what `module:function` names, whose module is imported. Blocks.

    Raises InvalidParameterValue if it cannot be imported, or called.
    """
    module, _, name = named.partition(":")
    try:
        found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    except Exception as error:
        raise InvalidParameterValue(
            f'function "{named}" cannot be imported: {type(error).__name__}: {error}'
        ) from error
    if not callable(found):
        raise InvalidParameterValue(f'"{named}" is no function')
    return found


def check_arguments(
    named: str, function: Callable[..., Any], given: int, arguments: Mapping[str, Any], hint: str
) -> None:
    """Raise InvalidParameterValue if a function takes no `given` values before named arguments."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # what is written in C may have none
        return
    try:
        signature.bind(*(None,) * given, **arguments)
    except TypeError as error:
        kind = "class" if inspect.isclass(function) else "function"
        raise InvalidParameterValue(
            f'{kind} "{named}" does not take these arguments: {error}', hint=hint
        ) from error


def for_function(table: pa.Table, desc: RelationDesc) -> pa.Table:
    """Return rows of a relation as a function gets them: with types that all programs know.

    Raises NumericValueOutOfRange.
    """
    arrays = [
        for_file(name, column_called(table, name), column.type)
        for name, column in zip(desc.names, desc.columns, strict=True)
    ]
    return pa.Table.from_arrays(arrays, list(desc.names))


def column_called(table: pa.Table, name: str) -> pa.Array:
    """Return a column as one array; raises InvalidParameterValue if there is none."""
    if name not in table.schema.names:
        raise InvalidParameterValue(f'the rows have no column "{name}"')
    column = table.column(name).combine_chunks()
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
