"""Binding: plans and scalars with arguments, session values and results of side effects put in."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from types import MappingProxyType

import msgspec
import pyarrow as pa
from msgspec import Struct

from foreshore import blocking
from foreshore.adapter.calls.side_effects import results_of
from foreshore.adapter.plans.access_path import AccessPath, IndexRead, PeekPlan
from foreshore.adapter.plans.calls import calls_in
from foreshore.adapter.read.bound.scan_limit import refuse_large_scan
from foreshore.adapter.statement.context import StatementContext
from foreshore.compute.keys.bound_keys import is_large
from foreshore.compute.local.given_arrays import has_long_arrays, over_long_arrays
from foreshore.compute.local.linear import is_light_relation
from foreshore.compute.local.streamed import is_series
from foreshore.errors import DataError, InvalidParameterValue
from foreshore.expr.block import Block
from foreshore.expr.columns import type_of
from foreshore.expr.cost import is_long
from foreshore.expr.evaluate import constant
from foreshore.expr.ir import Finishing, Relation, Scalar
from foreshore.expr.scalars import Replace, bind_scalar
from foreshore.ids import GlobalId
from foreshore.rows import counted
from foreshore.sql.optimize.lookup import MAX_KEYS
from foreshore.sql.plan import Query
from foreshore.sql.rewrite.bind_parameters import bind_block
from foreshore.types import Datum
from foreshore.update import Timestamp

# Rows, without `__diff`, of collections that only one statement knows.
Given = Mapping[GlobalId, pa.Table]
FEW_GIVEN = 1000  # given rows that are evaluated on the event loop
NOTHING_GIVEN: Given = MappingProxyType({})


class BoundPeek(Struct, frozen=True, eq=False, dict=True):
    """A plan to be executed as of `time`, without parameters and session values."""

    plan: PeekPlan
    time: Timestamp
    block: Block
    finishing: Finishing
    bindings: Replace
    given: Given
    own: bool  # whether the transaction's own writes are read
    has_long_values: bool  # among the arguments
    unbound: Relation | None = None  # what is `block` with the statement's arguments alone

    @cached_property
    def path(self) -> AccessPath:
        """The access path."""
        return self.plan.bound_path(self.block.relation, has_long_values=self.has_long_values)

    @cached_property
    def is_light(self) -> bool:
        """Whether the kernels compute the relation in no time."""
        return not self._is_large and is_light_relation(self.block.relation)

    @property
    def _is_large(self) -> bool:
        """Whether evaluating the plan may take milliseconds whatever it computes."""
        given: int = sum(each.num_rows for each in self.given.values())
        return self.plan.is_large or self.has_long_values or given > FEW_GIVEN


async def bind_peek(
    context: StatementContext,
    plan: PeekPlan,
    time: Timestamp,
    given: Given = NOTHING_GIVEN,
    *,
    own: bool = True,
) -> BoundPeek:
    """Return `plan` bound as of `time`; on a thread if it is large or its arguments are long."""
    refuse_large_scan(context, plan)
    bindings = context.bindings(time)
    if isinstance(plan.path, IndexRead) and is_large(plan.path.keys or (), bindings, MAX_KEYS):
        plan = plan.reading_whole()
    has_long_values = any(map(is_long, context.args))
    block, finishing = Block(plan.path.relation, plan.query.recursions), plan.query.finishing
    if plan.is_open:
        finishing = bound_finishing(context, plan.query)
        if plan.is_large or has_long_values:
            block = await blocking.run(context.engines.executor, bind_block, block, bindings)
        else:
            block = bind_block(block, bindings)
    is_bound_alone = plan.is_open and not block.recursions and not plan.has_arrays
    if plan.has_arrays:
        block, given = await with_arrays_given(context, block, given)
    if block.recursions and finishing.limit is not None and not finishing.order_by:
        block = replace(block, rows_wanted=finishing.limit + finishing.offset)
    unbound = plan.path.relation if is_bound_alone else None
    return BoundPeek(plan, time, block, finishing, bindings, given, own, has_long_values, unbound)


async def with_arrays_given(
    context: StatementContext, block: Block, given: Given
) -> tuple[Block, Given]:
    """Return a bound block with its long arrays among what is given."""
    relation = block.relation
    if block.recursions or not has_long_arrays(relation) or is_series(relation):
        return block, given
    executor = context.engines.executor
    relation, rows = await blocking.run(executor, over_long_arrays, relation)
    return replace(block, relation=relation), {**given, **rows}


async def call_side_effects(context: StatementContext, bound: BoundPeek) -> BoundPeek:
    """Call the plan's functions with side effects; return it with their results put in."""
    if not bound.plan.has_side_effects:
        return bound
    relations = bound.block.relations()
    calls = dict.fromkeys(call for each in relations for call in calls_in(each))
    values = await results_of(context, list(calls))
    # They may have changed session values.
    bound = await bind_peek(context, bound.plan, bound.time, bound.given, own=bound.own)
    block = bind_block(bound.block, values.get)
    return msgspec.structs.replace(bound, block=block, unbound=None)


def bound_finishing(context: StatementContext, query: Query) -> Finishing:
    """Return the finishing of a query with LIMIT and OFFSET bound."""
    finishing = query.finishing
    if query.limit is not None:
        limit = row_count_of(context, query.limit, "LIMIT")
        finishing = msgspec.structs.replace(finishing, limit=limit)
    if query.offset is not None:
        offset = row_count_of(context, query.offset, "OFFSET") or 0
        finishing = msgspec.structs.replace(finishing, offset=offset)
    return finishing


def counted_each(given: Given) -> dict[GlobalId | int, pa.Table]:
    """Return the given collections with `__diff`."""
    return {id: counted(rows) for id, rows in given.items()}


# --- scalars without columns: arguments of LIMIT, AS OF and their like ---------------------------


def value_of(context: StatementContext, scalar: Scalar, time: Timestamp) -> Datum:
    """Return the value of a scalar without columns; `time` is the value of mz_now()."""
    found = constant(bind_scalar(scalar, context.bindings(time)))
    if isinstance(found, str):
        raise DataError.parse(found)
    value: Datum = found.value
    return value


def timestamp_of(
    context: StatementContext, scalar: Scalar, now: Timestamp | None = None
) -> Timestamp:
    """Return the time in a scalar of type mz_timestamp or timestamptz, in milliseconds.

    `now` is the value of mz_now(); None is the newest time. Raises InvalidParameterValue for NULL
    and for times before 1970.
    """
    if now is None:
        now = context.times.oracle.read_ts()
    value = value_of(context, scalar, now)
    if value is None:
        raise InvalidParameterValue("a time is needed, not NULL")
    assert isinstance(value, int), value
    time = value // 1000 if type_of(scalar).name == "timestamptz" else value
    if time < 0:
        raise InvalidParameterValue(f"time {time} is before the beginning of time")
    return time


def row_count_of(context: StatementContext, scalar: Scalar | None, clause: str) -> int | None:
    """Return the number of rows in LIMIT or OFFSET (`clause`); None if there is none.

    Raises InvalidParameterValue if it is negative.
    """
    value = None if scalar is None else value_of(context, scalar, 0)
    if value is None:
        return None
    number = int(str(value))
    if number < 0:
        code = "2201W" if clause == "LIMIT" else "2201X"
        raise InvalidParameterValue(f"{clause} must not be negative", sqlstate=code)
    return number
