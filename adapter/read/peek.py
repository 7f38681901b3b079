"""SELECT: a time is chosen, arguments are put in, and rows come from where they cost least."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from foreshore import blocking
from foreshore.adapter.introspection.relations import builtin_rows, question_of
from foreshore.adapter.read.by_key import by_key, finishing_of, literal_keys
from foreshore.adapter.read.changes import changes
from foreshore.adapter.read.cluster_choice import answering_cluster, pinned_replica
from foreshore.adapter.read.peek_plan import PeekPlan
from foreshore.adapter.read.times import (
    asked,
    come,
    read_time,
    require,
    tables_below,
    tell_of_waiting,
    timestamp_of,
)
from foreshore.adapter.session.catalog_reader import BUILTINS
from foreshore.adapter.session.context import StatementContext
from foreshore.adapter.session.side_effects import calls_in, carried_out, carried_out_by_row
from foreshore.compute.controller.peeks import PeekRequest
from foreshore.compute.engine import Cancellation, Evaluations, Input
from foreshore.compute.finish import expanded, finish, finished_parts
from foreshore.compute.local.linear import evaluated
from foreshore.compute.local.recursion import (
    Evaluation,
    Steps,
    in_slices,
)
from foreshore.compute.result import LARGE_RESULT, Result, collected
from foreshore.errors import (
    DatabaseError,
    FeatureNotSupported,
    ObjectNotInPrerequisiteState,
    TableAltered,
)
from foreshore.expr.block import Block
from foreshore.expr.cost import is_heavy
from foreshore.expr.ir import Finishing, Relation
from foreshore.ids import GlobalId
from foreshore.memory import give_back
from foreshore.rows import counted
from foreshore.sql.plan import AsOf
from foreshore.sql.rewrite.bind_parameters import (
    Replace,
    bind_block,
    bind_relation,
    parameter_bindings,
)
from foreshore.types import RelationDesc
from foreshore.update import DIFF, Timestamp, at_time, insertions_at

if TYPE_CHECKING:
    pass


# Rows, without `__diff`, of collections that only one query knows.
Given = Mapping[GlobalId, pa.Table]
NOTHING_GIVEN: Given = MappingProxyType({})
FEW_ROWS = 4096  # that are finished on the loop

T = TypeVar("T")


async def rows_of(
    context: StatementContext,
    as_of: AsOf | None = None,
    known: Given = NOTHING_GIVEN,
) -> pa.RecordBatch:
    """Return the finished rows of a statement's query as one batch; see `result_of`."""
    return await whole(await result_of(context, as_of, known))


async def result_of(
    context: StatementContext,
    as_of: AsOf | None = None,
    known: Given = NOTHING_GIVEN,
) -> Result:
    """Return the finished rows of a statement's query, to which some collections are `known`.

    If it asks for a time to come that is waited for, as in `awaited`.
    """
    as_of = await awaited(context, as_of)
    result = await _finished(context, as_of, known)
    assert context.prepared.peek is not None
    query = context.prepared.peek.query
    if not query.row_outputs:
        return result
    rows = await whole(result)
    replace = parameter_bindings(
        context.args, context.environment_values(context.coordinator.oracle.read_ts())
    )
    called = await carried_out_by_row(context, counted(rows), query.row_outputs, replace)
    return await _finished_result(
        called.select([*range(len(query.desc.columns)), called.num_columns - 1]), None
    )


async def whole(result: Result) -> pa.RecordBatch:
    """Return all rows of a result as one batch."""
    if not result.spilled_bytes:
        return result.whole()
    with closing(result):
        return await blocking.run(None, result.whole)


async def awaited(context: StatementContext, as_of: AsOf | None) -> AsOf | None:
    """Return AS OF with its time as a literal, when that has come.

    If it is waited for, `prepared` may have another plan then.
    """
    peek = context.prepared.peek
    assert peek is not None
    refuse_past_of_system(peek, as_of)
    wanted = asked(context, as_of, peek.query.changes)
    if wanted is not None and await come(context, collections_read(context, peek), wanted):
        await context.planner.ready(context.prepared)  # much may have happened meanwhile
    return None if as_of is None else wanted


