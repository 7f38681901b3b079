"""Notifications: what NOTIFY sends to the sessions that LISTEN.

    Signals     what a transaction has asked for, in order, until it commits
    Inbox       the notifications that a session has not sent to its client yet
    Channels    who listens where; `commit` gives a transaction's notifications to them

Nothing happens before the commit: then LISTEN and UNLISTEN take effect, and the notifications go to
all listeners at once, so every session gets them in the order of commits. Of equal notifications of
a transaction the first is sent.

All inboxes share what they hold: the queue has each transaction's notifications once, until the
last listener has taken them. The queue is bounded. When it is full, as with a client that does not
read, or stays in a block, transactions that would add to it fail, and all listeners stay.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Set
from itertools import islice
from time import monotonic
from typing import Literal as OneOf
from typing import NamedTuple, TypeAlias

from foreshore.errors import InvalidParameterValue, TooManyNotifications

logger = logging.getLogger(__name__)

LONGEST_CHANNEL = 63  # bytes of a name
LONGEST_PAYLOAD = 7999  # bytes
MOST_SIGNALS = 16 * 1024 * 1024  # bytes that a transaction may hold back
MOST_QUEUED = 64 * 1024 * 1024  # bytes in the queue
WARN_S = 5.0  # between two warnings of a queue that is more than half full
_OVERHEAD = 256  # bytes of a notification beside its texts
_PLACE = 16  # bytes of a transaction's notifications for each listener


class Channel(NamedTuple):
    """A channel of a database."""

    database: str
    name: str


class Listen(NamedTuple):
    """LISTEN or UNLISTEN of a channel, or UNLISTEN * (None)."""

    kind: OneOf["listen", "unlisten"]
    channel: Channel | None


class Notify(NamedTuple):
    """NOTIFY."""

    channel: Channel
    payload: str


Signal: TypeAlias = Listen | Notify


class Notification(NamedTuple):
    """What a client receives: session `pid` has sent `payload`."""

    pid: int
    channel: str
    payload: str


def notify(database: str, channel: str, payload: str) -> Notify:
    """Return a valid notification; raises InvalidParameterValue."""
    if not channel:
        raise InvalidParameterValue("channel name cannot be empty")
    if len(channel.encode()) > LONGEST_CHANNEL:
        raise InvalidParameterValue("channel name too long")
    if len(payload.encode()) > LONGEST_PAYLOAD:
        raise InvalidParameterValue("payload string too long")
    return Notify(Channel(database, channel), payload)


class _Storage:
    """A growing list of signals, and the place of each notification."""

    __slots__ = ("places", "signals")

    def __init__(self, signals: Iterable[Signal] = ()) -> None:
        self.signals = list(signals)
        self.places = {each: place for place, each in enumerate(self.signals)}


class Signals:
    """The LISTEN, UNLISTEN and NOTIFY of a transaction: a list that is never changed.

    A longer list shares the storage of the one that it was made of, so adding takes constant time.
    """

    __slots__ = ("_length", "_size", "_storage")

    def __init__(self) -> None:
        self._storage = _Storage()
        self._length = self._size = 0

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Signal]:
        return islice(self._storage.signals, self._length)

    def adding(self, signal: Signal) -> "Signals":
        """Return the list with one more, unless it has the same notification already.

        Raises TooManyNotifications.
        """
        storage, length = self._storage, self._length
        if isinstance(signal, Notify) and storage.places.get(signal, length) < length:
            return self
        size = self._size + _size(signal)
        if size > MOST_SIGNALS:
            raise TooManyNotifications
        if not length or len(storage.signals) > length:  # a longer one was rolled back
            storage = _Storage(self)
        storage.places[signal] = length
        storage.signals.append(signal)
        longer = Signals.__new__(Signals)
        longer._storage, longer._length, longer._size = storage, length + 1, size
        return longer


NO_SIGNALS = Signals()


def _size(signal: Signal) -> int:
    return _OVERHEAD + (len(signal.payload.encode()) if isinstance(signal, Notify) else 0)


class _Sent:
    """The notifications of one transaction, as long as a listener has to take them."""

    __slots__ = ("notifications", "readers", "size")

    def __init__(self, notifications: list[tuple[Channel, Notification]], size: int) -> None:
        self.notifications = notifications
        self.size = size
        self.readers = 0


class Inbox:
    """The notifications that session `pid` has not sent to its client yet.

    `tell` is called when there are some.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.channels: dict[Channel, None] = {}  # on which the session listens, in order
        self.tell: Callable[[], None] = lambda: None
        self.waiting: deque[_Sent] = deque()
        self._at = 0  # of the first of them so many have been taken
        self._finish: Callable[[_Sent], None] = lambda sent: None

    def __bool__(self) -> bool:
        """Whether something waits, which may be for channels that were left since."""
        return bool(self.waiting)

    def add(self, sent: _Sent, finish: Callable[[_Sent], None]) -> None:
        """Add notifications; `finish` is called with them when they have been taken."""
        self._finish = finish
        self.waiting.append(sent)
        self.tell()

    def take(self, most: int) -> list[Notification]:
        """Take out the first `most` notifications of channels on which the session listens."""
        taken: list[Notification] = []
        while self.waiting and len(taken) < most:
            sent = self.waiting[0]
            for at in range(self._at, len(sent.notifications)):
                channel, notification = sent.notifications[at]
                if channel in self.channels:
                    taken.append(notification)
                    if len(taken) == most:
                        break
            self._at = at + 1
            if self._at == len(sent.notifications):
                self._leave()
        return taken

    def transactions(self) -> int:
        """Return of how many transactions something waits."""
        return len(self.waiting)

    def clear(self) -> None:
        """Leave all that waits."""
        while self.waiting:
            self._leave()

    def _leave(self) -> None:
        self._at = 0
        self._finish(self.waiting.popleft())


