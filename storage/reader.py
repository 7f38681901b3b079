"""Reading shards: snapshots as of a time, and all changes from a time on.

Both are exact between since and upper. Files stay available while they are read: files under a
lease are not deleted. Reading a corrupt shard raises CollectionCorrupted; only updates appended
from now on can still be read.
"""

import asyncio
import tempfile
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from foreshore import blocking
from foreshore.errors import DataCorrupted, ObjectNotInPrerequisiteState, UndefinedObject
from foreshore.ids import GlobalId
from foreshore.storage.batch import read_batch
from foreshore.storage.capability import ReadCapability
from foreshore.storage.consolidate import consolidate
from foreshore.storage.corruption import Corruptions
from foreshore.storage.lease import Leases
from foreshore.storage.listen import Listen, ListenEvent
from foreshore.storage.local_files import LocalFiles
from foreshore.storage.record import Grant
from foreshore.storage.selection import ALL, Reading, Selection, later, moved_to
from foreshore.storage.shard import Shard
from foreshore.storage.snapshot import BatchFile, Snapshot
from foreshore.storage.trace import Batch
from foreshore.update import T0, Timestamp, row_schema


class ShardReader:
    """Reads the shards that a controller owns and reports their state."""

    def __init__(
        self,
        shards: dict[GlobalId, Shard],
        files: LocalFiles,
        leases: Leases,
        corruptions: Corruptions,
    ) -> None:
        self.corruptions = corruptions
        self._shards = shards
        self._files = files
        self._leases = leases

    @property
    def files(self) -> LocalFiles:
        """Return the local files of batches of this process."""
        return self._files

    def exists(self, id: GlobalId) -> bool:
        """Whether the id names a shard that is not being dropped."""
        shard = self._shards.get(id)
        return shard is not None and not shard.dropping

    def ids(self) -> list[GlobalId]:
        """Return the ids of all shards."""
        return list(self._shards)

    def schema(self, id: GlobalId) -> pa.Schema:
        """Return the schema of the shard's rows."""
        return row_schema(self._shard(id).schema)

    def since(self, id: GlobalId) -> Timestamp:
        """Return the time from which the shard can be read."""
        return self._shard(id).since

    def upper(self, id: GlobalId) -> Timestamp:
        """Return the time before which the shard can be read."""
        return self._shard(id).upper

    def changed(self, id: GlobalId) -> Timestamp:
        """Return a time before which all updates of the shard are, at most its upper."""
        return self._shard(id).changed

    def grants(self, id: GlobalId) -> tuple[Grant, ...]:
        """Return the live capabilities on the shard. One at EMPTY records a frontier given up."""
        return self._shard(id).capabilities.grants

    def size_bytes(self, id: GlobalId) -> int:
        """Return the shard's size in bytes, as far as known without opening files."""
        return self._shard(id).size_bytes()

    def count_updates(self, id: GlobalId) -> int:
        """Return how many updates the shard has: at least its rows."""
        shard = self._shard(id)
        return shard.count_tail() + sum(batch.rows for batch in shard.batches)

    def _shard(self, id: GlobalId) -> Shard:
        shard = self._shards.get(id)
        if shard is None or shard.dropping:
            raise UndefinedObject(f'shard "{id}" does not exist')
        return shard

    def snapshot(self, read: ReadCapability, as_of: Timestamp) -> Snapshot:
        """Return the contents as of a time that `read` holds readable and that is before upper."""
        shard = self._shard(read.id)
        grant = shard.capabilities.check(read)
        self.corruptions.check(shard.id)
        if not max(grant.frontier, shard.since) <= as_of < shard.upper:
            raise ObjectNotInPrerequisiteState(
                f"{shard.id} cannot be read as of {as_of}",
                detail=f"It is readable from {shard.since}, held from {grant.frontier},"
                f" and before {shard.upper}.",
            )
        shard.coalesce_tail()
        batches = shard.batches
        return Snapshot(
            shard.id,
            row_schema(shard.schema),
            as_of,
            shard.upper,
            shard.since,
            tuple(
                BatchFile(b.key, b.bytes, b.checksum, b.lower, b.upper, b.since, b.rows)
                for b in batches
            ),
            tuple(part.updates for part in shard.tail),
            self._files,
            partial(self._read_batches, batches, shard.schema),
            partial(self.corruptions.recording, shard.id),
            self._leases.take(batch.key for batch in batches),
        )

    def _read_batches(
        self, batches: Iterable[Batch], schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from read_batch(self._files, batch, schema)

    async def examine(self, ids: Iterable[GlobalId]) -> None:
        """Verify the checksums of all batches of the shards and record any corruption.

        Used when another process, which has its own copies of files, reports corruption.
        """
        for id in ids:
            shard = self._shards.get(id)
            if shard is None or self.corruptions.of(id) is not None:
                continue
            batches = shard.batches
            release = self._leases.take(batch.key for batch in batches)
            try:
                with suppress(DataCorrupted), self.corruptions.recording(id):
                    await blocking.run(None, self._verify, batches)
            finally:
                release()

    def _verify(self, batches: Iterable[Batch]) -> None:
        for batch in batches:
            self._files.verify(batch)

    def listen(
        self,
        id: GlobalId,
        from_: Timestamp,
        deliver: Callable[[ListenEvent], None],
        dropped: Callable[[], None] | None = None,
    ) -> Listen:
        """Deliver every update at or beyond `from_`, in order, on the event loop.

        `from_` must not be before since. Updates at since stand for all updates up to it; times are
        exact only beyond since. `dropped` is called when the shard is dropped and no more updates
        follow.
        """
        shard = self._shard(id)
        if from_ < shard.since:
            raise ObjectNotInPrerequisiteState(
                f"{id} cannot be followed from {from_}",
                detail=f"It is readable from {shard.since}.",
            )
        listen = Listen(id, from_, deliver, dropped=dropped)
        shard.add_listen(listen)
        if shard.upper > from_:
            tail = [part.updates for part in shard.tail if part.upper > from_]
            if any(batch.upper > from_ for batch in shard.batches):
                listen.hold()
                catching_up = self._catch_up(listen, shard, from_ - 1)
                listen.task = asyncio.get_running_loop().create_task(catching_up)
            else:
                listen.deliver(shard.upper, pa.concat_tables(tail) if tail else None)
        return listen

    def subscribe_at(
        self,
        read: ReadCapability,
        as_of: Timestamp,
        deliver: Callable[[ListenEvent], None],
        *,
        snapshot: bool = True,
        selection: Selection = ALL,
    ) -> Listen:
        """Deliver the contents as of a time, then every later update, reduced to `selection`.

        The first event begins with the contents, all at `as_of`. An entry may occur several times
        or be cancelled by another one. Without `snapshot` the first event has only later updates.
        It is delivered once the shard's upper is beyond `as_of`. A capability has to hold since
        back until then, otherwise `task` raises ObjectNotInPrerequisiteState. `reading` counts the
        updates read and delivered.
        """
        shard = self._held(read, as_of)
        listen = Listen(shard.id, as_of if snapshot else as_of + 1, deliver, selection)
        listen.hold()
        shard.add_listen(listen)
        beginning = self._begin(listen, shard, as_of, snapshot=snapshot)
        listen.task = asyncio.get_running_loop().create_task(beginning)
        return listen

    async def changes(
        self,
        read: ReadCapability,
        after: Timestamp,
        through: Timestamp,
        selection: Selection = ALL,
    ) -> pa.Table:
        """Return every selected update with after < time <= through, at its exact time.

        Raises ObjectNotInPrerequisiteState unless since <= after and through < upper.
        """
        shard = self._known(read, after, through)
        found = await self._read(shard, after, selection, Reading())
        times = found.column(found.num_columns - 2)
        return found.filter(pc.less_equal(times, through))

    async def changes_in_parts(
        self, read: ReadCapability, after: Timestamp, through: Timestamp
    ) -> AsyncGenerator[pa.Table, None]:
        """Yield the same updates as `changes`, consolidated, in parts of some megabytes.

        Many are sorted on disk. Raises as `changes` does.
        """
        shard = self._known(read, after, through)
        self.corruptions.check(shard.id)
        tail = tuple(part.updates for part in shard.tail if part.upper > after)
        batches = tuple(batch for batch in shard.batches if batch.upper > after)
        release = self._leases.take(batch.key for batch in batches)

        def updates() -> Iterator[pa.RecordBatch]:
            for batch in batches:
                yield from read_batch(self._files, batch, shard.schema, ALL, after)
            for table in tail:
                yield from (later(piece, after) for piece in table.to_batches())

        def found() -> Iterator[pa.RecordBatch]:
            place = len(shard.schema) - 2
            wanted = (u.filter(pc.less_equal(u.column(place), through)) for u in updates())
            with tempfile.TemporaryDirectory() as scratch:
                yield from consolidate(wanted, shard.schema, T0, Path(scratch))

        try:
            with self.corruptions.recording(shard.id):
                async for piece in blocking.each(found()):
                    yield pa.Table.from_batches([piece], shard.schema)
        finally:
            release()

    async def change_times(self, read: ReadCapability, after: Timestamp) -> pa.ChunkedArray:
        """Return the time of each update beyond `after` that is known, in no order.

        Raises ObjectNotInPrerequisiteState unless since <= after.
        """
        shard = self._held(read, after)
        return (await self._read(shard, after, Selection(()), Reading())).column(0)

    def _known(self, read: ReadCapability, after: Timestamp, through: Timestamp) -> Shard:
        """Return the shard if its changes with after < time <= through can be read."""
        shard = self._held(read, after)
        if through >= shard.upper:
            raise ObjectNotInPrerequisiteState(
                f"the changes of {shard.id} are not known through {through}",
                detail=f"They are known before {shard.upper}.",
            )
        return shard

    def _held(self, read: ReadCapability, as_of: Timestamp) -> Shard:
        """Return the shard if the capability holds it readable as of `as_of`."""
        shard = self._shard(read.id)
        since = max(shard.capabilities.check(read).frontier, shard.since)
        if as_of < since:
            raise ObjectNotInPrerequisiteState(
                f"{shard.id} cannot be read as of {as_of}",
                detail=f"It is readable from {since}.",
            )
        return shard

    async def _begin(
        self, listen: Listen, shard: Shard, as_of: Timestamp, *, snapshot: bool
    ) -> None:
        """Deliver the first event of a subscription once its time is complete."""
        while shard.upper <= as_of:
            listen.published.clear()
            await listen.published.wait()
            listen.hold()  # updates published so far are read from the shard
        if shard.since > as_of:
            listen.end()
            raise ObjectNotInPrerequisiteState(
                f"{shard.id} can no longer be read as of {as_of}",
                detail=f"It is readable from {shard.since}.",
            )
        await self._catch_up(listen, shard, as_of, snapshot=snapshot)

    async def _catch_up(
        self, listen: Listen, shard: Shard, after: Timestamp, *, snapshot: bool = False
    ) -> None:
        """Deliver what the shard holds and then what was published meanwhile."""
        upper = shard.upper
        try:
            found = await self._read(
                shard, after, listen.selection, listen.reading, snapshot=snapshot
            )
        except BaseException:
            listen.end()
            raise
        if not listen.cancelled:
            listen.deliver_exactly(upper, found)
            listen.resume()

    async def _read(
        self,
        shard: Shard,
        after: Timestamp,
        selection: Selection,
        reading: Reading,
        *,
        snapshot: bool = False,
    ) -> pa.Table:
        """Return the selected updates of the shard beyond `after`, as of now.

        With `snapshot`, include the updates at or before `after`, moved to that time.
        """
        self.corruptions.check(shard.id)
        beyond = None if snapshot else after
        tail = tuple(part.updates for part in shard.tail if snapshot or part.upper > after)
        batches = tuple(batch for batch in shard.batches if snapshot or batch.upper > after)
        release = self._leases.take(batch.key for batch in batches)

        def work() -> pa.Table:
            pieces = [
                piece
                for batch in batches
                for piece in read_batch(
                    self._files, batch, shard.schema, selection, beyond, reading
                )
            ]
            pieces += [selection.of(later(p, beyond)) for t in tail for p in t.to_batches()]
            found = pa.Table.from_batches(pieces, selection.schema(shard.schema))
            return moved_to(found, after) if snapshot else found

        try:
            with self.corruptions.recording(shard.id):
                return await blocking.run(None, work)
        finally:
            release()
