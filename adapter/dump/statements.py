"""SHOW CREATE ALL: the statements that make the objects of a database again, in a usable order.

Roles and network policies come first, then clusters and schemas, secrets and connections, then
items after those that they need, with sinks last, then how much history sources keep, foreign keys,
row security and comments, and in the end owners, rights, and for superusers the settings of the
system. Names have no database, so that another one can be made of the same objects. Data, passwords
and tokens are not there, nor what is about the database itself.
"""

from collections.abc import Iterator

import pyarrow as pa

from foreshore import blocking
from foreshore.adapter.definitions.catalog_reader import SessionCatalog
from foreshore.adapter.dump.rights import default_privileges, owners, privileges
from foreshore.adapter.dump.roles import role_statements, system_statements
from foreshore.adapter.dump.statement import Dumped, signature
from foreshore.adapter.show.connections import connection_text, full_name
from foreshore.adapter.show.show_create import cluster_statement, foreign_key_text, item_statement
from foreshore.adapter.show.sources import has_own_statement
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.statement.result import BatchSource, Selected
from foreshore.catalog.bootstrap import FIRST_CLUSTER
from foreshore.catalog.item import Cluster, Connection, Database, Item, Schema, Secret
from foreshore.catalog.state import State, is_system
from foreshore.ids import GlobalId
from foreshore.sql.parse.keywords import quote_identifier, quote_string
from foreshore.sql.plan import ShowCreateAll
from foreshore.sql.rewrite.full_names import FullName, dotted, renamed
from foreshore.sql.rewrite.object_options import maintained_options


async def show_create_all(context: StatementContext, plan: ShowCreateAll) -> Selected:
    """Run SHOW CREATE ALL."""
    reader = context.planner.reader()
    database = reader.state.database(context.database)
    assert database is not None, context.database
    superuser = context.role.superuser
    found = await blocking.run(
        None, lambda: list(statements(reader, database, of_system=superuser))
    )
    columns = [pa.array(column, pa.string()) for column in zip(*found, strict=True)]
    columns = columns or [pa.array([], pa.string())] * 4
    rows = pa.RecordBatch.from_arrays(columns, names=["c0", "c1", "c2", "c3"])
    return Selected(plan.desc, BatchSource(rows), "SHOW")


def statements(reader: SessionCatalog, database: Database, *, of_system: bool) -> Iterator[Dumped]:
    """Yield the statements that make the objects of a database, and the settings of the system."""
    state = reader.state
    schemas = {each.id: each for each in state.all(Schema) if each.database == database.id}
    every = [item for item in state.items() if item.schema in schemas and not item.temporary]
    items = [item for item in every if _is_shown(state, item)]
    items.sort(key=lambda item: bool(item.sink))  # sinks last
    names = _short_names(state, schemas)
    yield from role_statements(state)
    yield from _objects(state, schemas)
    for item in items:
        sql = item_statement(reader, item, with_foreign_keys=False)
        yield _about(state, item, renamed(sql, names))
    for item in every:
        for sql in _source_options(state, item):
            yield _about(state, item, renamed(sql, names))
    for item in items:
        for sql in _additions(reader, item):
            yield _about(state, item, renamed(sql, names))
    for item in every:
        for sql in _comments(reader, item):
            yield _about(state, item, renamed(sql, names))
    others = list(_others(state, schemas))
    yield from owners(reader, others, [*items, *_given_away(state, every)])
    yield from privileges(reader, others, every)
    yield from default_privileges(state, schemas)
    if of_system:
        yield from system_statements(state)


def _others(
    state: State, schemas: dict[str, Schema]
) -> Iterator[Cluster | Schema | Secret | Connection]:
    """Yield what has an owner and rights and is no item."""
    yield from (each for each in state.all(Cluster) if not is_system(each.id))
    yield from (each for each in schemas.values() if not each.temporary)
    yield from (each for each in state.all(Secret) if each.schema in schemas)
    yield from (each for each in state.all(Connection) if each.schema in schemas)


def _is_shown(state: State, item: Item) -> bool:
    """Return whether an item has a statement of its own."""
    if is_system(item.id) or item.temporary:
        return False
    if item.owned_by and item.owned_by.identity:  # part of the table's statement
        return False
    if item.feed:
        return has_own_statement(state, item)
    return not item.part_of


def _given_away(state: State, items: list[Item]) -> Iterator[Item]:
    """Yield parts of sources whose owner is not the source's."""
    for item in items:
        if not item.feed or _is_shown(state, item):
            continue
        if item.owner != state.item(GlobalId(item.feed.source)).owner:
            yield item


