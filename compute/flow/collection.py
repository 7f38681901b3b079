"""Collections: the rows of tables and views that the dataflows of a replica read, kept once.

A dataflow that joins a collection *imports* it: it names the columns that it reads and the keys by
which it looks rows up. Dataflows share the spine of a collection as long as the times agree. If
one needs a column that is not there, the collection is read anew with this column as well; the
other readers go over to its *successor* as soon as that has come to their times.

Each reader feeds the collection with the windows that it gets itself; the first to come inserts
them. A collection may be ahead of a reader, as all reading is of updates before a time. Readers
run on several threads: runs are immutable, all else is under the collection's lock, which is held
for short times only.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from threading import Lock

import numpy as np
import pyarrow as pa

from foreshore.compute.checkpoint.engine import CapturedCollection
from foreshore.compute.checkpoint.engine import Shared as SharedState
from foreshore.compute.checkpoint.state import Captured, Reader, Writer
from foreshore.compute.engine import Evaluator, Input
from foreshore.compute.flow import spine as spines
from foreshore.compute.flow.batch import Batch, Ints, Words, concat, empty
from foreshore.compute.flow.bulk_hydration import WritesRuns
from foreshore.compute.flow.convert import batch_of
from foreshore.compute.flow.intern import Interner
from foreshore.compute.flow.kernels.probing import ANY, TooManyMatches
from foreshore.compute.flow.layout import Layout, composed, layout_of, part_of, words_of
from foreshore.compute.flow.program import Context
from foreshore.compute.flow.read import count_updates, read_blocks, read_until, tables_until
from foreshore.compute.flow.run import Run
from foreshore.compute.flow.shared import Shared
from foreshore.compute.flow.sorter import Sorter
from foreshore.compute.flow.spine import Spine, saved_keys
from foreshore.compute.render.evaluate import has_single_rows
from foreshore.expr import ir
from foreshore.ids import GlobalId
from foreshore.types import ColumnType
from foreshore.update import Timestamp

KEPT_TIMES = 2_000  # milliseconds that remain readable for dataflows still to come
AT_ONCE = 1 << 15  # rows that look something up while others wait


class Collection:
    """Some columns of a collection as a spine; `picked` are their numbers."""

    def __init__(
        self,
        id: GlobalId,
        columns: tuple[ColumnType, ...],
        picked: tuple[int, ...],
        layout: Layout,
        spine: Spine,
        groups: tuple[tuple[int, ...], ...],
    ) -> None:
        self.id = id
        self.columns = columns
        self.picked = picked
        self.groups = groups  # the same numbers, in the groups that were added
        self.layout = layout
        self.spine = spine
        self.upper: Timestamp = spine.since  # all updates before it are there, once it is ready
        self.ready = False
        self.successor: Collection | None = None
        self.readers: dict[Import, Timestamp] = {}  # with the time that each still reads
        self._held: Timestamp | None = None  # remains readable while a checkpoint is made
        self._lock = Lock()
        self._merging = Lock()
        self._sorting = Lock()
        self._last: tuple[Timestamp, Timestamp, Batch] | None = None

    @property
    def complete(self) -> Timestamp:
        """Return a time before which no update is missing."""
        return max([self.upper, *(reader.frontier for reader in list(self.readers))])

    def has(self, columns: tuple[ColumnType, ...], picked: tuple[int, ...]) -> bool:
        """Whether it has the columns `picked` of a collection with `columns`, of their types."""
        return set(picked) <= set(self.picked) and all(
            self.columns[i] == columns[i] for i in picked
        )

    def enter(self, reader: "Import", as_of: Timestamp) -> bool:
        """Register a reader from a time on, unless it is not all there; return whether it is."""
        with self._lock:
            if not self.ready or not self.spine.since <= as_of < self.complete:
                return False
            self.readers[reader] = as_of
            return True

    def leave(self, reader: "Import") -> None:
        """Remove a reader."""
        with self._lock:
            self.readers.pop(reader, None)

    # --- writing

    def hydrate(
        self, input: Input, as_of: Timestamp, context: Context, engine: Evaluator | None
    ) -> None:
        """Read the rows as of a time; nobody else uses the collection yet.

        Dataflows share it, so no limit but the replica's concerns it.
        """
        if not self.spine.keys:
            self.spine.add_key(np.arange(self.layout.words))
        spine, most = self.spine, count_updates(input)
        if most < spines.SORTED_BY_BLOCKS:
            columns, layout, interner = self.columns, self.layout, spine.interner
            spine.insert(read_until(input, columns, self.picked, layout, interner, as_of))
        elif (run := self._by_tasks(input, as_of, context, engine)) is not None:
            spine.add_run(run)
        else:
            spine.add_run(self._sorted(self._reader(input, as_of, context, engine), as_of, most))
        self.upper = as_of + 1
        self.ready = True

    def _by_tasks(
        self, input: Input, as_of: Timestamp, context: Context, engine: Evaluator | None
    ) -> Run | None:
        """Return the rows as of a time as a run that an engine's tasks have sorted, if it does."""
        columns = tuple(self.columns[i] for i in self.picked)
        if not isinstance(engine, WritesRuns) or self.layout != layout_of(columns):
            return None
        found = engine.sorted_run(
            ir.Project(ir.Get(self.id, self.columns), self.picked),
            {self.id: input},
            tuple(self.spine.keys[0].tolist()),
            int(self.spine.seed),
            as_of,
            context.cancellation,
        )
        if found is None:
            return None
        return self.spine.run_of_arrays(found.hashes, found.words, found.times, found.diffs)

    def _reader(
        self, input: Input, as_of: Timestamp, context: Context, engine: Evaluator | None
    ) -> Callable[[Sequence[int]], Iterator[pa.Table]]:
        """Return what reads some columns, by their numbers, and the diffs as of a time.

        A bulk engine reads numerics in files twice as fast; rows that are there once are what it
        gives as they are. Of no columns, as those of a key without any, it would give one row.
        """
        by_engine = bool(input.files) and has_single_rows(input)

        def read(picked: Sequence[int]) -> Iterator[pa.Table]:
            tables = tables_until(input, picked, as_of)
            if engine is not None and by_engine and picked:
                plan = ir.Project(ir.Get(self.id, self.columns), tuple(picked))
                tables = engine.evaluate_parts(
                    plan, {self.id: input}, as_of, context.cancellation, may_fail=False
                )
            for table in tables:
                context.budget.check(0)
                yield table

        return read

    def _sorted(
        self,
        read: Callable[[Sequence[int]], Iterator[pa.Table]],
        as_of: Timestamp,
        most: int,
    ) -> Run:
        """Return the rows as of a time as a run. Those of the key are read twice."""
        spine, layout = self.spine, self.layout
        key, time = spine.keys[0], np.array([as_of])
        in_key = set(key.tolist())
        numbers = [i for i, place in enumerate(layout.places) if in_key & words_of(place)]
        words_of_key, of_key = part_of(layout, numbers)
        key_of_key = np.array([words_of_key.tolist().index(word) for word in key], np.int64)
        sorter = Sorter(spine.seed, most)
        types = [place.type for place in of_key.places]
        tables = read([self.picked[number] for number in numbers])
        for words, _ in read_blocks(tables, types, of_key, spine.interner):
            sorter.count(words, key_of_key)
        sorter.begin(layout.words)
        types = [place.type for place in layout.places]
        for words, diffs in read_blocks(read(self.picked), types, layout, spine.interner):
            sorter.add(words, time, diffs, key)
        return spine.run_of(sorter)

    def feed(
        self, frontier: Timestamp, lower: Timestamp, upper: Timestamp, updates: pa.Table | None
    ) -> Batch:
        """Insert what is new of a reader's updates in [lower, upper); return all of them.

        The reader had no updates from its `frontier` until `lower`.
        """
        batch = self._batch(lower, upper, updates)
        while True:
            with self._lock:
                known = self.upper
                if frontier > self.complete or known >= upper:
                    break
            new = batch.take(batch.times >= known) if known > lower else batch
            with self._lock:
                if self.upper != known:
                    continue
                self.spine.insert(new)
                self.upper = upper
                break
        successor = self.successor
        if successor is not None and successor.ready:
            successor.feed(frontier, lower, upper, updates)
        return batch

    def _batch(self, lower: Timestamp, upper: Timestamp, updates: pa.Table | None) -> Batch:
        """Return the updates in [lower, upper), which are converted once for all readers."""
        last = self._last
        if last is not None and last[:2] == (lower, upper):
            return last[2]
        if updates is None:
            batch = empty(self.layout.words)
        else:
            batch = batch_of(updates, self.picked, self.layout, self.spine.interner)
        self._last = lower, upper, batch
        return batch

    def add_key(self, places: Ints) -> int:
        """Add a key, unless it is there; return its number.

        Keys stay as long as the collection does.
        """
        with self._lock:
            return self.spine.add_key(places)

    def compact(self, reader: "Import", since: Timestamp) -> None:
        """Note that a reader reads no times before `since`."""
        with self._lock:
            self.readers[reader] = since
            least = min(self.readers.values())
            if self._held is not None:
                least = min(least, self._held)
            self.spine.compact(least - KEPT_TIMES)

    # --- checkpoints

    def hold(self) -> None:
        """Keep all times readable that somebody reads, until `release`."""
        with self._lock:
            self._held = min(self.readers.values(), default=self.spine.since)

    def release(self) -> None:
        """End `hold`."""
        with self._lock:
            self._held = None

    def save(self) -> CapturedCollection | None:
        """Return the rows, with the times that are readable; None if they are not there yet."""
        if not self.ready:
            return None
        to = Writer()
        with self._lock:
            self.spine.save(to)
            upper = self.complete
        return CapturedCollection(self.id, self.columns, self.groups, upper, to.captured)

    def rows_kept(self) -> Captured:
        """Return all rows that are there, and keep none apart from them."""
        to = Writer()
        with self._lock:
            self._last = None
            self.spine.save(to)
        return to.captured

    @classmethod
    def loaded(cls, saved: CapturedCollection, interner: Interner, seed: int) -> "Collection":
        """Return a saved collection, which nobody reads yet; raises Mismatch."""
        reader = Reader(saved.state)
        layout = _layout_of_groups(saved.columns, saved.groups)
        texts = np.zeros(layout.words, np.int64)
        spine = Spine(saved_keys(reader), texts, interner, seed)
        spine.load(reader)
        reader.check_all_read()
        picked = tuple(i for group in saved.groups for i in group)
        collection = cls(saved.id, saved.columns, picked, layout, spine, saved.groups)
        collection.upper = saved.upper
        collection.ready = True
        return collection

    def _settle(self) -> None:
        """Sort what is not sorted yet, while others go on."""
        if not self.spine.unsorted:
            return
        with self._sorting:
            with self._lock:
                unsorted = self.spine.unsorted
            if unsorted:
                run = self.spine.sorted(concat(unsorted, self.layout.words))
                with self._lock:
                    self.spine.settle(unsorted, run)

    def maintain(self) -> bool:
        """Merge some runs; return whether there is more to do."""
        if not self._merging.acquire(blocking=False):
            return False
        try:
            if self.spine.has_to_sort:
                self._settle()
                return True
            with self._lock:
                self.spine.thin()
                merge = self.spine.due_merge()
            if merge is None:
                return False
            if merge.work(spines.MERGE_BUDGET):
                with self._lock:
                    self.spine.install(merge)
            return True
        finally:
            self._merging.release()

    # --- reading

    def rows_at(self, time: Timestamp) -> Batch:
        """Return the rows at a time, as updates that are not consolidated."""
        with self._lock:
            tail = self.spine.tail.contents()
            parts = [run.updates() for run in self.spine.runs]
        found = []
        for part in (*parts, tail):
            if len(part) and part.times.max() > time:
                part = part.take(part.times <= time)
            found.append(replace(part, times=np.full(len(part), time, np.int64)))
        return concat(found, self.layout.words)

    def joined(
        self,
        key: int,
        batch: Batch,
        kept: Ints,
        added: Ints,
        before: Timestamp,
        most: int = ANY,
        where: Words = spines.ANY_ROW,
    ) -> Batch:
        """Return what `Spine.joined` does."""
        spine = self.spine
        self._settle()
        wanted = spine.wanted(key, batch)
        found: list[Batch] = []
        for start in range(0, len(batch), AT_ONCE):
            part = wanted.part(start, start + AT_ONCE) if len(batch) > AT_ONCE else wanted
            with self._lock:
                runs = spine.runs
                at_tail = spine.joined_tail(key, batch, part, kept, added, before, most, where)
            in_runs = spine.joined_runs(runs, key, batch, part, kept, added, before, most, where)
            found += [at_tail, in_runs]
            if sum(map(len, found)) > most:
                raise TooManyMatches
        return concat(found, len(kept) + len(added))


