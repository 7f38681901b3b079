"""Floods of protocol messages: of each type, and of each ordered pair of types."""

import asyncio
import struct
from collections.abc import Callable
from random import Random

from tests.hostile.kinds.registry import Target, kind

FLOOD = 1 << 20  # bytes of one flood
PATIENCE_S = 5.0


def framed(code: str, body: bytes = b"") -> bytes:
    """Return a message of the protocol."""
    return code.encode() + struct.pack("!i", len(body) + 4) + body


def parsed(name: str, sql: str) -> bytes:
    """Return a Parse message."""
    return framed("P", f"{name}\0{sql}\0".encode() + struct.pack("!h", 0))


def bound(portal: str, statement: str) -> bytes:
    """Return a Bind message without arguments."""
    return framed("B", f"{portal}\0{statement}\0".encode() + struct.pack("!hhh", 0, 0, 0))


def one_after_another(make: Callable[[int], bytes]) -> Callable[[int], bytes]:
    """Return what makes so many bytes of messages, each from its number."""

    def flood(size: int) -> bytes:
        pieces, total, number = [], 0, 0
        while total < size:
            pieces.append(make(number))
            total += len(pieces[-1])
            number += 1
        return b"".join(pieces)

    return flood


def queried(sql: str) -> bytes:
    """Return a Query message."""
    return framed("Q", sql.encode() + b"\0")


SYNC = framed("S")
QUERIES = {  # each goes through another part of a session
    "failing": "select 1 / 0",
    "begin": "begin",
    "rollback": "rollback",
    "savepoint": "begin; savepoint a",
    "set": "set application_name = 'x'",
    "listen": "listen a",
    "notify": "notify a",
    "prepare": "prepare a as select 1",
    "deallocate": "deallocate all",
    "cursor": "declare c cursor with hold for select 1",
    "copy to": "copy (select 1) to stdout",
    "several": "select 1; select 2",
}
ENDS: dict[str, bytes] = {  # after which the server takes no more
    "password": framed("p", b"x\0"),
    "Terminate": framed("X"),
    "unknown type": framed("?", b"abc"),
    "wrong Bind": framed("B", b"\0"),
    "wrong length": b"S\0\0\0\0",
}
MESSAGES: dict[str, Callable[[int], bytes]] = {
    "Parse": one_after_another(lambda _: parsed("", "select 1")),
    "distinct Parse": one_after_another(lambda i: parsed("", f"select {i}")),
    "named Parse": one_after_another(lambda i: parsed(f"n{i}", "select 1")),
    "syntax error": one_after_another(lambda _: parsed("", "selec") + SYNC),
    "Query of a syntax error": one_after_another(lambda i: framed("Q", f"selec {i}\0".encode())),
    "empty Query": one_after_another(lambda _: framed("Q", b"\0")),
    "Query": one_after_another(lambda i: framed("Q", f"select {i}\0".encode())),
    "FunctionCall": one_after_another(lambda _: framed("F", struct.pack("!ihhih", 1, 0, 0, 0, 0))),
    "Sync": one_after_another(lambda _: SYNC),
    "Flush": one_after_another(lambda _: framed("H")),
    "Bind": one_after_another(lambda i: (b"" if i else parsed("", "select 1")) + bound("", "")),
    "named Bind": one_after_another(
        lambda i: (b"" if i else parsed("", "select 1")) + bound(f"p{i}", "")
    ),
    "Describe a statement": one_after_another(
        lambda i: (b"" if i else parsed("", "select 1")) + framed("D", b"S\0")
    ),
    "Describe a portal": one_after_another(
        lambda i: (b"" if i else parsed("", "select 1") + bound("", "")) + framed("D", b"P\0")
    ),
    "Execute": one_after_another(
        lambda i: (
            (b"" if i else parsed("", "select 1") + bound("", "")) + framed("E", b"\0\0\0\0\0")
        )
    ),
    "Close": one_after_another(lambda _: framed("C", b"Snone\0")),
    "CopyData": one_after_another(lambda _: framed("d", b"x")),
    "CopyDone": one_after_another(lambda _: framed("c")),
    "CopyFail": one_after_another(lambda _: framed("f", b"no\0")),
    "skipped": one_after_another(
        lambda i: parsed("", "selec" if i == 0 else "select 1") + bound("", "")
    ),
    "tiny statements": lambda size: framed("Q", b"select 1;" * (size // 9) + b"\0"),
    "notices": lambda size: framed("Q", b"drop table if exists no;" * (size // 24) + b"\0"),
    "Close a portal": one_after_another(lambda _: framed("C", b"P\0")),
    "unreadable": one_after_another(lambda _: framed("Q", b"select '\xff'\0")),
}
MESSAGES |= {
    f"Query: {name}": one_after_another(lambda _, sql=sql: queried(sql))  # type: ignore[misc]
    for name, sql in QUERIES.items()
}


def pair(one: str, other: str, *, synced: bool, size: int) -> bytes:
    """Return so many bytes of two kinds of messages in turn, maybe each pair with a Sync."""
    made = (MESSAGES[one](1) if one in MESSAGES else ENDS[one]) + (
        MESSAGES[other](1) if other in MESSAGES else ENDS[other]
    )
    made += SYNC * synced
    return made * max(1, size // len(made))


async def flood(target: Target, data: bytes, patience_s: float = PATIENCE_S) -> None:
    """Log in, send bytes, read answers until all is sent, and go."""
    reader, writer = await asyncio.open_connection("127.0.0.1", target.port)
    try:
        async with asyncio.timeout(patience_s):
            writer.write(startup(target.user))
            await reader.readuntil(b"Z\0\0\0\x05I")
            answers = asyncio.create_task(discard(reader))
            try:
                for at in range(0, len(data), 1 << 16):
                    writer.write(data[at : at + (1 << 16)])
                    await writer.drain()
            finally:
                answers.cancel()
    except TimeoutError:
        pass  # the server takes its messages slowly, as it should
    finally:
        writer.transport.abort()


def startup(user: str) -> bytes:
    """Return a startup message."""
    body = struct.pack("!i", 3 << 16) + f"user\0{user}\0database\0foreshore\0\0".encode()
    return struct.pack("!i", len(body) + 4) + body


async def discard(reader: asyncio.StreamReader) -> None:
    """Read all answers."""
    while await reader.read(1 << 16):
        pass


def _register(name: str, make: Callable[[int], bytes]) -> None:
    @kind(f"messages: {name}")
    async def attack(target: Target, chance: Random) -> None:
        await flood(target, make(FLOOD))


for _name, _make in MESSAGES.items():
    _register(_name, _make)


@kind("messages: pairs")
async def pairs(target: Target, chance: Random) -> None:
    """Send two kinds of messages in turn."""
    one, other = (chance.choice([*MESSAGES, *ENDS]) for _ in range(2))
    await flood(target, pair(one, other, synced=chance.random() < 0.5, size=FLOOD))
