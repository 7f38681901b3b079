"""A whole database in one process and one thread: what is real, and what is simulated.

Real are the environment with its sessions, coordinator, oracle and catalog; storage with its log,
compacter and capabilities; the compute controller and its replicas with their engines. Simulated
are time and threads (`tests.simulation.loop`), the sockets between controller and replicas, and
the services below: blob and consensus delay, fail, leave open whether they did, and find no room;
the process ends at any fail point, or the machine, and what was not synced of the log is then lost
in part. What was asked of consensus may still arrive after the end of who asked for it. In some
lives another environment takes over from the one that serves.
"""

from __future__ import annotations

import asyncio
import errno
import os
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

import asyncpg

from foreshore import failpoint
from foreshore.adapter.client import Completed, Rows, Startup
from foreshore.adapter.environment import Environment
from foreshore.adapter.session.session import Session
from foreshore.clock import ManualClock
from foreshore.compute.bulk.duckdb import DuckDbEngine
from foreshore.compute.protocol import Command, Response
from foreshore.compute.replica.replica import Replica
from foreshore.datum import from_array
from foreshore.errors import DatabaseError
from foreshore.processes.handshake import Handshake
from foreshore.processes.launch import Launched
from foreshore.processes.transport import Connection
from foreshore.storage import wal
from foreshore.storage.blob import FileBlob, sync_file
from foreshore.storage.consensus import Committed, Consensus, MemoryConsensus, Mismatch, Versioned
from foreshore.storage.controller import StorageConfig, StorageController
from foreshore.storage.fault import Determinate, Indeterminate
from foreshore.storage.segment import FILLING, HEADER, SECTOR, Kind, SegmentWriter
from tests.simulation.loop import Crash, SimulatedLoop
from tests.storage.faulty import Change, Faults, FaultyBlob, FaultyConsensus, Rates

Answer = TypeVar("Answer")

SECRET = "the simulation's own secret"
START_MS = 1_357_000_000_000


class NotStarted(Exception):
    """A service failed while the environment started, which is given up, to be tried again."""


class SlowConsensus:
    """Consensus that takes its time, before it does what it is asked and after."""

    def __init__(self, inner: Consensus, delay: Callable[[], float]) -> None:
        self._inner = inner
        self._delay = delay

    async def _slowly(self, ask: Callable[..., Coroutine[Any, Any, Answer]], *args: Any) -> Answer:
        await asyncio.sleep(self._delay())
        try:
            answer = await ask(*args)
        except Exception:
            await asyncio.sleep(self._delay())
            raise
        await asyncio.sleep(self._delay())
        return answer

    async def head(self, key: str) -> Versioned | None:
        return await self._slowly(self._inner.head, key)

    async def compare_and_set(
        self, key: str, expected: int | None, new: bytes
    ) -> Committed | Mismatch:
        return await self._slowly(self._inner.compare_and_set, key, expected, new)

    async def scan(self, key: str, start: int) -> list[Versioned]:
        return await self._slowly(self._inner.scan, key, start)

    async def truncate(self, key: str, start: int) -> None:
        await self._slowly(self._inner.truncate, key, start)

    async def heads(self, prefix: str) -> dict[str, Versioned]:
        return await self._slowly(self._inner.heads, prefix)

    async def close(self) -> None:
        """Stay as it is for the next life."""


