"""An environment in this process, with its replicas, and sessions that answer in text.

Replicas run in this process too, unless a test is about processes: it passes a ProcessLauncher.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from foreshore.adapter.client import Completed, CopyOut, Execution, Rows, Startup
from foreshore.adapter.environment import Environment
from foreshore.adapter.read.bound import timestamp
from foreshore.adapter.session.session import Session
from foreshore.clock import SystemClock
from foreshore.datum import from_array
from foreshore.errors import DatabaseError
from foreshore.processes.launch import Launched, Launcher
from foreshore.storage.controller import StorageController
from foreshore.storage.read_holds import DEFAULT_LAG_MS
from foreshore.text import format_text
from foreshore.types import RelationDesc
from tests.compute.in_process import InProcessLauncher
from tests.export_in_process import ExportInProcess
from tests.ingest_in_process import IngestInProcess
from tests.loop_guard import SLOW

# Answers are compared with their notices, however long the first kernels take to be compiled.
timestamp.FILLING_SECONDS = 3600.0
timestamp.FAR_BEHIND_MS = 1 << 62  # some tests move the clock by hours


class Gate:
    """Holds back the calls of `name`, a coroutine function of `owner`, until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: object, name: str) -> None:
        call = getattr(owner, name)
        self.reached, self._opened = asyncio.Event(), asyncio.Event()

        async def held(*args: Any) -> Any:
            self.reached.set()
            await self._opened.wait()
            return await call(*args)

        monkeypatch.setattr(owner, name, held)

    def open(self) -> None:
        """Let all calls go on."""
        self._opened.set()


class TestEnvironment:
    """Storage and environment over one data directory, opened and closed by hand."""

    __test__ = False  # no class of tests, whatever pytest makes of its name

    def __init__(
        self, data_dir: Path, lag_ms: int = DEFAULT_LAG_MS, launcher: Launcher | None = None
    ) -> None:
        self.data_dir = data_dir
        self.launcher = launcher or InProcessLauncher()
        self.ingest: Any = IngestInProcess()
        self.export: Any = ExportInProcess()
        self.lag_ms = lag_ms
        self.sessions: dict[str, Session] = {}

    async def open(self) -> None:
        self.storage = await StorageController.open(
            data_dir=self.data_dir, blob=None, consensus=None, clock=SystemClock()
        )
        self.environment = await Environment.open(
            storage=self.storage,
            clock=SystemClock(),
            data_dir=self.data_dir,
            lag_ms=self.lag_ms,
            launcher=self,
            ingest=self.ingest,
            export=self.export,
        )
        SLOW.watch(asyncio.get_running_loop())

    def start(self) -> AbstractAsyncContextManager[Launched]:
        """Start a replica by the launcher of this moment: the test environment is one itself."""
        return self.launcher.start()

    async def close(self) -> None:
        slow = SLOW.unwatch(asyncio.get_running_loop())
        self.environment.coordinator.check_consistency()
        await self.environment.close()
        await self.storage.close()
        self.sessions.clear()
        assert not slow, slow

    async def reopen(self) -> None:
        try:
            await self.close()
        finally:  # for who closes it at the end, also if it was slow
            await self.open()

    async def session(self, name: str) -> Session:
        if name not in self.sessions:
            self.sessions[name] = await self.environment.connect(
                Startup("foreshore", "foreshore", {})
            )
        return self.sessions[name]

    async def query(self, name: str, sql: str, *, alone: bool = True) -> str:
        """Return what `sql` gives as text: rows, tags, notices, errors, and the session's state.

        Invariants are checked after it, unless it is not `alone`: DDL of others is under way.
        """
        session = await self.session(name)
        lines: list[str] = []
        try:
            async for execution in session.simple(sql):
                lines += await told(execution)
        except DatabaseError as error:
            await session.fail(error)
            lines.append(f"ERROR {error.sqlstate}: {error.message}")
            lines += [f"DETAIL: {each}" for each in (error.detail or "").splitlines()]
            lines += [f"HINT: {error.hint}"] if error.hint else []
        lines += [f"{each.severity}: {each.message}" for each in session.news.notices()]
        lines += [session.transaction_status] if session.transaction_status != "I" else []
        if alone:
            with SLOW.apart():
                self.environment.coordinator.check_consistency()
        return "\n".join(lines)

    async def ran(self, name: str, *statements: str) -> str:
        """Run statements, of which none fails, one by one; return what the last gives."""
        answer = ""
        for sql in statements:
            answer = await self.query(name, sql)
            assert "ERROR" not in answer, (sql, answer)
        return answer


def in_environment(
    data_dir: Path,
    scenario: Callable[[TestEnvironment], Awaitable[None]],
    lag_ms: int = DEFAULT_LAG_MS,
    launcher: Launcher | None = None,
) -> None:
    """Run `scenario` in an environment that is opened before and closed behind it."""

    async def life() -> None:
        env = TestEnvironment(data_dir, lag_ms, launcher)
        await env.open()
        try:
            await scenario(env)
        finally:
            await env.close()

    asyncio.run(life())


async def told(execution: Execution) -> list[str]:
    """Return what a statement gives as text: rows, and the tag."""
    match execution:
        case (
            Rows(desc=desc, batches=batches, tag=tag) | CopyOut(desc=desc, batches=batches, tag=tag)
        ):
            lines: list[str] = []
            count = 0
            async for batch in batches:
                count += batch.num_rows
                with SLOW.apart():
                    lines += _lines(batch, desc)
            return [*lines, tag(count)]
        case Completed(tag=done):
            return [done]
        case _:
            return [type(execution).__name__]


def _lines(batch: pa.RecordBatch, desc: RelationDesc) -> list[str]:
    columns = [
        from_array(column, each.type)
        for column, each in zip(batch.columns, desc.columns, strict=True)
    ]
    return [
        "|".join(
            "NULL" if datum is None else format_text(datum, each.type)
            for datum, each in zip(row, desc.columns, strict=True)
        )
        for row in zip(*columns, strict=True)
    ]


async def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    """Wait for `condition`."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - what changes it tells nobody
            await asyncio.sleep(0.01)
