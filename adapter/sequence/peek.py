"""SELECT: a time is chosen, arguments are put in, and rows come from where they cost least."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from foreshore import blocking
from foreshore.adapter.effects import calls_in, carried_out
from foreshore.adapter.introspection import builtin_rows
from foreshore.adapter.local import evaluate_linear, expanded
from foreshore.adapter.names import BUILTINS
from foreshore.adapter.peek_plan import PeekPlan
from foreshore.adapter.recursion import (
    Inputs,
    collections_of,
    evaluate_block,
    filled_block,
    relations_of,
)
from foreshore.adapter.result import BatchSource, Selected
from foreshore.adapter.sequence.changes import changes
from foreshore.adapter.sequence.times import timestamp_of, value_of
from foreshore.adapter.substitute import Replace, fill, fill_scalar, filler
from foreshore.adapter.timestamp_selection import Interval, Selection, select_timestamp
from foreshore.adapter.transaction import Transaction
from foreshore.compute.controller import PeekRequest
from foreshore.compute.engine import Cancellation, Input
from foreshore.compute.finish import finish
from foreshore.errors import (
    FeatureNotSupported,
    InvalidParameterValue,
    ObjectNotInPrerequisiteState,
    UndefinedObject,
)
from foreshore.expr.evaluate import constant
from foreshore.expr.ir import Finishing, Literal, Relation, Scalar
from foreshore.ids import GlobalId
from foreshore.sql.plan import AsOf, Block, Select
from foreshore.types import Datum, RelationDesc
from foreshore.update import DIFF, TIME_FIELD, Timestamp

if TYPE_CHECKING:
    from foreshore.adapter.session import Session
    from foreshore.adapter.statement import Prepared


async def select(
    session: "Session", prepared: "Prepared", plan: Select, args: Sequence[Datum]
) -> Selected:
    """Run a SELECT."""
    rows = await rows_of(session, prepared, args, plan.as_of)
    return Selected(plan.query.desc, BatchSource(rows), "SELECT")


async def rows_of(
    session: "Session",
    prepared: "Prepared",
    args: Sequence[Datum],
    as_of: AsOf | None = None,
) -> pa.RecordBatch:
    """Return the finished rows of a statement's query."""
    transaction = session.begin()
    coordinator = session.coordinator
    peek = prepared.peek
    assert peek is not None
    if _is_before_indexes(session, peek, args, as_of):
        peek = session.planner.peek_without_indexes(prepared)
    if as_of is None and transaction.reads_own_writes(tables_below(session, peek.sources)):
        if peek.query.changes:
            raise FeatureNotSupported(
                "CHANGES after writes in the same transaction is not supported"
            )
        table, finishing = await own_rows(session, peek, args)
        return finish(expanded(table), finishing)
    if not peek.is_timed and as_of is None:
        time = 0
    else:
        ids = set(peek.shards)
        if peek.lookup is not None:
            ids = {peek.lookup.index}
        ids = {index_of(session, id) for id in ids} | {each.of for each in peek.query.changes}
        time = read_time(session, ids, as_of, args, also=peek.shards)
    given = {each.id: await changes(session, each, args, time) for each in peek.query.changes}
    relation, finishing, replace = filled(session, peek, args, time)
    if peek.acts:
        relations = relations_of(peek.block(relation, replace))
        calls = dict.fromkeys(call for each in relations for call in calls_in(each))
        values = await carried_out(session, list(calls))
        relation, finishing, replace = filled(session, peek, args, time)  # of what is set now
        relation = fill(relation, values.get, every=True)
    match peek.way:
        case "constant":
            return finish(expanded(evaluate_linear(relation)), finishing)
        case "local":
            block = peek.block(relation, replace)
            if peek.acts:
                block = filled_block(block, values.get, every=True)
            return finish(expanded(await evaluate_here(session, block, time, given)), finishing)
        case "index":
            assert peek.lookup is not None
            keys = None
            if peek.lookup.keys is not None:
                keys = literal_keys(peek.lookup.keys, replace)
                if not keys:
                    return _no_rows(peek)
            request = PeekRequest(time, relation, finishing, peek.lookup.index, keys)
        case "bulk":
            indexes = {id: index for id in peek.shards if (index := index_of(session, id)) != id}
            request = PeekRequest(
                time,
                relation,
                finishing,
                imports=tuple(sorted(peek.shards - indexes.keys())),
                indexes=indexes,
                tables=given,
            )
    cluster = coordinator.state.cluster(session.cluster)
    if cluster is None:
        raise UndefinedObject(f'unknown cluster "{session.cluster}"')
    if not coordinator.state.replicas_of(cluster.id):
        raise ObjectNotInPrerequisiteState(
            f'cluster "{cluster.name}" has no replicas available to service request',
            hint="Create one with CREATE CLUSTER REPLICA, or SET cluster to another one.",
        )
    answer = await coordinator.compute.peek(cluster.id, request)
    return one_batch(answer)


