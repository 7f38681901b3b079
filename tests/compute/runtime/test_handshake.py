"""Two processes show each other that they know a secret, and say nothing before."""

import asyncio
import itertools
import struct
from typing import Any

import msgspec
import pytest

from foreshore.compute.protocol import Command, Feed, Response
from foreshore.errors import ObjectNotInPrerequisiteState
from foreshore.ids import GlobalId
from foreshore.processes import handshake
from foreshore.processes.handshake import (
    Challenge,
    End,
    Greeting,
    Handshake,
    HandshakeError,
    Proof,
)
from foreshore.processes.launch import AddressLauncher, Remote
from foreshore.processes.link import Link
from foreshore.processes.messages import Hello, Message
from foreshore.processes.transport import SECRET_VARIABLE, Connection, encode_frame

SECRET = "a secret that both of them know"
FEED = Feed(((GlobalId("u1"), 0, 1, False),))
NONCE = bytes(32)


def bytes_of(message: Message) -> bytes:
    return b"".join(bytes(part) for part in encode_frame(message))


def said_by(*ends: Handshake) -> list[bytes]:
    """Return what two ends send each other, until one has nothing more to say."""
    said, turns = [], itertools.cycle(reversed(ends))
    message = ends[0].begin()
    while message is not None:
        said.append(msgspec.msgpack.encode(message))
        message = next(turns).receive(said[-1])
    return said


def test_both_ends_are_sure_and_the_secret_is_in_no_message() -> None:
    ends = Handshake("connects", SECRET), Handshake("accepts", SECRET)
    first = said_by(*ends)
    assert [each.is_over for each in ends] == [True, True]
    second = said_by(Handshake("connects", SECRET), Handshake("accepts", SECRET))
    assert len(first) == len(second) == 4
    assert not set(first) & set(second), "what is said once can be said again"
    for each in first + second:
        assert SECRET.encode() not in each


@pytest.mark.parametrize("ends", [("guess", SECRET), (SECRET, "guess"), ("-", SECRET)])
def test_an_end_that_does_not_know_the_secret_is_refused(ends: tuple[str, str]) -> None:
    connects, accepts = Handshake("connects", ends[0]), Handshake("accepts", ends[1])
    with pytest.raises(HandshakeError, match="does not know the secret"):
        said_by(connects, accepts)
    assert not connects.is_over
    assert not accepts.is_over


@pytest.mark.parametrize("end", ["connects", "accepts"])
def test_no_end_is_sure_by_an_empty_secret(end: End) -> None:
    """Whoever listens at the address of a replica knows that one, too."""
    with pytest.raises(AssertionError):
        Handshake(end, "")


@pytest.mark.parametrize("given", [None, "", "short"])
def test_a_replica_at_an_address_needs_a_secret(
    given: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(SECRET_VARIABLE, raising=False)
    if given is not None:
        monkeypatch.setenv(SECRET_VARIABLE, given)
    reached = asyncio.Event()

    async def start() -> None:
        server = await asyncio.start_server(lambda *_: reached.set(), "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        async with AddressLauncher(f"{host}:{port}").start():
            raise AssertionError("it is used")

    with pytest.raises(ObjectNotInPrerequisiteState, match=f"{SECRET_VARIABLE} is not set"):
        asyncio.run(start())
    assert not reached.is_set()


def test_what_an_end_has_said_does_not_convince_it() -> None:
    """A peer that knows nothing sends each message back, or those of another handshake."""
    connects = Handshake("connects", SECRET)
    greeting = connects.begin()
    assert isinstance(greeting, Greeting)
    with pytest.raises(HandshakeError):
        connects.receive(msgspec.msgpack.encode(Challenge(greeting.version, greeting.nonce)))
    connects = Handshake("connects", SECRET)
    proof = connects.receive(msgspec.msgpack.encode(Challenge(handshake.VERSION, NONCE)))
    with pytest.raises(HandshakeError, match="does not know"):
        connects.receive(msgspec.msgpack.encode(proof))
    old = said_by(Handshake("connects", SECRET), Handshake("accepts", SECRET))
    accepts = Handshake("accepts", SECRET)
    accepts.receive(old[0])
    with pytest.raises(HandshakeError, match="does not know"):
        accepts.receive(old[2])


@pytest.mark.parametrize(
    "said",
    [
        FEED,
        Hello("r1"),
        Proof(NONCE),
        Challenge(handshake.VERSION, NONCE),
        Greeting(handshake.VERSION + 1, NONCE),
        Greeting(handshake.VERSION, b""),
        {"message": "Hello", "secret": SECRET, "replica": "r1"},  # of version 1
    ],
)
def test_nothing_else_begins_a_handshake(said: Any) -> None:
    accepts = Handshake("accepts", SECRET)
    with pytest.raises(HandshakeError):
        accepts.receive(msgspec.msgpack.encode(said))
    assert not accepts.is_over


async def connected(theirs: str, ours: str) -> tuple[list[Message], Connection[Any], str]:
    """Return what an accepting end gets, our end, and why there is no handshake."""
    got: list[Message] = []
    loop, seen = asyncio.get_running_loop(), asyncio.Event()

    def deliver(_: object, message: Message, __: object) -> None:
        got.append(message)
        seen.set()

    accepting = lambda: Connection[Any](  # noqa: E731
        Command, deliver, lambda _: seen.set(), Handshake("accepts", theirs)
    )
    server = await loop.create_server(accepting, "127.0.0.1", 0)
    client: Connection[Any] = Connection(
        Response, lambda *_: None, lambda _: None, Handshake("connects", ours)
    )
    await loop.create_connection(lambda: client, *server.sockets[0].getsockname())
    with pytest.raises(AssertionError):
        client.send(FEED)  # too early
    why = ""
    try:
        await client.proven()
        client.send(FEED)
    except ConnectionError as error:
        why = str(error)
    await seen.wait()
    client.abort()
    server.close()
    return got, client, why


def test_messages_come_after_the_handshake_and_never_without_it() -> None:
    got, _, why = asyncio.run(connected(SECRET, SECRET))
    assert (got, why) == ([FEED], "")
    got, client, why = asyncio.run(connected("another", SECRET))
    assert got == []
    assert client.closed
    assert "no handshake" in why


def test_a_message_before_the_handshake_is_not_delivered() -> None:
    """A rogue end is no replica: nothing that it says is believed, and it gets no command."""
    got: list[Message] = []

    async def scenario() -> bytes:
        heard = asyncio.Queue[bytes]()

        async def rogue(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(bytes_of(FEED) + struct.pack("<III", 1 << 30, 0, 0))
            await heard.put(await reader.read(-1))

        server = await asyncio.start_server(rogue, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()

        class Launcher:
            def start(self) -> Any:
                return self

            async def __aenter__(self) -> Remote:
                return Remote(f"{host}:{port}", SECRET)

            async def __aexit__(self, *_: object) -> None:
                """Nothing is to end."""

        link: Link[Any] = Link(
            "c.r",
            Launcher(),
            Command,
            lambda connection: connection.send(FEED),
            lambda message, _: got.append(message),
            lambda: None,
        )
        task = asyncio.create_task(link.run())
        said = await heard.get()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        server.close()
        return said

    said = asyncio.run(scenario())
    assert got == []
    assert SECRET.encode() not in said
    assert b"Greeting" in said
    assert len(said) < handshake.MAX_FRAME
