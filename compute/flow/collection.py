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

from collections.abc import Mapping
from dataclasses import replace
from threading import Lock

import numpy as np
import pyarrow as pa

from foreshore.compute.engine import Input
from foreshore.compute.flow import spine
from foreshore.compute.flow.batch import Batch, Ints, concat, empty
from foreshore.compute.flow.convert import batch_of
from foreshore.compute.flow.intern import Interner
from foreshore.compute.flow.kernels import rows as kernels
from foreshore.compute.flow.layout import Layout, composed, layout_of
from foreshore.compute.flow.read import read_until
from foreshore.compute.flow.run import Index
from foreshore.compute.flow.spine import Spine
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
    ) -> None:
        self.id = id
        self.columns = columns
        self.picked = picked
        self.layout = layout
        self.spine = spine
        self.upper: Timestamp = spine.since  # all updates before it are there, once it is ready
        self.ready = False
        self.successor: Collection | None = None
        self.readers: dict[Import, Timestamp] = {}  # with the time that each still reads
        self._lock = Lock()
        self._merging = Lock()
        self._last: tuple[Timestamp, Timestamp, Batch] | None = None

    @property
    def complete(self) -> Timestamp:
        """Return a time before which no update is missing."""
        return max([self.upper, *(reader.frontier for reader in list(self.readers))])

    def serves(self, picked: tuple[int, ...], as_of: Timestamp) -> bool:
        """Whether a reader of these columns can begin at a time."""
        return (
            self.ready
            and set(picked) <= set(self.picked)
            and self.spine.since <= as_of < self.complete
        )

    # --- writing

    def hydrate(self, input: Input, as_of: Timestamp) -> None:
        """Read the rows as of a time; nobody else uses the collection yet."""
        if not self.spine.keys:
            self.spine.add_key(np.arange(self.layout.words))
        spine = self.spine
        spine.insert(
            read_until(input, self.columns, self.picked, self.layout, spine.interner, as_of)
        )
        self.upper = as_of + 1
        self.ready = True

    def feed(self, lower: Timestamp, upper: Timestamp, updates: pa.Table | None) -> Batch:
        """Insert what is new of a reader's updates in [lower, upper); return all of them."""
        with self._lock:
            if self._last is not None and self._last[:2] == (lower, upper):
                batch = self._last[2]
            elif updates is None:
                batch = empty(self.layout.words)
            else:
                batch = batch_of(updates, self.picked, self.layout, self.spine.interner)
            if lower <= self.complete and self.upper < upper:
                known = self.upper > lower
                self.spine.insert(batch.take(batch.times >= self.upper) if known else batch)
                self.upper = upper
            self._last = lower, upper, batch
        successor = self.successor
        if successor is not None and successor.ready:
            successor.feed(lower, upper, updates)
        return batch

    def add_key(self, places: Ints) -> int:
        """Add a key, unless it is there; return its number."""
        spine = self.spine
        known: dict[int, Index] = {}
        while True:  # indexes are made while others go on
            with self._lock:
                runs = spine.runs
                missing = [run for run in runs if id(run) not in known]
                if not missing or not spine.keys:
                    return spine.add_key(places, known)
            for run in missing:
                hashes = np.empty(len(run), np.uint64)
                kernels.hash_places(run.words, places, spine.seed, hashes)
                known[id(run)] = Index(*kernels.sort_hashes(hashes))

    def compact(self, reader: "Import", since: Timestamp) -> None:
        """Note that a reader reads no times before `since`."""
        self.readers[reader] = since
        self.spine.compact(min(list(self.readers.values())) - KEPT_TIMES)

    def maintain(self) -> bool:
        """Merge some runs; return whether there is more to do."""
        if not self._merging.acquire(blocking=False):
            return False
        try:
            with self._lock:
                self.spine.thin()
            merge = self.spine.due_merge()
            if merge is None:
                return False
            if merge.work(spine.MERGE_BUDGET):
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

    def joined(self, key: int, batch: Batch, kept: Ints, added: Ints, before: Timestamp) -> Batch:
        """Return what `Spine.joined` does."""
        spine = self.spine
        batch, wanted = spine.in_order(key, batch)
        found = []
        for start in range(0, len(batch), AT_ONCE):
            part, hashes = batch, wanted
            if len(batch) > AT_ONCE:
                part = batch.take(slice(start, start + AT_ONCE))
                hashes = wanted[start : start + AT_ONCE]
            with self._lock:
                runs = spine.runs
                found.append(spine.joined_tail(key, part, hashes, kept, added, before))
            found.append(spine.joined_runs(runs, key, part, hashes, kept, added, before))
        return concat(found, len(kept) + len(added))


