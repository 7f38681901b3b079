"""The parts of notifications: staged signals, and inboxes of bounded size."""

import pytest

from foreshore import notifications
from foreshore.errors import DatabaseError, SlowListener, TooManyNotifications
from foreshore.notifications import (
    MOST_SIGNALS,
    MOST_WAITING,
    NO_SIGNALS,
    Channel,
    Channels,
    Inbox,
    Listen,
    Notify,
)
from tests.processor_time import seconds_of


def never(error: DatabaseError) -> None:
    """Fail, because no session should end."""
    pytest.fail(error.message)


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
    channels, inbox = Channels(), Inbox(1, never)
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


def test_inbox_that_nobody_empties_ends_its_session_alone() -> None:
    ended: list[DatabaseError] = []
    channels, slow, quick = Channels(), Inbox(1, ended.append), Inbox(2, never)
    for inbox in (slow, quick):
        channels.commit(inbox, NO_SIGNALS.adding(Listen("listen", A)))
    number = 0
    while not ended:
        number += 1
        channels.commit(Inbox(3, never), NO_SIGNALS.adding(Notify(A, f"{number:7999}")))
        assert [each.payload.strip() for each in quick.take(9)] == [str(number)]
        assert not quick.size
        assert slow.size <= MOST_WAITING or ended
    assert isinstance(ended[0], SlowListener)
    assert len(ended) == 1
    assert not slow
    assert 0.9 * MOST_WAITING < number * 7999 < 1.1 * MOST_WAITING


def test_many_short_notifications_for_many_listeners_take_little_time() -> None:
    channels, listeners = Channels(), [Inbox(pid, never) for pid in range(2, 502)]
    for inbox in listeners:
        both = NO_SIGNALS.adding(Listen("listen", A)).adding(Listen("listen", B))
        channels.commit(inbox, both)
    signals = NO_SIGNALS
    for number in range(2000):
        signals = signals.adding(Notify(A if number % 2 else B, str(number)))
    assert seconds_of(lambda: channels.commit(Inbox(1, never), signals)) < 0.1
    assert all(len(inbox) == 2000 for inbox in listeners)
