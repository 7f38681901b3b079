"""The sockets between the workers of a replica, and the collective calls of dataflows over them.

    frame = u64 dataflow, u64 attempt, u64 length, u8 kind, payload

A worker has a socket to each other one. A thread reads each socket into mailboxes, one for each
dataflow, so that workers can send to each other at the same time. A step of a dataflow is an
*attempt* with a number. Its collective calls are made in one order by all workers, and so what a
peer sends is taken in the order of sending. What is left of an attempt that failed is dropped.
"""

import socket
import struct
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from foreshore.compute.flow.batch import Batch, Ints, Words, concat
from foreshore.compute.flow.intern import Interner
from foreshore.compute.flow.peers import owner_of_empty_key, owners
from foreshore.compute.workers.wire import packed, receive_into, send_all, unpacked
from foreshore.errors import QueryCanceled

_HEADER = struct.Struct("<QQQB")
_PART, _LAST, _ABORT = range(3)  # kinds: of data, of the end of data, of a failure
AT_ONCE = 1 << 17  # updates in a frame


class PeerFailed(Exception):
    """Another worker has failed in the same attempt."""


class Mailbox:
    """The messages of peers for one dataflow: (attempt, kind, payload), in order for each."""

    def __init__(self, peers: Sequence[int]) -> None:
        self.changed = threading.Condition()
        self.frames: dict[int, deque[tuple[int, int, memoryview]]] = {p: deque() for p in peers}
        self.cancelled = False


class Mesh:
    """A worker's sockets to its peers, by their numbers."""

    def __init__(self, index: int, sockets: Mapping[int, socket.socket]) -> None:
        self.index = index
        self.count = len(sockets) + 1
        self.peers = sorted(sockets)
        self._sockets = dict(sockets)
        self._sending = {peer: threading.Lock() for peer in sockets}
        self._boxes: dict[int, Mailbox] = {}
        self._closed: set[int] = set()
        self._lock = threading.Lock()
        self.broken = False
        for peer, sock in sockets.items():
            name = f"peer {peer}"
            threading.Thread(target=self._read, args=(peer, sock), name=name, daemon=True).start()

    def box(self, dataflow: int) -> Mailbox | None:
        """Return the mailbox of a dataflow, None if it is closed."""
        with self._lock:
            if dataflow in self._closed:
                return None
            return self._boxes.setdefault(dataflow, Mailbox(self.peers))

    def close_box(self, dataflow: int) -> None:
        """Drop what comes for a dataflow from now on."""
        with self._lock:
            self._closed.add(dataflow)
            self._boxes.pop(dataflow, None)

    def send(
        self, peer: int, dataflow: int, attempt: int, kind: int, payload: Sequence[Any] = ()
    ) -> None:
        """Send a frame."""
        header = _HEADER.pack(dataflow, attempt, sum(map(len, payload)), kind)
        with self._sending[peer]:
            send_all(self._sockets[peer], [header, *payload])

    def _read(self, peer: int, sock: socket.socket) -> None:
        header = bytearray(_HEADER.size)
        try:
            while receive_into(sock, memoryview(header)):
                dataflow, attempt, size, kind = _HEADER.unpack(header)
                payload = memoryview(bytearray(size))
                if size and not receive_into(sock, payload):
                    break
                box = self.box(dataflow)
                if box is not None:
                    with box.changed:
                        box.frames[peer].append((attempt, kind, payload))
                        box.changed.notify_all()
        except OSError:
            pass  # as at its end: the replica ends with any of its workers
        self.close()

    def close(self) -> None:
        """Close all sockets; whoever waits for a peer fails."""
        self.broken = True
        for sock in self._sockets.values():
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:  # closed by the peer
                continue
        with self._lock:
            boxes = list(self._boxes.values())
        for box in boxes:
            with box.changed:
                box.changed.notify_all()


