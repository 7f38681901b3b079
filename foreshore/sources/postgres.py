"""Tables of a PostgreSQL server, by logical replication."""

import msgspec


class TableOptions(msgspec.Struct, frozen=True):
    """What a relation takes over of its table; names are those of the table's own."""

    text_columns: tuple[str, ...] = ()  # read as text, whatever their types
    exclude_columns: tuple[str, ...] = ()
    exclude_constraints: tuple[str, ...] = ()  # not relied on


class PostgresSource(msgspec.Struct, frozen=True, tag="postgres"):
    """The tables of a publication. References are `schema.table`.

    Columns and constraints are named as `schema.table.name`; see `TableOptions`.
    """

    connection: str  # its id
    publication: str
    slot: str = ""  # the replication slot; discovery names it
    # In a restored database: those of the original, of which a copy may be made.
    copied_slots: tuple[str, ...] = ()
    text_columns: tuple[str, ...] = ()
    exclude_columns: tuple[str, ...] = ()
    applies_changes: bool = False  # of columns in the external system
    exclude_constraints: tuple[str, ...] = ()


def options_of(spec: PostgresSource, reference: str) -> TableOptions:
    """Return the options of a source that are about one table."""

    def own(names: tuple[str, ...]) -> tuple[str, ...]:
        begin = f"{reference}."
        return tuple(each.removeprefix(begin) for each in names if each.startswith(begin))

    return TableOptions(
        own(spec.text_columns), own(spec.exclude_columns), own(spec.exclude_constraints)
    )


def with_options(spec: PostgresSource, reference: str, options: TableOptions) -> PostgresSource:
    """Return a source of which one table has these options, and others have none."""

    def full(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(f"{reference}.{each}" for each in names)

    return msgspec.structs.replace(
        spec,
        text_columns=full(options.text_columns),
        exclude_columns=full(options.exclude_columns),
        exclude_constraints=full(options.exclude_constraints),
    )
