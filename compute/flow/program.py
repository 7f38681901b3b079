"""Linear programs: Map, Filter and Project over rows in words, as `compiler.py` makes them."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar
from typing import Literal as OneOf

import numpy as np
import pyarrow as pa

from foreshore.compute.engine import Cancellation
from foreshore.compute.flow.batch import Batch, Ints, empty
from foreshore.compute.flow.convert import Form, array_of, column_at, flat, words_of_values
from foreshore.compute.flow.intern import Interner
from foreshore.compute.flow.kernels import vm
from foreshore.compute.flow.kernels.opcodes import BLOCK
from foreshore.compute.flow.kernels.rows import pick_words
from foreshore.compute.flow.layout import Layout, Place
from foreshore.compute.flow.memo import Memo, Values
from foreshore.compute.flow.peers import Peers
from foreshore.compute.flow.shared import Shared
from foreshore.compute.memory_limit import MemoryBudget
from foreshore.errors import QueryCanceled
from foreshore.expr.columns import type_of
from foreshore.expr.evaluate import outcome
from foreshore.expr.ir import Scalar
from foreshore.expr.split import columns_used
from foreshore.update import Timestamp

Sign = OneOf[1, -1]


class Kept(Protocol):
    """State that grows in a step and is merged between steps."""

    def compact(self, since: Timestamp) -> None:
        """Forget the times before `since`."""
        ...

    @property
    def maintenance_due(self) -> bool:
        """Whether `maintain` has something to do."""
        ...

    def maintain(self) -> bool:
        """Do a slice of merging; return whether there is more to do."""
        ...


K = TypeVar("K", bound=Kept)


@dataclass(frozen=True, slots=True, eq=False)
class Given:
    """A scalar that the registry's functions evaluate, and the form of its words.

    If it depends on one column of strings only, there is a memo and the column's place.
    """

    scalar: Scalar
    form: Form
    memo: Memo | None = None
    place: Place | None = None

    def evaluated(
        self, columns: "Columns | Mapping[int, pa.Array]", rows: int, to: Interner
    ) -> Values:
        """Return the words of the values, where they are NULL, and the numbers of their errors."""
        found, failed = outcome(self.scalar, columns, rows)
        found = flat(found)
        parts = words_of_values(found, type_of(self.scalar), self.form, to)
        low = np.array(parts[0])
        high = parts[1] if len(parts) == 2 else low >> np.int64(63)
        null = np.zeros(rows, np.bool_)
        if found.null_count:
            null = found.is_null().to_numpy(zero_copy_only=False)
            low[null] = 0
            high = np.where(null, 0, high)
        error = np.zeros(rows, np.int64) if failed is None else to.numbers(flat(failed))
        return low, high, null, error

    def of_strings(self, ids: Ints, to: Interner) -> Values:
        """Return what `evaluated` does, given the numbers of the strings of its only column."""
        place = self.place
        assert place is not None

        def evaluate(new: Ints) -> Values:
            null = new == 0
            strings = array_of(new, None, null if null.any() else None, place, to)
            (column,) = columns_used(self.scalar)
            return self.evaluated({column: strings}, len(new), to)

        assert self.memo is not None
        return self.memo.values(ids, evaluate, to.generation)


class Registers(Shared):
    """The memory of a program while it runs."""

    def __init__(self, count: int) -> None:
        shape = (count, BLOCK)
        self.count = count
        self.low = np.zeros(shape, np.int64)
        self.high = np.zeros(shape, np.int64)
        self.null = np.zeros(shape, np.bool_)
        self.error = np.zeros(shape, np.int64)


class Orders(Shared):
    """Orders of other threads to a dataflow at work, shared by all copies of its operators."""

    def __init__(self) -> None:
        self.cancelled = False
        self.cancellation = Cancellation()
        self.budget = MemoryBudget(None)
        self.used: Callable[[], int] = lambda: 0  # bytes of the state, and of what a step has made


class Context:
    """What the operators of a dataflow share: the interner, the hash seed, and errors of a step.

    `kept` is the dataflow's own state, which it compacts and maintains. `peers` are the workers
    among which it is spread, None if one has all of it.

    They run one after the other, so their programs share registers, too.
    """

    def __init__(self, interner: Interner, seed: int, peers: Peers | None = None) -> None:
        self.interner = interner
        self.seed = seed
        self.peers = peers
        self.kept: list[Kept] = []
        self._failures: dict[int, list[Batch]] = {}
        self._registers = Registers(0)
        self._orders = Orders()

    def obey(self, outer: "Context") -> None:
        """Take the orders of another context, of which this one is a part."""
        self._orders = outer._orders

    @property
    def cancelled(self) -> bool:
        """Whether the dataflow was dropped."""
        return self._orders.cancelled

    def cancel(self) -> None:
        """Let the next check fail, and stop what a bulk engine evaluates; of another thread."""
        self._orders.cancelled = True
        self._orders.cancellation.cancel()

    @property
    def cancellation(self) -> Cancellation:
        """Return the handle to stop what a bulk engine evaluates for the dataflow."""
        return self._orders.cancellation

    @property
    def budget(self) -> MemoryBudget:
        """Return what the dataflow may take."""
        return self._orders.budget

    def limit_memory(self, budget: MemoryBudget) -> None:
        """Set what the dataflow may take."""
        self._orders.budget = budget

    def own(self, state: K) -> K:
        """Return some state, having noted that it is the dataflow's own."""
        self.kept.append(state)
        return state

    def registers(self, count: int) -> Registers:
        """Return `count` registers or more, with any contents."""
        if self._registers.count < count:
            self._registers = Registers(count)
        return self._registers

    def check(self) -> None:
        """Raise QueryCanceled if the dataflow was dropped meanwhile."""
        if self.cancelled:
            raise QueryCanceled

    def use(self, used: Callable[[], int]) -> None:
        """Set what tells how many bytes the state takes, and what a step has made so far."""
        self._orders.used = used

    def check_made(self, more: int) -> None:
        """Raise MemoryLimitExceeded if `more` bytes beside the state are too much.

        Raises QueryCanceled if the dataflow was dropped meanwhile.
        """
        self.check()
        budget = self.budget
        budget.check(more + self._orders.used() if budget.limit is not None else 0)

    def fail(self, port: int, errors: Batch) -> None:
        """Note errors, rows of one word, the number of their text."""
        self._failures.setdefault(port, []).append(errors)

    @contextmanager
    def without_errors(self) -> Iterator[None]:
        """Forget the errors that are noted in the body."""
        kept, self._failures = self._failures, {}
        try:
            yield
        finally:
            self._failures = kept

    def failures(self) -> dict[int, list[Batch]]:
        """Return the errors noted since the last call, by port."""
        found, self._failures = self._failures, {}
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Program(Shared):
    """A program over rows of `layout`; rows of `width` words come out, diffs times `sign`.

    `texts` says how each of these words is ordered (`kernels/rows.py`), `strings` which of them are
    numbers of the interner.
    """

    layout: Layout
    code: Ints  # instructions, of `kernels/opcodes.py`
    constants: Ints
    pinned: Ints  # the numbers of strings among the constants, as long as the program is there
    given: tuple[Given, ...]
    outputs: Ints  # of `kernels/vm.py`
    texts: Ints
    strings: Ints
    sign: int
    registers: int
    ports: tuple[int, ...]  # where the errors of each check are noted
    picked: Ints | None  # the words that it only copies, if it does nothing else

    @property
    def width(self) -> int:
        """Return the number of words that come out."""
        return len(self.texts)

    def run(self, batch: Batch, context: Context) -> Batch:
        """Return what the program makes of the rows; errors are noted in the context."""
        rows, interner = len(batch), context.interner
        if not rows:
            return empty(self.width)
        if self.picked is not None:
            words = batch.words
            if self.width != batch.width or (self.picked != np.arange(self.width)).any():
                words = np.empty((rows, self.width), np.int64)
                pick_words(batch.words, self.picked, words)
            return Batch(words, batch.times, batch.diffs if self.sign > 0 else -batch.diffs)
        given, given_null, given_error = self._given(batch, interner) if self.given else _NONE
        words = np.empty((rows, self.width), np.int64)
        times, diffs = np.empty(rows, np.int64), np.empty(rows, np.int64)
        failed = np.empty((rows, 3), np.int64) if self.ports else _NO_FAILURES
        memory = context.registers(self.registers)
        size, failures = vm.run(
            self.code,
            batch.words,
            batch.times,
            batch.diffs,
            self.sign,
            self.constants,
            given,
            given_null,
            given_error,
            interner.arena,
            interner.starts,
            interner.lengths,
            memory.low,
            memory.high,
            memory.null,
            memory.error,
            self.outputs,
            words,
            times,
            diffs,
            failed,
        )
        if failures:
            self._fail(failed[:failures], batch, context)
        if size == rows:
            return Batch(words, times, diffs)
        return Batch(words[:size], times[:size], diffs[:size])

    def _fail(self, failed: Ints, batch: Batch, context: Context) -> None:
        for number, port in enumerate(self.ports):
            here = failed[failed[:, 2] == number]
            if len(here):
                places = here[:, 1]
                words = np.ascontiguousarray(here[:, :1])  # kernels are compiled for such
                errors = Batch(words, batch.times[places], batch.diffs[places])
                context.fail(port, errors)

    def _given(self, batch: Batch, interner: Interner) -> tuple[Any, Any, Any]:
        """Return the given values in words, where they are NULL, and their errors."""
        rows, count = len(batch), len(self.given)
        given = np.zeros((count, rows, 2), np.int64)
        null = np.zeros((count, rows), np.bool_)
        error = np.zeros((count, rows), np.int64)
        columns = Columns(batch, self.layout, interner)
        for i, each in enumerate(self.given):
            if each.place is None:
                values = each.evaluated(columns, rows, interner)
            else:
                values = each.of_strings(batch.words[:, each.place.word], interner)
            given[i, :, 0], given[i, :, 1], null[i], error[i] = values
        return given, null, error


_NO_FAILURES = np.empty((0, 3), np.int64)
_NONE = (np.zeros((0, 0, 2), np.int64), np.zeros((0, 0), np.bool_), np.zeros((0, 0), np.int64))


class Columns:
    """The Arrow columns of a batch, each made when it is needed."""

    def __init__(self, batch: Batch, layout: Layout, interner: Interner) -> None:
        self._batch = batch
        self._layout = layout
        self._interner = interner
        self._made: dict[int, pa.Array] = {}

    def __getitem__(self, index: int) -> pa.Array:
        found = self._made.get(index)
        if found is None:
            place = self._layout.places[index]
            found = self._made[index] = column_at(self._batch.words, place, self._interner)
        return found
