"""Functions over relations as a kind of external system."""

import asyncio
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from foreshore.errors import InvalidParameterValue
from foreshore.sources.outputs import OWN_ROWS, Output
from foreshore.sources.python import MemoSource
from foreshore.storage.external.access import Accesses
from foreshore.storage.external.python import check_arguments, function_of
from foreshore.storage.ingest.connector import Connector
from foreshore.storage.ingest.messages import Discovered, OutputRelation
from foreshore.storage.ingest.python.memo_connector import MemoConnector

_ARGUMENTS = (
    "It gets a row as a dictionary, or with BATCH an Arrow table, and the arguments of the source"
    " by their names."
)


def _check(spec: MemoSource, function: Callable[..., Any]) -> None:
    """Raise InvalidParameterValue if a function cannot be called as a memo calls it."""
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidParameterValue(
            f'function "{spec.function}" is a generator', hint="Leave out OVER."
        )
    check_arguments(spec.function, function, 1, spec.arguments, _ARGUMENTS)


class MemoKind:
    """Functions over relations."""

    def connector(
        self, spec: MemoSource, outputs: Mapping[str, OutputRelation], accesses: Accesses
    ) -> Connector:
        """Return a new connector."""
        return MemoConnector(spec, outputs[OWN_ROWS].desc, lambda: function_of(spec.function))

    async def discover(self, spec: MemoSource, accesses: Accesses) -> Discovered:
        """Return the columns, if there is the function and it takes the arguments."""
        _check(spec, await asyncio.to_thread(function_of, spec.function))
        return Discovered(spec, {OWN_ROWS: Output(spec.written)})


KIND = MemoKind()
