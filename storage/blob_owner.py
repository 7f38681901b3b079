"""The owner of a blob store: the one data directory that may put batches there and remove them.

A blob store outside of the data directory is not copied with it. A copy (`cp -r`, a snapshot of the
disk) that is served with the same `--blob` would take the batches that the original has made since
for leftovers of a kill, and delete them. The epoch does not tell the two apart, as each has its own
consensus. So the store itself names its owner, in a marker for each epoch:

    owner/<epoch>    who took the epoch, in which directory, and a number that goes up: its beat

A start compares the newest marker with the epoch that its consensus knows as the last:

- No epoch yet: a new directory. Refused, as the store belongs to another one.
- A later epoch, or the same one taken by somebody else: another copy owns the store. Refused.
- The same epoch and another place: a copy, or a directory that has moved. It is a copy if the
  original is still there, on this machine. It is a stale copy if the beat is later than the one
  that the directory has noted; noted first, so that a kill in between does no harm. If the beat
  goes on during `WAIT_SECONDS`, the original is alive. All three are refused. What is left is a
  directory that has moved, or a copy on another machine of one that was stopped, which nothing
  tells from it: that copy takes the store over, and the original is refused from then on.

Then it takes the next epoch and creates its marker, which succeeds for one of several. From then on
an owner with an earlier epoch finds itself replaced: before it deletes anything, and at each beat.
"""

import asyncio
import logging
import os
import platform
from contextlib import suppress
from functools import cached_property
from pathlib import Path

import msgspec

from foreshore import blocking
from foreshore.errors import DataCorrupted, ObjectNotInPrerequisiteState
from foreshore.storage.blob import Blob, sync_directory, sync_file
from foreshore.storage.epoch import EpochState, fenced
from foreshore.storage.fault import Determinate, Indeterminate

logger = logging.getLogger(__name__)

PREFIX = "owner/"
NOTE = "owner"  # its file in the log's directory
BEAT_SECONDS = 10.0
WAIT_SECONDS = 25.0  # within which a live owner has beaten


class Marker(msgspec.Struct, frozen=True, kw_only=True):
    """The owner of a store in an epoch."""

    epoch: int
    taker: str
    place: str  # the data directory
    beat: int = 0
    ended: bool = False
    before: int = -1  # the last beat of the marker before, as it was known when this was taken


