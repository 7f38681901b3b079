"""Makes a replica's checkpoints in the background, and resumes its dataflows from the newest one.

    round    the environment holds the inputs; dataflows are captured, one after the other, each
             between two of its steps, and written; then what they share; then the manifest

A dataflow that made no step since the last round is not written again, nor are large runs that are
there still. One that cannot be captured, as a step failed or takes long, keeps its state of the
last round for a while. No round begins before all dataflows had their chance to be resumed.

Writing is done by one thread of low priority, which works a share of the time only. A round begins
when the interval has passed, and not before many times as long as the last one took.
"""

import asyncio
import logging
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from foreshore import blocking
from foreshore.compute.checkpoint.engine import (
    CapturedCollection,
    CapturedStrings,
    SavingEngine,
    Shared,
)
from foreshore.compute.checkpoint.manifest import (
    FORMAT,
    Manifest,
    SavedCollection,
    SavedDataflow,
    SavedState,
    SavedStrings,
    engine_version,
    fingerprint,
)
from foreshore.compute.checkpoint.state import Captured, Mismatch, Writer
from foreshore.compute.checkpoint.store import CheckpointStore
from foreshore.compute.engine import Engine
from foreshore.compute.inputs import Contents
from foreshore.compute.protocol import Checkpoints, CheckpointStatus, DataflowDescription
from foreshore.compute.replica.dataflow import DataflowState
from foreshore.compute.replica.resume import Resumed, Uppers, resume
from foreshore.errors import DatabaseError
from foreshore.ids import GlobalId

logger = logging.getLogger(__name__)

INTERVAL_MS = 60_000
LEAST_BYTES = 64 << 20  # of all state, from which on it is worth while
SLOW_TO_HYDRATE = ("spark",)  # engines that take seconds even for a few rows
SHARE = 4  # the writing thread pauses so many times as long as it works, less one
SELDOM = 5  # a round begins at the earliest so many times as long after the last one as that took
WAIT_SECONDS = 0.5  # for the engine
LOOK_SECONDS = 5.0  # between looks at whether there is enough state
PATIENCE_SECONDS = 10.0  # for a dataflow to be between two steps
CARRIED_MS = 3_600_000  # a dataflow that cannot be saved keeps its last state, and holds inputs
MANY_STRINGS = 8  # files of strings, beyond which they are written anew as one


@dataclass(frozen=True, slots=True)
class Pace:
    """How often checkpoints are made: never if the interval is 0."""

    interval_seconds: float
    least_bytes: int
    is_slow_to_hydrate: bool = False

    @classmethod
    def of(cls, options: Mapping[str, str], engine: str) -> "Pace":
        """Return what a cluster's options say; of some engines any state is worth while."""
        interval = float(options.get("checkpoint_interval_ms", INTERVAL_MS))
        least = int(options.get("checkpoint_least_bytes", LEAST_BYTES))
        is_slow = engine in SLOW_TO_HYDRATE
        return cls(interval / 1000, 0 if is_slow else least, is_slow)


@dataclass(frozen=True, slots=True)
class _Written:
    """A dataflow of the last round, and its number of steps then."""

    state: DataflowState
    steps: int
    saved: SavedDataflow