class Channel:
    """The peers of one dataflow (`flow/peers.py`), over a mesh."""

    def __init__(self, mesh: Mesh, dataflow: int, interner: Interner, seed: int) -> None:
        self.index, self.count = mesh.index, mesh.count
        self._mesh = mesh
        self._dataflow = dataflow
        self._interner = interner
        self._seed = seed
        box = mesh.box(dataflow)
        assert box is not None, dataflow
        self._box = box
        self._attempt = 0

    # --- attempts

    def begin(self, attempt: int) -> None:
        """Begin an attempt; what peers sent for earlier ones is dropped."""
        self._attempt = attempt

    def give_up(self) -> None:
        """Let the attempt fail with all peers."""
        for peer in self._mesh.peers:
            try:
                self._mesh.send(peer, self._dataflow, self._attempt, _ABORT)
            except OSError:
                continue  # it has ended

    def cancel(self) -> None:
        """Let the calls of any thread that waits for a peer raise QueryCanceled."""
        with self._box.changed:
            self._box.cancelled = True
            self._box.changed.notify_all()

    # --- collective calls

    @property
    def owns_empty_key(self) -> bool:
        """Whether this worker owns the key without columns."""
        return owner_of_empty_key(self._seed, self.count) == self.index

    def route(self, batch: Batch, strings: Ints, keys: Words, key_strings: Ints) -> Batch:
        """Send each update to the owner of its key; return those that came here."""
        mine = batch
        if len(batch):
            owner = owners(keys, key_strings, self._interner, self._seed, self.count)
            for peer in self._mesh.peers:
                self._send(peer, batch.take(owner == peer), strings)
            mine = batch.take(owner == self.index)
        else:
            for peer in self._mesh.peers:
                self._send(peer, batch, strings)
        return concat([mine, *self._received(strings)], batch.width)

    def broadcast(self, batch: Batch, strings: Ints) -> Batch:
        """Return the updates of all peers."""
        for peer in self._mesh.peers:
            self._send(peer, batch, strings)
        return concat([batch, *self._received(strings)], batch.width)

    def totals(self, numbers: Sequence[int]) -> list[int]:
        """Return the sums of all peers' numbers."""
        sums = np.array(numbers, np.int64)
        for peer in self._mesh.peers:
            self._mesh.send(peer, self._dataflow, self._attempt, _LAST, [sums.tobytes()])
        for peer in self._mesh.peers:
            sums = sums + np.frombuffer(self._next(peer)[1], np.int64)
        found: list[int] = sums.tolist()
        return found

    def agree(self) -> None:
        """Return when all peers have computed the window; raises if one has failed."""
        self.totals([1])

    def _send(self, peer: int, batch: Batch, strings: Ints) -> None:
        for start in range(0, len(batch), AT_ONCE):
            part = batch if len(batch) <= AT_ONCE else batch.take(slice(start, start + AT_ONCE))
            payload = packed(part, strings, self._interner)
            self._mesh.send(peer, self._dataflow, self._attempt, _PART, payload)
        self._mesh.send(peer, self._dataflow, self._attempt, _LAST)

    def _received(self, strings: Ints) -> list[Batch]:
        found = []
        for peer in self._mesh.peers:
            kind, payload = self._next(peer)
            while kind == _PART:
                found.append(unpacked(payload, strings, self._interner))
                kind, payload = self._next(peer)
        return found

    def _next(self, peer: int) -> tuple[int, memoryview]:
        """Return the next frame of a peer in this attempt; raises PeerFailed if there is none."""
        box = self._box
        frames = box.frames[peer]
        with box.changed:
            while True:
                while frames and frames[0][0] < self._attempt:
                    frames.popleft()
                if box.cancelled:
                    raise QueryCanceled
                if frames and frames[0][0] == self._attempt:
                    _, kind, payload = frames.popleft()
                    if kind == _ABORT:
                        raise PeerFailed
                    return kind, payload
                if frames or self._mesh.broken:  # the peer is in a later attempt, or lost
                    raise PeerFailed
                box.changed.wait()