def _short_names(state: State, schemas: dict[str, Schema]) -> dict[FullName, FullName]:
    """Return the names of all that is in the schemas without that of the database."""
    found: list[tuple[str, ...]] = [
        state.full_name(item) for item in state.all(Item) if item.schema in schemas
    ]
    named: list[Connection | Secret] = [*state.all(Connection), *state.all(Secret)]
    found += [full_name(state, each) for each in named if each.schema in schemas]
    return {(name[0], name[1], name[2]): ("", name[1], name[2]) for name in found}


def _objects(state: State, schemas: dict[str, Schema]) -> Iterator[Dumped]:
    """Yield the statements of what is no item."""
    for cluster in state.all(Cluster):
        if cluster.name != FIRST_CLUSTER and not is_system(cluster.id):
            yield Dumped("cluster", cluster.name, cluster_statement(state, cluster))
            yield from _comment(cluster, (cluster.name,))
    for schema in schemas.values():
        if schema.name != "public" and not schema.temporary:
            yield Dumped("schema", schema.name, f"CREATE SCHEMA {quote_identifier(schema.name)}")
        if not schema.temporary:
            yield from _comment(schema, (schema.name,))
    for secret in state.all(Secret):
        if secret.schema in schemas:
            name = full_name(state, secret)[1:]
            # Its value cannot be read.
            yield Dumped("secret", ".".join(name), f"CREATE SECRET {dotted(name)} AS ''")
            yield from _comment(secret, name)
    waiting = [each for each in state.all(Connection) if each.schema in schemas]
    names = _short_names(state, schemas)
    for each in sorted(waiting, key=lambda each: (each.spec.tunnel is not None, int(each.id[1:]))):
        sql = renamed(connection_text(state, each), names)
        name = full_name(state, each)[1:]
        yield Dumped("connection", ".".join(name), sql)
        yield from _comment(each, name)


def _comment(
    each: Cluster | Schema | Secret | Connection, name: tuple[str, ...]
) -> Iterator[Dumped]:
    if each.comment:
        sql = f"COMMENT ON {each.kind.upper()} {dotted(name)} IS {quote_string(each.comment)}"
        yield Dumped(each.kind, ".".join(name), sql)


def _source_options(state: State, item: Item) -> Iterator[str]:
    """Yield what ALTER SOURCE has set of a source or of a relation of one, and CREATE does not."""
    if item.feed and item.retain_ms:
        options = ", ".join(each.text for each in maintained_options(item.retain_ms))
        yield f"ALTER SOURCE {dotted(state.full_name(item))} SET ({options})"


def _additions(reader: SessionCatalog, item: Item) -> Iterator[str]:
    """Yield what follows when all items are there."""
    state = reader.state
    name = dotted(state.full_name(item))
    for key in item.foreign_keys or ():
        yield f"ALTER TABLE {name} ADD {foreign_key_text(reader, key)}"
    if item.owned_by:
        table = dotted(state.full_name(state.item(item.owned_by.table)))
        column = quote_identifier(item.owned_by.column)
        yield f"ALTER SEQUENCE {name} OWNED BY {table}.{column}"
    if item.row_security:
        yield f"ALTER TABLE {name} ENABLE ROW LEVEL SECURITY"
    if item.force_row_security:
        yield f"ALTER TABLE {name} FORCE ROW LEVEL SECURITY"


def _comments(reader: SessionCatalog, item: Item) -> Iterator[str]:
    """Yield the comments on an item, which may be part of another, such as a source's table."""
    name = dotted(reader.state.full_name(item))
    if item.comment:
        yield f"COMMENT ON {_called(reader, item)} IS {quote_string(item.comment)}"
    if item.column_comments:
        columns = reader.planned[item.id].desc.names
        for place, text in item.column_comments.items():
            column = f"{name}.{quote_identifier(columns[place - 1])}"
            yield f"COMMENT ON COLUMN {column} IS {quote_string(text)}"
    for constraint in item.constraints if item.constraint_comments else ():
        if constraint.oid in (item.constraint_comments or {}):
            text = quote_string((item.constraint_comments or {})[constraint.oid])
            yield f"COMMENT ON CONSTRAINT {quote_identifier(constraint.name)} ON {name} IS {text}"


def _called(reader: SessionCatalog, item: Item) -> str:
    """Return how COMMENT ON names an item."""
    state = reader.state
    if item.policy:
        table = dotted(state.full_name(state.item(item.policy.table)))
        return f"POLICY {quote_identifier(item.name)} ON {table}"
    if item.is_function:
        return f"FUNCTION {signature(reader, item)}"
    return f"{item.kind.upper()} {dotted(state.full_name(item))}"


def _about(state: State, item: Item, sql: str) -> Dumped:
    return Dumped(item.kind, ".".join(state.full_name(item)[1:]), sql)
