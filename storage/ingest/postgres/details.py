"""What a relation remembers of its table in a PostgreSQL server."""

import msgspec

from foreshore.sources.postgres import TableOptions

ADDED = "was added"  # ends why a table has ceased: it has got a column


class Details(msgspec.Struct, frozen=True):
    """The details of an output: its oid, and its columns with their types, (0, 0) as text.

    `key` is the oid of the constraint by which the relation has a primary key; 0: it has none, or
    that is not known. `number` counts how often the relation was refreshed, which has rows then.
    `table` is the reference of the table, if another relation has its output. `options` are those
    of the relation; None: those of the source. `left_out` are columns that it has not, as it cannot
    be altered at present.
    """

    oid: int
    columns: tuple[tuple[str, int, int], ...]
    key: int = 0
    number: int = 0
    table: str | None = None
    options: TableOptions | None = None
    left_out: tuple[str, ...] = ()
