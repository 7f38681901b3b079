"""The stream of a replication slot, on a thread of its own.

What comes while the consumer is busy is handed over together. The server always learns what is
durable here, and that we are alive, also while the consumer lets us wait.
"""

import asyncio
import select
import struct
import threading
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from dataclasses import dataclass

import psycopg
from psycopg import pq

from foreshore.errors import ConnectionFailure
from foreshore.storage.external.libpq import ReplicationSession
from foreshore.storage.external.postgres_failures import failure, refusal
from foreshore.storage.ingest.postgres.changes import Gathered, Gatherer, commit_of
from foreshore.storage.ingest.postgres.overlap import Overlap
from foreshore.storage.ingest.postgres.shapes import Watch
from foreshore.storage.ingest.postgres.slot import lsn_text

BATCH_BYTES = 16 << 20  # of messages, beyond which a batch ends, or a part of a transaction
PASS_BYTES = 1 << 20  # of messages that are read before anything else is looked at
STATUS_SECONDS = 5.0  # between two status updates without news
NEWS_SECONDS = 0.2  # between two with news
IDLE_SECONDS = 10.0  # after which the position moves although nothing of ours has changed
WAIT_SECONDS = 0.05
LOOK_SECONDS = 10.0  # after which tables are looked at without a reason
ROOM = 2  # batches that the consumer has not taken
EPOCH_SECONDS = 946_684_800  # from 1970 to 2000
_DATA, _KEEPALIVE = struct.Struct(">cQQq"), struct.Struct(">cQq?")
_STATUS = struct.Struct(">cQQQq?")


@dataclass(frozen=True, slots=True)
class Held:
    """The stream rests at the place where it was to be held: all before was emitted."""


