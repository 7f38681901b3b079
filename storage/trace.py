"""Traces: the consecutive batches of a shard.

    [0 ........ 40)[40 ... 52)[52 . 57)        upper = 57; later updates are in the log

A trace's state lists its batches. It alone decides which files belong to the shard. It changes by
compare-and-set, under the epoch of the environment that owns the shard. Batches tile the interval
from the beginning to `upper` without gap or overlap. This is checked whenever a state is loaded or
made; a state that does not tile is corrupt and nothing is read from it.
"""

from collections.abc import Sequence

import msgspec

from foreshore.errors import DataCorrupted
from foreshore.ids import GlobalId, parse_global_id
from foreshore.storage.epoch import State
from foreshore.update import T0, Timestamp

KEYS = "shard/"


class Batch(msgspec.Struct, frozen=True):
    """A batch as the state lists it: all updates with `lower <= time < upper`, as of `since`.

    `loose` counts the updates at times beyond `since`, which a later since could consolidate.
    """

    key: str  # in the blob store
    lower: Timestamp
    upper: Timestamp
    since: Timestamp
    rows: int
    loose: int
    bytes: int
    checksum: int  # CRC-32 of the file


class TraceState(State, frozen=True, kw_only=True):
    """The manifest of one shard. `schema` is that of its updates, in Arrow's IPC form."""

    id: GlobalId
    schema: bytes
    batches: tuple[Batch, ...] = ()
    dropped: bool = False  # the shard was dropped; its id is never used again

    @property
    def upper(self) -> Timestamp:
        """Return the time up to which the batches reach."""
        return self.batches[-1].upper if self.batches else T0

    @property
    def since(self) -> Timestamp:
        """Return the time from which the batches are exact."""
        return max((batch.since for batch in self.batches), default=T0)

    def check(self) -> None:
        """Raise DataCorrupted unless the batches tile their interval."""
        end = T0
        for batch in self.batches:
            if batch.lower != end or batch.upper <= batch.lower:
                raise DataCorrupted(
                    f"trace of {self.id}: batch {batch.key} is from {batch.lower} to {batch.upper}"
                    f" where the one before ends at {end}"
                )
            if not 0 <= batch.loose <= batch.rows:
                raise DataCorrupted(f"trace of {self.id}: batch {batch.key} counts {batch.loose}")
            end = batch.upper


def key_of(id: GlobalId) -> str:
    """Return the key of the trace's state in consensus."""
    return f"{KEYS}{id}"


def id_of(key: str) -> GlobalId:
    """Return the shard whose state the key names."""
    return parse_global_id(key.removeprefix(KEYS))


def with_batch(state: TraceState, batch: Batch) -> TraceState:
    """Return the state with a batch added at its end."""
    return _checked(state, (*state.batches, batch))


def with_merged(state: TraceState, merged: Sequence[Batch], result: Batch) -> TraceState:
    """Return the state with `merged`, which are consecutive, replaced by `result`."""
    start = state.batches.index(merged[0])
    assert state.batches[start : start + len(merged)] == tuple(merged), (state, merged)
    after = state.batches[start + len(merged) :]
    return _checked(state, (*state.batches[:start], result, *after))


def _checked(state: TraceState, batches: tuple[Batch, ...]) -> TraceState:
    new = msgspec.structs.replace(state, batches=batches)
    new.check()
    return new
