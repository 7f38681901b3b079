"""What the system knows of itself, as rows: builtin relations made from the present state.

Those that are made of the catalog alone are kept for as long as it does not change; sessions,
settings, frontiers, sizes and replicas are looked at anew each time.
"""

from collections.abc import Iterator
from functools import lru_cache, partial
from typing import TYPE_CHECKING

import pyarrow as pa

from foreshore.adapter.ddl.definitions import definition_text
from foreshore.adapter.introspection.catalog_answers import Origin, Question
from foreshore.adapter.read.cluster_choice import pinned_replica
from foreshore.adapter.session.catalog_reader import BUILTINS, SessionCatalog
from foreshore.adapter.session.context import StatementContext
from foreshore.adapter.transaction.advisory_locks import LOCK_TYPES
from foreshore.adapter.write.sequence_numbers import generation_of
from foreshore.catalog.builtin.relation import (
    AdvisoryLock,
    Builtin,
    DataflowRow,
    Frontier,
    HeldBack,
    IntrospectionSnapshot,
    LoopRow,
    ReplicaStatus,
    SessionRow,
    Setting,
    StoredSize,
    Writer,
)
from foreshore.catalog.item import Item, Replica
from foreshore.constraint import Constraint
from foreshore.errors import UndefinedTable
from foreshore.expr.block import Block
from foreshore.expr.ir import Column, Literal, sources_of
from foreshore.ids import GlobalId
from foreshore.sequence import Generated, Position, Sequence
from foreshore.sql.ast import (
    CreateSubscriptionStatement,
    CreateTableStatement,
    CreateViewStatement,
)
from foreshore.sql.parse.keywords import quote_identifier
from foreshore.sql.parse.parse import parse
from foreshore.sql.rewrite.full_names import dotted
from foreshore.storage.controller import ReadCapability
from foreshore.text import format_text
from foreshore.types import RelationDesc
from foreshore.update import EMPTY, Timestamp

if TYPE_CHECKING:
    from foreshore.adapter.coordinator import Coordinator

