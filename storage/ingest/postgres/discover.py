"""Which tables a publication has, and their columns."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from typing import Any, NamedTuple, TypeAlias

import msgspec
import psycopg

from foreshore.errors import UndefinedColumn, UndefinedObject
from foreshore.sources.outputs import Column, Output
from foreshore.sources.postgres import PostgresSource, TableOptions, options_of
from foreshore.storage.external.access import Access
from foreshore.storage.external.libpq import ReplicationSession, open_session
from foreshore.storage.external.postgres_failures import failure
from foreshore.storage.ingest.postgres.details import Details
from foreshore.storage.ingest.postgres.names import closest, quoted
from foreshore.storage.ingest.postgres.ready import lacks
from foreshore.storage.ingest.postgres.shapes import Shape, shapes, stamp_of

_COLUMNS = """
SELECT t.schemaname::text, t.tablename::text, a.attname::text,
    pg_catalog.format_type(a.atttypid, a.atttypmod)
    || pg_catalog.repeat('[]', greatest(a.attndims - 1, 0)),
    a.attnotnull, a.attnum = ANY (k.indkey) AND k.indisprimary,
    a.atttypid::pg_catalog.int8, a.atttypmod, c.oid::pg_catalog.int8,
    c.relreplident = 'f' AND (c.relkind <> 'p' OR NOT EXISTS (
        SELECT 1 FROM pg_catalog.pg_partition_tree(c.oid) l
        JOIN pg_catalog.pg_class f ON f.oid = l.relid WHERE l.isleaf AND f.relreplident <> 'f')),
    b.typnamespace = 'pg_catalog'::pg_catalog.regnamespace,
    pg_catalog.has_schema_privilege(n.oid, 'USAGE')
    AND pg_catalog.has_column_privilege(c.oid, a.attnum, 'SELECT'),
    c.relrowsecurity AND pg_catalog.row_security_active(c.oid),
    CASE WHEN a.atthasmissing THEN (a.attmissingval::text::text[])[1] END,
    a.atthasmissing OR NOT (a.atthasdef OR a.attidentity <> '' OR b.typtype = 'd')
FROM pg_catalog.pg_publication_tables t
JOIN pg_catalog.pg_namespace n ON n.nspname = t.schemaname
JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = t.tablename
JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    AND a.attgenerated = ''
JOIN pg_catalog.pg_type b ON b.oid = a.atttypid
LEFT JOIN pg_catalog.pg_index k ON k.indrelid = c.oid AND k.indisprimary
WHERE t.pubname = %s
ORDER BY 1, 2, a.attnum
"""
_CONSTRAINTS = """
SELECT conrelid::pg_catalog.int8, conname::text, contype::text,
    (SELECT a.attname::text FROM pg_catalog.pg_attribute a
    WHERE a.attrelid = conrelid AND a.attnum = conkey[1])
FROM pg_catalog.pg_constraint WHERE conrelid = ANY (%s::pg_catalog.oid[])
    AND contype IN ('p', 'u', 'n')
