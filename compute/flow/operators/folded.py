"""Aggregates in Python that take values back: a state for each group, changed by its changes.

States are what hosts make of them, kept by the words of groups' keys. Those of groups that have not
changed for long are dropped, and made again of the group's values, which are ordered rows. So they
are in no checkpoint. Some groups that have lost values are computed anew at once, too: if results
differ, `remove` does not undo what `add` does, and the view stops with an error.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np
import pyarrow as pa

from foreshore.compute.engine import ArrangementSize
from foreshore.compute.flow.batch import Batch, Ints, Words
from foreshore.compute.flow.convert import column_at, flat, words_of_values
from foreshore.compute.flow.folds import Fold
from foreshore.compute.flow.layout import Layout, Place
from foreshore.compute.flow.operators.grouping import consolidated
from foreshore.compute.flow.operators.rows import put_null
from foreshore.compute.flow.operators.staged import StagedRows
from foreshore.compute.flow.ordered import OrderedSpine
from foreshore.compute.flow.program import Context, Program
from foreshore.compute.flow.sums import Points
from foreshore.datum import from_array
from foreshore.expr.evaluate import evaluate
from foreshore.expr.ir import Call
from foreshore.python_functions.asked import Asked
from foreshore.python_functions.definition import function_of, key_of
from foreshore.python_functions.folds import folded_type, packed
from foreshore.python_functions.hosts import ExternalRoutineException, hosts
from foreshore.python_functions.limits import check_allowed, limits
from foreshore.python_functions.patience import current_unwanted
from foreshore.types import arrow_type

NO_LIMIT = (1 << 62) - 1
CHECKED = 16  # groups that have lost values and are computed anew, too,
EVERY = 256  # and later one of so many
MOST_CHECKED = 100_000  # values of such a group
MOST_VALUES = 1 << 20  # that a host is given at once


@dataclass(frozen=True, slots=True)
class _State:
    """The state of a group after the last step, and its packed outcome."""

    state: bytes
    outcome: bytes

    @property
    def nbytes(self) -> int:
        return len(self.state) + len(self.outcome) + 200


@dataclass(slots=True)
class _Group:
    """A group in a step: its points, its state before, and its rows since then.

    `ends` are numbers of rows after which there is an outcome.
    """

    key: bytes
    points: range
    before: _State | None
    rows: Ints
    counts: Ints
    ends: list[int]


@dataclass(frozen=True, slots=True)
class _Told:
    """A host's answer about a group: its state after all rows, if it has one, and outcomes.

    With `failed` a method has raised, so the outcomes from there on are that error.
    """

    state: bytes | None
    outcomes: list[bytes]
    failed: bool


class Folded(StagedRows):
    """A fold; `program` makes the key, order words and the argument."""

    def __init__(
        self,
        fold: Fold,
        program: Program,
        spine: OrderedSpine,
        args: Layout,
        place: Place,
        context: Context,
    ) -> None:
        super().__init__(spine)
        assert isinstance(fold.call, Call), fold
        self._program = program
        self._args = args
        self._place = place
        self._context = context
        self._over = fold.call.args[0]  # the array as the function gets it
        self._type = fold.call.type
        self._name = function_of(fold.call.function).name
        self._key = key_of(msgspec.structs.replace(function_of(fold.call.function), step="fold"))
        self._states: dict[bytes, _State] = {}
        self._changed: dict[bytes, _State | None] = {}
        self._nbytes = 0
        self._generation = context.interner.generation
        self._lost = 0  # groups that have lost values
        self._losing = 0  # and that do so in this step
        self._asking = Asked()

    def put(self, points: Points, count: Ints, input: Batch, words: Words) -> None:
        """Write the words of this aggregate for each point, given the input's updates.

        `count` is how many rows a group has.
        """
        check_allowed()
        if self._generation != self._context.interner.generation:  # keys may mean other groups
            self._generation = self._context.interner.generation
            self._states.clear()
            self._nbytes = 0
        updates = consolidated(self._program.run(input, self._context), self._context.seed)
        self._stage(updates)
        if not len(points):
            return
        rows, groups = self._groups(points, updates)
        outcomes: list[bytes] = [b""] * len(points)
        for part in _in_parts(groups):
            for group, told in zip(part, self._asked(rows, part), strict=True):
                before = () if group.before is None else (group.before.outcome,)
                if told.failed:
                    told = self._anew(points, group)
                    before = ()
                for point, outcome in zip(group.points, (*before, *told.outcomes), strict=True):
                    outcomes[point] = outcome
                keeps = told.state is not None and count[group.points[-1]] > 0
                state = _State(told.state or b"", outcomes[group.points[-1]])
                self._changed[group.key] = state if keeps else None
        self._check(points, groups, outcomes)
        column = pa.array(outcomes, pa.binary())
        (numbers,) = words_of_values(column, self._place.type, "row", self._context.interner)
        words[:, self._place.word] = numbers
        put_null(words, np.zeros(len(points), np.bool_), self._place)

    def _groups(self, points: Points, updates: Batch) -> tuple[Words, list[_Group]]:
        """Return the argument's words of rows, and the groups at points with what has changed."""
        key, first = self._spine.key, self._spine.width - self._args.words
        at = np.empty((len(points), key + 1), np.int64)
        at[:, :key], at[:, key] = points.words[points.rows, :key], points.times
        begins = np.flatnonzero(points.first)
        ends = np.append(begins[1:], len(points))
        keys = [each.tobytes() for each in at[begins, :key]]
        before = [self._states.get(each) for each in keys]
        missing = [i for i, each in enumerate(before) if each is None]
        found, there, counts = self._spine.rows_at(_some(points, begins[missing]), 0, NO_LIMIT)
        changed = np.column_stack([updates.words[:, :key], updates.times])  # each is at a point
        # The rows of a group: those before, if its state is not known, and its updates by time,
        # additions first.
        of_point = np.concatenate([begins[missing][found], _places(at, changed)])
        rows = np.concatenate([there[:, first:], updates.words[:, first:]])
        diffs = np.concatenate([counts, updates.diffs])
        order = np.lexsort((diffs < 0, of_point))
        after = np.cumsum(np.bincount(of_point, minlength=len(points)))
        groups = []
        for i, (begin, end) in enumerate(zip(begins.tolist(), ends.tolist(), strict=True)):
            start = int(after[begin - 1]) if begin else 0
            told = after[begin + (before[i] is not None) : end] - start
            mine = order[start : int(after[end - 1])]
            groups.append(
                _Group(keys[i], range(begin, end), before[i], mine, diffs[mine], told.tolist())
            )
        return rows, groups

    def _asked(self, rows: Words, groups: Sequence[_Group]) -> Iterator[_Told]:
        """Yield what hosts tell of each group."""
        sizes = [np.abs(group.counts) for group in groups]
        taken = [np.repeat(g.rows, size) for g, size in zip(groups, sizes, strict=True)]
        places = np.concatenate(taken) if taken else np.zeros(0, np.int64)
        signs = np.concatenate(
            [np.repeat(np.sign(g.counts), size) for g, size in zip(groups, sizes, strict=True)]
        )
        offsets = pa.array(
            np.concatenate([[0], np.cumsum([len(each) for each in taken])]), pa.int32()
        )
        (place,) = self._args.places
        values = column_at(np.ascontiguousarray(rows[places]), place, self._context.interner)
        given = pa.ListArray.from_arrays(offsets, flat(values))
        arrays = flat(evaluate(self._over, [given], len(groups)))
        ends = [np.concatenate([[0], np.cumsum(size)])[g.ends].tolist()
                for g, size in zip(groups, sizes, strict=True)]  # fmt: skip
        result = arrow_type(self._type)
        columns = [
            pa.array([g.before.state if g.before else None for g in groups], pa.binary()),
            arrays,
            pa.ListArray.from_arrays(offsets, pa.array(signs, pa.int8())),
            pa.array(ends, pa.list_(pa.int32())),
        ]
        unwanted = current_unwanted()

        def ask(of: Sequence[pa.Array]) -> pa.Array:
            return hosts().outcome(self._key, of, folded_type(result), unwanted)[0]

        found = self._asking.outcome(ask, columns)
        states, results, errors = found.flatten()
        data = from_array(results.flatten(), self._type)
        texts = errors.flatten().to_pylist()
        told = [packed(*each) for each in zip(data, texts, strict=True)]
        at = 0
        for state, group in zip(states.to_pylist(), groups, strict=True):
            end = at + len(group.ends)
            failed = state is None and any(text is not None for text in texts[at:end])
            yield _Told(state, told[at:end], failed)
            at = end

    def _check(
        self, points: Points, groups: Sequence[_Group], outcomes: Sequence[bytes | None]
    ) -> None:
        """Raise ExternalRoutineException if groups computed anew have other outcomes."""
        chosen = []
        for group in groups:
            if group.before is None or not (group.counts < 0).any():
                continue
            self._losing += 1  # counted when it is over: another try checks the same groups
            lost = self._lost + self._losing
            if lost <= CHECKED or not lost % EVERY:
                chosen.append(group)
        if not chosen:
            return
        last = np.array([group.points[-1] for group in chosen])
        found, there, counts = self._spine.rows_at(_some(points, last), 0, NO_LIMIT)
        rows = there[:, self._spine.width - self._args.words :]
        again = []
        for i, group in enumerate(chosen):
            mine = np.flatnonzero(found == i)
            if len(mine) <= MOST_CHECKED:
                again.append(
                    _Group(group.key, group.points[-1:], None, mine, counts[mine], [len(mine)])
                )
        for group, told in zip(again, self._asked(rows, again), strict=True):
            if told.outcomes[0] != outcomes[group.points[0]]:
                raise ExternalRoutineException(
                    f'method "remove" of "{self._name}" does not undo what "add" does:'
                    " a group computed anew has another result",
                    hint="Results must not depend on the order of additions, nor on rounding.",
                )

    def _anew(self, points: Points, group: _Group) -> _Told:
        """Return the answer about a group that is computed anew at each of its points.

        Where a method has raised, the error may not be there any more at a later point.
        """
        at = np.array(group.points)
        found, there, counts = self._spine.rows_at(_some(points, at), 0, NO_LIMIT)
        rows = there[:, self._spine.width - self._args.words :]
        each = []
        for i, point in enumerate(group.points):
            mine = np.flatnonzero(found == i)
            only = range(point, point + 1)
            each.append(_Group(group.key, only, None, mine, counts[mine], [len(mine)]))
        told = list(self._asked(rows, each))
        return _Told(told[-1].state, [one.outcomes[0] for one in told], False)

    def commit(self) -> None:
        """Keep what was staged, and forget groups that have not changed for long."""
        super().commit()
        for key, state in self._changed.items():
            before = self._states.pop(key, None)
            self._nbytes -= before.nbytes if before is not None else 0
            if state is not None:
                self._states[key] = state
                self._nbytes += state.nbytes
        self._changed = {}
        self._asking.forget()
        self._lost, self._losing = self._lost + self._losing, 0
        most = limits().kept
        while self._nbytes > most:
            self._nbytes -= self._states.pop(next(iter(self._states))).nbytes

    def restore(self) -> None:
        """Forget what was staged."""
        super().restore()
        self._changed, self._losing = {}, 0
        self._asking.try_again()

    def sizes(self) -> Iterator[ArrangementSize]:
        """Yield the size of the ordered rows, with that of the states."""
        for size in super().sizes():
            yield replace(size, bytes=size.bytes + self._nbytes)


def _some(points: Points, chosen: Ints) -> Points:
    chosen = np.asarray(chosen, np.int64)
    return Points(
        points.rows[chosen], points.times[chosen], points.first[chosen], points.hashes, points.words
    )


def _places(rows: Words, of: Words) -> Ints:
    """Return which of `rows`, all different, each of some others is equal to."""
    _, inverse = np.unique(np.concatenate([rows, of]), axis=0, return_inverse=True)
    place = np.empty(len(inverse), np.int64)
    place[inverse[: len(rows)]] = np.arange(len(rows))
    found: Ints = place[inverse[len(rows) :]]
    return found


def _in_parts(groups: Sequence[_Group]) -> Iterator[Sequence[_Group]]:
    """Yield groups that together have so many values that a host may be given them at once."""
    part: list[_Group] = []
    values = 0
    for group in groups:
        size = int(np.abs(group.counts).sum())
        if part and values + size > MOST_VALUES:
            yield part
            part, values = [], 0
        part.append(group)
        values += size
    if part:
        yield part
