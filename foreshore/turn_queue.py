"""Turns that threads take one after the other: first in, first out.

    turns = TurnQueue(2)            # two threads have a turn at a time
    woken = Event()
    turn = turns.request(woken.set)
    while not turn.is_given:
        woken.wait()
    ...
    turns.end(turn)                 # whoever waits longest gets it

`wake` is called on the thread that gives the turn away, so a waiter may be woken for other reasons,
too, and may leave the queue by `end`.
"""

from collections import deque
from collections.abc import Callable
from threading import Lock


class Turn:
    """A place in a queue, and the turn itself once `is_given`."""

    __slots__ = ("_wake", "is_given")

    def __init__(self, wake: Callable[[], object]) -> None:
        self._wake = wake
        self.is_given = False

    def give(self) -> None:
        """Give the turn to whoever waits for it."""
        self.is_given = True
        self._wake()


class TurnQueue:
    """Gives `count` turns at a time."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._lock = Lock()
        self._free = count
        self._waiting: deque[Turn] = deque()

    @property
    def is_wanted(self) -> bool:
        """Whether somebody waits for a turn."""
        return bool(self._waiting)

    @property
    def is_idle(self) -> bool:
        """Whether nobody has a turn."""
        return self._free == self._count

    def request(self, wake: Callable[[], object]) -> Turn:
        """Return a turn that is given now, or later; `wake` is called when it is."""
        turn = Turn(wake)
        with self._lock:
            if self._free:
                self._free -= 1
                turn.is_given = True
            else:
                self._waiting.append(turn)
        return turn

    def end(self, turn: Turn) -> None:
        """End a turn, or leave the queue if it was not given yet."""
        with self._lock:
            if not turn.is_given:
                self._waiting.remove(turn)
            elif self._waiting:
                self._waiting.popleft().give()
            else:
                self._free += 1
