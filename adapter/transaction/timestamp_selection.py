"""Timestamp selection: the time at which a query reads, as a pure function of its inputs.

    strict serializable   the oracle's `read_ts`: sees all acknowledged writes, may wait for a view
    serializable          the freshest time at which no input has to be waited for
    bounded staleness     the same; refused if it is older than the bound
    AS OF                 the given time; refused before an input's `since`, waits for a future one

The time is at or beyond every input's `since`. Later reads of a transaction use its time, or fail.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from foreshore.adapter.client import HistoryGone
from foreshore.compute.merged_times import Range, at_or_after
from foreshore.errors import Conflict, NotYetKnown
from foreshore.ids import GlobalId
from foreshore.isolation import BoundedStaleness, Isolation
from foreshore.update import MAX_TIMESTAMP, Timestamp


@dataclass(frozen=True, slots=True)
class Interval:
    """The times at which a collection is exact: `since <= t < upper`."""

    since: Timestamp
    upper: Timestamp
    altered: Timestamp | None = None  # start of the table's present form; no history before
    skipped: tuple[Range, ...] = ()  # times between these that are not exact

    def at_or_after(self, time: Timestamp) -> Timestamp:
        """Return the first time at or after `time` that is exact, once it is known."""
        return at_or_after(self.skipped, max(self.since, time))


@dataclass(frozen=True, slots=True)
class Selection:
    """The chosen time, and what it was chosen from."""

    time: Timestamp
    read_ts: Timestamp
    isolation: Isolation
    inputs: Mapping[GlobalId, Interval]

    @property
    def since(self) -> Timestamp:
        """The earliest time at which all inputs are readable."""
        return max((each.since for each in self.inputs.values()), default=0)

    @property
    def upper(self) -> Timestamp:
        """The earliest time at which an input is not known yet."""
        return min((each.upper for each in self.inputs.values()), default=MAX_TIMESTAMP)

    def at_or_after(self, time: Timestamp) -> Timestamp:
        """Return the first time at or after `time` at which all inputs are exact, once known."""
        while (later := max([time, *(i.at_or_after(time) for i in self.inputs.values())])) > time:
            time = later
        return time

    @property
    def waits(self) -> bool:
        """Whether an input has to be waited for."""
        return self.time >= self.upper


def select_timestamp(
    inputs: Mapping[GlobalId, Interval],
    isolation: Isolation,
    read_ts: Timestamp,
    *,
    as_of: Timestamp | None = None,
    at_least: Timestamp | None = None,
    name_of: Callable[[GlobalId], str] = str,
) -> Selection:
    """Return the time at which to read `inputs`; `name_of` gives their names for messages.

    `as_of` is exact, `at_least` a lower bound; both may be in the future. Raises
    HistoryGone for an `as_of` before an input's `since`, NotYetKnown if bounded staleness
    would have to wait.
    """
    chosen = Selection(read_ts, read_ts, isolation, inputs)
    since = chosen.since
    if as_of is not None:
        if as_of < since:
            altered = any(each.altered == since for each in inputs.values())
            raise HistoryGone(
                f"cannot read as of {as_of}",
                detail=f"The inputs can be read from {since} on"
                + (", when a table among them was altered." if altered else "."),
                hint="Take a later time, or leave AS OF out to read what is newest.",
            )
        if (later := chosen.at_or_after(as_of)) > as_of:
            raise HistoryGone(
                f"cannot read as of {as_of}",
                detail=f"An index that was behind has skipped it. It can be read at {later}.",
                hint="Take that time, or let the index keep its history (RETAIN HISTORY).",
            )
        return Selection(as_of, read_ts, isolation, inputs)
    match isolation:
        case "strict serializable":
            time = read_ts
        case "serializable":
            time = min(read_ts, chosen.upper - 1)
        case BoundedStaleness(ms=bound):
            time = min(read_ts, chosen.upper - 1)
            if time < max(read_ts - bound, since, at_least or 0, chosen.at_or_after(time)):
                raise _would_wait(chosen, time, bound, at_least or 0, name_of)
    time = chosen.at_or_after(max(time, since, at_least or 0))
    return Selection(time, read_ts, isolation, inputs)


def require_readable(
    inputs: Mapping[GlobalId, Interval],
    isolation: Isolation,
    time: Timestamp,
    name_of: Callable[[GlobalId], str],
) -> None:
    """Raise if `inputs` cannot be read at a transaction's time.

    Raises Conflict if that is before an input's `since`, NotYetKnown if bounded staleness would
    have to wait.
    """
    late = max(inputs, key=lambda id: inputs[id].at_or_after(time), default=None)
    if late is not None and inputs[late].at_or_after(time) > time:
        since = inputs[late].at_or_after(time)
        altered = inputs[late].altered == since
        raise Conflict(
            "could not serialize access: the transaction reads at a time before this relation "
            "could be read",
            detail=f'It reads at {time}; "{name_of(late)}" is readable from {since} on'
            + (", when it was altered." if altered else "."),
            hint="Run the transaction again."
            if altered
            else "Run the transaction again later, or let more history be retained "
            "(RETAIN HISTORY).",
        )
    if isinstance(isolation, BoundedStaleness):
        last = min(inputs, key=lambda id: inputs[id].upper, default=None)
        if last is not None and inputs[last].upper <= time:
            raise NotYetKnown(
                "could not serialize access: this relation is not known yet at the time at which "
                "the transaction reads, and is not waited for",
                detail=f'It reads at {time}; "{name_of(last)}" is known before '
                f"{inputs[last].upper}.",
                hint="Run the transaction again, reading this relation first.",
            )


def _would_wait(
    chosen: Selection,
    time: Timestamp,
    bound: int,
    at_least: Timestamp,
    name_of: Callable[[GlobalId], str],
) -> NotYetKnown:
    """Return the error of bounded staleness; `time` is the last at which all inputs are known."""
    last = min(chosen.inputs, key=lambda id: chosen.inputs[id].upper, default=None)
    detail = f"The newest time is {chosen.read_ts}."
    if last is not None:
        upper = chosen.inputs[last].upper
        detail = f'"{name_of(last)}" is known before {upper}; the newest time is {chosen.read_ts}.'
    if time < chosen.read_ts - bound:
        return NotYetKnown(
            f"no answer is at most {bound} ms old, and none is waited for",
            detail=detail,
            hint="Run the query again later, or allow more staleness.",
        )
    if time < chosen.since:
        late = max(chosen.inputs, key=lambda id: chosen.inputs[id].since)
        return NotYetKnown(
            "there is no time at which all of these relations are known, and none is waited for",
            detail=f'{detail[:-1]}; "{name_of(late)}" is readable from {chosen.since} on.',
            hint="Run the query again later, or let more history be retained (RETAIN HISTORY).",
        )
    return NotYetKnown(
        f"no answer at {at_least} or later is known, and none is waited for",
        detail=detail,
        hint="Run the query again later.",
    )