class Wire(asyncio.Transport):
    """One end of a simulated socket: what is written arrives at the other, later and in order."""

    def __init__(self, loop: SimulatedLoop) -> None:
        super().__init__()
        self._loop = loop
        self.peer: Wire
        self.protocol: asyncio.Protocol
        self._arrives = 0.0
        self._over = False
        self._reading = True
        self._unread: list[bytes] = []

    def is_closing(self) -> bool:
        return self._over

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        if self._unread:
            self._loop.call_soon(self._read)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._over:
            self._later(self.peer._received, bytes(data))

    def writelines(self, parts: Any) -> None:
        self.write(b"".join(parts))

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def close(self) -> None:
        if not self._over:
            self._later(self.peer._lost)
            self._lost()

    def abort(self) -> None:
        self.close()

    def _later(self, what: Callable[..., None], *args: Any) -> None:
        self._arrives = max(self._loop.time() + self._loop.delay(), self._arrives + 1e-6)
        self._loop.call_at(self._arrives, what, *args)

    def _received(self, data: bytes) -> None:
        self._unread.append(data)
        self._read()

    def _read(self) -> None:
        while self._unread and self._reading and not self._over:
            self.protocol.data_received(self._unread.pop(0))

    def _lost(self) -> None:
        if not self._over:
            self._over = True
            self._loop.call_soon(self.protocol.connection_lost, None)


class SimulatedReplica:
    """A replica at the other end of a simulated socket."""

    pid: int | None = None
    secret = SECRET

    def __init__(self, loop: SimulatedLoop, replica: Replica) -> None:
        self.exited = asyncio.Event()
        self._ours, self.wire = Wire(loop), Wire(loop)
        self._ours.peer, self.wire.peer = self.wire, self._ours
        self.wire.protocol = Connection[Command](
            Command, replica.deliver, replica.lost, Handshake("accepts", SECRET)
        )
        self.wire.protocol.connection_made(self.wire)

    async def connect(self, connection: Connection[Response]) -> None:
        """Be connected at once."""
        self._ours.protocol = connection
        connection.connection_made(self._ours)


