"""Scalars with calls that no engine can make: functions with side effects, called for each row.

The caller makes the calls, in the order of the rows, and only those that a row reaches: in `CASE
WHEN k > 0 THEN nextval('s') END` the rows with a positive `k`. Random values, and numbers of
sequences that are the same for all rows, are taken all at once.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from foreshore import blocking
from foreshore.compute.local.linear import evaluate_linear
from foreshore.datum import from_array
from foreshore.errors import DataError
from foreshore.expr.columns import type_of
from foreshore.expr.cost import is_light
from foreshore.expr.evaluate import outcome
from foreshore.expr.functions.system import RANDOM, RANDOM_UUID
from foreshore.expr.ir import Call, Column, Get, Literal, Map, Project, Scalar
from foreshore.expr.lazily import Reach, Steps, Unless, evaluation_steps
from foreshore.expr.pointwise import Cell, compiled
from foreshore.expr.scalars import Replace, bind_scalar
from foreshore.expr.traversal import walk_scalars
from foreshore.ids import GlobalId
from foreshore.in_turns import in_turns
from foreshore.random_values import RandomValues
from foreshore.rows import repeated, split_diffs
from foreshore.types import INT8, ColumnType, Datum, arrow_type
from foreshore.update import DIFF_FIELD

Done = TypeVar("Done")

ROWS_ON_THE_LOOP = 256
_ROWS = GlobalId("t0")  # stands for the rows

MakeCall = Callable[[Call, Sequence[Datum]], Awaitable[Datum]]
TakeNumbers = Callable[[Datum, int], Awaitable[npt.NDArray[np.int64]]]  # of a sequence
Reached = Mapping[Scalar, npt.NDArray[np.bool_]]  # whether each row reaches the call


async def evaluate_with_calls(
    executor: Executor,
    rows: pa.Table,
    scalars: Sequence[Scalar],
    bindings: Replace,
    make_call: MakeCall,
    take_numbers: TakeNumbers,
    random: RandomValues,
) -> pa.Table:
    """Return `scalars` with `bindings` for each of `rows` (with `__diff`)."""

    async def run(work: Callable[[], Done]) -> Done:
        return await blocking.run(executor, work) if takes_long else work()

    takes_long = rows.num_rows > ROWS_ON_THE_LOOP or not all(map(is_light, scalars))
    bound = await run(lambda: [bind_scalar(scalar, bindings) for scalar in scalars])
    takes_long = takes_long or not all(map(is_light, bound))
    plan = await run(lambda: _Plan.of(rows, bound, random))
    if plan.at_once:
        reached = await run(lambda: _rows_reached(plan.steps, plan.columns, plan.count))
        found = await _next_numbers(reached, take_numbers)
        results = [found[call] for call in plan.calls]
    else:
        by_row = await run(lambda: _ByRow.of(plan))
        results = await by_row.call(make_call)
    return await run(lambda: plan.finish(results))


@dataclass(frozen=True)
class _Plan:
    """Rows, and the scalars to compute for them, in which random values are columns."""

    columns: Sequence[pa.Array]
    types: Sequence[ColumnType]
    diffs: pa.Array
    scalars: Sequence[Scalar]
    steps: Steps
    calls: Sequence[Scalar]  # that are left to make
    at_once: bool  # they are all made for all rows at once

    @classmethod
    def of(cls, rows: pa.Table, scalars: Sequence[Scalar], random: RandomValues) -> "_Plan":
        columns, diffs = split_diffs(repeated(rows))
        types = _types(scalars, len(columns))
        draws = list(_calls(scalars, _is_random))
        drawn = _as_columns(draws, len(types))
        columns = [*columns, *(_drawn(call, len(diffs), random) for call in draws)]
        types += [ColumnType(type_of(call)) for call in draws]
        scalars = [bind_scalar(scalar, drawn.get) for scalar in scalars]
        steps = evaluation_steps(scalars, _has_side_effect)
        calls = list(dict.fromkeys(step.part for step in steps if isinstance(step, Reach)))
        at_once = all(map(_is_nextval_of_one_sequence, calls)) and not _depends_on_calls(steps)
        return cls(columns, types, diffs, scalars, steps, calls, at_once)

    @property
    def count(self) -> int:
        """Return the number of rows."""
        return len(self.diffs)

    def finish(self, results: Sequence[pa.Array]) -> pa.Table:
        """Return the scalars, given the results of the calls."""
        places = _as_columns(self.calls, len(self.columns))
        placed = tuple(bind_scalar(scalar, places.get) for scalar in self.scalars)
        columns = [*self.columns, *results]
        get = Get(_ROWS, (*self.types, *(ColumnType(type_of(call)) for call in self.calls)))
        outputs = tuple(range(len(columns), len(columns) + len(placed)))
        fields = [pa.field(f"c{i}", column.type) for i, column in enumerate(columns)]
        schema = pa.schema([*fields, DIFF_FIELD])
        return evaluate_linear(
            Project(Map(get, placed), outputs),
            {_ROWS: pa.Table.from_arrays([*columns, self.diffs], schema=schema)},
        )


def _calls(scalars: Iterable[Scalar], wanted: Callable[[Scalar], bool]) -> dict[Scalar, None]:
    """Return the different `wanted` parts of `scalars`, in their order."""
    return dict.fromkeys(
        each for scalar in scalars for each in walk_scalars(scalar) if wanted(each)
    )


def _as_columns(calls: Sequence[Scalar], start: int) -> dict[Scalar, Scalar]:
    """Return the columns, the first of them the column `start`, that have the calls' results."""
    return {call: Column(start + i, type_of(call)) for i, call in enumerate(calls)}