"""
Session: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"


class _Constraint(NamedTuple):
    """A constraint of a table, of a kind as in pg_constraint, and its first column."""

    table_oid: int
    name: str
    kind: str
    column: str


class _Found(NamedTuple):
    """A column of a table."""

    schema: str
    table: str
    name: str
    type: str
    is_given: bool
    is_key: bool | None
    type_oid: int
    type_modifier: int
    table_oid: int
    has_old_rows: bool
    is_built_in: bool
    may_be_read: bool
    hides_rows: bool
    missing: str | None
    is_uniform: bool


def discovered(spec: PostgresSource, access: Access) -> tuple[PostgresSource, dict[str, Output]]:
    """Return the source with full names in its options, and its tables by their references. Blocks.

    Raises DatabaseError if the server cannot be reached or its role may not replicate,
    ObjectNotInPrerequisiteState if it is not set up for replication, and as `_outputs_of`.
    """
    try:
        with closing(open_session(access)) as connection:
            for lack in lacks(connection):
                raise lack
            spec, outputs = _outputs_of(connection, spec)
        ReplicationSession(access).close()
    except psycopg.Error as error:
        raise failure(error) from error
    return spec, outputs


def _first(connection: Session, query: str, *values: object) -> tuple[Any, ...]:
    """Return the first row of a query, with NULLs if there is none."""
    return connection.execute(query.encode(), values).fetchone() or (None,)


def _outputs_of(
    connection: Session, spec: PostgresSource
) -> tuple[PostgresSource, dict[str, Output]]:
    """Return the source with full names in its options, and its tables by their references.

    Raises UndefinedObject if there is no such publication, and as `_check_names`.
    """
    stamp_of(connection, spec.publication)
    tables: dict[str, list[_Found]] = {}
    for row in connection.execute(_COLUMNS.encode(), (spec.publication,)):
        found = _Found(*row)
        tables.setdefault(f"{found.schema}.{found.table}", []).append(found)
    (role,) = _first(connection, "SELECT current_user::text")
    constraints = _constraints(connection, tables)
    if not spec.slot:  # later on, what was named may have gone
        spec = _with_schemas(spec, tables)
        _check_names(spec, tables, constraints)
    found_shapes = shapes(
        connection, spec.publication, [rows[0].table_oid for rows in tables.values()]
    )
    outputs = {
        reference: _output(
            reference,
            rows,
            constraints[reference],
            found_shapes[rows[0].table_oid],
            options_of(spec, reference),
            role,
        )
        for reference, rows in tables.items()
        if rows[0].table_oid in found_shapes
    }
    return spec, outputs


def _with_schemas(spec: PostgresSource, tables: Collection[str]) -> PostgresSource:
    """Return a source whose options have names with schemas, also where they were left out.

    They may be left out if only one table of the publication has a name.
    """

    def full(named: str) -> str:
        table, _, own = named.rpartition(".")
        found = [each for each in tables if each.endswith(f".{table}")]
        return f"{found[0]}.{own}" if table not in tables and len(found) == 1 else named

    return msgspec.structs.replace(
        spec,
        text_columns=tuple(map(full, spec.text_columns)),
        exclude_columns=tuple(map(full, spec.exclude_columns)),
        exclude_constraints=tuple(map(full, spec.exclude_constraints)),
    )


def _constraints(
    connection: Session, tables: Mapping[str, Sequence[_Found]]
) -> dict[str, list[_Constraint]]:
    """Return the constraints of tables by their references.

    NOT NULL has the name that later versions give it, if the server has none.
    """
    oids = [rows[0].table_oid for rows in tables.values()]
    found = [_Constraint(*row) for row in connection.execute(_CONSTRAINTS.encode(), (oids,))]
    constraints: dict[str, list[_Constraint]] = {}
    for reference, (first, *others) in tables.items():
        own = [each for each in found if each.table_oid == first.table_oid]
        named = {each.column for each in own if each.kind == "n"}
        for row in (first, *others):
            if row.is_given and row.name not in named:
                name = f"{row.table}_{row.name}_not_null"
                own.append(_Constraint(row.table_oid, name, "n", row.name))
        constraints[reference] = own
    return constraints


def _check_names(
    spec: PostgresSource,
    tables: Mapping[str, Sequence[_Found]],
    constraints: Mapping[str, Sequence[_Constraint]],
) -> None:
    """Raise UndefinedColumn or UndefinedObject if an option names what is not there."""
    columns = {f"{each}.{row.name}" for each, rows in tables.items() for row in rows}
    for named in (*spec.text_columns, *spec.exclude_columns):
        if named not in columns:
            raise UndefinedColumn(
                f'column "{named}" does not exist in the publication "{spec.publication}"',
                hint=f"Perhaps you mean {like}."
                if (like := closest(named, columns))
                else "Columns are named as schema.table.column.",
            )
    known = {f"{each}.{found.name}" for each, all in constraints.items() for found in all}
    for named in spec.exclude_constraints:
        if named not in known:
            of = named.rpartition(".")[0]
            own = ", ".join(each.name for each in constraints.get(of, ()))
            raise UndefinedObject(
                f'constraint "{named}" does not exist in the publication "{spec.publication}"',
                hint=f"Table {of} has {own}."
                if own
                else "Constraints are named as schema.table.constraint.",
            )


def _output(
    reference: str,
    rows: Sequence[_Found],
    constraints: Sequence[_Constraint],
    shape: Shape,
    options: TableOptions,
    role: str,
) -> Output:
    """Return a table without what is excluded; without a column of its key, it has none."""
    read = [row for row in rows if row.name not in options.exclude_columns]
    as_text = {row.name for row in read if row.name in options.text_columns}
    left_out = [each for each in constraints if each.name in options.exclude_constraints]
    may_be_null = {each.column for each in left_out if each.kind == "n"}
    columns = tuple(
        Column(
            row.name,
            "text" if row.name in as_text else row.type,
            not row.is_given or row.name in may_be_null,
            row.missing,
            row.is_uniform,
        )
        for row in read
    )
    key = [row for row in rows if row.is_key]
    if any(each.kind == "p" for each in left_out):
        key = []
    has_key = bool(key) and all(k in read for k in key)
    details = Details(
        rows[0].table_oid,
        tuple(
            (row.name, 0, 0) if row.name in as_text else (row.name, row.type_oid, row.type_modifier)
            for row in read
        ),
        shape.key if has_key else 0,
    )
    if read:
        obstacle, hint = _forbidden(reference, read, role) or _obstacle(
            reference, rows, [row for row in read if row.name not in as_text], shape
        )
    else:
        obstacle = f'no column of table "{reference}" is left'
        hint = "Name fewer of them in EXCLUDE COLUMNS, or leave out the table."
    return Output(
        columns,
        tuple(row.name for row in key) if has_key else (),
        msgspec.json.encode(details).decode(),
        obstacle,
        hint,
    )


def _forbidden(reference: str, read: Sequence[_Found], role: str) -> tuple[str, str] | None:
    """Return which right is missing to read a table, and what helps; None if none is."""
    schema, name = read[0].schema, read[0].table
    if not all(row.may_be_read for row in read):
        return (
            f'permission denied for table "{reference}"',
            f"Run GRANT USAGE ON SCHEMA {quoted(schema)} TO {quoted(role)} and GRANT SELECT ON"
            f" {quoted(schema, name)} TO {quoted(role)} upstream.",
        )
    if any(row.hides_rows for row in read):
        return (
            f'row-level security of table "{reference}" hides rows from role "{role}"',
            f"Run ALTER ROLE {quoted(role)} BYPASSRLS upstream.",
        )
    return None


def _obstacle(
    reference: str, rows: Sequence[_Found], typed: Sequence[_Found], shape: Shape
) -> tuple[str, str]:
    """Return why a table cannot be followed, and what helps; empty if it can."""
    schema, name = rows[0].schema, rows[0].table
    table = quoted(schema, name)
    if "." in schema:
        return (
            f'schema "{schema}" of table "{name}" has a dot in its name, which is not supported',
            "Publish a table of another schema.",
        )
    if shape.limit:
        wanted = "rows, and write the condition in a view here"
        if shape.limit != "condition":
            wanted = "columns, and leave some out by EXCLUDE COLUMNS here"
        return (
            f'the publication has a {shape.limit} for table "{reference}"',
            f"Publish all {wanted}: ALTER PUBLICATION ... SET TABLE {table} upstream.",
        )
    if not rows[0].has_old_rows:
        return (
            f'table "{reference}" does not replicate the old rows of updates and deletes',
            f"Run ALTER TABLE {table} REPLICA IDENTITY FULL upstream, also for its partitions if"
            " it has some.",
        )
    for each in typed:
        if not each.is_built_in:
            column = f"{table}.{quoted(each.name)}"
            return (
                f'column "{each.name}" of table "{reference}" has the type {each.type},'
                " which is not built in",
                f"Read it as text by TEXT COLUMNS ({column}), or leave it out by EXCLUDE COLUMNS"
                f" ({column}).",
            )
    return "", ""
