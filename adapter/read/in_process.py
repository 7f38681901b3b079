"""Evaluation in this process: system relations, recursions, and the transaction's own writes.

An engine on a thread evaluates a block over stored collections as of a time, over the rows that the
transaction has written, and over rows that are only known here. If it may take long without a
chance to stop it, it runs in a process of its own. The answers to queries of the catalog alone are
kept for all sessions (`catalog/builtin/answers.py`).
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import pyarrow as pa

from foreshore import blocking
from foreshore.adapter.introspection.relations import builtin_rows, question_of
from foreshore.adapter.read.bind import NOTHING_GIVEN, BoundPeek, Given
from foreshore.adapter.read.result import finished
from foreshore.adapter.session.context import StatementContext
from foreshore.catalog.builtin.registry import BUILTINS
from foreshore.compute.engine import Cancellation, Evaluations, Input
from foreshore.compute.finish import finished_parts
from foreshore.compute.local.recursion import Evaluation, Steps, in_slices
from foreshore.compute.result import LARGE_RESULT, Result, collected
from foreshore.errors import TableAltered
from foreshore.expr.block import Block
from foreshore.expr.cost import is_heavy
from foreshore.ids import GlobalId
from foreshore.memory import give_back
from foreshore.storage.snapshot import Snapshot
from foreshore.update import Timestamp, at_time, insertions_at

T = TypeVar("T")


async def result_in_process(context: StatementContext, bound: BoundPeek) -> Result:
    """Return the finished rows of `bound`."""
    block, finishing = bound.block, bound.finishing
    if not bound.given and question_of(context, block) is not None:
        rows = await rows_in_process(context, block, bound.time, own=bound.own)
        return await finished(rows, finishing)

    def finish(parts: Iterator[pa.Table]) -> Result:
        return collected(finished_parts(parts, finishing))

    result = await _evaluate(context, block, bound.time, bound.given, finish, own=bound.own)
    if result.spilled_bytes > LARGE_RESULT:
        await blocking.run(context.coordinator.executor, give_back)
    return result


async def rows_in_process(
    context: StatementContext,
    block: Block,
    time: Timestamp,
    given: Given = NOTHING_GIVEN,
    *,
    own: bool = True,
) -> pa.Table:
    """Return the rows of `block` with `__diff`, with the transaction's writes if `own`."""
    question = None if given else question_of(context, block)
    evaluate = partial(_evaluate, context, block, time, given, pa.concat_tables, own=own)
    if question is None:
        return await evaluate()
    coordinator = context.coordinator
    return await coordinator.catalog_answers.answer(coordinator.state, question, evaluate)


@dataclass(frozen=True, slots=True)
class _Inputs:
    """The inputs of an evaluation; those of `snapshots` have files besides."""

    inputs: dict[GlobalId, Input]
    snapshots: list[Snapshot]

    def add_rows(self, id: GlobalId, rows: pa.Table) -> None:
        """Add rows without `__diff`."""
        self.inputs[id] = Input(rows.schema, (), (insertions_at(rows, 0),))

    def open(self, stack: ExitStack) -> dict[GlobalId, Input]:
        """Return the inputs, with the paths of files that stay until `stack` is closed."""
        return self.inputs | {
            each.id: replace(self.inputs[each.id], files=stack.enter_context(each.paths()))
            for each in self.snapshots
        }

    def release(self) -> None:
        """Release the snapshots."""
        for snapshot in self.snapshots:
            snapshot.release()


async def _evaluate(
    context: StatementContext,
    block: Block,
    time: Timestamp,
    given: Given,
    take: Callable[[Iterator[pa.Table]], T],
    *,
    own: bool,
) -> T:
    """Return `take` of the parts of the block's rows with `__diff`, computed on a thread."""
    coordinator = context.coordinator
    stored = (block.sources() - given.keys()) & coordinator.capabilities.keys()
    for id in stored:
        await coordinator.wait_readable(id, time)
    await coordinator.compute.maintained.check_errors(stored, time)
    inputs = _Inputs({}, [])
    cancellation = Cancellation()

    def steps() -> Steps[T]:
        engine: AbstractContextManager[Evaluations] = (
            coordinator.isolated.evaluations(cancellation)
            if any(map(is_heavy, block.relations()))
            else coordinator.engine.evaluations(cancellation)
        )
        with ExitStack() as stack:
            evaluations = stack.enter_context(engine)
            evaluation = Evaluation(inputs.open(stack), time, evaluations, cancellation.check)
            parts = yield from evaluation.parts(block)
            return take(cancellation.checked(parts))

    try:
        _collect(context, inputs, block, time, given, own=own)
        return await in_slices(coordinator.executor, steps())
    except BaseException:
        cancellation.cancel()
        raise
    finally:
        inputs.release()


def _collect(
    context: StatementContext,
    inputs: _Inputs,
    block: Block,
    time: Timestamp,
    given: Given,
    *,
    own: bool,
) -> None:
    """Add the inputs of `block` to `inputs`; raises TableAltered if one does not exist any more."""
    coordinator, transaction = context.coordinator, context.transaction
    for id, rows in given.items():
        inputs.add_rows(id, rows)
    for id in block.sources() - given.keys():
        if id in BUILTINS:
            inputs.add_rows(id, builtin_rows(context, BUILTINS[id]))
            continue
        parts = [part.rows.table for part in transaction.rows(id)] if own else []
        contents = transaction.altered(id).contents
        if own and contents is not None:
            parts.append(contents)
        written = tuple(at_time(part, time) for part in parts)
        if id in coordinator.capabilities:
            snapshot = coordinator.storage.snapshot(coordinator.capabilities[id][0], time)
            inputs.snapshots.append(snapshot)
            inputs.inputs[id] = Input(snapshot.schema, (), (*snapshot.tail, *written))
        elif transaction.made(id):
            desc = context.planner.reader().planned[id].desc
            inputs.inputs[id] = Input(desc.stored_schema(), (), written)
        else:
            raise TableAltered()
