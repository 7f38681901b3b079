"""The process of a replica lives as long as its link."""

import asyncio
import logging
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from foreshore.compute.protocol import Response
from foreshore.processes.child_process import ChildProcess, ProcessLauncher
from foreshore.processes.link import Link
from foreshore.processes.scratch import Scratch
from tests.compute.runtime.harness import run
from tests.logged import logged_by

SLEEPER = (sys.executable, "-c", "import time; time.sleep(600)")


class Remembering(ProcessLauncher):
    """A launcher that remembers its processes after they have ended."""

    def __init__(self) -> None:
        super().__init__(SLEEPER)
        self.processes: list[subprocess.Popen[bytes]] = []

    def _start(
        self, scratch: Scratch, secret: str, options: Sequence[str]
    ) -> "subprocess.Popen[bytes]":
        process = super()._start(scratch, secret, options)
        self.processes.append(process)
        return process


async def _cancelled(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


def test_link_cancelled_during_start_leaves_no_process() -> None:
    async def scenario() -> None:
        launcher = Remembering()
        link: Link[Response] = Link(
            "r", launcher, Response, lambda _: None, lambda *_: None, lambda: None
        )
        task = asyncio.create_task(link.run())
        await asyncio.sleep(0)  # the start is running on a thread
        await _cancelled(task)
        assert [process.returncode for process in launcher.processes] == [-9]

    run(scenario)


def test_the_first_replica_gets_the_spare_process() -> None:
    async def scenario() -> None:
        launcher = Remembering()
        launcher.begin_spare()
        async with launcher.start() as first, launcher.start() as second:
            await launcher.end_spare()  # which is no spare any more
            assert [each.pid for each in launcher.processes] == [first.pid, second.pid]
            assert [each.returncode for each in launcher.processes] == [None, None]
        assert [each.returncode for each in launcher.processes] == [-9, -9]

    run(scenario)


def test_a_spare_process_that_nobody_gets_is_ended() -> None:
    async def scenario() -> None:
        launcher = Remembering()
        launcher.begin_spare()
        await launcher.end_spare()
        assert [each.returncode for each in launcher.processes] == [-9]

    run(scenario)


def test_a_link_that_is_cancelled_ends_its_process() -> None:
    async def scenario() -> None:
        launcher = Remembering()
        link: Link[Response] = Link(
            "r", launcher, Response, lambda _: None, lambda *_: None, lambda: None
        )
        task = asyncio.create_task(link.run())
        while link.pid is None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await _cancelled(task)
        assert [process.returncode for process in launcher.processes] == [-9]

    run(scenario)


def test_a_process_that_ends_is_started_again() -> None:
    async def scenario() -> None:
        launcher = Remembering()
        link: Link[Response] = Link(
            "r", launcher, Response, lambda _: None, lambda *_: None, lambda: None
        )
        task = asyncio.create_task(link.run())
        while len(launcher.processes) < 3:
            if launcher.processes:
                launcher.processes[-1].kill()
            await asyncio.sleep(0.01)
        await _cancelled(task)
        assert all(process.returncode == -9 for process in launcher.processes)

    run(scenario)


@pytest.mark.skipif(sys.platform != "linux", reason="only there does a directory have a short path")
def test_replica_is_connected_below_a_directory_with_a_long_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))

    async def scenario() -> None:
        connected = asyncio.Event()
        link: Link[Response] = Link(
            "r",
            ProcessLauncher(),
            Response,
            lambda _: connected.set(),
            lambda *_: None,
            lambda: None,
        )
        task = asyncio.create_task(link.run())
        await connected.wait()
        await _cancelled(task)
        assert list(folder.iterdir()) == []

    run(scenario)


def test_only_a_process_that_ends_by_itself_is_worth_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "foreshore.processes")

    async def scenario() -> None:
        async with ProcessLauncher(SLEEPER).start():
            pass
        assert logged_by(caplog, "foreshore.processes") == [], "it was asked to end"
        launcher = Remembering()
        async with launcher.start() as child:
            launcher.processes[0].kill()
            assert isinstance(child, ChildProcess)
            await child.exited.wait()
        records = logged_by(caplog, "foreshore.processes")
        assert [each.message for each in records] == ["a process has ended by itself"]

    run(scenario)
