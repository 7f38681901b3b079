"""The states of a subscription, and the function for each transition between them.

    Starting ──► Reading ◄──► Following ──► Ended
        └────────────────────────▲

    Starting    waits until its inputs are complete at AS OF, then joins a changelog
    Reading     reads what the changelog does not have: contents, or changes it has dropped
    Following   takes event after event from the changelog
    Ended       has no more rows; UP TO was reached, or there is an error

Any state may become Ended. All functions are pure; the adapter's subscriber does the input and
output. States are structs, which cost less than dataclasses: each change makes new ones per
subscriber.
"""

from typing import TypeAlias

from msgspec import Struct

from foreshore.compute.changelog import Changelog, End, Event, earliest
from foreshore.errors import DatabaseError
from foreshore.update import EMPTY, Timestamp


class Starting(Struct, frozen=True):
    """Waits until the inputs are complete at `as_of`."""

    as_of: Timestamp
    snapshot: bool  # whether the stream begins with the contents


class Reading(Struct, frozen=True):
    """Reads the contents as of `after` if `snapshot`, and the changes later than that."""

    after: Timestamp
    snapshot: bool


class Following(Struct, frozen=True):
    """Has been given all updates before `upper`, and takes the next from the changelog."""

    upper: Timestamp


class Ended(Struct, frozen=True):
    """Has no more rows, or fails with `error`."""

    error: DatabaseError | None = None


State: TypeAlias = Starting | Reading | Following | Ended


class TakeEvent(Struct, frozen=True):
    """Send the updates of `event` before `until`, then become `then`."""

    event: Event
    until: Timestamp
    then: Following


class ReportProgress(Struct, frozen=True):
    """Send a progress row, then become `then`."""

    then: Following


class Wait(Struct, frozen=True):
    """Wait for an event or, with `frontier`, until the changelog's frontier moves."""

    frontier: bool


WAIT_FOR_EVENT, WAIT_FOR_FRONTIER = Wait(frontier=False), Wait(frontier=True)

Step: TypeAlias = TakeEvent | ReportProgress | Wait | Reading | Ended


def joined(state: Starting, log: Changelog) -> Starting | Reading | Following:
    """Return the state after joining `log`, which has passed AS OF or ended.

    If it ended at an error before AS OF, the error may be gone by then: the next one is joined.
    """
    if log.has_contents(state.as_of):
        return Following(state.as_of if state.snapshot else state.as_of + 1)
    if log.end is not None and log.end.time <= state.as_of:
        return state
    if state.snapshot or not log.has_changes(state.as_of):
        return Reading(state.as_of, state.snapshot)
    return Following(state.as_of + 1)


def next_step(state: Following, log: Changelog, end: End | None, *, progress: bool) -> Step:
    """Return what to do next: the stream ends at `end`, or where the changelog does.

    With `progress` the client wants progress rows also when nothing changes.
    """
    upper, until = state.upper, EMPTY
    if log.end is not None:
        end = earliest(end, log.end)
    if end is not None:
        until = end.time
        if upper >= until:
            return Ended(end.error)
    if log.has_dropped(upper):
        return Reading(upper - 1, snapshot=False)
    event = log.event(upper)
    if event is not None:
        reached = event.upper if event.upper < until else until
        return TakeEvent(event, until, Following(reached if reached > upper else upper))
    reached = log.frontier if log.frontier < until else until
    if reached > upper:
        return ReportProgress(Following(reached))
    return WAIT_FOR_FRONTIER if progress or end is not None else WAIT_FOR_EVENT


def limited(state: State, end: End) -> State:
    """Return the state after `end` became known: Ended if nothing was to come before it."""
    if isinstance(state, Starting) and end.time <= state.as_of:
        return Ended(end.error)
    return state


def interrupted(state: State, error: DatabaseError) -> State:
    """Return the state after what it subscribes to was dropped.

    A subscription that follows a changelog takes what is left of it; the changelog has the error.
    """
    return Ended(error) if isinstance(state, Starting | Reading) else state


def end_of_constant(as_of: Timestamp, now: Timestamp) -> Timestamp:
    """Return where a stream ends whose collection never changes."""
    return max(as_of, now) + 1