async def _finished(
    context: StatementContext,
    as_of: AsOf | None,
    known: Given,
) -> Result:
    transaction = context.transaction
    coordinator = context.coordinator
    peek = context.prepared.peek
    assert peek is not None
    if peek.key is not None:
        found = await by_key(context, peek, as_of)
        if found is not None:
            return Result.of(finish(expanded(*found), found[1]))
    peek = peek_at(context, as_of)
    if as_of is None and transaction.reads_own_writes(tables_below(context, peek.sources)):
        if peek.query.changes:
            raise FeatureNotSupported(
                "CHANGES after writes in the same transaction is not supported"
            )
        return await _own_result(context, peek, known)
    if not peek.is_timed and as_of is None:
        time = 0
        if transaction.time is not None:
            require(context, (), transaction.time)
    else:
        ids = collections_read(context, peek)
        time = read_time(context, ids, as_of, also=peek.shards)
        tell_of_waiting(context, ids, time)
    given = dict(known)
    for each in peek.query.changes:
        given[each.id] = await changes(context, each, time)
    relation, finishing, replace = await bind_peek(context, peek, time)
    if peek.acts:
        relations = peek.block(relation, replace).relations()
        calls = dict.fromkeys(call for each in relations for call in calls_in(each))
        values = await carried_out(context, list(calls))
        relation, finishing, replace = await bind_peek(context, peek, time)  # of what is set now
        relation = bind_relation(relation, values.get)
    match peek.way_of(relation):
        case "constant":
            with context.interrupts.running():
                rows = await evaluated(
                    coordinator.executor, relation, counted_each(given), is_large=peek.is_large
                )
            return await _finished_result(rows, finishing)
        case "local":
            block = peek.block(relation, replace, finishing)
            if peek.acts:
                block = bind_block(block, values.get)
            return await _result_here(context, block, finishing, time, given, own=as_of is None)
        case "index":
            assert peek.lookup is not None
            keys = None
            if peek.lookup.keys is not None:
                keys = literal_keys(peek.lookup.keys, replace)
                if not keys:
                    return Result.of(_no_rows(peek))
            request = PeekRequest(
                time,
                relation,
                finishing,
                peek.lookup.index,
                keys,
                replica=pinned_replica(context),
            )
        case "bulk":
            indexes = {id: index for id in peek.shards if (index := index_of(context, id)) != id}
            request = PeekRequest(
                time,
                relation,
                finishing,
                imports=tuple(sorted(peek.shards - indexes.keys())),
                indexes=indexes,
                tables=given,
                replica=pinned_replica(context),
            )
    cluster = answering_cluster(context)
    try:
        return await coordinator.compute.peek(cluster.id, request)
    except DatabaseError as error:
        read = {*request.indexes.values(), *request.imports}
        if request.index is not None:
            read.add(request.index)
        gone = (
            error.sqlstate in ("42704", "55000")
            and not read <= coordinator.holds.collections.keys()
        )
        if gone:  # while it was waited for: the next plan has what is there now
            raise TableAltered() from error
        raise


def refuse_past_of_system(peek: PeekPlan, as_of: AsOf | None) -> None:
    """Raise FeatureNotSupported if a query AS OF a time reads what is known of the present only."""
    system = sorted(BUILTINS.keys() & peek.sources)
    if as_of is not None and system:
        relation = BUILTINS[system[0]]
        raise FeatureNotSupported(
            f'system relation "{relation.schema}.{relation.name}" cannot be read AS OF a time',
            detail="System relations have no history.",
        )


