"""Transactions that come again when a stream begins: they have to be those that were taken.

A slot may have less confirmed than is durable here. So the stream begins where the slot is, and
passes over what was taken. The last transaction among it must end where it did, and none may follow
before our position, which moves also while nothing is published: else the server is a copy from
before, which has gone on with other transactions. Where the slot has that transaction confirmed,
the server has its log up to there.
"""

import struct
from collections.abc import Sequence

from foreshore.errors import ObjectNotInPrerequisiteState

_PLACE = struct.Struct(">Q")
_COMMIT = struct.Struct(">xQQ")
_COUNT, _RELATION = struct.Struct(">I"), struct.Struct(">I")


class HistoryChanged(ObjectNotInPrerequisiteState):
    """A server has not got the transactions that were taken from it."""


class Overlap:
    """Passes over transactions from `start` to `end`, the last of which ends at `commit`.

    If that is not after `start`, there is none.
    """

    def __init__(self, start: int, end: int, commit: int) -> None:
        self.start = start
        self.is_over = False
        self._end, self._commit = end, commit
        self._is_seen = commit <= start
        self._is_within = False
        self._tables: dict[int, bytes] = {}  # what they are like, as it was sent in between

    def reached(self, end: int) -> None:
        """Note that the server has sent all before a place; raises HistoryChanged."""
        if not self.is_over and not self._is_within and end >= self._end:
            self._finish()

    def taken(self, message: bytes) -> Sequence[bytes]:
        """Return what is to be taken of a message; raises HistoryChanged.

        Tables are described once by the server. What was described in between is added before the
        first change of the table, unless that describes it anew.
        """
        kind = message[:1]
        if not self.is_over:
            if kind != b"B" or self._is_within:
                self._pass_over(kind, message)
                return ()
            if _PLACE.unpack_from(message, 1)[0] < self._end:
                self._is_within = True
                return ()
            self._finish()
        if not self._tables:
            return (message,)
        if kind == b"R":
            self._tables.pop(_RELATION.unpack_from(message, 1)[0], None)
        return (*self._described(kind, message), message)

    def _pass_over(self, kind: bytes, message: bytes) -> None:
        if kind == b"R":
            self._tables[_RELATION.unpack_from(message, 1)[0]] = message
        elif kind == b"C":
            self._is_within = False
            end = _COMMIT.unpack_from(message, 1)[1]
            if end > self._commit:
                raise _changed()
            self._is_seen |= end == self._commit

    def _described(self, kind: bytes, message: bytes) -> Sequence[bytes]:
        """Return what the tables of a change are like, if that was passed over."""
        if kind in (b"I", b"U", b"D"):
            ids = [_RELATION.unpack_from(message, 1)[0]]
        elif kind == b"T":
            (count,) = _COUNT.unpack_from(message, 1)
            ids = [_RELATION.unpack_from(message, 6 + 4 * i)[0] for i in range(count)]
        else:
            return ()
        return [self._tables.pop(id) for id in ids if id in self._tables]

    def _finish(self) -> None:
        if not self._is_seen:
            raise _changed()
        self.is_over = True


def _changed() -> HistoryChanged:
    return HistoryChanged(
        "the server has other transactions than those that were read: it is a copy from before,"
        " which has gone on"
    )
