"""The vocabulary that all layers share: times, updates, ids, types, expressions, errors.

For programs that use the database, `foreshore.open`, `foreshore.connect` and `foreshore.replica`
are here as well, with their asynchronous forms. They are loaded when they are first asked for, so
that a process of the database does not load a client.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foreshore.embedded.copy import replica
    from foreshore.embedded.copy_async import replica_async
    from foreshore.embedded.opening import connect, connect_async, open, open_async

__all__ = ["connect", "connect_async", "open", "open_async", "replica", "replica_async"]


def __getattr__(name: str) -> Any:
    """Return what is loaded on demand."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from foreshore.embedded import copy, copy_async, opening

    modules = {"replica": copy, "replica_async": copy_async}
    return getattr(modules.get(name, opening), name)