class Channels:
    """The listeners of each channel, and the queue; owned by the event loop."""

    def __init__(self) -> None:
        self._listeners: dict[Channel, dict[int, Inbox]] = {}  # by pid
        self._size = 0  # bytes in the queue
        self._reserved = 0  # bytes of transactions that commit
        self._warned = -WARN_S

    def reserve(self, signals: Signals) -> int:
        """Keep room for what a transaction sends that is about to commit, until `release`.

        Returns how many bytes. Raises TooManyNotifications if there is no room.
        """
        if not signals:
            return 0
        listens = any(isinstance(each, Listen) for each in signals)  # maybe to what it sends
        size = sum(
            _size(each)
            for each in signals
            if isinstance(each, Notify) and (listens or each.channel in self._listeners)
        )
        if size and self._size + self._reserved + size > MOST_QUEUED:
            raise TooManyNotifications
        self._reserved += size
        return size

    def release(self, size: int) -> None:
        """Give back what `reserve` has kept: the transaction has ended."""
        self._reserved -= size

    def commit(self, inbox: Inbox, signals: Signals) -> None:
        """Let the signals of a transaction of the inbox's session take effect."""
        order: list[tuple[Channel, Notification]] = []
        for signal in signals:
            if isinstance(signal, Notify):
                each = Notification(inbox.pid, signal.channel.name, signal.payload)
                order.append((signal.channel, each))
            else:
                self._listen(inbox, signal)
        self._send([each for each in order if each[0] in self._listeners])

    def _listen(self, inbox: Inbox, signal: Listen) -> None:
        """Run LISTEN or UNLISTEN."""
        channel = signal.channel
        if channel is None:
            self.forget(inbox)
        elif signal.kind == "listen":
            self._listeners.setdefault(channel, {})[inbox.pid] = inbox
            inbox.channels[channel] = None
        else:
            self._remove(inbox, channel)

    def _send(self, notifications: list[tuple[Channel, Notification]]) -> None:
        """Put notifications into the queue, for all who listen to some of them."""
        if not notifications:
            return
        size = sum(_OVERHEAD + len(each.payload.encode()) for _, each in notifications)
        sent = _Sent(notifications, size)
        listeners = self._hearing({channel for channel, _ in notifications})
        sent.size += _PLACE * len(listeners)
        sent.readers = len(listeners)
        self._size += sent.size
        for each in listeners:
            each.add(sent, self._finish)
        if self._size > MOST_QUEUED // 2:
            self._warn()

    def _hearing(self, channels: Set[Channel]) -> list[Inbox]:
        """Return who listens on one of the channels."""
        if len(channels) == 1:
            return [*self._listeners[next(iter(channels))].values()]
        found: dict[int, Inbox] = {}
        for channel in channels:
            found.update(self._listeners[channel])
        return [*found.values()]

    def _finish(self, sent: _Sent) -> None:
        """Remove notifications from the queue when the last listener has taken them."""
        sent.readers -= 1
        if not sent.readers:
            self._size -= sent.size

    def _warn(self) -> None:
        if monotonic() - self._warned > WARN_S:
            self._warned = monotonic()
            slow = max(self._inboxes(), key=Inbox.transactions)
            usage = {"full": f"{self.usage():.0%}", "pid": slow.pid}
            logger.warning("the NOTIFY queue fills: a session does not take its part", extra=usage)

    def _inboxes(self) -> Iterator[Inbox]:
        return (each for some in self._listeners.values() for each in some.values())

    def forget(self, inbox: Inbox) -> None:
        """Let a session listen on no channel."""
        for channel in list(inbox.channels):
            self._remove(inbox, channel)
        inbox.clear()

    def usage(self) -> float:
        """Return how full the queue is, from 0 to 1."""
        return min(self._size / MOST_QUEUED, 1.0)

    def _remove(self, inbox: Inbox, channel: Channel) -> None:
        if channel in inbox.channels:
            del inbox.channels[channel]
            del self._listeners[channel][inbox.pid]
            if not self._listeners[channel]:
                del self._listeners[channel]
