"""Indexes: what a dataflow of operators puts out, as a spine by the key of an index.

Any thread may read. Runs are immutable; the tail's chains, and the list of runs, are under a lock,
which is held for short times only.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from threading import Lock

import numpy as np
import pyarrow as pa

from foreshore.compute.arrange.arrangement import Key, TooManyRows
from foreshore.compute.checkpoint.state import Reader, Writer
from foreshore.compute.engine import rows_schema
from foreshore.compute.flow import spine as spines
from foreshore.compute.flow.batch import Batch, Words, concat
from foreshore.compute.flow.convert import columns_of, int64_array, is_direct, words_of_values
from foreshore.compute.flow.in_order import Sorted, slices
from foreshore.compute.flow.intern import Interner, KnownStrings
from foreshore.compute.flow.kernels.jit import GATE
from foreshore.compute.flow.key_order import MOST_TEXT, KeyOrder, has_order, text_size
from foreshore.compute.flow.layout import Layout, Place, kind_of
from foreshore.compute.flow.operators.grouping import consolidated
from foreshore.compute.flow.output import FlowOutput
from foreshore.compute.flow.run import Run
from foreshore.compute.flow.spine import Spine
from foreshore.compute.flow.tail import Tail
from foreshore.compute.output import Output
from foreshore.compute.span import Span
from foreshore.datum import to_array
from foreshore.errors import InternalError, ObjectNotInPrerequisiteState
from foreshore.expr.ir import Column, Scalar
from foreshore.types import Datum
from foreshore.update import Timestamp, update_schema

_NONE = np.empty(0, np.int64)


def index_key(key: Sequence[Scalar], layout: Layout) -> list[Place] | None:
    """Return the places of an index's key, None if a part of it has no words in the rows."""
    places = []
    for scalar in key:
        if not isinstance(scalar, Column) or not is_direct(scalar.type):
            return None
        places.append(layout.places[scalar.index])
    return places or None


