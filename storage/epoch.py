"""Epochs: the last environment to open a database owns it.

An environment takes the next epoch from consensus when it opens. An older environment may still run
without knowing. It must fail at its next write and must do no harm until then. Two mechanisms
ensure this:

- A `Register` is a value in consensus that carries its writer's epoch. A new environment claims
  each register by setting it under its own epoch, so that a compare-and-set of the older
  environment no longer finds the head it expects.
- A `Fence` guards the log's files, which change without consensus. The new environment raises it
  before it reads them. A writer checks it after each fsync and acknowledges only if the fence has
  not been raised: data synced before the fence was raised is found by the new environment, and
  data synced later was never acknowledged.
"""

import asyncio
import fcntl
import logging
import os
import secrets
import struct
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from foreshore import blocking
from foreshore.errors import DataCorrupted, Fenced
from foreshore.failpoint import reached
from foreshore.storage.blob import sync_directory
from foreshore.storage.consensus import Committed, Consensus, Mismatch, Versioned
from foreshore.storage.fault import Determinate, DiskFull, Indeterminate

logger = logging.getLogger(__name__)

EPOCH_KEY = "epoch"
FENCE = "fence"  # its file, beside the segments of the log
ATTEMPTS = 5
PAUSE_SECONDS = 0.05
PATIENCE_SECONDS = 60.0
RETRY_SECONDS = 0.5
VERSIONS_KEPT = 8

_FENCE = struct.Struct("<Q")


class State(msgspec.Struct, frozen=True, kw_only=True):
    """The value of a register: at least the epoch of its writer."""

    epoch: int


S = TypeVar("S", bound=State)


def fenced() -> Fenced:
    """Return the error of an environment that no longer owns its data."""
    return Fenced("terminating connection because another environment has taken over the data")