# Made of more than the catalog.
_MOVING = frozenset(
    "pg_locks pg_settings pg_stat_activity mz_sessions mz_frontiers mz_cluster_replica_statuses"
    " mz_wallclock_global_lag mz_materialization_lag"
    " mz_storage_sizes mz_read_holds mz_subscriptions mz_dataflow_statuses"
    " mz_message_loop_latency mz_write_capabilities pg_sequences".split()
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
        return builtin.table(world_of(context))
    known = kept.get(origin)
    if known is None or known[0] is not state:
        known = kept[origin] = (state, builtin.table(world_of(context)))
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


def world_of(context: StatementContext) -> IntrospectionSnapshot:
    """Return the system as the session sees it now."""
    reader = context.planner.reader()
    coordinator = context.coordinator
    state, planned = reader.state, reader.planned

    def desc_of(id: GlobalId) -> RelationDesc:
        return planned[id].desc

    def index_key_of(id: GlobalId) -> list[tuple[int, str]]:
        item = state.item(id)
        assert item.on is not None, item
        names = planned[item.on].desc.names
        return [
            (scalar.index + 1, names[scalar.index]) if isinstance(scalar, Column) else (0, "expr")
            for scalar in planned[id].key
        ]

    def definition_of(id: GlobalId) -> str:
        return query_text(definition_text(state, planned, state.item(id)))

    def default_of(id: GlobalId, position: int) -> str | None:
        if generated_of(id, position) is not None:
            return None
        default = planned[id].defaults[position]
        if isinstance(default, Literal):
            if default.value is None:
                return None
            text = format_text(default.value, default.type)
            return text if default.type.name.startswith(("int", "float", "num")) else f"'{text}'"
        text = default_texts(state.item(id).create_sql)[position]
        for then, sequence in state.item(id).bound:
            shown = quoted(dotted(then)) + "::regclass"
            text = text.replace(shown, f"{quoted(name_from(reader, sequence))}::regclass")
        return text

    def generated_of(id: GlobalId, position: int) -> Generated | None:
        generated = planned[id].generated
        return generated[position] if generated else None

    def sequence_of(id: GlobalId) -> Sequence:
        found = planned[id].sequence
        assert found is not None, id
        return found

    def position_of(id: GlobalId) -> Position:
        item = state.item(id)
        try:
            return coordinator.sequences.position(generation_of(item), item.name)
        except UndefinedTable:  # others have dropped it since
            return Position(1, called=False)

    def standing_of(id: GlobalId) -> tuple[int, int] | None:
        position = coordinator.subscriptions.position(id, context.transaction.moves)
        if position is None:
            return None
        return position.reached, max(coordinator.oracle.read_ts() - position.as_of, 0)

    def constraints_of(id: GlobalId) -> dict[str, Constraint]:
        return {each.name: each for each in planned[id].constraints}

    statuses = {each["replica"]: each for each in coordinator.compute.status()}
    return IntrospectionSnapshot(
        state,
        desc_of,
        index_key_of,
        definition_of,
        default_of,
        constraints_of,
        context.database,
        generated_of,
        sequence_of,
        position_of,
        standing_of,
        [Setting(*each) for each in context.variables.show_all()],
        [
            SessionRow(
                each.pid,
                each.role.name,
                each.database,
                each.variables["application_name"],
                each.state,
                each.query,
                each.connected_at,
                each.peer or None,
                each.transaction.started if each.transaction is not None else None,
                each.query_at,
                each.state_at,
            )
            for each in context.sessions.values()
        ],
        [
            Frontier(item.id, interval.since, interval.upper, *_made_of(coordinator, item))
            for item in coordinator.state.all(Item)
            if item.is_collection
            for interval in (coordinator.interval(item.id),)
        ],
        coordinator.clock.now(),
        [
            StoredSize(item.id, coordinator.storage.size_bytes(item.id))
            for item in state.all(Item)
            if item.id in coordinator.capabilities
        ],
        partial(read_holds, coordinator),
        partial(writers, coordinator),
        [
            ReplicaStatus(
                each.id,
                "online" if statuses.get(each.id, {}).get("ready") else "offline",
                statuses.get(each.id, {}).get("failure"),
            )
            for each in coordinator.state.all(Replica)
        ],
        partial(_dataflows, context),
        [
            LoopRow(each.end * 1000, each.length_ms, each.probes, each.average_ms, each.greatest_ms)
            for each in context.coordinator.loop_latency.windows
        ],
        context.temporary_schema,
        reader.search_path,
        partial(_advisory_locks, context),
    )


def _advisory_locks(context: StatementContext) -> Iterator[AdvisoryLock]:
    for key, pid, mode, granted in context.coordinator.advisory.rows():
        yield AdvisoryLock(*key, pid, LOCK_TYPES[mode], granted)


def _dataflows(context: StatementContext) -> Iterator[DataflowRow]:
    """Yield what replicas say of their dataflows: all of them, or the one that is asked alone."""
    pinned = pinned_replica(context)
    for status in context.coordinator.compute.status():
        if pinned is not None and status["replica"] != pinned:
            continue
        for each in status["dataflows"]:
            indexes = each["indexes"]
            yield DataflowRow(
                status["replica"],
                each["id"],
                each["state"],
                status["uppers"].get(each["id"]),
                each["hydration_ms"],
                each["steps"],
                each["step_ms"],
                each["busy_ms"],
                sum(index["rows"] for index in indexes) if indexes else None,
                sum(index["bytes"] for index in indexes) if indexes else None,
                each["failure"],
            )


def _made_of(
    coordinator: "Coordinator", item: Item
) -> tuple[frozenset[GlobalId], frozenset[GlobalId]]:
    """Return the collections that one is made of, and the tables that these come from."""
    if item.type == "table":
        return frozenset(), frozenset()
    relation = coordinator.relation_of(item)
    return sources_of(relation), coordinator.bases_of(relation)


def read_holds(coordinator: "Coordinator") -> Iterator[HeldBack]:
    """Yield who keeps which collection readable from when on: all that holds its since back."""
    now = coordinator.oracle.read_ts()
    dataflows: dict[GlobalId, list[tuple[GlobalId, ReadCapability]]] = {}
    for id, hold in coordinator.compute.holds():
        dataflows.setdefault(hold.id, []).append((id, hold))
    for item in coordinator.state.all(Item):
        if item.id not in coordinator.holds.collections:
            continue  # a view, or about to be looked after

        held = partial(_held_back, item, now)
        own = coordinator.capabilities.get(item.id)
        token = own[0].token if own is not None else None
        yield held("retention", coordinator.holds.policy(item.id), token=token)
        for each in coordinator.holds.on(item.id):
            yield held(each.kind, each.time, pid=each.pid, subscription=each.subscription)
        known = {token}
        for id, hold in dataflows.get(item.id, ()):
            known.add(hold.token)
            yield held("dataflow", hold.frontier, dataflow=id, token=hold.token)
        for grant in coordinator.storage.grants(item.id) if own is not None else ():
            if grant.mode == "read" and grant.token not in known:
                yield held("capability", grant.frontier, token=grant.token)


def writers(coordinator: "Coordinator") -> Iterator[Writer]:
    """Yield who may write which collection: all that are live of its write capabilities."""
    dataflows = {write.token: id for id, write in coordinator.compute.writes()}
    for item in coordinator.state.all(Item):
        own = coordinator.capabilities.get(item.id)
        if own is None:
            continue
        for grant in coordinator.storage.grants(item.id):
            if grant.mode != "write" or grant.frontier == EMPTY:
                continue
            kind = "dataflow" if grant.token in dataflows else "capability"
            if grant.token == own[1].token:
                kind = "table" if item.id in coordinator.group else "environment"
            yield Writer(
                item.id,
                item.name,
                kind,
                grant.token,
                coordinator.storage.upper(item.id),
                dataflows.get(grant.token),
            )


def _held_back(
    item: Item,
    now: Timestamp,
    kind: str,
    time: Timestamp,
    *,
    pid: int | None = None,
    dataflow: GlobalId | None = None,
    token: str | None = None,
    subscription: GlobalId | None = None,
) -> HeldBack:
    age_ms = max(now - time, 0)
    return HeldBack(item.id, item.name, kind, time, age_ms, pid, dataflow, token, subscription)


@lru_cache(maxsize=1024)
def default_texts(create_sql: str) -> tuple[str, ...]:
    """Return how a table's definition writes the default of each column."""
    (statement,) = parse(create_sql)
    assert isinstance(statement.ast, CreateTableStatement), create_sql
    return tuple(column.default_text.strip() for column in statement.ast.columns)


def name_from(reader: SessionCatalog, id: GlobalId) -> str:
    """Return the name of a relation, with its schema if it is not found without."""
    item = reader.state.item(id)
    found = reader.find((item.name,))
    name = quote_identifier(item.name)
    if isinstance(found, Item) and found.id == id:
        return name
    return f"{quote_identifier(reader.state.full_name(item)[1])}.{name}"


def quoted(text: str) -> str:
    """Return a text as a string constant."""
    return "'" + text.replace("'", "''") + "'"


@lru_cache(maxsize=1024)
def query_text(create_sql: str) -> str:
    """Return the query of the statement that defines a view or subscription, of others nothing."""
    (statement,) = parse(create_sql)
    if not isinstance(statement.ast, CreateViewStatement | CreateSubscriptionStatement):
        return ""
    return create_sql[statement.ast.at : statement.ast.end].strip()
