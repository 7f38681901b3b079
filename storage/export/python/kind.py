"""Functions and classes of Python modules as a kind of target."""

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from foreshore.errors import InvalidParameterValue
from foreshore.sinks.python import PythonTarget
from foreshore.storage.export.exporter import Exporter
from foreshore.storage.export.messages import Export
from foreshore.storage.export.python.exporter import PythonExporter
from foreshore.storage.external.python import check_arguments, function_of

METHODS = ("frontier", "write", "commit")


class PythonSinkKind:
    """Functions and classes."""

    def exporter(self, export: Export) -> Exporter:
        """Return a new exporter."""
        return PythonExporter(export)

    async def check(self, export: Export) -> None:
        """Raise InvalidParameterValue if it cannot be called as a sink calls it; nothing is."""
        target = export.spec.target
        assert isinstance(target, PythonTarget), target
        _check(target, await asyncio.to_thread(function_of, target.function))


def _check(target: PythonTarget, function: Callable[..., Any]) -> None:
    given = 2
    hint = "A function gets the changes, which part they are, and the arguments by their names."
    if inspect.isclass(function):
        given = 0
        hint = "A class gets the arguments by their names."
        for method in METHODS:
            if not callable(getattr(function, method, None)):
                raise InvalidParameterValue(
                    f'class "{target.function}" has no method {method}()',
                    hint=f"It must have {', '.join(METHODS)}.",
                )
    check_arguments(target.function, function, given, target.arguments, hint)


KIND = PythonSinkKind()
