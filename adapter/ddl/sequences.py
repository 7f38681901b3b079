"""CREATE and ALTER SEQUENCE, and the columns that use a sequence."""

from foreshore.adapter.client import Completed
from foreshore.adapter.ddl.objects import add_item, schema_of
from foreshore.adapter.definitions.plan_items import constraint_names, plan_created_table
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.transaction.transaction import Transaction
from foreshore.catalog.catalog import Catalog
from foreshore.catalog.item import Item, OwnedBy
from foreshore.catalog.planned import Planned
from foreshore.catalog.sequence_numbers import Sequences, generation_of
from foreshore.catalog.table_changes import Columns
from foreshore.errors import FeatureNotSupported
from foreshore.expr.ir import Call, Literal
from foreshore.expr.traversal import walk_scalars
from foreshore.ids import GlobalId
from foreshore.sequence import Position, Sequence
from foreshore.sql.bind.definitions.sequence import SEQUENCE_DESC, within
from foreshore.sql.bind.sequence_calls import FUNCTIONS
from foreshore.sql.parse.keywords import quote_identifier
from foreshore.sql.parse.parse import parse
from foreshore.sql.plan import AlterSequence, AlterTable, CreateSequence, CreateTable
from foreshore.sql.planner import plan_statement
from foreshore.update import Timestamp


def add_sequence(context: StatementContext, plan: CreateSequence, owner: OwnedBy | None) -> None:
    """Add a sequence to the transaction's catalog."""
    schema = schema_of(context, plan.name)
    item = add_item(context, plan, schema, plan.name.item, owned_by=owner)
    _begin(context.transaction, context.tables.sequences, item, plan.sequence.start)


def _begin(transaction: Transaction, sequences: Sequences, item: Item, start: int) -> None:
    """Begin a generation, which belongs to the transaction until it commits."""
    position = Position(start, called=False)
    sequences.begin(generation_of(item), position, owner=transaction)


def alter_sequence(context: StatementContext, plan: AlterSequence) -> Completed:
    """Run ALTER SEQUENCE."""
    for notice in plan.notices:
        context.notice(notice)
    if plan.id is None:
        return Completed("ALTER SEQUENCE")
    item = context.catalog_change().state.item(plan.id)
    owner = item.owned_by or None
    if plan.owned_by is not None:
        if owner is not None and owner.identity:
            raise FeatureNotSupported(
                "cannot change ownership of identity sequence",
                detail=f'Sequence "{item.name}" is linked to table '
                f'"{context.planner.reader().state.item(owner.table).name}".',
            )
        owner = OwnedBy(*plan.owned_by) if plan.owned_by else None
    change_sequence(context, item, plan.sequence, plan.sql, plan.restart, owner)
    return Completed("ALTER SEQUENCE")


def change_sequence(
    context: StatementContext,
    item: Item,
    sequence: Sequence,
    sql: str,
    restart: int | None,
    owner: OwnedBy | None,
) -> None:
    """Redefine a sequence, and restart it with `restart` unless that is None."""
    if restart is None:
        position = context.tables.sequences.position(generation_of(item), item.name)
        within(sequence, position.last, "RESTART")
        generation = None
    else:
        generation = context.tables.sequences.another(item.id).number
    changed = context.catalog_change().alter_sequence(
        item, sql, generation=generation, owned_by=owner
    )
    context.catalog_change().planned[item.id] = Planned(SEQUENCE_DESC, sequence=sequence)
    if restart is not None:
        _begin(context.transaction, context.tables.sequences, changed, restart)


def restart_identity(context: StatementContext, table: GlobalId) -> None:
    """Restart the sequences of a table's columns."""
    reader = context.planner.reader()
    for item in reader.state.sequences_of(table):
        sequence = reader.planned[item.id].sequence
        assert sequence is not None, item
        owner = item.owned_by or None
        change_sequence(context, item, sequence, item.create_sql, sequence.start, owner)


# --- columns that use a sequence -----------------------------------------------------------


def drop_default(context: StatementContext, table: Item, sequence: Item, cascade: bool) -> str:
    """Describe the defaults of a table that use a sequence; drop them if `cascade`."""
    reader = context.planner.reader()
    planned = reader.planned[table.id]
    columns = [
        name
        for name, default in zip(planned.desc.names, planned.defaults, strict=True)
        if any(
            isinstance(each, Call)
            and each.function in FUNCTIONS
            and isinstance(each.args[0], Literal)
            and each.args[0].value == sequence.oid
            for each in walk_scalars(default)
        )
    ]
    if cascade:
        name = ".".join(map(quote_identifier, reader.state.full_name(table)))
        actions = ", ".join(
            f"ALTER COLUMN {quote_identifier(column)} DROP DEFAULT" for column in columns
        )
        (syntax,) = parse(f"ALTER TABLE {name} {actions}")
        plan = plan_statement(syntax, reader)
        assert isinstance(plan, AlterTable), plan
        assert plan.definition is not None, plan
        remember_committed(context.transaction, context.names.catalog, table.id)
        define_table(context, table, plan.definition)
    return ", ".join(f"default value for column {each} of table {table.name}" for each in columns)


def define_table(
    context: StatementContext,
    table: Item,
    definition: CreateTable,
    stored: tuple[str, ...] | None = None,
    *,
    since: Timestamp | None = None,
    columns: Columns | None = None,
    adds_constraints: bool = False,
) -> None:
    """Give a table another definition over a shard with the columns `stored`.

    By default the shard and its columns are the same; otherwise it begins at `since`, and `columns`
    has the previous position of each.
    """
    stored = table.stored_names or () if stored is None else stored
    change = context.catalog_change()
    change.alter_table(
        table,
        definition.sql,
        constraint_names(definition),
        table.since if since is None else since,
        definition.depends_on,
        stored,
        columns,
        adds_constraints=adds_constraints,
    )
    context.catalog_change().planned[table.id] = plan_created_table(definition, stored)


def remember_committed(transaction: Transaction, catalog: Catalog, table: GlobalId) -> None:
    """Keep the committed definition of a table that the transaction alters for the first time."""
    committed = catalog.planned.get(table)
    if committed is not None:
        transaction.know(table, committed)
