"""Functions of Python modules as sources."""

import msgspec

from foreshore.sources.outputs import Column


class PythonSource(msgspec.Struct, frozen=True, tag="python"):
    """What a generator function yields; `function` is `module:function`."""

    function: str
    columns: tuple[Column, ...]
    arguments: dict[str, str] = {}

    @property
    def module(self) -> str:
        """Return the name of the module."""
        return self.function.partition(":")[0]
