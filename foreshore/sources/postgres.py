"""Tables of a PostgreSQL server, by logical replication."""

import msgspec


class PostgresSource(msgspec.Struct, frozen=True, tag="postgres"):
    """The tables of a publication. References are `schema.table`."""

    connection: str  # its id
    publication: str
    slot: str = ""  # the replication slot; discovery names it
    text_columns: tuple[str, ...] = ()  # schema.table.column: read as text, whatever its type
    exclude_columns: tuple[str, ...] = ()
    applies_changes: bool = False  # of columns in the external system