def peek_at(context: StatementContext, as_of: AsOf | None) -> PeekPlan:
    """Return how a statement's query is answered at the time at which it reads."""
    assert context.prepared.peek is not None
    if _is_before_indexes(context, context.prepared.peek, as_of):
        return context.planner.peek_without_indexes(context.prepared)
    return context.prepared.peek


def _is_before_indexes(context: StatementContext, peek: PeekPlan, as_of: AsOf | None) -> bool:
    """Whether the query reads at a time that an index which it would use does not know."""
    transaction = context.transaction
    if as_of is not None:
        if as_of.at_least:
            return False
        time = timestamp_of(context, as_of.time)
    elif transaction.time is not None:
        time = transaction.time
    else:
        return False
    used = {index_of(context, id) for id in peek.shards} - peek.shards
    if peek.lookup is not None:
        used.add(peek.lookup.index)
    since = context.coordinator.holds.since
    return any(since(index) > time for index in used)


def _no_rows(peek: PeekPlan) -> pa.RecordBatch:
    schema = peek.query.desc.arrow_schema()
    return pa.RecordBatch.from_arrays(
        [pa.array([], field.type) for field in schema], names=[f"c{i}" for i in range(len(schema))]
    )


def collections_read(context: StatementContext, peek: PeekPlan) -> set[GlobalId]:
    """Return the shards and indexes that a query reads."""
    ids = peek.shards if peek.lookup is None else {peek.lookup.index}
    return {index_of(context, id) for id in ids} | {each.of for each in peek.query.changes}


def index_of(context: StatementContext, id: GlobalId) -> GlobalId:
    """Return what stands for a source in a cluster: for a view its index, else itself."""
    coordinator = context.coordinator
    if (
        id in coordinator.capabilities
        or id in coordinator.as_ofs
        or id not in coordinator.state.objects
    ):
        return id
    ready = coordinator.index_for(id, context.cluster)
    if not ready:
        raise ObjectNotInPrerequisiteState(f"the index on {id} was dropped by another session")
    return ready[0].id


# --- arguments -----------------------------------------------------------------------------


async def bind_peek(
    context: StatementContext, peek: PeekPlan, time: Timestamp
) -> tuple[Relation, Finishing, Replace]:
    """Return the relation and what finishes it, with arguments and the environment put in."""
    replace = parameter_bindings(context.args, context.environment_values(time))
    if not peek.open:
        return peek.relation, peek.query.finishing, replace
    finishing = finishing_of(context, peek)
    if not peek.is_large:
        return bind_relation(peek.relation, replace), finishing, replace
    with context.interrupts.running():
        relation = await blocking.run(
            context.coordinator.executor, bind_relation, peek.relation, replace
        )
    return relation, finishing, replace


# --- here ----------------------------------------------------------------------------------


async def _own_result(context: StatementContext, peek: PeekPlan, given: Given) -> Result:
    """Return the rows of a query that sees what its transaction has written.

    Nothing that is maintained knows of it; the plan has its definitions (`Basis.own`).
    """
    time = read_time(context, peek.shards, None)
    relation, finishing, replace = await bind_peek(context, peek, time)
    block = peek.block(relation, replace, finishing)
    return await _result_here(context, block, finishing, time, given)


async def _result_here(
    context: StatementContext,
    block: Block,
    finishing: Finishing,
    time: Timestamp,
    given: Given,
    *,
    own: bool = True,
) -> Result:
    """Return the finished rows of `block`, computed by this process; see `evaluate_here`."""
    if not given and question_of(context, block) is not None:
        table = await evaluate_here(context, block, time, given, own=own)
        return await _finished_result(table, finishing)
    result = await _evaluated(
        context, block, time, given, own, lambda parts: collected(finished_parts(parts, finishing))
    )
    if result.spilled_bytes > LARGE_RESULT:
        await blocking.run(context.coordinator.executor, give_back)
    return result