def _has_side_effect(scalar: Scalar) -> bool:
    return isinstance(scalar, Call) and scalar.number > 0


def _depends_on_calls(steps: Steps) -> bool:
    """Return whether a test has a call, so that its result says which others are made."""
    tests = [step.test for step in steps if isinstance(step, Unless)]
    return bool(_calls(tests, _has_side_effect))


def _rows_reached(steps: Steps, columns: Sequence[pa.Array], count: int) -> Reached:
    """Return the calls that `steps` reach, and for which of the rows."""
    reached: dict[Scalar, npt.NDArray[np.bool_]] = {}
    arriving = {0: np.ones(count, np.bool_)}  # rows that go on at a later step
    here = np.zeros(count, np.bool_)
    for i, step in enumerate(steps):
        here = here | arriving.pop(i, False)
        match step:
            case Reach(part=call):
                reached[call] = reached.get(call, False) | here
            case Unless(test=test, to=to):
                goes_on = here & _is_true(test, here, columns)
                arriving[to] = arriving.get(to, False) | (here & ~goes_on)
                here = goes_on
    return reached


def _is_true(
    test: Scalar, rows: npt.NDArray[np.bool_], columns: Sequence[pa.Array]
) -> npt.NDArray[np.bool_]:
    """Return for which rows `test` is TRUE; raises its error for one of `rows`."""
    values, errors = outcome(test, columns, len(rows))
    if errors is not None:
        message = pc.min(errors.filter(pa.array(rows))).as_py()
        if message is not None:
            raise DataError.parse(message)
    true: npt.NDArray[np.bool_] = values.fill_null(False).to_numpy(zero_copy_only=False)
    return true


def _is_nextval_of_one_sequence(call: Scalar) -> bool:
    """Return whether `call` is nextval of a sequence that is the same for all rows."""
    return (
        isinstance(call, Call)
        and call.function == "nextval"
        and isinstance(call.args[0], Literal)
        and call.args[0].value is not None
    )


def _is_random(scalar: Scalar) -> bool:
    return isinstance(scalar, Call) and scalar.function in (RANDOM, RANDOM_UUID)


