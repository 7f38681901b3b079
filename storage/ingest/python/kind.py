"""Functions of Python modules as a kind of external system."""

import asyncio
from collections.abc import Mapping

from foreshore.sources.outputs import OWN_ROWS, Output
from foreshore.sources.python import PythonSource
from foreshore.storage.external.access import Accesses
from foreshore.storage.external.python import check_arguments, function_of
from foreshore.storage.ingest.connector import Connector
from foreshore.storage.ingest.messages import Discovered, OutputRelation
from foreshore.storage.ingest.python.connector import PythonConnector

_ARGUMENTS = "It gets the position, and the arguments of the source by their names."


class PythonKind:
    """Functions of Python modules."""

    def connector(
        self, spec: PythonSource, outputs: Mapping[str, OutputRelation], accesses: Accesses
    ) -> Connector:
        """Return a new connector."""
        return PythonConnector(spec, outputs[OWN_ROWS].desc, lambda: function_of(spec.function))

    async def discover(self, spec: PythonSource, accesses: Accesses) -> Discovered:
        """Return the declared columns, if there is the function and it takes the arguments."""
        function = await asyncio.to_thread(function_of, spec.function)
        check_arguments(spec.function, function, 1, spec.arguments, _ARGUMENTS)
        return Discovered(spec, {OWN_ROWS: Output(spec.columns)})


KIND = PythonKind()
