"""Many connections: the memory of an idle one, and look-ups of busy ones beside idle ones.

    python -m tests.bench.connections [--idle 2000] [--busy 200] [--seconds 10]

Idle connections have run one statement. Busy ones look up rows by key, prepared, each as soon as
it has the answer before. Memory is the server's resident memory, divided by the connections.
"""

import argparse
import asyncio
import os
import struct
import tempfile
import time
from itertools import count
from pathlib import Path
from statistics import quantiles

from tests.harness import Server, serving

ROWS = 10_000
READY = b"Z\0\0\0\x05I"


class Connection:
    """A connection that sends bytes and waits for ReadyForQuery."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, port: int) -> "Connection":
        """Connect as the first role."""
        made = cls(*await asyncio.open_connection("127.0.0.1", port))
        body = struct.pack("!i", 3 << 16) + b"user\0foreshore\0database\0foreshore\0\0"
        await made.request(struct.pack("!i", len(body) + 4) + body)
        return made

    async def request(self, data: bytes) -> None:
        """Send a request and wait for the end of its answer."""
        self._writer.write(data)
        received = b""
        while not received.endswith(READY):
            received = (received + await self._reader.read(1 << 16))[-len(READY) :]


def message(code: bytes, body: bytes = b"") -> bytes:
    """Return one message."""
    return code + struct.pack("!i", len(body) + 4) + body


PARSE = message(b"P", b"s\0SELECT v FROM looked_up WHERE k = $1\0\0\0")
EXECUTE = message(b"E", b"\0\0\0\0\0") + message(b"S")


def look_up(key: int) -> bytes:
    """Return the messages of a look-up."""
    text = str(key).encode()
    bind = b"\0s\0" + struct.pack("!hhi", 0, 1, len(text)) + text + b"\0\0"
    return message(b"B", bind) + EXECUTE


def resident(server: Server) -> int:
    """Return the server's resident memory in bytes."""
    assert server.process is not None
    pages = Path(f"/proc/{server.process.pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


async def measure(server: Server, idle: int, busy: int, seconds: float) -> None:
    """Print the figures."""
    query = message(b"Q", b"SELECT 1 + 1\0")
    kept = [await Connection.open(server.port) for _ in range(50)]
    await asyncio.gather(*(each.request(query) for each in kept))
    before = resident(server)
    for _ in range(idle):
        kept.append(await Connection.open(server.port))
        await kept[-1].request(query)
    each_kb = (resident(server) - before) / idle / 1000
    print(f"{idle} idle connections: {each_kb:.1f} kB each")

    taken: list[float] = []
    end = time.monotonic() + seconds

    async def work(first: int) -> None:
        connection = await Connection.open(server.port)
        await connection.request(PARSE + message(b"S"))
        for number in count(first, 7):
            start = time.monotonic()
            if start > end:
                return
            await connection.request(look_up(number % ROWS))
            taken.append(time.monotonic() - start)

    await asyncio.gather(*map(work, range(busy)))
    cuts = quantiles(taken, n=100)
    print(
        f"{busy} busy connections: {len(taken) / seconds:.0f} look-ups/s, median "
        f"{cuts[49] * 1000:.1f} ms, 99% {cuts[98] * 1000:.1f} ms, {cuts[98] / cuts[49]:.1f} times"
    )


def main() -> None:
    """Run a server and measure."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--idle", type=int, default=2000)
    parser.add_argument("--busy", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=10.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        most = str(given.idle + given.busy + 100)
        with serving(Path(folder) / "data", "--max-connections", most) as server:
            with server.connect() as session:
                session.execute("CREATE TABLE looked_up (k int PRIMARY KEY, v int)")
                session.execute(
                    f"INSERT INTO looked_up SELECT i, i FROM generate_series(1, {ROWS}) i"
                )
            asyncio.run(measure(server, given.idle, given.busy, given.seconds))


if __name__ == "__main__":
    main()
