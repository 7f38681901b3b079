"""Notifications: what NOTIFY sends to the sessions that LISTEN.

    Signals     what a transaction has asked for, in order, until it commits
    Inbox       the notifications that a session has not sent to its client yet
    Channels    who listens where; `commit` gives a transaction's notifications to them

Nothing happens before the commit: then LISTEN and UNLISTEN take effect, and the notifications go to
all listeners at once, so every session gets them in the order of commits. Of equal notifications of
a transaction the first is sent. An inbox is bounded: the session of a client that does not take its
notifications is ended.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Literal as OneOf
from typing import NamedTuple, TypeAlias

from foreshore.errors import (
    DatabaseError,
    InvalidParameterValue,
    SlowListener,
    TooManyNotifications,
)

LONGEST_CHANNEL = 63  # bytes of a name
LONGEST_PAYLOAD = 7999  # bytes
MOST_SIGNALS = 16 * 1024 * 1024  # bytes that a transaction may hold back: an inbox's worth
MOST_WAITING = 16 * 1024 * 1024  # bytes in an inbox
_OVERHEAD = 256  # bytes of a notification beside its texts


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


class Inbox:
    """The notifications that session `pid` has not sent to its client yet.

    `tell` is called when there are some. `end` is called if they become too many.
    """

    def __init__(self, pid: int, end: Callable[[DatabaseError], None]) -> None:
        self.pid = pid
        self.size = 0
        self.channels: dict[Channel, None] = {}  # on which the session listens, in order
        self.tell: Callable[[], None] = lambda: None
        self._end = end
        self._waiting: deque[Notification] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, notifications: Sequence[Notification], size: int) -> None:
        """Add notifications of `size` bytes."""
        if self.size > MOST_WAITING:  # it is ending
            return
        self.size += size
        if self.size > MOST_WAITING:
            self._waiting.clear()
            self._end(SlowListener())
            return
        self._waiting.extend(notifications)
        self.tell()

    def take(self, most: int) -> list[Notification]:
        """Take out the first `most` notifications."""
        waiting = self._waiting
        taken = [waiting.popleft() for _ in range(min(most, len(waiting)))]
        self.size = self.size - sum(map(_bytes, taken)) if waiting else 0
        return taken


def _bytes(notification: Notification) -> int:
    return _OVERHEAD + len(notification.payload.encode())


class Channels:
    """Who listens on which channel; owned by the event loop."""

    def __init__(self) -> None:
        self._listeners: dict[Channel, dict[int, Inbox]] = {}  # by pid

    def commit(self, inbox: Inbox, signals: Signals) -> None:
        """Let the signals of a transaction of the inbox's session take effect.

        Each inbox gets its notifications together.
        """
        order: list[tuple[Channel, Notification]] = []
        for signal in signals:
            if isinstance(signal, Notify):
                each = Notification(inbox.pid, signal.channel.name, signal.payload)
                order.append((signal.channel, each))
            else:
                self._listen(inbox, signal)
        self._send(order)

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

    def _send(self, order: Sequence[tuple[Channel, Notification]]) -> None:
        """Give notifications to all listeners; those of the same channels share the work."""
        sent = {channel for channel, _ in order}
        listeners = {
            pid: each for channel in sent for pid, each in self._listeners.get(channel, {}).items()
        }
        made: dict[frozenset[Channel], tuple[list[Notification], int]] = {}
        for listener in listeners.values():
            among = frozenset(sent.intersection(listener.channels))
            if among not in made:
                found = [each for channel, each in order if channel in among]
                made[among] = found, sum(map(_bytes, found))
            listener.add(*made[among])

    def forget(self, inbox: Inbox) -> None:
        """Let a session listen on no channel."""
        for channel in list(inbox.channels):
            self._remove(inbox, channel)

    def usage(self) -> float:
        """Return how full the fullest inbox is, from 0 to 1."""
        inboxes = {id(each): each for some in self._listeners.values() for each in some.values()}
        fullest = max((each.size for each in inboxes.values()), default=0)
        return min(fullest / MOST_WAITING, 1.0)

    def _remove(self, inbox: Inbox, channel: Channel) -> None:
        if channel in inbox.channels:
            del inbox.channels[channel]
            del self._listeners[channel][inbox.pid]
            if not self._listeners[channel]:
                del self._listeners[channel]
