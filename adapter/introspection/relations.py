"""Rows of the system relations, as a session sees them.

Relations that depend on the catalog alone are kept until it changes. The others
(`live_relations.py`) are computed for each query.
"""

from collections.abc import Callable, Iterable
from functools import partial

import pyarrow as pa

from foreshore import blocking
from foreshore.adapter.definitions.catalog_reader import SessionCatalog
from foreshore.adapter.definitions.plan_items import definition_text
from foreshore.adapter.dump.column_domains import column_domains
from foreshore.adapter.introspection.live_relations import LIVE, frontiers
from foreshore.adapter.plans.catalog_relations import LONG, MOVING
from foreshore.adapter.show.stored_options import stored_options
from foreshore.adapter.statement.context import StatementContext
from foreshore.catalog.builtin.answers import Question
from foreshore.catalog.builtin.object_names import sources_of_names
from foreshore.catalog.builtin.parts import Origin, RelationRead, RelationRows
from foreshore.catalog.builtin.registry import BUILTINS, all_builtins
from foreshore.catalog.builtin.relation import Builtin, IntrospectionSnapshot
from foreshore.catalog.item import Connection, Item
from foreshore.catalog.rebase import without_dropped
from foreshore.catalog.sequence_numbers import generation_of
from foreshore.catalog.state import State
from foreshore.errors import UndefinedTable
from foreshore.expr.block import Block
from foreshore.expr.ir import Literal
from foreshore.ids import GlobalId
from foreshore.in_turns import run_at_once
from foreshore.sequence import Position
from foreshore.sql.parse.keywords import quote_string
from foreshore.sql.rewrite.constant_text import constant_text, expression_text
from foreshore.sql.rewrite.definition_parts import default_texts, generated_texts, query_text
from foreshore.sql.rewrite.full_names import dotted, renamed
from foreshore.sql.rewrite.index_keys import index_keys
from foreshore.sql.rewrite.policy_texts import policy_texts, shown
from foreshore.types import ColumnType, oid_of, without_modifiers, written_type

assert LIVE.keys() <= MOVING, LIVE.keys() - MOVING
# Relations that depend on the search path, as does the information schema: it shows temporary
# objects only to their session, whose temporary schema is in the path.
_BY_PATH = frozenset(("pg_attrdef", "pg_object_definitions", "pg_relation_visibility"))


def origin_of(context: StatementContext, builtin: Builtin) -> Origin | None:
    """Return what determines the rows of a relation beside the state that the session sees.

    Returns None if they depend on more.
    """
    if builtin.name in MOVING:
        return None
    by_path = builtin.name in _BY_PATH or builtin.schema == "information_schema"
    path = context.planner.search_path() if by_path else ()
    role = context.role.id if builtin.schema == "information_schema" else ""
    return Origin(builtin.id, context.database, path, role)


def state_seen(context: StatementContext) -> State:
    """Return the catalog's state as the session sees it, with a transaction's changes."""
    own, now = context.planner.state, context.names.state
    return own if own is now else without_dropped(own, now, context.planner.reader().planned)


def builtin_rows(context: StatementContext, builtin: Builtin) -> pa.Table:
    """Return the rows of a builtin relation as the session sees them."""
    snapshot = partial(snapshot_of, context)
    origin = origin_of(context, builtin)
    if origin is None:
        return builtin.table(snapshot())
    read = _read(context, state_seen(context), origin, snapshot)
    return run_at_once(context.names.catalog_answers.rows(read)).table


def _read(
    context: StatementContext,
    state: State,
    origin: Origin,
    snapshot: Callable[[], IntrospectionSnapshot],
) -> RelationRead:
    is_own = state is not context.names.state
    return RelationRead(state, origin, BUILTINS[origin.relation], snapshot, is_own)


async def builtin_tables(
    context: StatementContext, ids: Iterable[GlobalId]
) -> dict[GlobalId, pa.Table]:
    """Return the rows of the builtin relations of `ids`, all of one moment.

    Other sessions run meanwhile, except where rows show what changes without the catalog.
    """
    return {id: rows.table for id, rows in (await load_rows(context, ids)).items()}


async def load_rows(
    context: StatementContext, ids: Iterable[GlobalId]
) -> dict[GlobalId, RelationRows]:
    """Return the rows as `builtin_tables` does, in their parts."""
    found = [BUILTINS[id] for id in ids if id in BUILTINS]
    if not found:
        return {}
    state, answers = state_seen(context), context.names.catalog_answers
    origins = {each.id: origin_of(context, each) for each in found}
    given = {
        id: rows
        for id, origin in origins.items()
        if origin is not None and (rows := answers.known(state, origin)) is not None
    }
    if len(given) == len(found):
        return given
    taken = snapshot_of(context)
    reads = {
        id: _read(context, state, origin, lambda: taken)
        for id, origin in origins.items()
        if origin is not None and id not in given
    }
    moving = [each for each in found if origins[each.id] is None]
    for each in moving:
        if each.name not in LONG:
            given[each.id] = RelationRows((each.table(taken),))
    for each in moving:
        if each.name in LONG:
            rows = await blocking.run(None, each.table, taken)
            given[each.id] = RelationRows((rows,))
    for id, read in reads.items():
        given[id] = await answers.rows_in_turns(read)
    return given


