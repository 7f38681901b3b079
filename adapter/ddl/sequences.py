"""CREATE and ALTER SEQUENCE; what goes with a sequence, and what may not be without it.

(The folder's name is the other sense of the word: what happens after what.)
"""

from collections.abc import Iterable

from foreshore.adapter.client import Completed
from foreshore.adapter.ddl.definitions import plan_created_table
from foreshore.adapter.session.context import StatementContext
from foreshore.adapter.write.sequence_numbers import generation_of
from foreshore.catalog.catalog import Planned
from foreshore.catalog.item import Item, Object, OwnedBy, Schema
from foreshore.errors import DependentObjectsStillExist, FeatureNotSupported
from foreshore.expr.ir import Call, Literal, walk_scalars
from foreshore.ids import GlobalId
from foreshore.sequence import Position, Sequence
from foreshore.sql.bind.definitions.sequence import FUNCTIONS, SEQUENCE_DESC, within
from foreshore.sql.parse.keywords import quote_identifier
from foreshore.sql.parse.parse import parse
from foreshore.sql.plan import AlterSequence, AlterTable, CreateSequence
from foreshore.sql.planner import plan_statement


def add_sequence(
    context: StatementContext,
    plan: CreateSequence,
    schema: Schema,
    owned_by: OwnedBy | None,
) -> GlobalId:
    """Return the id of a new sequence, in the transaction's catalog."""
    change = context.catalog_change()
    id = change.allot_item()
    item = change.create_item(
        id, "sequence", schema, plan.name.item, context.role.id, plan.sql, (), owned_by=owned_by
    )
    context.transaction.planned[id] = Planned(SEQUENCE_DESC, sequence=plan.sequence)
    _begin(context, item, plan.sequence.start)
    return id


def _begin(context: StatementContext, item: Item, start: int) -> None:
    """Begin a generation, which is the transaction's own until it commits."""
    generation = generation_of(item)
    position = Position(start, called=False)
    context.coordinator.sequences.begin(generation, position, owner=context.transaction)


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
    """Let a sequence be another; it begins anew if `restart` says with which number."""
    if restart is None:
        position = context.coordinator.sequences.position(generation_of(item), item.name)
        within(sequence, position.last, "RESTART")
        generation = None
    else:
        generation = context.coordinator.sequences.another(item.id).number
    changed = context.catalog_change().alter_sequence(
        item, sql, generation=generation, owned_by=owner
    )
    context.transaction.planned[item.id] = Planned(SEQUENCE_DESC, sequence=sequence)
    if restart is not None:
        _begin(context, changed, restart)


def restart_identity(context: StatementContext, table: GlobalId) -> None:
    """Let the sequences that go with a table's columns begin anew."""
    reader = context.planner.reader()
    for item in reader.state.sequences_of(table):
        sequence = reader.planned[item.id].sequence
        assert sequence is not None, item
        owner = item.owned_by or None
        change_sequence(context, item, sequence, item.create_sql, sequence.start, owner)


# --- what rests on a sequence --------------------------------------------------------------


def refuse_parts(context: StatementContext, targets: Iterable[Object]) -> None:
    """Raise if an identity column would lose its sequence and stay."""
    state = context.planner.reader().state
    ids = {each.id for each in targets}
    for each in targets:
        owner = each.owned_by if isinstance(each, Item) else None
        if owner and owner.identity and owner.table not in ids:
            column = f"column {owner.column} of table {state.item(owner.table).name}"
            raise DependentObjectsStillExist(
                f"cannot drop sequence {each.name} because {column} requires it",
                hint=f"You can drop {column} instead.",
            )


def drop_default(context: StatementContext, table: Item, sequence: Item, cascade: bool) -> str:
    """Return which defaults rest on a sequence, and take them away if it goes in `cascade`."""
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
        from foreshore.adapter.ddl.create import named_constraints

        transaction = context.transaction
        committed = context.coordinator.catalog.planned.get(table.id)
        if committed is not None:
            transaction.described.setdefault(table.id, committed)
        context.catalog_change().alter_table(
            table,
            plan.definition.sql,
            named_constraints(plan.definition),
            table.since,
            plan.definition.depends_on,
            table.stored_names or (),
        )
        transaction.planned[table.id] = plan_created_table(
            plan.definition, table.stored_names or ()
        )
    return ", ".join(f"default value for column {each} of table {table.name}" for each in columns)
