"""Freshness: how far behind the collections below a query are, and which of them is the cause.

A collection is readable at times before its `upper`, and its upper follows the uppers of its
inputs. So it is late because it is slow itself or because an input is late. The lag that it adds is
the difference between its upper and the least upper of its inputs. Its whole lag is the sum of the
lags added on the path down through the slowest input of each collection. A culprit is a collection
that adds a large lag, or that could not advance if its inputs did. All of this is computed from
one moment's state.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from foreshore.compute.controller.progress import Progress, ProgressState
from foreshore.ids import GlobalId
from foreshore.python_functions.patience import TAKES_LONG
from foreshore.update import Timestamp

LATE_MS = 1_000  # the lag of a late collection; times advance at least four times a second


@dataclass(frozen=True, slots=True)
class Collection:
    """The state of a table, which has no `inputs`, or of a maintained collection."""

    id: GlobalId
    state: ProgressState
    upper: Timestamp | None  # None: it is not readable yet
    inputs: frozenset[GlobalId] = frozenset()


@dataclass(frozen=True, slots=True)
class Freshness:
    """How far behind a collection is, in milliseconds; None: it is not readable yet."""

    wallclock_lag: int | None
    oracle_lag: int | None  # 0: a strict serializable read does not wait for it
    own_lag: int | None  # the lag that it adds to its slowest input's
    late: bool
    culprit: bool
    slowest_input: GlobalId | None


def freshness_of(
    collections: Sequence[Collection], read_ts: Timestamp, now: Timestamp
) -> dict[GlobalId, Freshness]:
    """Return the freshness of collections, which include all of their inputs.

    `read_ts` is the oracle's, `now` the wall clock's time.
    """
    known = {each.id: each for each in collections}
    late = frozenset(
        each.id for each in collections if each.upper is None or now - each.upper >= LATE_MS
    )
    own = {each.id: _own_lag(each, known, now) for each in collections}
    culprits = {id for id in late if own[id] >= LATE_MS or _is_stuck(known[id], late)}
    if late and not culprits:  # each adds little, all together much
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
    """Return whether a collection could not advance if its inputs did."""
    if collection.state == "waiting":
        return not collection.inputs & late
    return collection.state != "running"


def _lag(collection: Collection, than: Timestamp) -> int | None:
    return None if collection.upper is None else max(than - collection.upper, 0)


def _own_lag(collection: Collection, known: Mapping[GlobalId, Collection], now: Timestamp) -> int:
    """Return the lag behind the slowest input, or behind the wall clock if that is less."""
    if collection.upper is None:
        return 0
    uppers = [known[id].upper or 0 for id in collection.inputs]
    return max(min([now, *uppers]) - collection.upper, 0)


def delay_reason(progress: Progress, replica: str, cluster: str, *, is_table: bool) -> str:
    """Return why a collection does not advance, given the names of its replica and its cluster."""
    replica = f'replica "{replica}"'
    failure = "" if progress.failure is None else f": {progress.failure}"
    busy = f"{progress.busy_ms / 1000:.1f} s"
    waits = (progress.failure or "").startswith(TAKES_LONG)
    match progress.state:
        case "no replica":
            return f'cluster "{cluster}" has no replica'
        case "replica starting":
            failed = progress.starts - 1
            starts = f", after {failed} that came to nothing" if failed else ""
            return f"{replica} is starting{starts}{failure}"
        case "replica silent":
            return f"{replica} has not given an account of itself for {busy}"
        case "waiting":
            return "its inputs are not known yet at the time as of which it begins"
        case "pending":
            return f"{replica} has not begun to fill it; it fills one after the other"
        case "hydrating" if waits:
            return f"it is being filled, for {busy} by now{failure}"
        case "failed" if waits:
            return f"it goes on when a function has answered{failure}"
        case "hydrating":
            before = f"; before, that failed{failure}" if failure else ""
            return f"it is being filled, for {busy} by now{before}"
        case "stalled":
            return f"it stands still on {replica}{failure}"
        case "failed":
            return f"its dataflow failed, and is tried again{failure}"
        case "not written":
            return f"nothing is written{failure}"
        case "damaged":
            return progress.failure or ""
        case "running" if is_table:
            return "no later time has been given out"
        case "running" if progress.busy_ms >= LATE_MS:
            return f"its tick has been running for {busy}"
        case "running":
            ticks = f", and one begins every {progress.tick_ms} ms" if progress.tick_ms else ""
            return f"it is behind its inputs; its last tick took {progress.step_ms:.1f} ms{ticks}"