class Register(Generic[S]):
    """A value in consensus that only the environment of the current epoch changes."""

    def __init__(self, consensus: Consensus, key: str, form: type[S]) -> None:
        self.key = key
        self.value: S | None = None
        self._consensus = consensus
        self._decoder = msgspec.json.Decoder(form)
        self._seqno: int | None = None
        self._unknown: bytes | None = None  # a value that may have been set, or may still be

    async def read(self) -> S | None:
        """Read the head."""
        return self.found(await self._consensus.head(self.key))

    def found(self, head: Versioned | None) -> S | None:
        """Decode the head that was read and remember it."""
        self._seqno = head.seqno if head else None
        self.value = self._decoder.decode(head.data) if head else None
        return self.value

    async def claim(self, epoch: int, initial: S | None, *, is_read: bool = False) -> S | None:
        """Take the register over from earlier epochs. `initial` is used if it was never set.

        The head is read first, unless it `is_read`.
        """
        while True:
            found = self.value if is_read else await self.read()
            is_read = False
            if found is not None and found.epoch > epoch:
                raise fenced()
            value = msgspec.structs.replace(found, epoch=epoch) if found else initial
            if value is None:
                return None
            if await self._try(value):
                return value

    async def change(self, new: S) -> None:
        """Set the register. Raises Fenced if a later epoch has claimed it.

        Raises Indeterminate if the outcome is not known. Both the old and the new value then count
        as in use, and only the same change may be retried.
        """
        if not await self._try(new):
            raise fenced()

    async def change_with_retry(self, new: S) -> None:
        """Set the register, retrying for `PATIENCE_SECONDS` while consensus is unavailable.

        Raises as `change` does after that time, and DiskFull at once.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE_SECONDS
        while True:
            try:
                return await self.change(new)
            except DiskFull:
                raise
            except (Determinate, Indeterminate) as error:
                if loop.time() >= deadline:
                    raise
                logger.warning("consensus is unavailable", extra={"key": self.key}, exc_info=error)
            await asyncio.sleep(RETRY_SECONDS)

    async def settle(self) -> None:
        """Complete a change whose outcome is not known, if there is one."""
        if self._unknown is not None:
            await self.change_with_retry(self._decoder.decode(self._unknown))

    async def _try(self, new: S) -> bool:
        data = msgspec.json.encode(new)
        fault: Determinate | Indeterminate | None = None
        assert self._unknown in (None, data), f"another change of {self.key} is under way"
        for attempt in range(ATTEMPTS):
            if attempt:
                await asyncio.sleep(PAUSE_SECONDS * 2**attempt)
            try:
                outcome = await self._consensus.compare_and_set(self.key, self._seqno, data)
            except DiskFull as error:
                fault = error
                break  # a full disk does not mend by itself
            except Determinate as error:
                fault = error
                continue
            except Indeterminate as error:
                fault, self._unknown = error, data
                continue
            match outcome:
                case Committed(seqno):
                    await self._set(seqno, new)
                    return True
                case Mismatch(head) if self._unknown and head is not None and head.data == data:
                    await self._set(head.seqno, new)
                    return True
                case Mismatch():
                    self._unknown = None  # its expected head is no longer the head
                    return False
        assert fault is not None
        raise Indeterminate(fault.message) if self._unknown else fault

    async def _set(self, seqno: int, value: S) -> None:
        self._seqno, self.value, self._unknown = seqno, value, None
        if seqno % VERSIONS_KEPT:
            return
        try:
            await self._consensus.truncate(self.key, seqno)
        except Determinate:
            return  # old versions are harmless; the next change truncates them


class EpochState(State, frozen=True, kw_only=True):
    """The last epoch taken.

    `taker` identifies the environment that took it. An environment whose request had no answer
    compares it to learn whether its request succeeded.
    """

    taker: str = ""  # empty in states of older versions


async def check_epoch(consensus: Consensus, fence: Path) -> None:
    """Raise DataCorrupted if the fence is of an epoch unknown to consensus.

    An epoch is taken before the fence is raised to it. So consensus has lost recent changes, or the
    fence is corrupt.
    """
    raised = await blocking.run(None, read_fence, fence)
    last = await last_epoch(consensus)
    if raised > (last.epoch if last else 0):
        raise DataCorrupted(
            f'"{fence.parent.name}/{fence.name}" is of epoch {raised}, and consensus knows of'
            f" {last.epoch if last else 'none'}: one of them is damaged"
        )


def fence_of(epoch: int) -> bytes:
    """Return the contents of the fence file after `epoch` raised it."""
    return _FENCE.pack(epoch)


def read_fence(path: Path) -> int:
    """Return the epoch that last raised the fence, 0 if none has."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return 0
    return int(_FENCE.unpack(data)[0]) if len(data) == _FENCE.size else 0


async def last_epoch(consensus: Consensus) -> EpochState | None:
    """Return the last epoch that was taken, None if none was."""
    return await Register(consensus, EPOCH_KEY, EpochState).read()


async def take_epoch(consensus: Consensus) -> EpochState:
    """Take and return an epoch later than all taken before."""
    register = Register(consensus, EPOCH_KEY, EpochState)
    taker = secrets.token_hex(8)
    while True:
        last = await register.read()
        taken = EpochState(epoch=last.epoch + 1 if last else 1, taker=taker)
        try:
            await register.change(taken)
        except Fenced:
            continue  # another environment took it at the same time
        reached("epoch.taken")
        return taken


class Fence:
    """The latest epoch that raised it, in a file visible to all environments of a machine."""

    def __init__(self, path: Path, epoch: int) -> None:
        """Raise the fence to `epoch`, durably. Raises Fenced if it is already above that."""
        self._epoch = epoch
        self._expected = fence_of(epoch)
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            sync_directory(path.parent)
            self._raise(epoch)
        except BaseException:
            self.close()
            raise

    def _raise(self, epoch: int) -> None:
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        try:
            found = os.pread(self._descriptor, _FENCE.size, 0)
            if len(found) == _FENCE.size and _FENCE.unpack(found)[0] > epoch:
                raise fenced()
            os.pwrite(self._descriptor, self._expected, 0)
            os.fsync(self._descriptor)
            reached("fence.raised")
        finally:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def check(self) -> None:
        """Raise Fenced unless this environment was the last to raise the fence."""
        if os.pread(self._descriptor, _FENCE.size, 0) != self._expected:
            raise fenced()

    def lose(self) -> None:
        """Let `check` fail from now on, as another environment owns the data."""
        self._expected = b""

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)
