"""Kafka through an SSH tunnel: the brokers' addresses in answers become ports of the loopback.

    client ──► 127.0.0.1:port ──► tunnel ──► broker
           ◄── the addresses of brokers are ports ◄──

A client of Kafka goes on to the addresses that brokers tell it, so each of them gets a port. What
is sent must be read for that: TLS is spoken between the port and the broker, and none before it.
"""

import asyncio
import ssl
import struct
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from foreshore.errors import DatabaseError
from foreshore.storage.external.access import Access, Tunnel
from foreshore.storage.external.kafka_frames import READ, changed
from foreshore.storage.external.tls import certificates
from foreshore.storage.external.tunnels import (
    CHUNK,
    HOST,
    MOST_PORTS,
    THREAD,
    LoopbackPort,
    ended,
    waited_for,
)

PORT = 9092
MOST_FRAME = 64 << 20  # bytes of an answer that is changed
_MOST_ASKED = 1_000  # requests of a connection whose answers are to be changed
_REQUEST, _ANSWER = struct.Struct(">ihhi"), struct.Struct(">ii")

_Options = tuple[tuple[str, str], ...]


def through(access: Access, tunnel: Tunnel, found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of a client that goes through a tunnel. Blocks.

    Raises ConnectionFailure if the SSH server is not reached.
    """
    protocol, options = str(found["security.protocol"]), None
    if protocol.endswith("ssl"):
        options = tuple(sorted(item for item in access.options.items() if item[0][:4] == "ssl "))
        protocol = protocol.removesuffix("ssl") + "plaintext"
    ports = [
        waited_for(tunnel, _PORTS.port((tunnel, options, *place)))
        for place in places(str(found["bootstrap.servers"]))
    ]
    kept = {name: value for name, value in found.items() if not name.startswith("ssl.")}
    servers = ",".join(f"{HOST}:{port.number}" for port in ports)
    return kept | {"bootstrap.servers": servers, "security.protocol": protocol}


def failure_of(tunnel: Tunnel) -> str | None:
    """Return why a tunnel has led to no broker lately, None if it has."""
    return _PORTS.failures.get(tunnel)


def places(brokers: str) -> list[tuple[str, int]]:
    """Return hosts and ports of brokers, as a connection names them."""
    found = []
    for each in brokers.split(","):
        host, colon, port = each.strip().rpartition(":")
        found.append((host, int(port)) if colon and port.isdigit() else (each.strip(), PORT))
    return found


class _Port(LoopbackPort):
    """A port that leads to a broker."""

    def __init__(self, tunnel: Tunnel, options: _Options | None, host: str, port: int) -> None:
        super().__init__()
        self._tunnel, self._options, self._host, self._port = tunnel, options, host, port

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        failures, beyond = _PORTS.failures, None
        try:
            beyond = await THREAD.port(self._tunnel, self._host, self._port)
            far_reader, far_writer = await asyncio.open_connection(
                HOST,
                beyond.number,
                ssl=self._tls(),
                server_hostname=self._host if self._options is not None else None,
            )
            asked: dict[int, tuple[int, int]] = {}
            try:
                await ended(
                    _requests(reader, far_writer, asked), self._answers(far_reader, writer, asked)
                )
            finally:
                far_writer.close()
            failures.pop(self._tunnel, None)
            if beyond.failure is not None:
                failures[self._tunnel] = beyond.failure.message
        except DatabaseError as error:
            failures[self._tunnel] = error.message
        except (OSError, EOFError, ValueError) as error:
            reason = None if beyond is None else beyond.failure
            if reason or isinstance(error, ssl.SSLError | ValueError):
                failures[self._tunnel] = reason.message if reason else str(error)
        finally:
            writer.close()

    def _tls(self) -> ssl.SSLContext | None:
        return None if self._options is None else certificates(dict(self._options))

    async def _answers(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        asked: dict[int, tuple[int, int]],
    ) -> None:
        """Pass on answers, with other addresses."""
        while head := await _head(reader, _ANSWER.size):
            size, number = _ANSWER.unpack(head)
            _PORTS.failures.pop(self._tunnel, None)
            request = asked.pop(number, None)
            if request is None or size > MOST_FRAME:
                writer.write(head)
                await _pass(reader, writer, size - 4)
                continue
            answer = head[4:] + await reader.readexactly(size - 4)
            answer = await changed(*request, answer, self._port_of)
            writer.write(struct.pack(">i", len(answer)) + answer)
            await writer.drain()

    async def _port_of(self, host: str, port: int) -> tuple[str, int]:
        return HOST, (await _PORTS.port((self._tunnel, self._options, host, port))).number


async def _requests(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: dict[int, tuple[int, int]]
) -> None:
    """Pass on requests, and note those whose answers are to be changed."""
    while head := await _head(reader, _REQUEST.size):
        size, key, version, number = _REQUEST.unpack(head)
        if key in READ and len(asked) < _MOST_ASKED:
            asked[number] = (key, version)
        writer.write(head)
        await _pass(reader, writer, size - 8)


async def _head(reader: asyncio.StreamReader, size: int) -> bytes:
    """Return the beginning of a frame; nothing, if there is none any more."""
    try:
        return await reader.readexactly(size)
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise
        return b""


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, size: int) -> None:
    """Pass on so many bytes."""
    while size > 0:
        data = await reader.read(min(size, CHUNK))
        if not data:
            raise EOFError
        size -= len(data)
        writer.write(data)
        await writer.drain()


class _Ports:
    """The ports that lead to brokers; used in the tunnels' thread."""

    def __init__(self) -> None:
        self.failures: dict[Tunnel, str] = {}
        self._ports: OrderedDict[tuple[Tunnel, _Options | None, str, int], _Port] = OrderedDict()

    async def port(self, place: tuple[Tunnel, _Options | None, str, int]) -> _Port:
        """Return a port that leads to a broker, once the SSH connection is there."""
        await THREAD.port(place[0], *place[2:])
        found = self._ports.get(place)
        if found is None:
            found = _Port(*place)
            await found.open()
            self._ports[place] = found
            if len(self._ports) > MOST_PORTS:
                self._ports.popitem(last=False)[1].close()
        self._ports.move_to_end(place)
        return found


_PORTS = _Ports()
