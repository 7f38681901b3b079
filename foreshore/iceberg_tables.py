"""A table of an Iceberg catalog, as sources and sinks name it."""

import msgspec


class CatalogTable(msgspec.Struct, frozen=True):
    """A table, by the ids of the connection to its catalog and perhaps of one to AWS."""

    connection: str
    namespace: str  # its levels, with dots between them
    table: str
    aws: str | None = None  # by whose keys the files are reached; None: the catalog says
    local: bool = False  # whether the files may be local ones, below places that COPY may use

    @property
    def connections(self) -> tuple[str, ...]:
        """Return the ids of the connections, that to the catalog first."""
        return (self.connection,) if self.aws is None else (self.connection, self.aws)

    @property
    def identifier(self) -> tuple[str, ...]:
        """Return the name of the table with its levels."""
        return (*self.namespace.split("."), self.table)