def _is_before_indexes(
    session: "Session", peek: PeekPlan, args: Sequence[Datum], as_of: AsOf | None
) -> bool:
    """Whether the query reads at a time that an index which it would use does not know."""
    transaction = session.begin()
    if as_of is not None:
        if as_of.at_least:
            return False
        time = timestamp_of(session, as_of.time, args)
    elif transaction.time is not None:
        time = transaction.time
    else:
        return False
    used = {index_of(session, id) for id in peek.shards} - peek.shards
    if peek.lookup is not None:
        used.add(peek.lookup.index)
    since = session.coordinator.holds.since
    return any(since(index) > time for index in used)


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """Return a table's rows as one batch."""
    batches = table.to_batches()
    if len(batches) == 1:
        return batches[0]
    if not batches:
        return pa.RecordBatch.from_arrays(
            [pa.array([], field.type) for field in table.schema], schema=table.schema
        )
    return pa.concat_batches(batches)


def _no_rows(peek: PeekPlan) -> pa.RecordBatch:
    schema = peek.query.desc.arrow_schema()
    return pa.RecordBatch.from_arrays(
        [pa.array([], field.type) for field in schema], names=[f"c{i}" for i in range(len(schema))]
    )


def index_of(session: "Session", id: GlobalId) -> GlobalId:
    """Return what stands for a source in a cluster: for a view its index, else itself."""
    coordinator = session.coordinator
    if (
        id in coordinator.capabilities
        or id in coordinator.as_ofs
        or id not in coordinator.state.objects
    ):
        return id
    ready = coordinator.index_for(id, session.cluster)
    if not ready:
        raise ObjectNotInPrerequisiteState(f"the index on {id} was dropped by another session")
    return ready[0].id


def tables_below(session: "Session", ids: Iterable[GlobalId]) -> set[GlobalId]:
    """Return the tables that `ids` come from, new ones of the transaction included."""
    bases: set[GlobalId] = set()
    for id in ids:
        bases |= session.coordinator.bases(id)
    return bases


# --- the time ------------------------------------------------------------------------------


def read_time(
    session: "Session",
    ids: Iterable[GlobalId],
    as_of: AsOf | None,
    args: Sequence[Datum],
    *,
    also: Iterable[GlobalId] = (),
) -> Timestamp:
    """Return when to read `ids`, held there until the transaction ends.

    The first read of a transaction decides for all that follow; AS OF is for one query alone.
    `also` are relations that the answer comes from, though they are not read themselves.
    """
    transaction = session.begin()
    coordinator = session.coordinator
    ids = [id for id in ids if id in coordinator.holds.collections]
    if as_of is None and transaction.time is not None:
        time = transaction.time
        late = [id for id in ids if coordinator.holds.since(id) > time]
        if late:
            raise ObjectNotInPrerequisiteState(
                "the transaction reads at a time before this relation could be read",
                detail=f"It reads at {time}; {min(late)} is readable from "
                f"{max(map(coordinator.holds.since, late))}.",
            )
    else:
        chosen = choose(session, ids, as_of, args)
        time = chosen.time
        if as_of is None:
            transaction.time = time
            if transaction.block:
                _hold_all(session, transaction, time)
    if not (transaction.block and as_of is None):
        transaction.holds.append(coordinator.holds.acquire(ids, time))
    if as_of is None:
        transaction.read |= tables_below(session, (*ids, *also))
    return time


def choose(
    session: "Session",
    ids: Iterable[GlobalId],
    as_of: AsOf | None,
    args: Sequence[Datum],
    *,
    future: bool = False,
) -> Selection:
    """Return the time at which a new read of `ids` would be, and why."""
    coordinator = session.coordinator
    transaction = session.begin()
    intervals: Mapping[GlobalId, Interval] = {id: coordinator.interval(id) for id in ids}
    exact = at_least = None
    if as_of is not None:
        given = timestamp_of(session, as_of.time, args)
        exact, at_least = (None, given) if as_of.at_least else (given, None)
    return select_timestamp(
        intervals,
        transaction.isolation,
        coordinator.oracle.read_ts(),
        as_of=exact,
        at_least=at_least,
        future=future,
    )


def _hold_all(session: "Session", transaction: Transaction, time: Timestamp) -> None:
    """Hold all that can be read at `time`, since a block may come to read any of it."""
    holds = session.coordinator.holds
    readable = [id for id, each in holds.collections.items() if each.since <= time]
    transaction.holds.append(holds.acquire(readable, time))


# --- arguments -----------------------------------------------------------------------------


def filled(
    session: "Session", peek: PeekPlan, args: Sequence[Datum], time: Timestamp
) -> tuple[Relation, Finishing, Replace]:
    """Return the relation and what finishes it, with arguments and the environment put in."""
    query = peek.query
    replace = filler(args, session.environment_values(time))
    if not peek.open:
        return peek.relation, query.finishing, replace
    finishing = query.finishing
    if query.limit is not None:
        finishing = msgspec.structs.replace(
            finishing, limit=_bound(session, query.limit, args, "LIMIT")
        )
    if query.offset is not None:
        finishing = msgspec.structs.replace(
            finishing, offset=_bound(session, query.offset, args, "OFFSET") or 0
        )
    return fill(peek.relation, replace), finishing, replace


