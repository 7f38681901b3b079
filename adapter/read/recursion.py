"""WITH RECURSIVE, evaluated: steps over what the last one found, until one finds nothing.

The results are collections that only the query knows: inputs of the engine beside the real ones. A
recursion within a step is computed anew at each step, since it may read what was found.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

import pyarrow as pa

from foreshore.adapter.read.bind_parameters import Replace, fill
from foreshore.compute.engine import Input
from foreshore.errors import DatabaseError
from foreshore.expr.ir import Relation, sources_of
from foreshore.ids import GlobalId
from foreshore.sql.plan import Block, Recursion
from foreshore.update import DIFF, TIME_FIELD, Timestamp

MOST_ROWS = 20_000_000  # of a result, which is held in memory

Inputs = Mapping[GlobalId, Input]
Evaluate = Callable[[Relation, Inputs], Awaitable[pa.Table]]  # rows with `__diff`, consolidated


def collections_of(block: Block) -> frozenset[GlobalId]:
    """Return the collections that `block` reads, without the results of its recursions."""
    return frozenset().union(*map(sources_of, block.relations())) - frozenset(_results(block))


def _results(block: Block) -> Iterator[GlobalId]:
    for each in block.recursions:
        yield from (each.working, each.result)
        yield from _results(each.base)
        yield from _results(each.step)


def filled_block(block: Block, replace: Replace, *, every: bool = False) -> Block:
    """Return `block` with what `replace` gives in place of its scalars' leaves; see `fill`."""
    return Block(
        fill(block.relation, replace, every=every),
        tuple(
            Recursion(
                each.working,
                each.result,
                filled_block(each.base, replace, every=every),
                filled_block(each.step, replace, every=every),
            )
            for each in block.recursions
        ),
    )


async def evaluate_block(
    block: Block, inputs: Inputs, time: Timestamp, evaluate: Evaluate
) -> pa.Table:
    """Return the rows of `block`, each with its `__diff`."""
    for each in block.recursions:
        rows = await _result(each, inputs, time, evaluate)
        inputs = {**inputs, each.result: _input(rows, time)}
    return await evaluate(block.relation, inputs)


async def _result(
    recursion: Recursion, inputs: Inputs, time: Timestamp, evaluate: Evaluate
) -> Sequence[pa.Table]:
    found = await evaluate_block(recursion.base, inputs, time, evaluate)
    parts = [found]
    count = found.num_rows
    while found.num_rows:
        seen = {
            **inputs,
            recursion.working: _input([found], time),
            recursion.result: _input(parts, time),
        }
        found = await evaluate_block(recursion.step, seen, time, evaluate)
        found = found.cast(parts[0].schema)
        parts.append(found)
        count += found.num_rows
        if count > MOST_ROWS:
            raise DatabaseError(
                "a recursive query has too many rows",
                sqlstate="54000",
                detail=f"There are more than {MOST_ROWS}, and the recursion goes on.",
            )
    return parts


def _input(parts: Sequence[pa.Table], time: Timestamp) -> Input:
    rows = pa.concat_tables(parts)
    at = rows.schema.get_field_index(DIFF)
    times = pa.repeat(pa.scalar(time, pa.int64()), rows.num_rows)
    schema = pa.schema([field for field in rows.schema if field.name != DIFF])
    return Input(schema, (), (rows.add_column(at, TIME_FIELD, times),))