class Checkpointer:
    """The checkpoints of one replica; belongs to the event loop.

    `steps` is the pool on which dataflows step, `freed` is called with one that can step again.
    If memory is crowded after a round, large runs are read from its files from then on.
    """

    def __init__(
        self,
        dataflows: Mapping[GlobalId, DataflowState],
        steps: Executor,
        freed: Callable[[DataflowState], None],
        send: Callable[[Checkpoints], None],
        is_crowded: Callable[[], bool],
    ) -> None:
        self.opened = False
        self._dataflows = dataflows
        self._steps = steps
        self._freed = freed
        self._send = send
        self._is_crowded = is_crowded
        self._writing = ThreadPoolExecutor(1, "checkpoints", initializer=yield_to_others)
        self._engine: SavingEngine | None = None
        self._store: CheckpointStore | None = None
        self._database = ""
        self._pace = Pace(0, 0)
        self._manifest: Manifest | None = None  # the newest, of this replica
        self._loaded: Manifest | None = None  # what dataflows may be resumed from
        self._refused: set[GlobalId] = set()  # its dataflows that had to be hydrated
        self._written: dict[GlobalId, _Written] = {}
        self._offered: set[GlobalId] = set()  # dataflows that the last round could have saved
        self._collections: dict[Any, tuple[CapturedCollection, SavedState]] = {}
        self._strings: tuple[SavedStrings, ...] = ()
        self._forgot_at = 0  # when strings were last forgotten
        self._lock = asyncio.Lock()  # of a round

    # --- resuming

    async def open(
        self, engine: Engine, store: CheckpointStore, database: str, pace: Pace, pool: Executor
    ) -> None:
        """Load what all dataflows share from the newest checkpoint, if there is one that fits.

        A round for another database ends first. Nothing is loaded for a database that is no longer
        served when its turn comes. `pool` is the thread that hydrates: the engine forgets what was
        shared before when this has ended what it did for another database, so that no dataflow
        created there shares with those that come.
        """
        async with self._lock:
            if self._database != database or self.opened:
                return
            self._forget()  # what was loaded for another one meanwhile
            await blocking.run(pool, engine.forget)
            if isinstance(engine, SavingEngine) and pace.interval_seconds:
                self._engine, self._store, self._pace = engine, store, pace
                try:
                    await blocking.run(pool, self._load, engine, store, database)
                except Exception:  # whatever is wrong with it, all can be hydrated
                    logger.exception("a checkpoint cannot be loaded")
            if self._database != database:
                return  # it serves another one, for which `open` is called again
            self.opened = True
        self.report()

    def _load(self, engine: SavingEngine, store: CheckpointStore, database: str) -> None:
        manifest = store.newest()
        if manifest is None:
            return
        reason = manifest.unfit(database)
        if reason is not None:
            logger.warning("a checkpoint is not loaded: %s", reason)
            return
        try:
            strings = [
                CapturedStrings(each.begin, each.end, store.read(each.state))
                for each in manifest.strings
            ]
            collections = [
                CapturedCollection(c.id, c.columns, c.groups, c.upper, store.read(c.state))
                for c in manifest.collections
            ]
            shared = Shared(manifest.seed, manifest.strings_seed, strings, collections)
            engine.load_shared(shared)
            # Dataflows are resumed one after the other, each from times of its own. Those that
            # step already forget none of these before the first round.
            engine.hold()
        except Mismatch as error:
            logger.warning("a checkpoint is not loaded: %s", error)
            return
        self._loaded = manifest
        if store.owns(manifest):
            self._manifest, self._strings = manifest, manifest.strings

    def resume(
        self,
        description: DataflowDescription,
        contents: Mapping[GlobalId, Contents],
        shards: Uppers,
        tell: Callable[[Callable[[], None]], object],
    ) -> Resumed | None:
        """On a worker: return a dataflow in its saved state, None if it has to be hydrated.

        `tell` calls a function on the event loop.
        """
        if self._loaded is None or self._engine is None or self._store is None:
            return None
        saved = self._loaded.dataflow(description.id)
        found = resume(self._engine, self._store, self._loaded, description, contents, shards)
        if found is None and saved is not None:
            self._refused.add(saved.id)
            tell(self.report)
        return found

    def serve(self, database: str) -> None:
        """Work for a database: load nothing of another one, and make none until `open`."""
        self._database = database
        self._forget()

    def _forget(self) -> None:
        self.opened = False
        self._engine = self._loaded = self._manifest = None
        self._written, self._collections, self._strings = {}, {}, ()
        self._refused = set()

    def report(self) -> None:
        """Tell the controller of the newest checkpoint, or that there is none."""
        if self.opened:
            self._send(Checkpoints(self._status()))

    def _status(self) -> tuple[CheckpointStatus, ...]:
        """Return the dataflows that resume, or would, where they are saved."""
        manifest = self._manifest or self._loaded
        found = () if manifest is None else manifest.status()
        return tuple(each for each in found if each.id not in self._refused)

    # --- making

    async def run(self) -> None:
        """Make checkpoints as often as the pace says, until cancelled."""
        pause = 0.1
        while True:
            await asyncio.sleep(pause)
            if self._engine is None:
                pause = WAIT_SECONDS
                continue
            if not self._is_worth_while(self._engine):
                pause = min(LOOK_SECONDS, self._pace.interval_seconds)
                continue
            began = time.monotonic()
            self._offered = {each.id for each in self._states() if each.state == "running"}
            try:
                async with self._lock:
                    await self._round(self._engine)
            except Exception:  # nobody else would try again; the one before is still whole
                logger.exception("a checkpoint could not be made")
                self.report()
            pause = SELDOM * (time.monotonic() - began)
            rest = self._pace.interval_seconds - pause
            while rest > 0 and not self._has_new():
                await asyncio.sleep(min(rest, LOOK_SECONDS))
                rest -= LOOK_SECONDS

    def _has_new(self) -> bool:
        """Whether a dataflow was hydrated since the last round, which a kill would make go again.

        Where hydration is quick the interval is soon enough.
        """
        states = [each for each in self._states() if each.id not in self._offered]
        return self._pace.is_slow_to_hydrate and any(each.state == "running" for each in states)

    @asynccontextmanager
    async def pausing(self) -> AsyncIterator[bool]:
        """Make no checkpoints in the body, and load none that was made before.

        It is given False if a dataflow is still to be resumed from one, which nothing must change.
        """
        async with self._lock:
            is_waiting = any(each.state in ("pending", "hydrating") for each in self._resumable())
            is_unread = self._loaded is not None and not self._dataflows
            may_begin = self.opened and not is_waiting and not is_unread
            if may_begin:
                self._loaded = None
            yield may_begin

    def forget_strings(self) -> None:
        """Note that from now on the numbers of strings may stand for others than in files.

        A dataflow that made no step since has the same rows, but its runs may have been merged.
        """
        self._strings, self._written = (), {}
        self._forgot_at = _now()

    def _is_worth_while(self, engine: SavingEngine) -> bool:
        if not any(each.state == "running" for each in self._dataflows.values()):
            return False
        if any(each.state in ("pending", "hydrating") for each in self._resumable()):
            return False
        if self._manifest is not None or self._loaded is not None:
            return True
        sizes = [status.bytes for each in self._states() for status in each.arrangement_status()]
        return sum(size.bytes for size in engine.sizes()) + sum(sizes) >= self._pace.least_bytes

    def _resumable(self) -> list[DataflowState]:
        """Return the dataflows of the checkpoint that was loaded."""
        loaded = self._loaded
        if loaded is None:
            return []
        ids = {each.id for each in loaded.dataflows}
        return [each for id, each in self._dataflows.items() if id in ids]

    def _states(self) -> list[DataflowState]:
        return list(self._dataflows.values())

    async def _round(self, engine: SavingEngine) -> None:
        assert self._store is not None
        database = self._database
        self._send(Checkpoints(self._status(), begun=True))
        if all(each.state in ("running", "stalled") for each in self._resumable()):
            engine.forget_unread()  # else a dataflow that failed is going to read it
        await blocking.run(self._steps, engine.hold)
        try:
            written: dict[GlobalId, _Written] = {}
            for dataflow in self._states():
                found = await self._saved(dataflow)
                if found is not None:
                    written[dataflow.id] = found
            dataflows = tuple(each.saved for each in written.values())
            manifest = await blocking.run(
                self._writing, self._finish, engine, self._store, database, dataflows
            )
        finally:
            await blocking.run(self._steps, engine.release)
        if manifest is None or self._database != database:
            return  # it works for another database
        self._manifest, self._written = manifest, written
        self._refused = set()
        self._send(Checkpoints(self._status()))
        try:
            await blocking.run(self._writing, self._store.collect, manifest)
        except (DatabaseError, OSError):  # the checkpoint is complete; the next round tries again
            logger.exception("files of old checkpoints are not deleted")
        if self._is_crowded():
            try:
                await blocking.run(self._writing, self._store.map_runs)
            except (DatabaseError, OSError, pa.ArrowInvalid):  # they stay in memory
                logger.exception("the state in files is not read from there")

    async def _saved(self, dataflow: DataflowState) -> _Written | None:
        """Write a dataflow, or else keep what the last round has of it; None if that is nothing."""
        try:
            found = await self._save(dataflow)
        except Exception:  # whatever is wrong with one, the others are saved
            logger.exception("a dataflow is not saved", extra={"dataflow": dataflow.id})
            found = None
        return found or self._carried(dataflow)

    def _carried(self, dataflow: DataflowState) -> _Written | None:
        """Return the last state of a dataflow that cannot be saved, unless it has got old.

        Its inputs are held from there on. What it shares with others may be compacted, if it made
        steps since; then it is not resumed but hydrated.
        """
        saved = None if self._manifest is None else self._manifest.dataflow(dataflow.id)
        if saved is None or dataflow.dropped or dataflow.state == "stalled":
            return None
        if saved.saved_at < max(_now() - CARRIED_MS, self._forgot_at + 1):
            return None
        last = self._written.get(dataflow.id)
        steps = last.steps if last is not None and last.state is dataflow else -1
        return _Written(dataflow, steps, saved)

    async def _save(self, dataflow: DataflowState) -> _Written | None:
        """Capture a dataflow between two steps and write it; None if it cannot be saved."""
        assert self._store is not None
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE_SECONDS
        while not dataflow.is_savable:
            if not dataflow.busy or dataflow.dropped or loop.time() > deadline:
                return None
            await asyncio.sleep(0.005)
        last = self._written.get(dataflow.id)
        upper, steps = dataflow.frontier, dataflow.times.steps
        settled, exact_from = dataflow.settled, dataflow.exact_from
        if last is not None and last.state is dataflow and last.steps == steps:
            state = last.saved.state
        else:
            to = Writer()
            dataflow.busy = True
            try:
                await blocking.run(self._steps, dataflow.save, to)
            finally:
                dataflow.busy = False
                self._freed(dataflow)
            state = await blocking.run(self._writing, _write, self._store, to.captured)
        print_ = fingerprint(dataflow.description)
        saved = SavedDataflow(dataflow.id, print_, upper, settled, exact_from, _now(), state)
        return _Written(dataflow, steps, saved)

    def _finish(
        self,
        engine: SavingEngine,
        store: CheckpointStore,
        database: str,
        dataflows: tuple[SavedDataflow, ...],
    ) -> Manifest | None:
        """On the writing thread: write what is shared, and the manifest.

        None, and no manifest, if the replica serves another database by now: what the engine has
        shared may be that one's.
        """
        strings = self._strings if len(self._strings) < MANY_STRINGS else ()
        shared = engine.save_shared(strings[-1].end if strings else 1)
        self._strings = ()  # until the manifest is there: what is returned now is not given again
        for new in shared.strings:
            strings = strings if new.begin > 1 else ()
            if new.begin < new.end or not strings:
                state = _write(store, new.state)
                strings = (*strings, SavedStrings(new.begin, new.end, state))
        found: dict[Any, tuple[CapturedCollection, SavedState]] = {}
        for each in shared.collections:
            key = each.id, each.groups
            last = self._collections.get(key)
            if last is not None and _is_same(last[0].state, each.state):
                state = last[1]
            else:
                state = _write(store, each.state)
            found[key] = each, state
        manifest = Manifest(
            FORMAT, engine_version(), database, _now(), shared.seed, shared.strings_seed, strings,
            tuple(
                SavedCollection(c.id, c.columns, c.groups, c.upper, state)
                for c, state in found.values()
            ),
            dataflows,
        )  # fmt: skip
        if self._database != database:
            return None
        store.put(manifest)
        self._strings, self._collections = strings, found
        return manifest


class Pauses:
    """Called now and then by a thread, pauses it so that it works a share of the time."""

    def __init__(self) -> None:
        self._worked = time.thread_time()

    def __call__(self) -> None:
        """Pause in proportion to the work since the last pause."""
        time.sleep(min((SHARE - 1) * (time.thread_time() - self._worked), 2.0))
        self._worked = time.thread_time()


def _write(store: CheckpointStore, captured: Captured) -> SavedState:
    """On the writing thread: store captured state."""
    return store.write(captured, Pauses())


def yield_to_others() -> None:
    """Give the calling thread a low priority."""
    with suppress(OSError, AttributeError):  # on Linux a thread has a priority of its own
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)


def _is_same(one: Captured, other: Captured) -> bool:
    return (
        one.runs == other.runs
        and one.arrays.keys() == other.arrays.keys()
        and all(np.array_equal(array, other.arrays[name]) for name, array in one.arrays.items())
    )


def _now() -> int:
    return int(time.time() * 1000)
