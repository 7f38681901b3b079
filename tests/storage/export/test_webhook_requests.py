"""Requests of webhook sinks: how they end, and how many bytes they have."""

import asyncio
import json
import socket
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest

from foreshore.errors import ConnectionFailure
from foreshore.sinks.webhook import SECRETS, WebhookTarget
from foreshore.storage.export.messages import Export
from foreshore.storage.export.webhook import bodies, exporter
from foreshore.storage.export.webhook.bodies import Bodies
from foreshore.storage.export.webhook.exporter import WebhookExporter
from foreshore.storage.external.access import Access
from foreshore.types import INT8, TEXT, ColumnType, RelationDesc

DESC = RelationDesc(("k", "v"), (ColumnType(INT8, False), ColumnType(TEXT, False)))
ROWS = pa.table(
    {
        "k": pa.array(range(100), pa.int64()),
        "v": ["ä" * 200] * 100,
        "__time": pa.array([7] * 100, pa.uint64()),
        "__diff": pa.array([1] * 100, pa.int64()),
    }
)


class Answering:
    """A server that answers each request with bytes, and does not end it."""

    def __init__(self, answer: bytes, then: bytes = b"") -> None:
        self._answer, self._then = answer, then
        self.requests = 0
        self.ended = threading.Event()  # set once a client has closed its connection
        self._stops = threading.Event()
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._server.getsockname()[1]}/"
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                link, _ = self._server.accept()
            except OSError:
                return
            self.requests += 1
            threading.Thread(target=self._serve, args=(link,), daemon=True).start()

    def _serve(self, link: socket.socket) -> None:
        try:
            link.sendall(self._answer)
            while not self._stops.wait(0.05):
                link.sendall(self._then)
                link.setblocking(False)
                try:
                    while link.recv(1 << 16):
                        pass
                    break
                except BlockingIOError:
                    link.setblocking(True)
        except OSError:
            pass  # the client is gone
        finally:
            self.ended.set()
            link.close()

    def close(self) -> None:
        """End all."""
        self._stops.set()
        self._server.close()


@contextmanager
def answering(answer: bytes, then: bytes = b"") -> Iterator[Answering]:
    made = Answering(answer, then)
    try:
        yield made
    finally:
        made.close()


def export_to(url: str) -> Export:
    spec: Any = type("Spec", (), {"target": WebhookTarget(url, timeout_ms=200, private=True)})()
    return Export("s", spec, DESC, {SECRETS: Access("webhook", {})})


async def parts() -> Any:
    yield ROWS.slice(0, 2)


def posting() -> list[str]:
    """Return the threads that are in a request."""
    return [
        frames
        for frame in sys._current_frames().values()
        if "webhook/request.py" in (frames := "".join(traceback.format_stack(frame)))
    ]


def test_thread_of_a_request_that_never_ends_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporter, "TRIES", 1)

    async def main() -> None:
        with answering(b"HTTP/1.1 200 OK\r\nX: ", b"y") as server:
            sending = WebhookExporter(export_to(server.url))
            with pytest.raises(ConnectionFailure, match="no whole answer within 0.4 seconds"):
                await sending.write(parts(), 1, 8)
            async with asyncio.timeout(60):
                while posting():  # noqa: ASYNC110 - a thread tells nobody that it ends
                    await asyncio.sleep(0.01)
            assert server.requests == 1
            assert await asyncio.to_thread(server.ended.wait, 60)

    asyncio.run(main())


def test_accepted_request_whose_body_does_not_come_is_sent_once() -> None:
    async def main() -> None:
        with answering(b"HTTP/1.1 202 Accepted\r\nContent-Length: 10\r\n\r\nabc") as server:
            await WebhookExporter(export_to(server.url)).write(parts(), 1, 8)
            assert server.requests == 1

    asyncio.run(main())


def test_refusal_whose_body_does_not_come_is_told() -> None:
    async def main() -> None:
        with answering(b"HTTP/1.1 404 Not Found\r\nContent-Length: 10\r\n\r\n") as server:
            sending = WebhookExporter(export_to(server.url))
            with pytest.raises(ConnectionFailure, match="has answered with status 404"):
                await sending.write(parts(), 1, 8)

    asyncio.run(main())


def test_bodies_are_bounded_by_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "MOST_BYTES", 5_000)
    made = Bodies(export_to("http://x/"), 1, 8, 1_000)
    found = made.add(ROWS)
    last = made.last()
    assert last is not None
    for body in (*found, last):
        assert len(body.data) < 5_000 + 200
    changes = [each for body in (*found, last) for each in json.loads(body.data)["changes"]]
    assert [each["row"]["k"] for each in changes] == list(range(100))
    assert changes[0] == {"time": 7, "diff": 1, "row": {"k": 0, "v": "ä" * 200}}
