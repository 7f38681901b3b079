"""Functions of Python modules as a kind of external system."""

import asyncio
import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from foreshore.errors import InvalidParameterValue
from foreshore.sources.outputs import OWN_ROWS, Output
from foreshore.sources.python import PythonSource
from foreshore.storage.external.access import Accesses
from foreshore.storage.ingest.connector import Connector, Position
from foreshore.storage.ingest.messages import Discovered, OutputRelation
from foreshore.storage.ingest.python.connector import PythonConnector


def function_of(spec: PythonSource) -> Callable[..., Any]:
    """Return the function, whose module is imported; raises InvalidParameterValue. Blocks."""
    module, _, name = spec.function.partition(":")
    try:
        found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    except Exception as error:
        raise InvalidParameterValue(
            f'function "{spec.function}" cannot be imported: {type(error).__name__}: {error}'
        ) from error
    if not callable(found):
        raise InvalidParameterValue(f'"{spec.function}" is no function')
    return found


def _check_arguments(spec: PythonSource, function: Callable[..., Any]) -> None:
    """Raise InvalidParameterValue if a function cannot be called as a source calls it."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # what is written in C may have none
        return
    try:
        signature.bind(None, **spec.arguments)
    except TypeError as error:
        raise InvalidParameterValue(
            f'function "{spec.function}" does not take these arguments: {error}',
            hint="It gets the position, and the arguments of the source by their names.",
        ) from error


class PythonKind:
    """Functions of Python modules."""

    def connector(
        self, spec: PythonSource, outputs: Mapping[str, OutputRelation], accesses: Accesses
    ) -> Connector:
        """Return a new connector."""
        return PythonConnector(spec, outputs[OWN_ROWS].desc, lambda: function_of(spec))

    async def discover(self, spec: PythonSource, accesses: Accesses) -> Discovered:
        """Return the declared columns, if there is the function and it takes the arguments."""
        _check_arguments(spec, await asyncio.to_thread(function_of, spec))
        return Discovered(spec, {OWN_ROWS: Output(spec.columns)})

    async def dispose(self, spec: PythonSource, position: Position, accesses: Accesses) -> None:
        """Do nothing: nothing is left there."""


KIND = PythonKind()