class World:
    """What outlives a process: the files, the consensus, the clock, the seed."""

    def __init__(self, data_dir: Path, seed: int) -> None:
        self.data_dir = data_dir
        self.seed = seed
        self.choose = random.Random(seed)
        self.now = 0.0
        self.crashes = 0
        self.points: list[str] = []  # at which it has crashed
        self._consensus = MemoryConsensus()
        self._replicas: list[tuple[Wire, asyncio.Task[None]]] = []
        self._late: list[Change] = []
        self._faults: list[Faults] = []  # of this life's services
        self._full = 0.0  # how likely there is no room for a record of the log
        self._synced: dict[str, tuple[int, int]] = {}  # records and size of each segment

    # --- a life ------------------------------------------------------------------------------

    def live(self, life: Callable[[World], Coroutine[Any, Any, None]], *, crash_after: int) -> bool:
        """Run `life` until it ends, or until so many fail points were reached; whether it ended."""
        loop = SimulatedLoop(self.choose, self.now)
        left = crash_after

        def reached(point: str) -> None:
            nonlocal left
            left -= 1
            if not left:
                self.points.append(point)
                raise Crash

        asyncio.set_event_loop(loop)
        if crash_after:
            failpoint.arm(reached)
        try:
            with (
                patch.object(SegmentWriter, "write", self._write()),
                patch.object(SegmentWriter, "_write", self._write_parts()),
                patch.object(wal, "sync_file", self._sync_file),
                patch.object(asyncio, "to_thread", None),
            ):
                loop.run_until_complete(life(self))
        except Crash:
            self.crashes += 1
            self._lose_what_was_not_synced()
            return False
        except NotStarted:
            return False
        finally:
            failpoint.arm(None)
            self.now = loop.time() + 0.1
            self._end(loop)
        return True

    def _end(self, loop: SimulatedLoop) -> None:
        """Throw everything away that was in memory; nothing of it runs again."""
        self._replicas.clear()
        self._faults.clear()
        asyncio._set_running_loop(loop)
        for task in asyncio.all_tasks(loop):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            coroutine = task.get_coro()
            assert isinstance(coroutine, Coroutine)
            coroutine.close()  # the collector of garbage would do it in any order, without a loop
        asyncio._set_running_loop(None)
        loop._ready.clear()  # type: ignore[attr-defined]
        loop._scheduled.clear()  # type: ignore[attr-defined]
        asyncio.set_event_loop(None)

    def _write(self) -> Callable[[SegmentWriter, Kind, Sequence[Any]], None]:
        real = SegmentWriter.write

        def write(writer: SegmentWriter, kind: Kind, payload: Sequence[Any]) -> None:
            if writer.length == HEADER:
                self._synced[writer.name] = 0, 0  # there may have been another of this name
            real(writer, kind, payload)
            self._synced[writer.name] = writer.length, writer._size

        return write

    def _write_parts(self) -> Callable[[SegmentWriter, list[Any]], None]:
        real = SegmentWriter._write

        def write(writer: SegmentWriter, parts: list[Any]) -> None:
            if self.choose.random() < self._full:
                os.pwrite(writer._descriptor, b"".join(parts)[:7], writer.length)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            real(writer, parts)

        return write

    def _sync_file(self, path: Path) -> None:
        sync_file(path)
        self._synced[path.name] = path.stat().st_size, path.stat().st_size

    def _lose_what_was_not_synced(self) -> None:
        if self.choose.randrange(2):
            return  # only the process has ended
        for path in sorted((self.data_dir / "log").glob("*.log")):
            records, size = self._synced.get(path.name, (0, 0))
            os.truncate(path, self.choose.randrange(size, path.stat().st_size + 1))
            with path.open("r+b") as file:
                for start in (records, *range(records - records % SECTOR + SECTOR, size, SECTOR)):
                    if self.choose.randrange(2):
                        file.seek(start)
                        file.write(FILLING * min(SECTOR - start % SECTOR, size - start))

    # --- its parts -----------------------------------------------------------------------------

    def fail(self, rate: float) -> None:
        """Let the services fail at this rate from now on."""
        self._full = rate / 4
        for faults in self._faults:
            faults.rates = Rates.every(rate)

    async def open(self, *, faults: float) -> Serving:
        """Open the environment over services that fail at the rate `faults`; raises NotStarted."""
        try:
            return Serving(await self._open(faults))
        except (Determinate, Indeterminate) as error:
            raise NotStarted from error

    async def take_over(self, before: Serving, *, faults: float) -> Serving:
        """Let another environment take over from the one that serves, under its clients.

        As servers do (server/server_lock.py), the newcomer answers nobody before the other has noticed:
        until then that one may answer, but an INSERT of a witness's fails.
        """
        witness = await SimulatedConnection.connect(before)
        new = await self.open(faults=faults)
        await asyncio.sleep(self.choose.random())
        try:
            await witness.execute("INSERT INTO late VALUES (1)")
        except asyncpg.PostgresError as error:
            assert error.sqlstate == "57P01", error  # noqa: PT017
        else:
            raise AssertionError("who was taken over from has acknowledged a write")
        before.cut()
        return new

    async def _open(self, faults: float) -> Environment:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        self.clock = _Clock(loop, self.choose)
        of_consensus, of_blob = (
            Faults(self.choose.randrange(1 << 30), Rates.every(faults)) for _ in range(2)
        )
        self._faults += of_consensus, of_blob
        self.fail(faults)
        consensus = FaultyConsensus(self._consensus, of_consensus, late=self._late)
        blob = FaultyBlob(FileBlob(self.data_dir / "blob"), of_blob, sleep=lambda _: None)
        storage = await StorageController.open_services(
            self.data_dir,
            blob,
            SlowConsensus(consensus, loop.delay),
            self.clock,
            StorageConfig(segment_bytes=4096),
        )
        return await Environment.open(
            storage=storage, clock=self.clock, data_dir=self.data_dir, launcher=self
        )

    @asynccontextmanager
    async def start(self) -> AsyncIterator[Launched]:
        """Run a replica on the simulated loop: the world is its launcher."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        engines = {"embedded": lambda _: DuckDbEngine(directories=[str(self.data_dir)])}
        replica = Replica(engines, self.data_dir / "replica")
        launched = SimulatedReplica(loop, replica)
        task = loop.create_task(replica.run())
        entry = (launched.wire, task)
        self._replicas.append(entry)
        try:
            yield launched
        finally:
            if entry in self._replicas:  # not given up with its whole world, where nothing waits
                self._replicas.remove(entry)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    def kill_a_replica(self) -> None:
        """End one of the replicas, as a kill would."""
        if self._replicas:
            wire, task = self.choose.choice(self._replicas)
            task.cancel()
            wire.abort()


class _Clock(ManualClock):
    """The time of day: as the loop's, but for jumps forwards and backwards."""

    def __init__(self, loop: SimulatedLoop, choose: random.Random) -> None:
        super().__init__(START_MS)
        self._loop = loop
        self._choose = choose

    def now(self) -> int:
        return self.time + int(self._loop.time() * 1000)

    def jump(self) -> None:
        """Let somebody set the clock, by up to two seconds."""
        self.advance(self._choose.randrange(-2000, 2001))


