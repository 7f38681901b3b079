"""Functions of Python modules as a kind of external system."""

import asyncio
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from foreshore.errors import InvalidParameterValue
from foreshore.sources.outputs import OWN_ROWS, Output
from foreshore.sources.python import PythonSource
from foreshore.storage.external.access import Accesses
from foreshore.storage.external.python import function_of
from foreshore.storage.ingest.connector import Connector, Position
from foreshore.storage.ingest.messages import Discovered, OutputRelation
from foreshore.storage.ingest.python.connector import PythonConnector


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
        return PythonConnector(spec, outputs[OWN_ROWS].desc, lambda: function_of(spec.function))

    async def discover(self, spec: PythonSource, accesses: Accesses) -> Discovered:
        """Return the declared columns, if there is the function and it takes the arguments."""
        _check_arguments(spec, await asyncio.to_thread(function_of, spec.function))
        return Discovered(spec, {OWN_ROWS: Output(spec.columns)})

    async def dispose(self, spec: PythonSource, position: Position, accesses: Accesses) -> None:
        """Do nothing: nothing is left there."""


KIND = PythonKind()