async def _finished_result(rows: pa.Table, finishing: Finishing | None) -> Result:
    """Return rows with `__diff` as a result; many are finished on a thread."""
    parts = partial(finished_parts, (rows,), finishing)
    if rows.num_rows <= FEW_ROWS and (pc.sum(rows[DIFF]).as_py() or 0) <= FEW_ROWS:
        return collected(parts())
    return await blocking.run(None, lambda: collected(parts()))


async def evaluate_here(
    context: StatementContext,
    block: Block,
    time: Timestamp,
    given: Given = NOTHING_GIVEN,
    *,
    own: bool = True,
) -> pa.Table:
    """Return the rows of `block` with `__diff`, computed by this process unless they are known.

    What the transaction has written itself is among them if `own` is said.
    """
    question = question_of(context, block) if not given else None
    evaluate = partial(_evaluated, context, block, time, given, own, pa.concat_tables)
    if question is None:
        return await evaluate()
    return await context.coordinator.catalog_answers.answer(
        context.coordinator.state, question, evaluate
    )


async def _evaluated(
    context: StatementContext,
    block: Block,
    time: Timestamp,
    given: Given,
    with_own: bool,
    take: Callable[[Iterator[pa.Table]], T],
) -> T:
    """Return what `take` makes of the rows of `block` with `__diff`, computed on a thread."""
    coordinator = context.coordinator
    transaction = context.transaction
    inputs: dict[GlobalId, Input] = {
        id: Input(rows.schema, (), (insertions_at(rows, 0),)) for id, rows in given.items()
    }
    snapshots = []
    read = block.sources() - inputs.keys()
    stored = read & coordinator.capabilities.keys()
    for id in stored:
        await coordinator.wait_readable(id, time)
    await coordinator.compute.maintained.check_errors(stored, time)
    try:
        for id in read:
            if id in BUILTINS:
                rows = builtin_rows(context, BUILTINS[id])
                inputs[id] = Input(rows.schema, (), (insertions_at(rows, 0),))
                continue
            parts = [part.rows for part in transaction.writes.get(id, ())] if with_own else []
            if with_own and id in transaction.contents:
                parts.append(transaction.contents[id])
            own = tuple(at_time(part, time) for part in parts)
            if id not in coordinator.capabilities:
                if not transaction.made(id):
                    raise TableAltered()
                desc = context.planner.reader().planned[id].desc
                inputs[id] = Input(desc.stored_schema(), (), own)
                continue
            snapshot = coordinator.storage.snapshot(coordinator.capabilities[id][0], time)
            snapshots.append(snapshot)
            inputs[id] = Input(snapshot.schema, (), (*snapshot.tail, *own))
        cancellation = Cancellation()

        def steps() -> Steps[T]:
            isolated = any(map(is_heavy, block.relations()))
            evaluations: AbstractContextManager[Evaluations] = (
                coordinator.isolated.evaluations(cancellation)
                if isolated
                else coordinator.engine.evaluations(cancellation)
            )
            with ExitStack() as reading:
                engine = reading.enter_context(evaluations)
                files = {
                    snapshot.id: replace(
                        inputs[snapshot.id], files=reading.enter_context(snapshot.paths())
                    )
                    for snapshot in snapshots
                }
                evaluation = Evaluation({**inputs, **files}, time, engine, cancellation.check)
                parts = yield from evaluation.parts(block)
                return take(cancellation.checked(parts))

        try:
            return await in_slices(coordinator.executor, steps())
        except BaseException:
            cancellation.cancel()
            raise
    finally:
        for snapshot in snapshots:
            snapshot.release()


def counted_each(given: Given) -> dict[GlobalId | int, pa.Table]:
    """Return collections with `__diff`."""
    return {id: counted(rows) for id, rows in given.items()}


def renamed(rows: pa.Table, desc: RelationDesc) -> pa.Table:
    """Return rows with `__diff` in the columns of a table's shard."""
    schema = desc.arrow_schema().append(pa.field(DIFF, pa.int64(), nullable=False))
    return pa.Table.from_arrays(rows.columns, schema=schema)
