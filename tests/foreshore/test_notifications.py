"""The parts of notifications: staged signals, and a queue of bounded size."""

import pytest

from foreshore import notifications
from foreshore.errors import TooManyNotifications
from foreshore.notifications import (
    MOST_QUEUED,
    MOST_SIGNALS,
    NO_SIGNALS,
    Channel,
    Channels,
    Inbox,
    Listen,
    Notify,
    Signals,
)
from tests.processor_time import seconds_of

A, B = Channel("d", "a"), Channel("d", "b")


def test_longer_lists_of_one_list_do_not_meet() -> None:
    one = NO_SIGNALS.adding(Notify(A, "1"))
    left = one.adding(Notify(A, "2")).adding(Notify(A, "1"))
    right = one.adding(Notify(A, "3")).adding(Notify(A, "2"))
    assert [each.payload for each in left if isinstance(each, Notify)] == ["1", "2"]
    assert [each.payload for each in right if isinstance(each, Notify)] == ["1", "3", "2"]
    assert list(one) == [Notify(A, "1")]
    assert not NO_SIGNALS


def test_listen_and_unlisten_take_effect_in_their_order() -> None:
    channels, inbox = Channels(), Inbox(1)
    signals = NO_SIGNALS
    for kind, channel in (("listen", A), ("listen", B), ("unlisten", A), ("listen", A)):
        signals = signals.adding(Listen(kind, channel))  # type: ignore[arg-type]
    channels.commit(inbox, signals)
    assert list(inbox.channels) == [B, A]
    channels.commit(inbox, NO_SIGNALS.adding(Listen("unlisten", None)))
    assert not inbox.channels
    channels.commit(inbox, NO_SIGNALS.adding(Notify(A, "nobody hears")))
    assert not inbox


def test_transaction_cannot_stage_without_end() -> None:
    signals = NO_SIGNALS
    for number in range(MOST_SIGNALS // (7744 + 256)):
        signals = signals.adding(notifications.notify("d", "a", f"{number:7744}"))
    full = notifications.notify("d", "a", "x" * 7744)
    with pytest.raises(TooManyNotifications):
        signals.adding(full).adding(full._replace(payload="y"))


def listening(pid: int, channels: Channels, *names: Channel) -> Inbox:
    """Return the inbox of a session that listens."""
    inbox, signals = Inbox(pid), NO_SIGNALS
    for each in names:
        signals = signals.adding(Listen("listen", each))
    channels.commit(inbox, signals)
    return inbox


def send(channels: Channels, sender: Inbox, signals: Signals) -> None:
    """Commit a transaction that has only signals."""
    reserved = channels.reserve(signals)
    try:
        channels.commit(sender, signals)
    finally:
        channels.release(reserved)


def test_full_queue_fails_who_sends_and_keeps_who_listens() -> None:
    channels = Channels()
    slow, quick = listening(1, channels, A), listening(2, channels, A, B)
    number = 0
    while channels.usage() < 1 - 8300 / MOST_QUEUED:
        send(channels, Inbox(3), NO_SIGNALS.adding(Notify(A, f"{number:7999}")))
        assert [each.payload.strip() for each in quick.take(9)] == [str(number)]
        number += 1
    with pytest.raises(TooManyNotifications):
        send(channels, Inbox(3), NO_SIGNALS.adding(Notify(A, "x" * 7999)))
    assert 0.9 * MOST_QUEUED < number * 7999 < MOST_QUEUED
    assert channels.usage() > 0.9
    send(channels, Inbox(3), NO_SIGNALS.adding(Notify(Channel("d", "nobody hears"), "x")))
    both = NO_SIGNALS.adding(Listen("listen", Channel("d", "c")))
    both = both.adding(Notify(Channel("d", "c"), "x" * 7999))
    with pytest.raises(TooManyNotifications):  # to itself
        send(channels, Inbox(3), both)
    assert [each.payload.strip() for each in slow.take(number)] == list(map(str, range(number)))
    assert not slow
    assert channels.usage() == 0
    send(channels, Inbox(3), NO_SIGNALS.adding(Notify(A, "again")))
    assert [each.payload for each in slow.take(9)] == ["again"]


def test_transactions_that_commit_at_once_share_the_room() -> None:
    channels = Channels()
    listening(1, channels, A)
    large = NO_SIGNALS
    for number in range(2000):
        large = large.adding(Notify(A, f"{number:7000}"))
    size = channels.reserve(large)
    for _ in range(MOST_QUEUED // size - 1):
        channels.reserve(large)
    with pytest.raises(TooManyNotifications):
        channels.reserve(large)
    channels.release(size)
    assert channels.reserve(large) == size


@pytest.mark.parametrize("leave", ["unlisten", "unlisten *", "the end of the session"])
def test_who_leaves_holds_nothing_back(leave: str) -> None:
    channels = Channels()
    inbox = listening(1, channels, A, B)
    send(channels, Inbox(3), NO_SIGNALS.adding(Notify(A, "x")).adding(Notify(B, "y")))
    if leave == "the end of the session":
        channels.forget(inbox)
    else:
        channel = None if leave == "unlisten *" else A
        channels.commit(inbox, NO_SIGNALS.adding(Listen("unlisten", channel)))
    assert [each.payload for each in inbox.take(9)] == (["y"] if leave == "unlisten" else [])
    assert channels.usage() == 0


@pytest.mark.parametrize("most", [1, 2, 3, 7])
def test_parts_are_taken_in_order(most: int) -> None:
    channels = Channels()
    inbox = listening(1, channels, A)
    listening(2, channels, B)
    for first in (0, 10):
        signals = NO_SIGNALS
        for number in range(first, first + 10):
            signals = signals.adding(Notify(B if number % 3 == 0 else A, str(number)))
        send(channels, Inbox(3), signals)
    taken: list[str] = []
    while inbox:
        taken += [each.payload for each in inbox.take(most)]
    assert taken == [str(number) for number in range(20) if number % 3]


def test_many_short_notifications_for_many_listeners_take_little_time() -> None:
    channels, listeners = Channels(), [Inbox(pid) for pid in range(2, 502)]
    for inbox in listeners:
        both = NO_SIGNALS.adding(Listen("listen", A)).adding(Listen("listen", B))
        channels.commit(inbox, both)
    signals = NO_SIGNALS
    for number in range(2000):
        signals = signals.adding(Notify(A if number % 2 else B, str(number)))
    assert seconds_of(lambda: channels.commit(Inbox(1), signals)) < 0.1
    assert all(len(inbox.take(9999)) == 2000 for inbox in listeners)
