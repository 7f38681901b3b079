"""A client that does what no client should, decided by a seed.

Each attack is one connection. It opens well or badly, sends messages in any order, some of them
broken, in pieces of any size, reads the answers or does not, and goes without a farewell. The same
seed sends the same bytes.

    python -m tests.wire.fuzz PORT FIRST END
"""

import asyncio
import contextlib
import random
import socket
import struct
import sys
from collections.abc import Callable

AT_ONCE = 8
FLOOD = 1 << 18  # bytes
PATIENCE_S = 0.05  # for answers that may not come
STATEMENTS = (
    "SELECT 1",
    "SELECT $1::int + 1",
    "SELECT 1; SELECT 2; SELECT 1 / 0; SELECT 3",
    "SELECT 'x",
    "SELECT repeat('y', 100000) FROM generate_series(1, 50)",
    "SELECT * FROM generate_series(1, 20000)",
    "SELECT pg_sleep(0.01)",
    "",
    ";",
    "/* nothing */",
    "BEGIN",
    "COMMIT",
    "ROLLBACK",
    "SAVEPOINT s",
    "ROLLBACK TO s",
    "DECLARE c SCROLL CURSOR FOR SELECT * FROM generate_series(1, 100)",
    "FETCH 10 FROM c",
    "FETCH BACKWARD ALL FROM c",
    "COPY fuzzed FROM STDIN",
    "COPY fuzzed FROM STDIN (FORMAT csv)",
    "COPY fuzzed FROM STDIN BINARY",
    "COPY (SELECT * FROM generate_series(1, 1000)) TO STDOUT",
    "INSERT INTO fuzzed VALUES (1) RETURNING v",
    "INSERT INTO fuzzed VALUES ($1)",
    "DELETE FROM fuzzed",
    "LISTEN fuzz",
    "NOTIFY fuzz, 'payload'",
    "UNLISTEN *",
    "PREPARE p AS SELECT 1",
    "EXECUTE p",
    "DISCARD ALL",
    "SET search_path = nowhere",
    "SET statement_timeout = '5ms'",
    "SHOW ALL",
)
NAMES = ("", "s", "p", "c", "no such name")
INT16, INT32 = struct.Struct("!h"), struct.Struct("!i")


def string(chance: random.Random, text: str) -> bytes:
    """Return a text of the protocol, now and then one without an end or not in UTF-8."""
    end = b"" if chance.random() < 0.02 else b"\0"
    odd = b"\xff\xfe" if chance.random() < 0.02 else b""
    return text.encode() + odd + end


def number(chance: random.Random, usual: int) -> int:
    """Return the usual count or length, now and then a wrong one."""
    if chance.random() < 0.95:
        return usual
    return chance.choice((-1, -2, 0, usual + 1, 1000, 0x7FFF))


def message(chance: random.Random) -> bytes:
    """Return one message, mostly valid."""
    name, statement = chance.choice(NAMES), chance.choice(STATEMENTS)
    match chance.choice("QQQPPBBBDEEECSSSHdcfFp?"):
        case "Q":
            return framed(chance, b"Q", string(chance, statement))
        case "P":
            oids = chance.sample((0, 23, 25, 17, 999999), chance.randint(0, 2))
            body = string(chance, name) + string(chance, statement)
            body += INT16.pack(number(chance, len(oids)))
            return framed(chance, b"P", body + b"".join(map(INT32.pack, oids)))
        case "B":
            values = [chance.randbytes(chance.choice((0, 1, 4, 8))) for _ in range(2)]
            values = values[: chance.randint(0, 2)]
            body = string(chance, chance.choice(NAMES)) + string(chance, name)
            body += struct.pack("!hh", 1, chance.choice((0, 1, 7)))
            body += INT16.pack(number(chance, len(values)))
            for value in values:
                body += INT32.pack(number(chance, len(value))) + value
            return framed(chance, b"B", body + struct.pack("!hh", 1, chance.choice((0, 1))))
        case "D" | "C" as code:
            kind = chance.choice((b"S", b"P", b"X"))
            return framed(chance, code.encode(), kind + string(chance, name))
        case "E":
            rows = chance.choice((0, 1, 5, -1))
            return framed(chance, b"E", string(chance, name) + INT32.pack(rows))
        case "S" | "H" | "c" as code:
            return framed(chance, code.encode(), b"")
        case "d":
            data = chance.choice((b"1\n", b"x\n", b"\\.\n", b"1", b'"', b"PGCOPY\n\xff\r\n\0"))
            return framed(chance, b"d", data * chance.choice((1, 1, 1000)))
        case "f" | "p" as code:
            return framed(chance, code.encode(), string(chance, "enough"))
        case "F":
            return framed(chance, b"F", struct.pack("!ihhih", 1, 0, 0, 0, 0))
        case _:
            return framed(chance, chance.randbytes(1), chance.randbytes(chance.randint(0, 20)))


