"""Freshness: how far behind the collections below a query are, and which of them is the cause.

A collection can be read before its `upper`, which follows those of its inputs. So one is late on
its own account, or because an input is. The difference between its upper and the least of its
inputs' is the lag that it adds itself, and along the way from a late collection down through the
slowest input of each, the lags that they add make up its own. The culprit is who adds a lag that
matters, or cannot go on whatever its inputs do. All this is a pure function of what is known at one
moment.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from foreshore.compute.replica.progress import ProgressState
from foreshore.ids import GlobalId
from foreshore.update import Timestamp

LATE_MS = 1_000  # from here on a collection is late; times go on four times a second at least


@dataclass(frozen=True, slots=True)
class Collection:
    """What is known of a collection: a table, without `inputs`, or something maintained."""

    id: GlobalId
    state: ProgressState
    upper: Timestamp | None  # None: it cannot be read at any time yet
    inputs: frozenset[GlobalId] = frozenset()


@dataclass(frozen=True, slots=True)
class Freshness:
    """How far behind a collection is, in milliseconds; None: it cannot be read at any time yet."""

    wallclock_lag: int | None
    oracle_lag: int | None  # 0: a strict serializable read does not have to wait for it
    own_lag: int | None  # what it adds itself
    late: bool
    culprit: bool
    slowest_input: GlobalId | None


def freshness_of(
    collections: Sequence[Collection], read_ts: Timestamp, now: Timestamp
) -> dict[GlobalId, Freshness]:
    """Return how fresh collections are, of which all inputs are among them.

    `read_ts` is the oracle's, `now` the time of day.
    """
    known = {each.id: each for each in collections}
    late = frozenset(
        each.id for each in collections if each.upper is None or now - each.upper >= LATE_MS
    )
    own = {each.id: _own_lag(each, known, now) for each in collections}
    culprits = {id for id in late if own[id] >= LATE_MS or _is_stuck(known[id], late)}
    if late and not culprits:  # none does much, all together do
        culprits = {max(own, key=own.__getitem__)}
    return {
        each.id: Freshness(
            _lag(each, now),
            _lag(each, read_ts + 1),
            None if each.upper is None else own[each.id],
            each.id in late,
            each.id in culprits,
            min(each.inputs, key=lambda id: (known[id].upper or 0, id), default=None),
        )
        for each in collections
    }


def _is_stuck(collection: Collection, late: frozenset[GlobalId]) -> bool:
    """Whether a collection could not go on if its inputs did."""
    if collection.state == "waiting":
        return not collection.inputs & late
    return collection.state != "running"


def _lag(collection: Collection, than: Timestamp) -> int | None:
    return None if collection.upper is None else max(than - collection.upper, 0)


def _own_lag(collection: Collection, known: Mapping[GlobalId, Collection], now: Timestamp) -> int:
    """Return what a collection adds to its slowest input, or to the time of day if that is less."""
    if collection.upper is None:
        return 0
    uppers = [known[id].upper or 0 for id in collection.inputs]
    return max(min([now, *uppers]) - collection.upper, 0)
