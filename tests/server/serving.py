"""A server over the fake client, on a loop in a thread of its own, for clients that block."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest
import uvloop

from foreshore.server.admission.authenticator import Authenticator
from foreshore.server.admission.policy import Policy
from foreshore.server.lease import Lease
from foreshore.server.listener import Listener
from foreshore.server.ports import bind
from tests.server.fake import FakeClient

T = TypeVar("T")


@dataclass
class Served:
    """A running server: its client, its port and its loop."""

    client: FakeClient
    listener: Listener
    port: int
    loop: asyncio.AbstractEventLoop

    def dsn(self, **more: str) -> str:
        extra = "".join(f" {key}={value}" for key, value in more.items())
        return f"host=127.0.0.1 port={self.port} user=foreshore dbname=foreshore{extra}"

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(30)

    def eventually(self, holds: Callable[[], bool]) -> None:
        """Wait until `holds()` is true, evaluated on the loop."""

        async def wait() -> None:
            async with asyncio.timeout(20):
                while not holds():  # noqa: ASYNC110
                    await asyncio.sleep(0.005)

        self.run(wait())


def standing() -> float:
    """Return the time of a clock that stands still, so that a lease does not run out."""
    return 0.0


def serve(
    client: FakeClient | None = None, policy: Policy | None = None, **options: Any
) -> Iterator[Served]:
    loop = uvloop.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    client = client or FakeClient()
    defaults: dict[str, Any] = {
        "authenticator": Authenticator(client, policy or Policy(), b"seed"),
        "lease": Lease(lambda: None, standing),
    }
    listener = Listener(client, **(defaults | options))

    async def listen() -> int:
        await listener.lease.renew()
        return await listener.listen(await bind("127.0.0.1", 0, "--pg-listen"))

    port = asyncio.run_coroutine_threadsafe(listen(), loop).result(10)
    try:
        yield Served(client, listener, port, loop)
    finally:
        asyncio.run_coroutine_threadsafe(listener.close(), loop).result(20)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.fixture
def served() -> Iterator[Served]:
    yield from serve()