def _drawn(call: Scalar, count: int, random: RandomValues) -> pa.Array:
    """Return `count` values of random() or gen_random_uuid(): nobody sees those not used."""
    assert isinstance(call, Call), call
    if call.function == RANDOM:
        return pa.array(random.floats(count))
    return random.uuids(count, arrow_type(type_of(call)))


async def _next_numbers(reached: Reached, take_numbers: TakeNumbers) -> dict[Scalar, pa.Array]:
    """Return the numbers of each call; a sequence gives all of its numbers at once, row by row."""
    found: dict[Scalar, pa.Array] = {}
    by_sequence: dict[Scalar, list[Scalar]] = {}
    for call in reached:
        assert isinstance(call, Call), call
        by_sequence.setdefault(call.args[0], []).append(call)
    for named, calls in by_sequence.items():
        assert isinstance(named, Literal), named
        drawn = np.stack([reached[call] for call in calls], axis=1)
        total = int(drawn.sum())
        numbers = np.zeros(drawn.shape, np.int64)
        if total:
            numbers[drawn] = await take_numbers(named.value, total)
        for i, call in enumerate(calls):
            found[call] = pa.array(numbers[:, i], mask=~drawn[:, i])
    return found


@dataclass(frozen=True)
class _ByRow:
    """Calls that are made row by row: a call may see the effects of earlier ones."""

    plan: _Plan
    program: Sequence["_Make | _Go"]
    used: Mapping[int, Sequence[Datum]]  # columns that tests and arguments use

    @classmethod
    def of(cls, plan: _Plan) -> "_ByRow":
        places = _as_columns(plan.calls, len(plan.columns))
        make = {
            call: _Make(call, len(plan.columns) + i, places) for i, call in enumerate(plan.calls)
        }
        program = [
            make[step.part]
            if isinstance(step, Reach)
            else _Go(compiled(bind_scalar(step.test, places.get)), step.to)
            for step in plan.steps
        ]
        used = {
            each.index: from_array(plan.columns[each.index], each.type)
            for step in plan.steps
            for each in walk_scalars(step[0])
            if isinstance(each, Column)
        }
        return cls(plan, program, used)

    async def call(self, make_call: MakeCall) -> list[pa.Array]:
        """Return the results of each call."""
        width = len(self.plan.columns)
        found: list[list[Datum]] = [[] for _ in self.plan.calls]
        async for i in in_turns(range(self.plan.count)):  # calls may never wait
            row = [self.used[k][i] if k in self.used else None for k in range(width)]
            row += [None] * len(found)
            await _run(self.program, row, make_call)
            for values, value in zip(found, row[width:], strict=True):
                values.append(value)
        return [
            pa.array(values, arrow_type(type_of(call)))
            for call, values in zip(self.plan.calls, found, strict=True)
        ]


class _Make:
    """A call that is made for a row, once, and the place of its result."""

    def __init__(self, call: Scalar, place: int, places: Mapping[Scalar, Scalar]) -> None:
        assert isinstance(call, Call), call
        self.call = call
        self.place = place
        self.args = [compiled(bind_scalar(arg, places.get)) for arg in call.args]


class _Go(NamedTuple):
    """An `Unless` with a compiled test."""

    test: Cell
    to: int


async def _run(program: Sequence[_Make | _Go], row: list[Datum], make_call: MakeCall) -> None:
    """Make the calls that the row reaches, and put their results into it."""
    made: set[int] = set()
    at = 0
    while at < len(program):
        step = program[at]
        at += 1
        if isinstance(step, _Go):
            if step.test(row) is not True:
                at = step.to
        elif step.place not in made:
            made.add(step.place)
            row[step.place] = await make_call(step.call, [arg(row) for arg in step.args])


def _types(scalars: Sequence[Scalar], width: int) -> list[ColumnType]:
    """Return the types of the columns that `scalars` use, and any types for the others."""
    types = [ColumnType(INT8)] * width
    for scalar in scalars:
        for each in walk_scalars(scalar):
            if isinstance(each, Column):
                types[each.index] = ColumnType(each.type, each.nullable)
    return types
