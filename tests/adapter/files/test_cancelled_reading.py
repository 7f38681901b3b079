"""A cancelled COPY frees its memory and files when its step ends, at the latest with the server."""

import asyncio
import logging
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from foreshore.adapter.files.copy import _Reading
from foreshore.adapter.services import copies as progress
from foreshore.adapter.services.copies import Copies
from foreshore.adapter.statement.interrupts import Interrupts
from foreshore.compute.engine import Cancellation


class Scene:
    """A reading whose step waits for `go`, on a thread, and which is cancelled in it."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.begun, self.go = threading.Event(), threading.Event()
        self.freed: list[str] = []
        self.copies = Copies()
        self.cancellation, stack = Cancellation(), ExitStack()
        stack.callback(self.free, failure)
        self.reading = _Reading(self.copies, None, self.batches(), self.cancellation, stack)

    def free(self, failure: Exception | None) -> None:
        self.freed.append("freed")
        if failure is not None:
            raise failure

    def batches(self) -> Iterator[Any]:
        self.begun.set()
        assert self.go.wait(60)
        yield None

    async def cancel(self) -> None:
        step = asyncio.create_task(self.reading.next(Interrupts()))
        await asyncio.to_thread(self.begun.wait, 60)
        step.cancel()
        with pytest.raises(asyncio.CancelledError):
            await step
        await self.reading.end()
        assert self.cancellation.cancelled
        assert self.freed == []


def test_end_of_the_server_waits_for_a_step_that_ends() -> None:
    async def main() -> None:
        scene = Scene()
        await scene.cancel()
        closing = asyncio.create_task(scene.copies.close())
        await asyncio.sleep(0)
        scene.go.set()
        await closing
        assert scene.freed == ["freed"]

    asyncio.run(main())


def test_end_of_the_server_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "END_SECONDS", 0.01)

    async def main() -> None:
        scene = Scene()
        await scene.cancel()
        await scene.copies.close()
        assert scene.freed == []
        scene.go.set()

    asyncio.run(main())


@pytest.mark.parametrize("failure", [OSError("no such process"), ValueError("a defect")])
def test_failure_to_free_is_logged(failure: Exception, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        scene = Scene(failure)
        await scene.cancel()
        scene.go.set()
        await scene.copies.close()

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    (record,) = caplog.records
    assert "what a cancelled COPY held is not freed" in record.getMessage()