async def load_names(context: StatementContext, columns: Iterable[ColumnType]) -> None:
    """Make the rows that names of objects in these columns come from, while others run.

    Who encodes a result finds them made: it cannot wait.
    """
    sources = sources_of_names(column.type for column in columns)
    if sources:
        await load_rows(context, sources)


def question_of(context: StatementContext, block: Block) -> Question | None:
    """Return a bound `block` as a question about the catalog's state, None if it reads more."""
    if context.planner.state is not context.names.state:
        return None
    origins = set()
    for id in block.sources():
        origin = origin_of(context, BUILTINS[id]) if id in BUILTINS else None
        if origin is None:
            return None
        origins.add(origin)
    return Question(block, frozenset(origins)) if origins else None


def snapshot_of(context: StatementContext) -> IntrospectionSnapshot:
    """Return the system as the session sees it now."""
    reader = context.planner.reader()
    state, planned = state_seen(context), reader.planned

    def full_definition_of(id: GlobalId) -> str:
        return query_text(definition_text(state, planned, state.item(id)))

    def definition_of(id: GlobalId) -> str:
        needs = [
            each for need in state.item(id).depends_on if isinstance(each := state.get(need), Item)
        ]
        names = {name: ("", *name[1:]) for each in needs if (name := state.full_name(each))[0]}
        return renamed(full_definition_of(id), names)

    def policy_texts_of(id: GlobalId) -> tuple[str | None, str | None]:
        item = state.item(id)
        names = {then: ("", *now[1:]) for then, now in state.present_names(item).items()}
        texts = policy_texts(renamed(item.create_sql, names))
        return texts.using and shown(texts.using), texts.check and shown(texts.check)

    def position_of(id: GlobalId) -> Position:
        item = state.item(id)
        try:
            return context.tables.sequences.position(generation_of(item), item.name)
        except UndefinedTable:  # another session has dropped it
            return Position(1, called=False)

    def subscription_state_of(id: GlobalId) -> tuple[int, int] | None:
        position = context.tables.subscriptions.position(id, context.transaction.moves)
        if position is None:
            return None
        return position.reached, max(context.times.oracle.read_ts() - position.as_of, 0)

    return IntrospectionSnapshot(
        state,
        planned,
        all_builtins(),
        context.database,
        definition_of,
        partial(_default_text, reader),
        position_of,
        subscription_state_of,
        frontiers=partial(frontiers, context),
        live=lambda name: LIVE[name](context),
        now=context.times.clock.now(),
        temporary=context.temporary_schema,
        search_path=reader.search_path,
        full_definition_of=full_definition_of,
        policy_texts_of=policy_texts_of,
        options_of=partial(stored_options, state, planned),
        column_domains_of=partial(column_domains, state),
        create_sql_of=partial(_create_sql, reader),
        index_keys_of=lambda id: index_keys(state.item(id).create_sql),
        role=context.role,
    )


def _create_sql(reader: SessionCatalog, each: Item | Connection) -> str:
    from foreshore.adapter.show.connections import connection_text
    from foreshore.adapter.show.show_create import item_statement

    if isinstance(each, Connection):
        return connection_text(reader.state, each)
    return item_statement(reader, each)


def _default_text(reader: SessionCatalog, id: GlobalId, position: int) -> str | None:
    """Return a table column's default as the session may write it, None if there is none."""
    planned = reader.planned[id]
    if planned.generated and planned.generated[position] is not None:
        if planned.generated[position] != "stored":
            return None
        return generated_texts(reader.state.item(id).create_sql)[position]
    default = planned.defaults[position]
    if isinstance(default, Literal):
        written = default_texts(reader.state.item(id).create_sql)[position]
        if default.value is None or not written:  # the default of a domain
            return None
        text = constant_text(default, written)
        type = reader.state.item_with(oid_of(default.type))
        if type is not None:  # of the catalog
            type_text = written_type(without_modifiers(default.type))
            return text.removesuffix(type_text) + dotted(_shortest_name(reader, type.id))
        return text
    item = reader.state.item(id)
    text = expression_text(default_texts(item.create_sql)[position])
    if not text:  # the default of a domain
        return None
    for then, sequence in item.bound:
        text = text.replace(_regclass(*then), _regclass(*_shortest_name(reader, sequence)))
    return text


def _shortest_name(reader: SessionCatalog, id: GlobalId) -> tuple[str, ...]:
    """Return the name of a relation, with its schema if the search path does not find it."""
    item = reader.state.item(id)
    return (item.name,) if reader.is_visible(item) else reader.state.full_name(item)[1:]


def _regclass(*name: str) -> str:
    return quote_string(dotted(name)) + "::regclass"