def flood(chance: random.Random) -> bytes:
    """Return many messages of one type, or of a pair of types, in turn."""
    some = b"".join(message(chance) for _ in range(chance.randint(1, 2)))
    return some * min(chance.choice((100, 1000, 10_000)), FLOOD // max(len(some), 1))


def framed(chance: random.Random, code: bytes, body: bytes) -> bytes:
    """Return a message with its length, now and then broken."""
    if chance.random() < 0.03 and body:
        place = chance.randrange(len(body))
        body = body[:place] + chance.randbytes(1) + body[place + 1 :]
    if chance.random() < 0.02:
        body = body[: chance.randint(0, len(body))]
    length = len(body) + 4
    if chance.random() < 0.01:
        length = chance.choice((0, 3, -1, length + 5, 1 << 20, 0x7FFFFFFF))
    return code + struct.pack("!I", length & 0xFFFFFFFF) + body


def opening(chance: random.Random) -> bytes:
    """Return what a connection begins with, mostly a valid startup message."""
    names = ["user", "foreshore", "database", "foreshore"]
    if chance.random() < 0.1:
        names += chance.choice((["options", "-c x"], ["_pq_.odd", "1"], ["replication", "true"]))
    body = "".join(f"{each}\0" for each in names).encode() + b"\0"
    version = 3 << 16
    match chance.randrange(40):
        case 0:
            version = chance.choice((2 << 16, (3 << 16) + 2, (3 << 16) + 99, 4 << 16, 0))
        case 1:
            return chance.randbytes(chance.randint(0, 50))
        case 2:
            return struct.pack("!ii", 8, 80877103) * chance.randint(1, 2)  # SSLRequest
        case 3:
            return struct.pack("!iiii", 16, 80877102, chance.randint(0, 50), 7)  # CancelRequest
        case 4:
            body = body[: chance.randint(0, len(body))]
        case 5:
            return struct.pack("!Ii", chance.choice((0, 4, 20000, 0xFFFFFFFF)), version) + body
    return struct.pack("!ii", len(body) + 8, version) + body


def pieces(chance: random.Random, data: bytes) -> list[bytes]:
    """Cut bytes into what is sent at once."""
    if chance.random() < 0.7:
        return [data]
    cuts = sorted(chance.randrange(len(data) + 1) for _ in range(chance.randint(1, 6)))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True) if a < b]


async def attack(port: int, seed: int) -> None:
    """Make one connection and do with it what the seed says."""
    chance = random.Random(seed)
    sent = opening(chance) + b"".join(message(chance) for _ in range(chance.randint(0, 12)))
    if chance.random() < 0.05:
        sent += flood(chance)
    if chance.random() < 0.3:
        sent = sent[: chance.randint(0, len(sent))]
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 16)
    reads = chance.random() < 0.8
    end = chance.choice((_close, _close, _reset, _half_close))
    slow = chance.random() < 0.02
    with contextlib.suppress(OSError, TimeoutError):  # the server may have closed it
        async with asyncio.timeout(10):
            for piece in pieces(chance, sent):
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0.05 if slow else 0)
            if reads:
                await _read(reader)
            end(writer)
            if end is _half_close:
                await _read(reader)
    writer.transport.abort()


async def _read(reader: asyncio.StreamReader) -> None:
    """Read answers until none comes for a while."""
    with contextlib.suppress(TimeoutError):
        while True:
            async with asyncio.timeout(PATIENCE_S):
                if not await reader.read(1 << 16):
                    return


def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()


def _half_close(writer: asyncio.StreamWriter) -> None:
    if not writer.is_closing():
        writer.write_eof()


def _reset(writer: asyncio.StreamWriter) -> None:
    """Let the connection end with a reset."""
    writer.get_extra_info("socket").setsockopt(
        socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
    )
    writer.transport.abort()


async def attacks(
    port: int, seeds: range, at_once: int, done: Callable[[int], None] = lambda _: None
) -> None:
    """Make an attack for each seed, some at once."""
    left = iter(seeds)

    async def some() -> None:
        for seed in left:
            await attack(port, seed)
            done(seed)

    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(some())


if __name__ == "__main__":
    _port, _first, _end = map(int, sys.argv[1:])
    asyncio.run(attacks(_port, range(_first, _end), AT_ONCE))