class BlobOwner:
    """The ownership of one environment; its calls block, but for `check_start` and `run`."""

    def __init__(self, blob: Blob, data_dir: Path) -> None:
        self._blob = blob
        self._directory = data_dir / "log"
        self._data_dir = data_dir
        self._own: Marker | None = None
        self._before = -1
        self._closing = asyncio.Event()

    @cached_property
    def _place(self) -> str:
        return _place_of(self._data_dir)

    async def check_new(self) -> None:
        """Raise ObjectNotInPrerequisiteState if the store has an owner; for a new directory.

        It comes before the directory is marked with the store's database.
        """
        found = await blocking.run(None, self._newest)
        if found is not None:
            raise _belongs_to(found)

    async def check_start(self, last: EpochState | None) -> None:
        """Raise ObjectNotInPrerequisiteState unless this directory may own the store.

        `last` is the last epoch in consensus. Nothing is changed.
        """
        found = await blocking.run(None, self._newest)
        if found is None:
            return
        self._before = found.beat
        if last is None:  # it was taken meanwhile
            raise _belongs_to(found)
        is_other = found.epoch == last.epoch and found.taker != last.taker
        if found.epoch > last.epoch or is_other:
            raise _refused(f"{_shown(found)} has taken the store over, and owns it.")
        if found.place == self._place:
            return
        if await blocking.run(None, _is_there, found):
            raise _refused(f"This one is a copy of {_shown(found)}, which is still there.")
        if found.beat > await blocking.run(None, self._noted, found):
            raise _refused(f"{_shown(found)} has used the store since this directory was copied.")
        if not found.ended:
            logger.info("looking whether the data is in use elsewhere", extra={"of": found.place})
            await self._wait_for_beat(found)

    async def _wait_for_beat(self, found: Marker) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + WAIT_SECONDS
        while loop.time() < end:
            await asyncio.sleep(WAIT_SECONDS / 25)
            if await blocking.run(None, self._newest) != found:
                raise _refused(f"It is being served, from {_shown(found)}.")

    def claim(self, taken: EpochState) -> None:
        """Become the owner in the epoch that was taken.

        Raises ObjectNotInPrerequisiteState if another copy has been faster.
        """
        own = Marker(epoch=taken.epoch, taker=taken.taker, place=self._place, before=self._before)
        self._note(own)
        if not self._blob.create(_key(own.epoch), msgspec.json.encode(own)):
            found = self._read(_key(own.epoch))
            if found is None or found.taker != own.taker:
                raise _refused("It has taken the store over at the same time.")
        self._own = own
        for key, _ in [*self._blob.list(PREFIX)]:
            if key < _key(own.epoch):
                with suppress(Determinate, Indeterminate):  # it says nothing any more
                    self._blob.delete(key)

    def check(self) -> None:
        """Raise Fenced if another data directory owns the store."""
        assert self._own is not None
        if (found := self._newest()) is not None and found.epoch > self._own.epoch:
            raise fenced()

    async def run(self) -> None:
        """Beat until `close`. Raises Fenced if another data directory owns the store."""
        is_over = False
        while not is_over:
            with suppress(TimeoutError):
                async with asyncio.timeout(BEAT_SECONDS):
                    await self._closing.wait()
            is_over = self._closing.is_set()
            try:
                await blocking.run(None, self._beat, is_over=is_over)
            except (Determinate, Indeterminate, OSError, DataCorrupted) as error:
                logger.warning("the owner of the blob store is not renewed: %s", error)

    def close(self) -> None:
        """Let `run` end with a last beat."""
        self._closing.set()

    def _beat(self, *, is_over: bool) -> None:
        self.check()
        assert self._own is not None
        self._own = msgspec.structs.replace(self._own, beat=self._own.beat + 1, ended=is_over)
        self._note(self._own)
        self._blob.put(_key(self._own.epoch), msgspec.json.encode(self._own))

    def _newest(self) -> Marker | None:
        """Return the marker of the latest epoch, None if the store has none."""
        while keys := [key for key, _ in self._blob.list(PREFIX)]:
            if (found := self._read(max(keys))) is not None:  # else removed meanwhile
                return found
        return None

    def _read(self, key: str) -> Marker | None:
        data = self._blob.get(key)
        try:
            return None if data is None else msgspec.json.decode(data, type=Marker)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise DataCorrupted(f'"{key}" of the blob store is not readable: {error}') from None

    def _noted(self, found: Marker) -> int:
        """Return the last beat of an owner that this directory knows: its own, or one before it.

        It may have noted a later epoch, and not have reached the store with it.
        """
        try:
            noted = msgspec.json.decode((self._directory / NOTE).read_bytes(), type=Marker)
        except (FileNotFoundError, msgspec.MsgspecError):
            return -1
        if noted.epoch > found.epoch:
            return noted.before
        return noted.beat if noted.taker == found.taker else -1

    def _note(self, own: Marker) -> None:
        path = self._directory / NOTE
        path.parent.mkdir(exist_ok=True)
        new = path.with_name(f"{NOTE}.new")
        new.write_bytes(msgspec.json.encode(own))
        sync_file(new)
        new.replace(path)
        sync_directory(path.parent)


def _key(epoch: int) -> str:
    return f"{PREFIX}{epoch:012}"


def _place_of(data_dir: Path) -> str:
    """Return what tells a directory from its copies: its machine, file system and inode."""
    found = os.stat(data_dir)
    return f"{platform.node()} {data_dir} {found.st_dev}:{found.st_ino}"


def _is_there(found: Marker) -> bool:
    """Whether the directory of a marker is still on this machine, at its place."""
    node, _, rest = found.place.partition(" ")
    directory, _, number = rest.rpartition(" ")
    if node != platform.node():
        return False
    try:
        there = os.stat(directory)
    except OSError:
        return False
    return number == f"{there.st_dev}:{there.st_ino}"


def _shown(found: Marker) -> str:
    """Return the directory of a marker, and its machine."""
    node, _, rest = found.place.partition(" ")
    return f'"{rest.rpartition(" ")[0]}" of {node}'


def _refused(detail: str) -> ObjectNotInPrerequisiteState:
    return ObjectNotInPrerequisiteState(
        "another copy of this data directory owns the blob store",
        detail=detail,
        hint="Serve that one. To have a second database, restore a backup, with a blob store of its"
        " own. To serve this directory instead, remove the other, then"
        f' "{PREFIX}" from the blob store: what only the other has is lost.',
    )


def _belongs_to(found: Marker) -> ObjectNotInPrerequisiteState:
    return ObjectNotInPrerequisiteState(
        "the blob store belongs to another data directory",
        detail=f"{_shown(found)} owns it. This directory is new.",
        hint="Give the --data-dir of that one, or a --blob that is empty.",
    )
