"""Functions and classes of Python modules as targets."""

import msgspec


class PythonTarget(msgspec.Struct, frozen=True, tag="python"):
    """A function that gets the changes, or a class that also keeps the frontier."""

    function: str  # module:name
    arguments: dict[str, str] = {}
    timeout_ms: int = 300_000  # of a call

    @property
    def module(self) -> str:
        """Return the name of the module."""
        return self.function.partition(":")[0]