class Import(Shared):
    """A reader of a collection."""

    was_empty = False

    def __init__(
        self, collections: "Collections", collection: Collection, as_of: Timestamp
    ) -> None:
        self.collection = collection
        self.frontier = as_of
        self._collections = collections

    def hydrate(
        self, input: Input, as_of: Timestamp, context: Context, engine: Evaluator | None
    ) -> None:
        """Make the collection readable as of a time."""
        if not self.collection.ready:
            self.collection.hydrate(input, as_of, context, engine)
        self.frontier = as_of + 1

    def rows_at(self, time: Timestamp) -> Batch:
        """Return the rows at a time, as updates that are not consolidated."""
        return self.collection.rows_at(time)

    def begin(self, lower: Timestamp, upper: Timestamp, updates: pa.Table | None) -> Batch:
        """Begin a window, whose lower end is the frontier or later; return its updates."""
        self._move(lower)
        self.collection.compact(self, lower - 1)
        if updates is None and self.collection.successor is None:
            batch = empty(self.collection.layout.words)
        else:
            batch = self.collection.feed(self.frontier, lower, upper, updates)
        self.frontier = max(self.frontier, upper)
        return batch

    def _move(self, lower: Timestamp) -> None:
        """Go over to the collection's successor if it has all that is read from now on.

        It must have the same keys under the same numbers, which is so unless both got others since.
        """
        old, new = self.collection, self.collection.successor
        if new is None or len(old.spine.keys) > len(new.spine.keys):
            return
        keys = zip(old.spine.keys, new.spine.keys, strict=False)
        if not all(np.array_equal(a, b) for a, b in keys):
            return
        if lower <= new.complete and new.enter(self, lower - 1):
            self.collection = new
            self._collections.leave(old, self)

    def is_indexed(self, key: int) -> bool:
        """Whether a look-up by a key has no index to make first."""
        return self.collection.spine.is_indexed(key)

    def joined(
        self,
        key: int,
        batch: Batch,
        kept: Ints,
        added: Ints,
        before: Timestamp,
        most: int = ANY,
        where: Words = spines.ANY_ROW,
    ) -> Batch:
        """Return what `Spine.joined` does."""
        return self.collection.joined(key, batch, kept, added, before, most, where)

    @property
    def rows(self) -> int:
        """Return the number of updates."""
        return len(self.collection.spine)

    @property
    def maintenance_due(self) -> bool:
        """Whether `maintain` has something to do."""
        return self.collection.spine.maintenance_due

    def maintain(self) -> bool:
        """Merge some runs; return whether there is more to do."""
        return self.collection.maintain()

    def close(self) -> None:
        """End reading."""
        self._collections.leave(self.collection, self)


