"""A flood of messages, of any type or of a pair of them, gives others their turn.

What is counted is the order of events: how often somebody else runs on the loop while the messages
are taken from the input.
"""

import asyncio
from collections.abc import Callable
from itertools import pairwise

import pytest

from foreshore.notifications import NO_SIGNALS, Channel, Channels, Inbox, Listen, Notify
from foreshore.server import turns
from foreshore.server.connection import Conversation
from foreshore.server.protocol import MessageReader
from tests.hostile.kinds.messages import MESSAGES, SYNC, pair
from tests.server.serving import Served
from tests.wire.raw import Raw

FLOOD = 4000  # bytes
QUERIES = {"tiny statements", "notices"}  # one message each
PAIRS = list(pairwise(sorted(MESSAGES.keys() - QUERIES)))


def others_run(served: Served, monkeypatch: pytest.MonkeyPatch, data: bytes) -> tuple[int, int]:
    """Send a flood; return how many of its messages are taken, and after how many others ran."""
    monkeypatch.setattr(turns, "SLICE_S", 0.0)
    events: list[str] = []
    take: Callable[[MessageReader], object] = MessageReader.next

    def taken(self: MessageReader) -> object:
        found = take(self)
        if found is not None:
            events.append("message")
        return found

    def turn() -> None:
        events.append("other")
        if not done:
            served.loop.call_soon(turn)

    done: list[bool] = []
    raw = Raw(served.port)
    monkeypatch.setattr(MessageReader, "next", taken)
    served.loop.call_soon_threadsafe(turn)
    raw.socket.sendall(data + SYNC + SYNC + b"X\0\0\0\4")
    assert raw.closed()
    done.append(True)
    pairs = list(pairwise(events))
    return events.count("message"), pairs.count(("message", "other"))


@pytest.mark.parametrize("name", sorted(MESSAGES.keys() - QUERIES))
def test_others_run_between_messages_of_each_type(
    served: Served, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    taken, shared = others_run(served, monkeypatch, MESSAGES[name](FLOOD))
    assert taken > 50
    assert shared >= taken - 3


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_others_run_between_messages_of_two_types(
    served: Served, monkeypatch: pytest.MonkeyPatch, one: str, other: str
) -> None:
    taken, shared = others_run(served, monkeypatch, pair(one, other, synced=False, size=FLOOD))
    assert taken > 50
    assert shared >= taken - 3


@pytest.mark.full
@pytest.mark.parametrize("synced", [False, True])
@pytest.mark.parametrize("one", sorted(MESSAGES.keys() - QUERIES))
def test_others_run_between_messages_of_each_ordered_pair(
    served: Served, one: str, synced: bool
) -> None:
    for other in sorted(MESSAGES.keys() - QUERIES):
        data = pair(one, other, synced=synced, size=FLOOD)
        with pytest.MonkeyPatch.context() as monkeypatch:
            taken, shared = others_run(served, monkeypatch, data)
        assert taken > 50, other
        assert shared >= taken - 3, other


def test_others_run_between_listeners_of_a_notification(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    listeners = [Raw(served.port) for _ in range(20)]
    channels, channel = Channels(), Channel("foreshore", "a")
    events: list[str] = []
    send: Callable[[Conversation], None] = Conversation._send_notifications

    def sent(self: Conversation) -> None:
        events.append("listener")
        send(self)

    def turn() -> None:
        events.append("other")
        if events.count("listener") < len(listeners):
            served.loop.call_soon(turn)

    async def notify() -> None:
        for each in served.client.sessions.values():
            channels.commit(each.inbox, NO_SIGNALS.adding(Listen("listen", channel)))
        served.loop.call_soon(turn)
        for number in range(3):
            channels.commit(Inbox(0), NO_SIGNALS.adding(Notify(channel, str(number))))

    monkeypatch.setattr(turns, "SLICE_S", 0.0)
    monkeypatch.setattr(Conversation, "_send_notifications", sent)
    for each in listeners:
        each.socket.sendall(SYNC)
        each.until("Z")
    served.run(notify())
    for each in listeners:
        assert [each.until("A")[-1][1][-2:-1] for _ in range(3)] == [b"0", b"1", b"2"]
        each.socket.close()
    assert events.count("listener") == len(listeners)
    assert ("listener", "listener") not in pairwise(events)


def test_listeners_take_one_turn_together(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A waiting session has its turn after one slice, however many listeners there are."""
    monkeypatch.setattr(turns, "SLICE_S", 0.0)
    events: list[str] = []

    async def share() -> None:
        shared, turn = turns.turns_of_loop(), turns.Turn()
        for _ in range(50):
            shared.share(lambda: events.append("listener"))
        await turn.next()
        events.append("other")

    served.run(share())
    assert events.index("other") <= 3


def test_listener_that_fails_keeps_no_other_waiting(served: Served) -> None:
    sent: list[str] = []

    async def share() -> None:
        shared, turn = turns.turns_of_loop(), turns.Turn()
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        shared.share({}.popitem)
        shared.share(lambda: sent.append("sent"))
        while not sent:
            await turn.next()
        asyncio.get_running_loop().set_exception_handler(None)

    served.run(share())
    assert sent == ["sent"]