def _bound(session: "Session", scalar: Scalar, args: Sequence[Datum], word: str) -> int | None:
    value = value_of(session, scalar, args, 0)
    if value is None:
        return None
    number = int(str(value))
    if number < 0:
        code = "2201W" if word == "LIMIT" else "2201X"
        raise InvalidParameterValue(f"{word} must not be negative", sqlstate=code)
    return number


def literal_keys(
    keys: tuple[tuple[Scalar, ...], ...], replace: Replace
) -> tuple[tuple[Literal, ...], ...]:
    """Return the keys as literals; those with a NULL, or out of range, equal nothing."""
    found: dict[tuple[Literal, ...], None] = {}
    for key in keys:
        literals = [_literal(scalar, replace) for scalar in key]
        present = tuple(each for each in literals if each is not None and each.value is not None)
        if len(present) == len(literals):
            found[present] = None
    return tuple(found)


def _literal(scalar: Scalar, replace: Replace) -> Literal | None:
    """Return the value of a part of a key; None if it is out of the type's range."""
    value = fill_scalar(scalar, replace)
    if isinstance(value, Literal):
        return value
    found = constant(value)
    return None if isinstance(found, str) else found


# --- here ----------------------------------------------------------------------------------


async def own_rows(
    session: "Session", peek: PeekPlan, args: Sequence[Datum]
) -> tuple[pa.Table, Finishing]:
    """Return the rows of a query that sees what its transaction has written; and its finishing.

    Nothing that is maintained knows of it; the plan is over tables only (`Basis.inline`).
    """
    time = read_time(session, peek.shards, None, args)
    relation, finishing, replace = filled(session, peek, args, time)
    return await evaluate_here(session, peek.block(relation, replace), time), finishing


async def evaluate_here(
    session: "Session",
    block: Block,
    time: Timestamp,
    given: Mapping[GlobalId, pa.Table] | None = None,
) -> pa.Table:
    """Return the rows of `block` with `__diff`, computed by this process on a thread.

    `given` are rows of collections that only this query knows.
    """
    coordinator = session.coordinator
    transaction = session.begin()
    inputs: dict[GlobalId, Input] = {
        id: Input(rows.schema, (), (as_updates(rows, 0),)) for id, rows in (given or {}).items()
    }
    snapshots = []
    try:
        for id in collections_of(block) - inputs.keys():
            if id in BUILTINS:
                rows = builtin_rows(session, BUILTINS[id])
                inputs[id] = Input(rows.schema, (), (as_updates(rows, 0),))
                continue
            own = tuple(with_time(part, time) for part in transaction.writes.get(id, ()))
            if id not in coordinator.capabilities:
                inputs[id] = Input(
                    session.planner.reader().planned[id].desc.arrow_schema(), (), own
                )
                continue
            await coordinator.wait_readable(id, time)
            snapshot = coordinator.storage.snapshot(coordinator.capabilities[id][0], time)
            snapshots.append(snapshot)
            inputs[id] = Input(snapshot.schema, (), (*snapshot.tail, *own))
        cancellation = Cancellation()

        def evaluate_on_thread(relation: Relation, inputs: Inputs) -> pa.Table:
            with ExitStack() as reading:
                stored = {
                    snapshot.id: replace(
                        inputs[snapshot.id], files=reading.enter_context(snapshot.paths())
                    )
                    for snapshot in snapshots
                }
                return coordinator.engine.evaluate(
                    relation, {**inputs, **stored}, time, cancellation
                )

        try:

            async def evaluate(relation: Relation, inputs: Inputs) -> pa.Table:
                return await blocking.run(
                    coordinator.executor, evaluate_on_thread, relation, inputs
                )

            return await evaluate_block(block, inputs, time, evaluate)
        except BaseException:
            cancellation.cancel()
            raise
    finally:
        for snapshot in snapshots:
            snapshot.release()


def with_time(rows: pa.Table, time: Timestamp) -> pa.Table:
    """Return rows with `__diff` as updates at `time`."""
    times = pa.repeat(pa.scalar(time, pa.int64()), rows.num_rows)
    return rows.add_column(rows.schema.get_field_index(DIFF), TIME_FIELD, times)


def as_updates(rows: pa.Table, time: Timestamp) -> pa.Table:
    """Return rows, each once, as updates at `time`."""
    return with_time(rows.append_column(DIFF, pa.repeat(pa.scalar(1, pa.int64()), len(rows))), time)


def renamed(rows: pa.Table, desc: RelationDesc) -> pa.Table:
    """Return rows with `__diff` in the columns of a table's shard."""
    schema = desc.arrow_schema().append(pa.field(DIFF, pa.int64(), nullable=False))
    return pa.Table.from_arrays(rows.columns, schema=schema)
