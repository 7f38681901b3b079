"""Functions and classes of Python modules that an administrator has allowed, and their rows."""

import importlib
from collections.abc import Callable
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
