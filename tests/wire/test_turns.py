"""A flood of messages, of any type or of a pair of them, gives others their turn.

What is counted is the order of events: how often somebody else runs on the loop while the messages
are taken from the input.
"""

from collections.abc import Callable
from itertools import pairwise

import pytest

from foreshore.server import turns
from foreshore.server.protocol import MessageReader
from tests.hostile.kinds.messages import MESSAGES, SYNC
from tests.server.serving import Served
from tests.wire.raw import Raw

FLOOD = 4000  # bytes
QUERIES = {"tiny statements", "notices"}  # one message each
PAIRS = list(pairwise(sorted(MESSAGES)))


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
    data = (MESSAGES[one](1) + MESSAGES[other](1)) * 40
    taken, shared = others_run(served, monkeypatch, data)
    assert taken > 50
    assert shared >= taken - 3