class Stream:
    """Follows a slot; `follow` is for a thread, the rest may be called by another."""

    def __init__(
        self,
        session: ReplicationSession,
        gatherer: Gatherer,
        watch: Watch,
        stopping: threading.Event,
        hold: int | None = None,
        overlap: Overlap | None = None,
    ) -> None:
        """Begin where the gatherer does, or with an overlap; at `hold` it rests until `go_on`."""
        self._hold, self._overlap = hold, overlap
        self._is_held = self._has_told = False
        self._stashed: bytes | None = None  # the message at which it rests
        self._resumed = threading.Event()
        self._left: frozenset[str] = frozenset()  # tables that do not join where it is held
        self._session, self._gatherer, self._stopping = session, gatherer, stopping
        self._watch, self._looked_at = watch, time.monotonic()
        self._loop = asyncio.get_running_loop()
        self._found: asyncio.Queue[Gathered | Held | BaseException] = asyncio.Queue()
        self._room = threading.Semaphore(ROOM)
        self.durable = 0  # the end of what is durable here; 0 if that is not known yet
        self.wanted = 0  # up to where somebody wants the position to move
        self._told = self._emitted = 0
        self._received = self._idle_end = gatherer.lsn
        self._emitted_at = self._told_at = time.monotonic()
        self._is_asked = False

    @property
    def received(self) -> int:
        """Return how far the server's log is, as the server has told."""
        return self._received

    async def emitted(self, following: "asyncio.Future[None]") -> AsyncIterator[Gathered | Held]:
        """Yield what `follow` emits, which runs as `following`; raises what that raises."""
        following.add_done_callback(lambda done: self._found.put_nowait(_why(done)))
        while True:
            found = await self._found.get()
            if isinstance(found, BaseException):
                raise found
            yield found

    def _emit(self, gathered: Gathered | Held) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits for it
            self._loop.call_soon_threadsafe(self._found.put_nowait, gathered)

    def taken(self) -> None:
        """Note that the consumer has taken one of what was emitted, and is ready for more."""
        self._room.release()

    def go_on(self, without: Iterable[str] = ()) -> None:
        """Let the stream go on where it is held, without some tables."""
        self._left = frozenset(without)
        self._resumed.set()

    def follow(self, slot: str, publication: str) -> None:
        """Emit changes until it is to stop; raises DatabaseError. Closes the session."""
        names = '"' + publication.replace('"', '""') + '"'
        start = self._gatherer.lsn if self._overlap is None else self._overlap.start
        command = (
            f'START_REPLICATION SLOT "{slot}" LOGICAL {lsn_text(start)}'
            f" (proto_version '1', publication_names '{names.replace(chr(39), chr(39) * 2)}')"
        )
        try:
            self._session.command(command, pq.ExecStatus.COPY_BOTH)
            while not self._stopping.is_set():
                is_idle = self._is_full() or self._read()
                self._look()
                self._hand_over()
                self._tell()
                if is_idle:
                    self._wait()
        except psycopg.Error as error:
            raise failure(error) from error
        finally:
            self._watch.close()
            self._session.close()

    def _look(self) -> None:
        """Stop tables that are not what their relations rely on, before their rows are emitted."""
        now = time.monotonic()
        if self._gatherer.are_described or now - self._looked_at > LOOK_SECONDS:
            self._gatherer.are_described = False
            self._gatherer.stop(self._watch.unfit(self._gatherer.layouts))
            self._looked_at = now

    def _is_full(self) -> bool:
        return self._is_held or self._gatherer.text_bytes >= BATCH_BYTES

    def _wait(self) -> None:
        if self._is_full():
            time.sleep(WAIT_SECONDS / 5)
            return
        has_some = self._gatherer.transactions and not self._gatherer.is_within
        select.select(
            [self._session.pgconn.socket], [], [], WAIT_SECONDS / 5 if has_some else WAIT_SECONDS
        )

    def _read(self) -> bool:
        """Take messages; returns whether there are no more at present."""
        pgconn, gatherer = self._session.pgconn, self._gatherer
        pgconn.consume_input()
        size = 0
        while size < PASS_BYTES and not self._is_full():
            count, data = pgconn.get_copy_data(1)
            if count == 0:
                return True
            if count < 0:
                result = pgconn.get_result()
                if result is not None and result.status == pq.ExecStatus.FATAL_ERROR:
                    raise refusal(result)
                raise ConnectionFailure("the PostgreSQL server has ended the replication")
            message = bytes(data)
            size += len(message)
            if message[:1] == b"w":
                _, start, _, _ = _DATA.unpack_from(message)
                self._received = max(self._received, start)
                content = message[_DATA.size :]
                if (
                    self._hold is not None
                    and content[:1] == b"B"
                    and (commit_of(content) >= self._hold)
                ):
                    self._stashed, self._is_held = content, True
                    return True
                self._take(content)
            else:
                _, end, _, is_asked = _KEEPALIVE.unpack_from(message)
                self._received = max(self._received, end)
                self._is_asked |= is_asked
                if self._overlap is not None:
                    self._overlap.reached(end)
                if not gatherer.is_within:
                    self._idle_end = max(self._idle_end, end)
                    self._is_held = self._hold is not None and end >= self._hold
        return False

    def _take(self, message: bytes) -> None:
        """Let the gatherer have a message, unless it is of what was taken before."""
        for each in (message,) if self._overlap is None else self._overlap.taken(message):
            self._gatherer.message(each)

    def _hand_over(self) -> None:
        """Emit what was gathered, if the consumer is ready."""
        gatherer = self._gatherer
        if gatherer.is_within:
            if self._is_full() and self._room.acquire(blocking=False):
                self._emit(gatherer.take_part())
            return
        now = time.monotonic()
        if self._is_held and not gatherer.transactions:
            self._rest()
            return
        if not gatherer.transactions:
            is_wanted = gatherer.lsn < self.wanted <= self._idle_end
            is_late = now - self._emitted_at > IDLE_SECONDS
            if self._idle_end <= gatherer.lsn or not (is_wanted or is_late):
                return
        if not self._room.acquire(blocking=False):
            return
        if not gatherer.transactions:
            gatherer.skip_to(self._idle_end)
        self._emit(gatherer.take())
        self._emitted_at = now

    def _rest(self) -> None:
        """Tell that all before the place is emitted, and go on when that is allowed."""
        if not self._has_told:
            self._has_told = True
            self._emit(Held())
        elif self._resumed.is_set():
            assert self._hold is not None
            self._gatherer.leave(self._left)
            self._gatherer.skip_to(self._hold)
            self._hold, self._is_held = None, False
            if self._stashed is not None:
                self._take(self._stashed)
                self._stashed = None

    def _tell(self) -> None:
        """Send a status update if it is time for one."""
        now = time.monotonic()
        # What is confirmed could not be compared any more.
        is_sure = self._overlap is None or self._overlap.is_over
        durable = self.durable if is_sure else 0
        is_wanted = self._gatherer.lsn < self.wanted
        pause = NEWS_SECONDS if durable > self._told or is_wanted else STATUS_SECONDS
        if not self._is_asked and now - self._told_at < pause:
            return
        micros = int((time.time() - EPOCH_SECONDS) * 1_000_000)
        received = max(self._received, durable)
        status = _STATUS.pack(b"r", received, durable, durable, micros, is_wanted)
        self._session.pgconn.put_copy_data(status)
        self._session.pgconn.flush()
        self._told, self._told_at, self._is_asked = durable, now, False


def _why(done: "asyncio.Future[None]") -> BaseException:
    """Return why a stream has ended."""
    if done.cancelled():
        return ConnectionFailure("the source was stopped")
    return done.exception() or ConnectionFailure("the source was stopped")
