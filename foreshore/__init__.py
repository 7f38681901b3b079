"""A SQL database in Python: tables, views that are kept up to date, and their changes.

    import foreshore

    db = foreshore.open("./shop")            # or connect("postgresql://host/shop")
    db.execute("CREATE TABLE orders (item text, amount int)")
    for change in db.subscribe("SELECT item, sum(amount) FROM orders GROUP BY item"):
        print(change.time, change.rows)

These names are for programs; docs/embedded.md describes them:

    open, open_async            a database of this process, in a directory
    connect, connect_async      a server that runs already
    replica, replica_async      a live local copy of a query's result
    Database, AsyncDatabase     what these give: sql, execute, stream, subscribe, register ...
    Result, Changes, Progress   what statements and subscriptions give
    DatabaseError               what they raise; `sqlstate`, `detail` and `hint` say more

foreshore.spark has the data source for Spark. All other modules are internal and may change at any
time: they are the vocabulary that the layers of the server share. The names are loaded when they
are first asked for, so that a process of the database does not load a client.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foreshore.embedded.copy import replica as replica
    from foreshore.embedded.copy_async import replica_async as replica_async
    from foreshore.embedded.database import Database as Database
    from foreshore.embedded.database_async import AsyncDatabase as AsyncDatabase
    from foreshore.embedded.opening import connect as connect
    from foreshore.embedded.opening import connect_async as connect_async
    from foreshore.embedded.opening import open as open
    from foreshore.embedded.opening import open_async as open_async
    from foreshore.embedded.result import Result as Result
    from foreshore.embedded.subscription import Changes as Changes
    from foreshore.embedded.subscription import Progress as Progress
    from foreshore.errors import DatabaseError as DatabaseError

    __version__: str

_PLACES = {
    "AsyncDatabase": "embedded.database_async",
    "Changes": "embedded.subscription",
    "Database": "embedded.database",
    "DatabaseError": "errors",
    "Progress": "embedded.subscription",
    "Result": "embedded.result",
    "connect": "embedded.opening",
    "connect_async": "embedded.opening",
    "open": "embedded.opening",
    "open_async": "embedded.opening",
    "replica": "embedded.copy",
    "replica_async": "embedded.copy_async",
}
__all__ = [
    "AsyncDatabase",
    "Changes",
    "Database",
    "DatabaseError",
    "Progress",
    "Result",
    "connect",
    "connect_async",
    "open",
    "open_async",
    "replica",
    "replica_async",
]


def __getattr__(name: str) -> Any:
    """Return what is loaded on demand."""
    if name == "__version__":
        from importlib.metadata import version

        return version("foreshore")
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"foreshore.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    """Return also the names that are loaded on demand, for completion."""
    return sorted({*globals(), *__all__, "__version__"})