class Serving:
    """An environment, and what it is being asked by its clients until their connections are cut."""

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self._is_cut = False
        self._asked: list[asyncio.Task[Any]] = []

    def cut(self) -> None:
        """Answer nobody any more."""
        self._is_cut = True
        for task in self._asked:
            task.cancel()

    async def answer(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        """Return what `work` comes to, unless the connections are cut before."""
        task = asyncio.get_running_loop().create_task(work)
        self._asked.append(task)
        await asyncio.wait([task])
        self._asked.remove(task)
        if self._is_cut:
            raise asyncpg.ConnectionDoesNotExistError("the server has ended")
        return task.result()

    async def close(self) -> None:
        """End as a server does, which may fail."""
        storage = self.environment.coordinator.storage
        for part in (self.environment, storage):
            with suppress(DatabaseError):
                async with asyncio.timeout(600):
                    await part.close()


class SimulatedConnection:
    """A session with asyncpg's face, as far as the workloads look at it."""

    def __init__(self, serving: Serving, session: Session) -> None:
        self._serving = serving
        self._session = session

    @classmethod
    async def connect(cls, serving: Serving) -> SimulatedConnection:
        """Begin a session."""
        await asyncio.sleep(0.01)
        work = serving.environment.connect(Startup("foreshore", "foreshore", {}))
        return cls(serving, await serving.answer(work))

    async def fetch(self, query: str, *args: Any) -> list[tuple[Any, ...]]:
        return (await self._serving.answer(self._run(query, args)))[1]

    async def fetchrow(self, query: str, *args: Any) -> tuple[Any, ...] | None:
        rows = await self.fetch(query, *args)
        return rows[0] if rows else None

    async def fetchval(self, query: str, *args: Any) -> Any:
        row = await self.fetchrow(query, *args)
        return None if row is None else row[0]

    async def execute(self, query: str, *args: Any) -> str:
        return (await self._serving.answer(self._run(query, args)))[0]

    def terminate(self) -> None:
        """Leave without a word."""

    async def _run(self, query: str, args: Any) -> tuple[str, list[tuple[Any, ...]]]:
        session = self._session
        rows: list[tuple[Any, ...]] = []
        tag = ""
        try:
            if args:
                await session.extended.parse("", query, ())
                await session.extended.bind("", "", args, ())
                tag = await _take(await session.extended.execute("", 0), rows)
                await session.extended.sync()
            else:
                executions: AsyncIterator[Any] = session.simple(query)
                async for execution in executions:
                    tag = await _take(execution, rows)
        except DatabaseError as error:
            await session.fail()
            told = asyncpg.PostgresError(error.message)
            told.sqlstate = error.sqlstate
            raise told from error
        return tag, rows


async def _take(execution: Any, rows: list[tuple[Any, ...]]) -> str:
    match execution:
        case Rows(desc=desc, batches=batches, tag=tag):
            async for batch in batches:
                columns = [
                    from_array(column, each.type)
                    for column, each in zip(batch.columns, desc.columns, strict=True)
                ]
                rows += zip(*columns, strict=True)
            return tag(len(rows))
        case Completed(tag=done):
            return done
        case _:
            return ""