class Import:
    """A reader of a collection."""

    was_empty = False

    def __init__(
        self, collections: "Collections", collection: Collection, as_of: Timestamp
    ) -> None:
        self.collection = collection
        self.frontier = as_of
        self._collections = collections
        collection.readers[self] = as_of

    def hydrate(self, input: Input, as_of: Timestamp) -> None:
        """Make the collection readable as of a time."""
        if not self.collection.ready:
            self.collection.hydrate(input, as_of)
        self.frontier = as_of + 1

    def rows_at(self, time: Timestamp) -> Batch:
        """Return the rows at a time, as updates that are not consolidated."""
        return self.collection.rows_at(time)

    def begin(self, lower: Timestamp, upper: Timestamp, updates: pa.Table | None) -> Batch:
        """Begin a window, whose lower end is the frontier or later; return its updates."""
        self._move(lower)
        self.collection.compact(self, lower - 1)
        batch = self.collection.feed(self.frontier, upper, updates)
        self.frontier = max(self.frontier, upper)
        return batch

    def _move(self, lower: Timestamp) -> None:
        """Go over to the collection's successor if it has all that is read from now on."""
        old, new = self.collection, self.collection.successor
        if new is None or not new.ready or not new.spine.since < lower <= new.complete:
            return
        keys = zip(old.spine.keys, new.spine.keys, strict=False)
        if len(old.spine.keys) <= len(new.spine.keys) and all(
            np.array_equal(a, b) for a, b in keys
        ):
            new.readers[self] = lower - 1
            self.collection = new
            self._collections.leave(old, self)

    def joined(self, key: int, batch: Batch, kept: Ints, added: Ints, before: Timestamp) -> Batch:
        """Return what `Spine.joined` does."""
        return self.collection.joined(key, batch, kept, added, before)

    @property
    def rows(self) -> int:
        """Return the number of updates."""
        return len(self.collection.spine)

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
        self._lock = Lock()

    def open(
        self,
        id: GlobalId,
        columns: tuple[ColumnType, ...],
        picked: tuple[int, ...],
        as_of: Timestamp,
    ) -> Import:
        """Return a new reader of the columns `picked` of a collection as of a time."""
        with self._lock:
            known = self._known.setdefault(id, [])
            for collection in reversed(known):
                if collection.serves(picked, as_of):
                    return Import(self, collection, as_of)
            latest = known[-1] if known else None
            layout, keys = layout_of(()), list[Ints]()
            have: tuple[int, ...] = ()
            if latest is not None:
                have, layout, keys = latest.picked, latest.layout, latest.spine.keys
            missing = tuple(i for i in picked if i not in have)
            layout = composed([layout, layout_of(tuple(columns[i] for i in missing))])
            texts = np.zeros(layout.words, np.int64)
            spine = Spine(keys, texts, self.interner, self.seed, as_of)
            collection = Collection(id, columns, (*have, *missing), layout, spine)
            known.append(collection)
            if latest is not None:
                latest.successor = collection
            return Import(self, collection, as_of)

    def leave(self, collection: Collection, reader: Import) -> None:
        """Remove a reader; a collection without readers is forgotten."""
        with self._lock:
            collection.readers.pop(reader, None)
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
