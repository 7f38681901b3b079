"""Evaluation in this process: system relations, recursions, and the transaction's own writes.

An engine on a thread evaluates a block over stored collections as of a time, over the rows that the
transaction has written, and over rows that are only known here. If it may take long without a
chance to stop it, or its memory is limited, it runs in a process of its own. The answers to queries
of the catalog alone are kept for all sessions (`catalog/builtin/answers.py`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import TypeVar

import pyarrow as pa

from foreshore import blocking
from foreshore.adapter.introspection.relations import builtin_tables, question_of
from foreshore.adapter.read.bound.bind import BoundPeek, Given
from foreshore.adapter.read.bound.small import small_over
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.statement.result import finished
from foreshore.catalog.builtin.registry import BUILTINS
from foreshore.compute.engine import (
    ALL_ROWS,
    Cancellation,
    Evaluations,
    Extent,
    Input,
    check_memory,
    check_size,
)
from foreshore.compute.finish import MAX_RESULT_BYTES, finished_parts, split_finishing
from foreshore.compute.input_sizes import known_sizes
from foreshore.compute.local.recursion import Evaluation, Steps, in_slices
from foreshore.compute.local.small.first import SmallFirst
from foreshore.compute.result import LARGE_RESULT, Result, collected
from foreshore.errors import TableAltered
from foreshore.expr.block import Block
from foreshore.expr.cost import LONG, has_growing_call, has_long_step, is_heavy
from foreshore.expr.held import block_holds_much
from foreshore.expr.ir import Relation
from foreshore.ids import GlobalId
from foreshore.memory import give_back
from foreshore.spill import whole
from foreshore.storage.snapshot import Snapshot
from foreshore.update import at_time, insertions_at

T = TypeVar("T")


async def result_in_process(context: StatementContext, bound: BoundPeek) -> Result:
    """Return the finished rows of `bound`."""
    finishing = bound.finishing
    if not bound.given and question_of(context, bound.block) is not None:
        return await finished(await rows_in_process(context, bound), finishing)
    if not bound.given and not bound.block.sources():
        rows = await small_over(context, bound)
        if rows is not None:
            return await finished(rows, finishing)

    extent, finishing = split_finishing(finishing)  # more rows than should be in memory
    memory = context.variables.settings.most_memory

    def finish(parts: Iterator[pa.Table]) -> Result:
        return collected(finished_parts(parts, finishing, memory))

    result = await _evaluate(context, bound, finish, extent)
    if result.spilled_bytes > LARGE_RESULT:
        await blocking.run(context.engines.executor, give_back)
    return result


async def rows_in_process(context: StatementContext, bound: BoundPeek) -> pa.Table:
    """Return the rows of `bound` with `__diff`, not finished."""
    question = None if bound.given else question_of(context, bound.block)
    memory, scratch = context.variables.settings.most_memory, context.tables.storage.scratch

    def check(size: int) -> None:
        check_memory(size, memory)
        check_size(size, MAX_RESULT_BYTES)

    def take(parts: Iterator[pa.Table]) -> pa.Table:
        return whole(parts, scratch, check)

    evaluate = partial(_evaluate, context, bound, take)
    if question is None:
        return await evaluate()
    return await context.names.catalog_answers.answer(context.names.state, question, evaluate)


async def _evaluate(
    context: StatementContext,
    bound: BoundPeek,
    take: Callable[[Iterator[pa.Table]], T],
    extent: Extent = ALL_ROWS,
) -> T:
    """Return `take` of the parts of the rows with `__diff`, computed on a thread."""
    engines, block, time = context.engines, bound.block, bound.time
    stored = (block.sources() - bound.given.keys()) & context.tables.capabilities.keys()
    for id in stored:
        await context.times.wait_readable(id, time)
    await context.views.compute.maintained.check_errors(stored, time)
    given = {**await builtin_tables(context, block.sources() - bound.given.keys()), **bound.given}
    inputs: dict[GlobalId, Input] = {}
    snapshots: list[Snapshot] = []
    cancellation, memory = Cancellation(), context.variables.settings.most_memory
    relations = list(block.relations())
    heavy = any(map(is_heavy, relations)) or grows_long_values(relations, bound.given)
    has_long = heavy and _has_long_step(relations, bound.given)

    def steps(*, is_apart: bool, is_small: bool) -> Steps[T]:
        evaluations: Evaluations
        engine: AbstractContextManager[Evaluations] = (
            engines.isolated.evaluations(cancellation, memory)
            if is_apart
            else engines.engine.evaluations(cancellation)
        )
        with ExitStack() as stack:
            if is_small:
                evaluations = SmallFirst(lambda: stack.enter_context(engine), cancellation.check)
            else:
                evaluations = stack.enter_context(engine)
            complete = stack.enter_context(_with_files(inputs, snapshots))
            evaluation = Evaluation(complete, time, evaluations, cancellation.check, memory)
            parts = yield from evaluation.parts(block, extent)
            return take(cancellation.checked(parts))

    try:
        for id in block.sources() | bound.given.keys():
            inputs[id] = _input(context, bound, given, id, snapshots)
        stored_inputs = {id: each for id, each in inputs.items() if id not in BUILTINS}
        estimate = partial(_holds_much, block, stored_inputs, snapshots)
        much = await blocking.run(engines.executor, estimate) if snapshots else estimate()
        is_apart = heavy or much or memory is not None
        is_small = not stored_inputs and not has_long and not much
        owner = context.roles.login.id
        async with engines.apart.share(owner) if is_apart else nullcontext():
            return await in_slices(engines.executor, steps(is_apart=is_apart, is_small=is_small))
    except BaseException:
        cancellation.cancel()
        raise
    finally:
        for snapshot in snapshots:
            snapshot.release()


@contextmanager
def _with_files(
    inputs: Mapping[GlobalId, Input], snapshots: Sequence[Snapshot]
) -> Iterator[dict[GlobalId, Input]]:
    """Yield inputs with the files of their snapshots, which stay until then; on a thread."""
    complete = dict(inputs)
    with ExitStack() as stack:
        for each in snapshots:
            files = stack.enter_context(each.paths())
            complete[each.id] = replace(inputs[each.id], files=files)
        yield complete


def _holds_much(
    block: Block, inputs: Mapping[GlobalId, Input], snapshots: Sequence[Snapshot]
) -> bool:
    """Whether a block takes much memory beside the limit of an engine."""
    with _with_files(inputs, snapshots) as complete:
        known = known_sizes(complete)
    return block_holds_much(block, known)


def _has_long_step(relations: Sequence[Relation], given: Given) -> bool:
    """Whether a step of a plan may hold up other sessions, unless it is in a process of its own.

    Joins of many rows are left to an engine by the evaluation of small plans itself.
    """
    return any(map(has_long_step, relations)) or grows_long_values(relations, given)


def grows_long_values(relations: Sequence[Relation], given: Given) -> bool:
    """Whether relations make longer values of long ones that are given to them.

    The estimates of `foreshore.expr.cost` are for usual values and do not hold for these.
    """
    has_long_values = any(
        column.nbytes > LONG
        for rows in given.values()
        for column in rows.columns
        if not pa.types.is_primitive(column.type)
    )
    return has_long_values and any(map(has_growing_call, relations))


def _input(
    context: StatementContext,
    bound: BoundPeek,
    given: Given,
    id: GlobalId,
    snapshots: list[Snapshot],
) -> Input:
    """Return the rows of a collection; its snapshot, which has files besides, is added.

    Raises TableAltered if it does not exist any more.
    """
    if id in given:
        rows = given[id]
        return Input(rows.schema, (), (insertions_at(rows, 0),))
    tables, transaction = context.tables, context.transaction
    parts = [part.rows.table for part in transaction.rows(id)] if bound.own else []
    contents = transaction.altered(id).contents
    if bound.own and contents is not None:
        parts.append(contents)
    written = tuple(at_time(part, bound.time) for part in parts)
    if id in tables.capabilities:
        snapshot = tables.storage.snapshot(tables.capabilities[id][0], bound.time)
        snapshots.append(snapshot)
        return Input(snapshot.schema, (), (*snapshot.tail, *written))
    if not transaction.made(id):
        raise TableAltered()
    desc = context.planner.reader().planned[id].desc
    return Input(desc.stored_schema(), (), written)
