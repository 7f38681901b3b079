"""Timestamp selection: at which time a query reads, as a pure function of what is known.

A time must be at or beyond every input's `since`, or the answer is no longer known. Strict
serializability asks for the oracle's `read_ts`, which sees all acknowledged writes, even where that
means to wait for a view; serializability takes the freshest time at which nothing has to be waited
for. Bounded staleness takes that as well, and is refused where it is too long ago: it never waits.
AS OF takes its own time: it is refused where the answer is no longer known, and waits for what has
yet to come.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal as OneOf

from foreshore.adapter.variables import BOUNDED_STALENESS, milliseconds
from foreshore.errors import DatabaseError, InvalidParameterValue
from foreshore.ids import GlobalId
from foreshore.update import MAX_TIMESTAMP, Timestamp


@dataclass(frozen=True, slots=True)
class BoundedStaleness:
    """Reads see all that was committed `ms` milliseconds before, at least, and do not wait."""

    ms: int

    def __str__(self) -> str:
        return f"bounded staleness {self.ms}ms"


Isolation = OneOf["strict serializable", "serializable"] | BoundedStaleness


@dataclass(frozen=True, slots=True)
class Interval:
    """The times at which a collection is exact: `since <= t < upper`."""

    since: Timestamp
    upper: Timestamp
    altered: Timestamp | None = None  # when it became what it is now; earlier it was something else


@dataclass(frozen=True, slots=True)
class Selection:
    """The choice, and all that it rests on."""

    time: Timestamp
    read_ts: Timestamp
    isolation: Isolation
    inputs: Mapping[GlobalId, Interval]

    @property
    def since(self) -> Timestamp:
        """The least time at which all inputs are exact."""
        return max((each.since for each in self.inputs.values()), default=0)

    @property
    def upper(self) -> Timestamp:
        """The time from which on some input is not yet known."""
        return min((each.upper for each in self.inputs.values()), default=MAX_TIMESTAMP)

    @property
    def waits(self) -> bool:
        """Whether an input has yet to reach the time."""
        return self.time >= self.upper


def select_timestamp(
    inputs: Mapping[GlobalId, Interval],
    isolation: Isolation,
    read_ts: Timestamp,
    *,
    as_of: Timestamp | None = None,
    at_least: Timestamp | None = None,
) -> Selection:
    """Return the time at which to read `inputs`.

    `as_of` is exact, `at_least` a lower bound; either may be a time that has yet to come. Raises
    InvalidParameterValue for an `as_of` that cannot be read any more.
    """
    chosen = Selection(read_ts, read_ts, isolation, inputs)
    since = chosen.since
    if as_of is not None:
        if as_of < since:
            altered = any(each.altered == since for each in inputs.values())
            raise InvalidParameterValue(
                f"cannot read as of {as_of}",
                detail=f"The inputs can be read from {since} on"
                + (", when a table among them was altered." if altered else "."),
                hint="Take a later time, or leave AS OF out to read what is newest.",
            )
        return Selection(as_of, read_ts, isolation, inputs)
    match isolation:
        case "strict serializable":
            time = read_ts
        case "serializable":
            time = min(read_ts, chosen.upper - 1)
        case BoundedStaleness(ms=bound):
            time = min(read_ts, chosen.upper - 1)
            if time < max(read_ts - bound, since, at_least or 0):
                raise _too_stale(chosen, bound)
    return Selection(max(time, since, at_least or 0), read_ts, isolation, inputs)


def isolation_of(level: str) -> Isolation:
    """Return what the setting transaction_isolation means; weaker levels get the strongest."""
    if level.startswith(BOUNDED_STALENESS):
        return BoundedStaleness(milliseconds(level.removeprefix(BOUNDED_STALENESS)) or 0)
    return "serializable" if level == "serializable" else "strict serializable"


def standard_level(level: str) -> str:
    """Return the SQL standard's name of what transaction_isolation guarantees.

    Strict serializable is more than the standard has a name for; what is read with bounded
    staleness is serializable, as it was a moment ago.
    """
    is_standard = level != "strict serializable" and not level.startswith(BOUNDED_STALENESS)
    return level if is_standard else "serializable"


def _too_stale(chosen: Selection, bound: int) -> DatabaseError:
    last = min(chosen.inputs, key=lambda id: chosen.inputs[id].upper)
    return DatabaseError(
        f"no answer is at most {bound} ms old, and none is waited for",
        sqlstate="40001",
        detail=f"{last} is known before {chosen.upper}; the newest time is {chosen.read_ts}.",
        hint="Run the query again later, or allow more staleness.",
    )
