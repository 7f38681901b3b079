"""Rows of the system relations, as a session sees them.

Relations made of the catalog alone are kept while it does not change. The others
(`live_relations.py`) are made for each query.
"""

from functools import lru_cache, partial
from typing import TYPE_CHECKING

import pyarrow as pa

from foreshore.adapter.ddl.definitions import definition_text
from foreshore.adapter.introspection.catalog_answers import Origin, Question
from foreshore.adapter.introspection.live_relations import LIVE, frontiers
from foreshore.adapter.session.catalog_reader import SessionCatalog
from foreshore.adapter.session.context import StatementContext
from foreshore.catalog.builtin.registry import BUILTINS
from foreshore.catalog.builtin.relation import Builtin, IntrospectionSnapshot
from foreshore.catalog.item import Item
from foreshore.catalog.sequence_numbers import generation_of
from foreshore.errors import UndefinedTable
from foreshore.expr.block import Block
from foreshore.expr.ir import Literal
from foreshore.ids import GlobalId
from foreshore.sequence import Position
from foreshore.sql.ast import (
    CreateSubscriptionStatement,
    CreateTableStatement,
    CreateViewStatement,
)
from foreshore.sql.parse.keywords import quote_identifier
from foreshore.sql.parse.parse import parse
from foreshore.sql.rewrite.full_names import dotted
from foreshore.text import format_text

if TYPE_CHECKING:
    pass

# Beside the live ones, these depend on more than the catalog.
_MOVING = LIVE.keys() | frozenset(
    "mz_frontiers mz_wallclock_global_lag mz_materialization_lag mz_subscriptions"
    " pg_sequences".split()
)
# Show names as the session's search path lets them be written; the information schema shows what
# is temporary only to whom it belongs, and that is in the path.
_BY_PATH = frozenset(("pg_attrdef", "pg_attribute", "pg_relation_visibility"))


def origin_of(context: StatementContext, builtin: Builtin) -> Origin | None:
    """Return what a relation's rows come from beside the catalog's present state.

    None: from more than that, or from a state that is the running transaction's own.
    """
    if builtin.name in _MOVING or context.planner.state is not context.coordinator.state:
        return None
    by_path = builtin.name in _BY_PATH or builtin.schema == "information_schema"
    path = context.planner.search_path() if by_path else ()
    return Origin(builtin.id, context.database, path)


def builtin_rows(context: StatementContext, builtin: Builtin) -> pa.Table:
    """Return the rows of a builtin relation as the session sees them."""
    kept, state = context.coordinator.catalog_answers.tables, context.coordinator.state
    origin = origin_of(context, builtin)
    if origin is None:
        return builtin.table(snapshot_of(context))
    known = kept.get(origin)
    if known is None or known[0] is not state:
        known = kept[origin] = (state, builtin.table(snapshot_of(context)))
    return known[1]


def question_of(context: StatementContext, block: Block) -> Question | None:
    """Return `block`, filled, as a question about the catalog's state; None if it is about more."""
    origins = set()
    for id in block.sources():
        origin = origin_of(context, BUILTINS[id]) if id in BUILTINS else None
        if origin is None:
            return None
        origins.add(origin)
    return Question(block, frozenset(origins)) if origins else None


def snapshot_of(context: StatementContext) -> IntrospectionSnapshot:
    """Return the system as the session sees it now."""
    reader, coordinator = context.planner.reader(), context.coordinator
    state, planned = reader.state, reader.planned

    def definition_of(id: GlobalId) -> str:
        return _query_text(definition_text(state, planned, state.item(id)))

    def position_of(id: GlobalId) -> Position:
        item = state.item(id)
        try:
            return coordinator.sequences.position(generation_of(item), item.name)
        except UndefinedTable:  # another session has dropped it
            return Position(1, called=False)

    def standing_of(id: GlobalId) -> tuple[int, int] | None:
        position = coordinator.subscriptions.position(id, context.transaction.moves)
        if position is None:
            return None
        return position.reached, max(coordinator.oracle.read_ts() - position.as_of, 0)

    return IntrospectionSnapshot(
        state,
        planned,
        context.database,
        definition_of,
        partial(_default_text, reader),
        position_of,
        standing_of,
        frontiers=partial(frontiers, context),
        live=lambda name: LIVE[name](context),
        now=coordinator.clock.now(),
        temporary=context.temporary_schema,
        search_path=reader.search_path,
    )


def _default_text(reader: SessionCatalog, id: GlobalId, position: int) -> str | None:
    """Return a table column's default as the session may write it, None if there is none."""
    planned = reader.planned[id]
    if planned.generated and planned.generated[position] is not None:
        return None
    default = planned.defaults[position]
    if isinstance(default, Literal):
        if default.value is None:
            return None
        text = format_text(default.value, default.type)
        return text if default.type.name.startswith(("int", "float", "num")) else f"'{text}'"
    item = reader.state.item(id)
    text = _default_texts(item.create_sql)[position]
    for then, sequence in item.bound:
        shown = _quoted(dotted(then)) + "::regclass"
        text = text.replace(shown, f"{_quoted(_name_from(reader, sequence))}::regclass")
    return text


@lru_cache(maxsize=1024)
def _default_texts(create_sql: str) -> tuple[str, ...]:
    """Return how a table's definition writes the default of each column."""
    (statement,) = parse(create_sql)
    assert isinstance(statement.ast, CreateTableStatement), create_sql
    return tuple(column.default_text.strip() for column in statement.ast.columns)


def _name_from(reader: SessionCatalog, id: GlobalId) -> str:
    """Return the name of a relation, with its schema if it is not found without."""
    item = reader.state.item(id)
    found = reader.find((item.name,))
    name = quote_identifier(item.name)
    if isinstance(found, Item) and found.id == id:
        return name
    return f"{quote_identifier(reader.state.full_name(item)[1])}.{name}"


def _quoted(text: str) -> str:
    """Return a text as a string constant."""
    return "'" + text.replace("'", "''") + "'"


@lru_cache(maxsize=1024)
def _query_text(create_sql: str) -> str:
    """Return the query of the statement that defines a view or subscription, of others nothing."""
    (statement,) = parse(create_sql)
    if not isinstance(statement.ast, CreateViewStatement | CreateSubscriptionStatement):
        return ""
    return create_sql[statement.ast.at : statement.ast.end].strip()