class Collections:
    """The collections of one replica."""

    def __init__(self, interner: Interner, seed: int) -> None:
        self.interner = interner
        self.seed = seed
        self._known: dict[GlobalId, list[Collection]] = {}
        self._expected: Mapping[GlobalId, frozenset[int]] = {}
        self._lock = Lock()

    def expect(self, columns: Mapping[GlobalId, frozenset[int]]) -> None:
        """Read these columns, too, of collections that are opened from now on.

        So dataflows that are made soon find them, in place of reading all anew.
        """
        self._expected = columns

    def open(
        self,
        id: GlobalId,
        columns: tuple[ColumnType, ...],
        picked: tuple[int, ...],
        as_of: Timestamp,
    ) -> Import:
        """Return a new reader of the columns `picked` of a collection as of a time."""
        expected = self._expected.get(id, frozenset())
        with self._lock:
            known = self._known.setdefault(id, [])
            for collection in reversed(known):
                reader = Import(self, collection, as_of)
                if collection.has(columns, picked) and collection.enter(reader, as_of):
                    return reader
            latest = known[-1] if known else None
            if latest is not None and not latest.has(columns, latest.picked):
                latest = None  # the collection has been altered since
            keys: list[Ints] = []
            have: tuple[int, ...] = ()
            groups: tuple[tuple[int, ...], ...] = ()
            if latest is not None:
                have, groups, keys = latest.picked, latest.groups, latest.spine.keys
            wanted = expected.union(picked) if max(expected, default=0) < len(columns) else picked
            missing = tuple(i for i in sorted(wanted) if i not in have)
            groups = (*groups, missing)
            layout = _layout_of_groups(columns, groups)
            texts = np.zeros(layout.words, np.int64)
            spine = Spine(keys, texts, self.interner, self.seed, as_of)
            collection = Collection(id, columns, (*have, *missing), layout, spine, groups)
            known.append(collection)
            if latest is not None:
                latest.successor = collection
            reader = Import(self, collection, as_of)
            collection.readers[reader] = as_of
            return reader

    def leave(self, collection: Collection, reader: Import) -> None:
        """Remove a reader; a collection without readers is forgotten."""
        with self._lock:
            collection.leave(reader)
            known = self._known.get(collection.id, [])
            if collection.readers or collection not in known:
                return
            at = known.index(collection)
            for before in known[:at]:
                if before.successor is collection:
                    before.successor = collection.successor
            known.remove(collection)
            if not known:
                del self._known[collection.id]

    def sizes(self) -> Mapping[GlobalId, list[Spine]]:
        """Return the spines of each collection."""
        with self._lock:
            return {id: [each.spine for each in found] for id, found in self._known.items()}

    # --- checkpoints

    def _all(self) -> list[Collection]:
        with self._lock:
            return [each for known in self._known.values() for each in known]

    def hold(self) -> None:
        """Keep all times readable that somebody reads, until `release`."""
        for each in self._all():
            each.hold()

    def release(self) -> None:
        """End `hold`."""
        for each in self._all():
            each.release()

    def rows_kept(self) -> list[Captured]:
        """Return all rows that are there now."""
        return [each.rows_kept() for each in self._all()]

    def save(self, strings: int) -> SharedState:
        """Return the collections, and the strings from a number on that their rows name."""
        found = [saved for each in self._all() if (saved := each.save()) is not None]
        interner = self.interner
        return SharedState(self.seed, interner.seed, [interner.save(strings)], found)

    @classmethod
    def loaded(cls, shared: SharedState) -> "Collections":
        """Return saved collections, which nobody reads yet; raises Mismatch."""
        interner = Interner.loaded(shared.strings_seed, shared.strings)
        collections = cls(interner, shared.seed)
        for saved in shared.collections:
            collection = Collection.loaded(saved, interner, shared.seed)
            collections._known.setdefault(saved.id, []).append(collection)
        return collections

    def forget_unread(self) -> None:
        """Forget collections that were loaded and have no readers."""
        with self._lock:
            for id, known in list(self._known.items()):
                known[:] = [each for each in known if each.readers or not each.ready]
                if not known:
                    del self._known[id]


def _layout_of_groups(
    columns: tuple[ColumnType, ...], groups: tuple[tuple[int, ...], ...]
) -> Layout:
    """Return the layout of rows whose columns were added in groups."""
    layout = layout_of(())
    for group in groups:
        layout = composed([layout, layout_of(tuple(columns[i] for i in group))])
    return layout