class FlowIndex:
    """An index called `name` of rows of a layout; `key` is where the columns of its key are.

    Its first updates are those at `as_of`; it is readable from `since` on. While kernels are
    compiled a read may wait for one, so one that is limited raises TooManyRows.
    """

    def __init__(
        self,
        name: str,
        layout: Layout,
        key: Sequence[Place],
        interner: Interner,
        seed: int,
        as_of: Timestamp,
        since: Timestamp,
    ) -> None:
        self.name = name
        self.upper = as_of
        self._layout = layout
        self._key = tuple(key)
        self._schema = rows_schema(layout.columns)
        words = [place.word + i for place in key for i in range(place.width)]
        texts = np.zeros(layout.words, np.int64)
        self._spine = Spine([np.array(words, np.int64)], texts, interner, seed, since)
        self._all = np.arange(layout.words)
        self._interner = interner
        self._known = KnownStrings(interner)
        self._lock = Lock()
        self._orders: dict[Run, KeyOrder] = {}  # of the runs that were read in order
        # The tail that was, with its updates then; a tail only grows.
        self._newest: tuple[Tail, Sorted] | None = None

    @property
    def since(self) -> Timestamp:
        """Return the time from which on it is readable."""
        return self._spine.since

    @property
    def size(self) -> tuple[int, int, int]:
        """Return the numbers of updates, runs and bytes."""
        orders = sum(order.nbytes for order in self._orders.values())
        return len(self._spine), self._spine.parts, self._spine.nbytes + orders

    # --- the inserting thread

    def insert_output(self, output: Output, upper: Timestamp) -> None:
        """Insert the output of the windows until `upper`, which is the dataflow's own."""
        assert isinstance(output, FlowOutput), type(output)
        assert upper > self.upper, (self.name, upper, self.upper)
        batch = output.batch
        if self._spine.is_large(batch):
            run = self._spine.sorted(batch)
            with self._lock:
                self._spine.add_run(run)
        elif len(batch):
            with self._lock:
                self._spine.insert(batch)
        self.upper = upper

    def advance(self, upper: Timestamp) -> None:
        """Record that there are no updates up to `upper`."""
        self.upper = upper

    def compact(self, since: Timestamp) -> None:
        """Forget the times before `since`."""
        self._spine.compact(since)

    @property
    def maintenance_due(self) -> bool:
        """Whether `maintain` has something to do."""
        return self._spine.maintenance_due

    def maintain(self) -> bool:
        """Merge some runs; return whether there is more to do."""
        with self._lock:
            self._spine.thin()
            merge = self._spine.due_merge()
        if merge is None:
            return False
        if merge.work(spines.MERGE_BUDGET):
            with self._lock:
                self._spine.install(merge)
        return True

    def save(self, to: Writer) -> None:
        """Write all updates."""
        to.numbers("upper", self.upper)
        self._spine.save(to.part("rows"))

    def load(self, saved: Reader) -> None:
        """Take saved updates over."""
        (self.upper,) = saved.numbers("upper")
        self._spine.load(saved.part("rows"))

    # --- readers

    def look_up(
        self, keys: Sequence[Key], time: Timestamp, most: int | None = None
    ) -> pa.RecordBatch:
        """Return the rows at `time` whose key is in `keys`, each as often as its multiplicity.

        Raises TooManyRows if more than `most` updates have the hash of one of them.
        """
        self._check(time, most)
        words = self._words_of(keys)
        count = len(words)
        wanted = Batch(words, np.zeros(count, np.int64), np.ones(count, np.int64))
        in_order = self._spine.wanted(0, wanted)
        hashes = in_order.hashes
        before = time + 1
        with self._lock:
            runs = self._spine.runs
            tail = self._spine.joined_tail(0, wanted, in_order, _NONE, self._all, before)
        if most is not None:
            found = len(tail)
            for run in runs:
                ends = run.hashes.searchsorted(hashes, "right")
                found += int((ends - run.hashes.searchsorted(hashes)).sum())
            if found > most:
                raise TooManyRows
        some = self._spine.joined_runs(runs, 0, wanted, in_order, _NONE, self._all, before)
        return self._rows(self._without_nulls(concat([some, tail], self._layout.words)))

    def scan(self, time: Timestamp, most: int | None = None) -> pa.RecordBatch:
        """Return all rows at `time`, each as often as its multiplicity.

        Raises TooManyRows if there are more than `most` updates.
        """
        self._check(time, most)
        return self._rows(self._until(time, most))

    def in_range(
        self, span: Span, time: Timestamp, few: int, most: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows at `time` in a span, in an ordered one slice after slice, at least one.

        About `few` updates are in the first slice. Raises TooManyRows if more than about `most`
        updates are examined.
        """
        self._check(time, most)
        parts = self._sorted_parts(most)
        if parts is None:
            yield self.scan(time, most)
            return
        examined = 0
        for found in slices(parts, span, self._key, few):
            examined += len(found)
            if most is not None and examined > most:
                raise TooManyRows
            if len(found) and found.times.max() > time:
                found = found.take(found.times <= time)
            yield self._rows(found)

    def _sorted_parts(self, most: int | None) -> list[Sorted] | None:
        """Return all updates by the key; None if they cannot be put in its order.

        Raises TooManyRows if more than `most` updates are to be sorted first.
        """
        with self._lock:
            runs, tail = self._spine.runs, self._spine.tail
            updates = tail.contents()
        if not all(map(has_order, self._key)):
            return None
        known = {run: order for run in runs if (order := self._orders.get(run)) is not None}
        missing = [run for run in runs if run not in known]
        newest = self._newest
        is_known = (
            newest is not None and newest[0] is tail and len(newest[1].updates) == len(updates)
        )
        unsorted = sum(map(len, missing)) + (0 if is_known else len(updates))
        if most is not None and unsorted > most:
            raise TooManyRows
        unknown = [*(run.words for run in missing), *([] if is_known else [updates.words])]
        if any(text_size(each, self._key, self._interner) > MOST_TEXT for each in unknown):
            return None
        known |= {run: self._order_of(run.words) for run in missing}
        self._orders = known  # those of other runs are forgotten
        if newest is None or not is_known:
            newest = self._newest = tail, Sorted(updates, self._order_of(updates.words))
        return [*(Sorted(run.updates(), known[run]) for run in runs), newest[1]]

    def _order_of(self, words: Words) -> KeyOrder:
        return KeyOrder(words, self._key, self._interner)

    def updates(self, as_of: Timestamp) -> pa.Table:
        """Return all updates, those before `as_of` moved to it: rows' columns, times, diffs."""
        self._check(as_of)
        found = concat(self._parts(None), self._layout.words)
        found = replace(found, times=np.maximum(found.times, as_of))
        found = consolidated(found, int(self._spine.seed))
        arrays = columns_of(found.words, self._layout, self._interner)
        arrays += [int64_array(found.times), int64_array(found.diffs)]
        return pa.Table.from_arrays(arrays, schema=update_schema(self._schema))

    def _check(self, time: Timestamp, most: int | None = None) -> None:
        if most is not None and not GATE.is_open:
            raise TooManyRows
        if not self.since <= time < self.upper:
            raise ObjectNotInPrerequisiteState(
                f"index {self.name} cannot be read as of {time}",
                detail=f"It is readable from {self.since} and before {self.upper}.",
            )

    def _parts(self, most: int | None) -> list[Batch]:
        """Return all updates; raises TooManyRows if there are more than `most`."""
        with self._lock:
            runs, tail = self._spine.runs, self._spine.tail.contents()
        if most is not None and len(tail) + sum(map(len, runs)) > most:
            raise TooManyRows
        return [*(run.updates() for run in runs), tail]

    def _until(self, time: Timestamp, most: int | None) -> Batch:
        parts = []
        for part in self._parts(most):
            if len(part) and part.times.max() > time:
                part = part.take(part.times <= time)
            parts.append(part)
        return concat(parts, self._layout.words)

    def _words_of(self, keys: Sequence[Key]) -> Words:
        """Return the words of those keys that rows may have, each once."""
        found = {key: words for key in keys if (words := self._words_of_one(key)) is not None}
        width = len(self._spine.keys[0])
        return np.array(list(dict.fromkeys(found.values())), np.int64).reshape(-1, width)

    def _words_of_one(self, key: Key) -> tuple[int, ...] | None:
        """Return the words of a key; None if no row can have it."""
        words: list[int] = []
        for datum, place in zip(key, self._key, strict=True):
            if datum is None:
                return None
            try:
                words += self._words_of_datum(datum, place)
            except (pa.ArrowInvalid, OverflowError):
                return None
        return None if -1 in words and self._is_unknown(words) else tuple(words)

    def _words_of_datum(self, datum: Datum, place: Place) -> list[int]:
        if isinstance(datum, int) and kind_of(place.type) == "int" and place.type.name != "numeric":
            return [datum]
        column = to_array([datum], place.type)
        return [int(each[0]) for each in words_of_values(column, place.type, "key", self._known)]

    def _is_unknown(self, words: Sequence[int]) -> bool:
        """Whether a string of a key is in no row."""
        at = 0
        for place in self._key:
            if place.kind == "bytes" and words[at] == -1:
                return True
            at += place.width
        return False

    def _without_nulls(self, found: Batch) -> Batch:
        """Return the updates of which no part of the key is NULL, whose words are 0."""
        for place in self._key:
            if place.bit >= 0 and len(found):
                word, bit = divmod(place.bit, 64)
                null = (found.words[:, word] >> np.int64(bit)) & 1 != 0
                if null.any():
                    found = found.take(~null)
        return found

    def _rows(self, found: Batch) -> pa.RecordBatch:
        """Return the rows that updates add up to."""
        if len(found) and found.diffs.min() < 0:
            found = replace(found, times=np.zeros(len(found), np.int64))
            found = consolidated(found, int(self._spine.seed))
            if len(found) and found.diffs.min() < 0:
                raise InternalError(
                    f"collection {self.name} has a row with a negative multiplicity",
                    detail="A maintained plan is wrong; the answer is withheld.",
                )
        words: Words = found.words
        if len(found) and found.diffs.max() > 1:
            words = np.repeat(words, found.diffs, axis=0)
        columns = columns_of(words, self._layout, self._interner)
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)
