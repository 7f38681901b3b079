"""A mirror: the rows of one index, in the environment, exact at each time that it knows.

A mirror takes what replicas send to a subscription: the contents as of a time, then each window of
changes. Many rows are arranged on a thread; what comes meanwhile waits its turn.

Beside the arrangement there are two memories of answers, so that what is asked again costs little.
Both are of the newest rows, and good from the last change on.

    rows under a key      as tuples, forgotten when a row under the key changes
    whole answers         of plans without parameters, forgotten with any change
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from functools import lru_cache
from itertools import chain

import pyarrow as pa

from foreshore import blocking
from foreshore.compute.arrange.arrangement import TAIL_ROWS, Arrangement, TooManyRows
from foreshore.compute.arrange.key import hash_words, key_words
from foreshore.compute.arrange.merge import Merge
from foreshore.compute.arrange.row_reader import PointReader
from foreshore.compute.arrange.table_index import table_index
from foreshore.compute.controller.mirrored_rows import MirroredRows
from foreshore.compute.controller.windows import new_part
from foreshore.compute.engine import ERRORS, rows_schema
from foreshore.compute.inputs import times_of
from foreshore.compute.peek import FEW_ROWS, IndexPeek, LocalIndex, answer_from_index
from foreshore.datum import from_array
from foreshore.errors import DatabaseError, InternalError, ObjectNotInPrerequisiteState
from foreshore.expr.columns import type_of
from foreshore.expr.cost import is_light
from foreshore.expr.equality import is_plain
from foreshore.expr.ir import Column, Finishing, Get, Relation, Scalar
from foreshore.expr.scalars import scalars_of
from foreshore.expr.traversal import walk_relations
from foreshore.ids import GlobalId
from foreshore.table_rows import Row
from foreshore.types import ColumnType
from foreshore.update import Timestamp

logger = logging.getLogger(__name__)

FEW = 64  # changed rows up to which their keys alone are forgotten
MOST_UNDER = 1_000  # rows under one key, or of a whole index, that are had as tuples
MOST_UPDATES = 2 * MOST_UNDER  # that are looked up under one key
MOST_KEYS = 16_384  # keys that are remembered
MOST_ROWS = 32_768  # rows of these
MOST_ANSWERS = 64  # whole answers that are remembered
MOST_ANSWER_BYTES = 1 << 18  # of each

Window = tuple[Timestamp, Timestamp, pa.Table | None, pa.Table | None]


class Mirror:
    """The rows of `index`, of `columns`, by `key`, from `as_of` on; it receives them as `id`.

    `changed` is called after rows were inserted.
    """

    def __init__(
        self,
        id: GlobalId,
        index: GlobalId,
        columns: tuple[ColumnType, ...],
        key: tuple[Scalar, ...],
        as_of: Timestamp,
        changed: Callable[["Mirror"], None],
    ) -> None:
        self.id = id
        self.index = index
        self.upper: Timestamp = 0  # all updates before it have been received
        self.failed = False
        self.unread = 0  # updates since it last answered a read
        self.is_used = False  # whether it has answered one
        self._late: tuple[Timestamp, float] | None = None  # see `is_late`
        self._as_of = as_of
        self._columns = columns
        self._rows = table_index(index, columns, key, as_of, MirroredRows)
        self._reader = PointReader(self._rows, columns)
        self._key_types = tuple(type_of(each) for each in key)
        self._errors = Arrangement(index, rows_schema(ERRORS), (), lambda _: [], as_of)
        self._local = LocalIndex(self._rows, self._errors, index)
        self._changed = changed
        self._ended: Callable[[Mirror, DatabaseError], None] = lambda _mirror, _error: None
        self._waiting: list[tuple[Timestamp, asyncio.Future[None]]] = []
        self._queue: list[Window] = []  # received, and not arranged yet
        self._arranging: asyncio.Task[None] | None = None
        self._merging = False
        self._known: Timestamp = as_of  # all before it is inserted, and forgotten what it changed
        self._changed_at: Timestamp = as_of  # the time of the last change
        self._places = _places(key)  # of the key, if rows are remembered by it
        self._by_key: dict[Row, tuple[Row, ...]] = {}
        self._remembered = 0  # rows in it
        self._answers: dict[tuple[int, int], tuple[Relation, Finishing, pa.RecordBatch]] = {}

    def when_failed(self, ended: Callable[["Mirror", DatabaseError], None]) -> None:
        """Have `ended` called when it cannot go on."""
        self._ended = ended

    # --- receiving

    @property
    def since(self) -> Timestamp:
        """Return the time from which its index must be readable for another replica to continue."""
        return max(self._as_of, self.upper - 1)

    def put(self, lower: Timestamp, upper: Timestamp, rows: pa.Table, errors: pa.Table) -> None:
        """Receive the updates in [lower, upper) from a replica."""
        if self.failed or upper <= self.upper:
            return
        if lower > self.upper:
            gap = f"what changed from {self.upper} to {lower} is not known any more"
            self.fail(ObjectNotInPrerequisiteState(gap))
            return
        new_rows = new_part(lower, upper, rows, self.upper)
        new_errors = new_part(lower, upper, errors, self.upper)
        self._take((self.upper, upper, new_rows, new_errors))

    def progress(self, upper: Timestamp) -> None:
        """Record that a replica has sent all updates before `upper`."""
        if not self.failed and upper > self.upper > 0:
            self._take((self.upper, upper, None, None))

    def fail(self, error: DatabaseError) -> None:
        """Stop for good."""
        if not self.failed:
            self.close()
            self._ended(self, error)

    def close(self) -> None:
        """Let go of all rows, and of those that wait."""
        self.failed = True
        self._queue.clear()
        self._forget()
        if self._arranging is not None:
            self._arranging.cancel()
        self._wake(None)

    def _take(self, window: Window) -> None:
        self.upper = window[1]
        is_free = self._arranging is None and not self._queue
        if is_free and (window[2] is window[3] is None or _is_small(window)):
            try:
                self._insert(window)
                self._inserted(window)
            except Exception as error:  # part of the window may be lost
                self._fail_for(error)
            return
        self._queue.append(window)
        if self._arranging is None:
            self._arranging = asyncio.get_running_loop().create_task(self._arrange())

    async def _arrange(self) -> None:
        """Arrange what has been received, on a thread."""
        try:
            while self._queue and not self.failed:
                window = self._queue.pop(0)
                if _is_small(window):
                    self._insert(window)
                else:
                    await blocking.run(None, self._insert, window)
                if not self.failed:
                    self._inserted(window)
        except Exception as error:  # part of the window may be lost
            self._arranging = None
            self._fail_for(error)
        finally:
            self._arranging = None

    def _fail_for(self, error: Exception) -> None:
        """Stop for good, as the rows may not be those of the index."""
        logger.error("a mirror has lost rows", exc_info=error, extra={"index": self.index})
        self.fail(InternalError(f"rows could not be arranged: {type(error).__name__}"))

    def _insert(self, window: Window) -> None:
        _, upper, rows, errors = window
        # errors first: a reader that sees rows up to a time must see errors up to it
        for into, updates in ((self._errors, errors), (self._rows, rows)):
            if updates is None:
                into.advance(upper)
            else:
                into.insert(updates, upper)

    def _inserted(self, window: Window) -> None:
        lower, upper, rows, errors = window
        self._known = upper
        if self._waiting:
            self._wake(upper)
        if rows is None and errors is None:
            return
        for updates in (rows, errors):
            if updates is not None:
                last = int(times_of(updates).to_numpy().max())
                self._changed_at = max(self._changed_at, last)
                self.unread += updates.num_rows if lower else 0  # the first ones are the contents
        self._forget_changed(rows)
        self._changed(self)

    def _wake(self, upper: Timestamp | None) -> None:
        """Wake those that wait for a time before `upper`, or (None) all."""
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        for time, passed in waiting:
            if upper is not None and time >= upper:
                self._waiting.append((time, passed))
            elif not passed.done():
                passed.set_result(None)

    # --- keeping

    def compact(self, since: Timestamp) -> None:
        """Forget the times before `since`."""
        self._rows.compact(since)
        self._errors.compact(since)

    @property
    def size(self) -> tuple[int, int, int]:
        """Return the numbers of updates, runs and bytes."""
        (rows, runs, bytes), (more, _, others) = self._rows.size, self._errors.size
        return rows + more, runs + 1, bytes + others + 200 * self._remembered

    def due_merge(self) -> Coroutine[None, None, None] | None:
        """Return what does a merge that is due, None if there is none, or one is under way."""
        if self._merging or self._arranging is not None:
            return None
        for each in (self._rows, self._errors):
            if (merge := each.next_merge()) is not None:
                self._merging = True
                return self._merge(each, merge)
        return None

    async def _merge(self, arrangement: Arrangement, merge: Merge) -> None:
        try:
            run = await blocking.run(None, merge.result)
            while self._arranging is not None:  # a thread inserts
                await asyncio.shield(self._arranging)
            if not self.failed:
                arrangement.install(merge, run)
                self._reader.forget()
        finally:
            self._merging = False

    # --- reading

    @property
    def readable_from(self) -> Timestamp:
        """Return the time from which on it knows the rows."""
        return self._rows.since

    def knows(self, time: Timestamp) -> bool:
        """Whether it knows the rows at `time`."""
        return self._rows.since <= time < self._known and not self.failed

    @property
    def awaited(self) -> list[Timestamp]:
        """The times for which readers wait."""
        return [time for time, _ in self._waiting]

    async def passed(self, time: Timestamp, patience_s: float) -> bool:
        """Return whether it knows the rows at `time`, perhaps after waiting so long."""
        begun = self.upper > 0 and not self.failed
        if begun and not self.knows(time) and self._rows.since <= time:
            loop = asyncio.get_running_loop()
            passed: asyncio.Future[None] = loop.create_future()
            self._waiting.append((time, passed))
            timer = loop.call_later(patience_s, _give_up, passed)
            try:
                await passed
            finally:
                timer.cancel()
                if not passed.done() or passed.cancelled():
                    self._waiting = [each for each in self._waiting if each[1] is not passed]
        return self.knows(time)

    def is_late(self, time: Timestamp, seconds: float) -> bool:
        """Note that `time` did not come in a read's patience, though the index is past it.

        Return whether nothing has been received for so long since a read was first let down.
        """
        if time < self.upper:  # it is being arranged
            return False
        now = asyncio.get_running_loop().time()
        if self._late is None or self._late[0] != self.upper:
            self._late = self.upper, now
        return now - self._late[1] >= seconds

    def is_beyond(self, relation: Relation, *, whole: bool) -> bool:
        """Whether a read, of the `whole` index or not, is surely too much for the event loop."""
        if whole and self._rows.rows > FEW_ROWS:
            return True
        return not isinstance(relation, Get) and not _is_light(relation)

    def answer(self, peek: IndexPeek, *, is_repeated: bool = False) -> pa.RecordBatch:
        """Return the answer of a peek at a time that it knows.

        If it `is_repeated`, with the same objects each time, its answer is remembered.
        Raises DataError, and TooManyRows if the work is too much for the event loop.
        """
        finishing = peek.finishing
        whole = peek.keys is None and peek.span is None
        if self.is_beyond(peek.relation, whole=whole):
            raise TooManyRows
        if not is_repeated or finishing is None or peek.keys is not None:
            return answer_from_index(peek, self._local, small=True)
        if peek.as_of < self._changed_at:
            return answer_from_index(peek, self._local, small=True)
        name = id(peek.relation), id(finishing)
        found = self._answers.get(name)
        if found is not None:
            return found[2]
        rows = answer_from_index(peek, self._local, small=True)
        if rows.nbytes <= MOST_ANSWER_BYTES:
            if len(self._answers) >= MOST_ANSWERS:
                self._answers.clear()
            self._answers[name] = peek.relation, finishing, rows  # kept, so their ids stay unique
        return rows

    def rows_under(self, key: Row, time: Timestamp) -> tuple[Row, ...] | None:
        """Return the rows under a key, whose data are of the key's types, at a time that it knows.

        The empty key is that of all rows. None if they are not to be had as tuples: there may be an
        error at `time`, or many rows.
        """
        if time < self._changed_at or self._errors.rows:
            return None
        found = self._by_key.get(key)
        if found is None:
            found = self._look_up(key, time) if key else self._all(time)
            if found is None:
                return None
            if len(self._by_key) >= MOST_KEYS or self._remembered >= MOST_ROWS:
                self._forget()
            self._by_key[key] = found
            self._remembered += 1 + len(found)
        return found

    def _all(self, time: Timestamp) -> tuple[Row, ...] | None:
        """Return all rows at `time`; None if they are many."""
        try:
            rows = self._rows.scan(time, MOST_UPDATES)
        except TooManyRows:
            return None
        if rows.num_rows > MOST_UNDER:
            return None
        columns = [
            from_array(array, column.type)
            for array, column in zip(rows.columns, self._columns, strict=True)
        ]
        return tuple(zip(*columns, strict=True)) if columns else ((),) * rows.num_rows

    def _look_up(self, key: Row, time: Timestamp) -> tuple[Row, ...] | None:
        """Return the rows under a key at `time`; None if they are many."""
        places = self._places
        if places is None:
            return None
        words = key_words(key, self._key_types)
        if words is None:
            return ()
        rows: dict[int, Row] = {}
        counts: dict[int, int] = {}
        try:
            updates = self._reader.under(hash_words(words), MOST_UPDATES)
        except TooManyRows:
            return None
        for row, row_hash, at, diff in updates:
            if at <= time and tuple([row[i] for i in places]) == key:
                rows[row_hash] = row
                counts[row_hash] = counts.get(row_hash, 0) + diff
        if sum(counts.values()) > MOST_UNDER or min(counts.values(), default=0) < 0:
            return None
        return tuple([rows[hash] for hash, count in counts.items() for _ in range(count)])

    def _forget_changed(self, rows: pa.Table | None) -> None:
        """Forget what `rows` changed."""
        self._answers.clear()
        if rows is None or not self._by_key:
            return
        if self._places is None or rows.num_rows > FEW:
            self._forget()
            return
        keys = [from_array(_whole(rows.column(i)), self._columns[i].type) for i in self._places]
        for key in chain([()], zip(*keys, strict=True)):
            known = self._by_key.pop(key, None)
            if known is not None:
                self._remembered -= 1 + len(known)

    def _forget(self) -> None:
        self._answers.clear()
        self._by_key.clear()
        self._remembered = 0


@lru_cache(maxsize=1024)
def _is_light(relation: Relation) -> bool:
    """Whether a row takes little time, whatever is in it."""
    scalars = (each for node in walk_relations(relation) for each in scalars_of(node))
    return all(map(is_light, scalars))


def _places(key: Sequence[Scalar]) -> tuple[int, ...] | None:
    """Return the columns of a key whose values are equal in Python where they are in SQL."""
    if not all(isinstance(each, Column) and is_plain(type_of(each)) for each in key):
        return None
    return tuple(each.index for each in key if isinstance(each, Column)) or None


def _is_small(window: Window) -> bool:
    return sum(len(each) for each in window[2:] if each is not None) <= TAIL_ROWS


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _give_up(passed: asyncio.Future[None]) -> None:
    if not passed.done():
        passed.set_result(None)
