"""How far a change of a row reaches within its partition, by the window functions over it.

    lag, lead, frames of rows between offsets    rows as far away
    last_known                                   rows up to the next one with a value
    ranks, running counts and sums               all later rows, for rank from the first peer on
    all others                                   the whole partition

For what comes before the rows that are read, running functions need sums over the whole partition.
"""

from dataclasses import dataclass

from foreshore.compute.render.frames import count_of
from foreshore.expr.ir import Literal, Window, WindowFunction

FAR = 1 << 20  # rows at which a neighbour is as far as the rest of the partition


@dataclass(frozen=True, slots=True)
class Reach:
    """Rows that a change reaches before it and, unless it runs to the end, after it.

    With `peers` it begins at the first peer. With `known` it also reaches later rows up to the next
    one at which each such function has a value, and they depend on the last one before.
    """

    rows: int = 0
    to_end: bool = False
    peers: bool = False
    known: bool = False


def reach_of(window: Window) -> Reach | None:
    """Return how far a change reaches, None if it is the whole partition."""
    found = Reach()
    for function in window.functions:
        one = _of_function(function)
        if one is None:
            return None
        found = Reach(
            max(found.rows, one.rows),
            found.to_end or one.to_end,
            found.peers or one.peers,
            found.known or one.known,
        )
    if found.known and found.to_end:
        return None
    return None if found.rows > FAR else found


def is_running(function: WindowFunction) -> bool:
    """Return whether `function` counts or adds up rows from the beginning of the partition."""
    frame = function.frame
    return function.function in ("count", "sum") and frame.start is None and frame.end is not None


def _of_function(function: WindowFunction) -> Reach | None:
    match function.function:
        case "row_number":
            return Reach(to_end=True)
        case "rank" | "dense_rank":
            return Reach(to_end=True, peers=True)
        case "lag" | "lead":
            rows = function.args[1]
            if not isinstance(rows, Literal):
                return None
            return Reach(abs(rows.value or 0))
        case "last_known":
            return Reach(known=True)
    frame = function.frame
    if frame.end is None or not (frame.start is not None or is_running(function)):
        return None
    bounds = [bound for bound in (frame.start, frame.end) if bound is not None]
    if frame.unit == "rows" and frame.exclude in ("nothing", "current row"):
        return Reach(max(map(count_of, bounds)), to_end=frame.start is None)
    if frame.exclude == "nothing" and all(bound.side == "current" for bound in bounds):
        return Reach(to_end=True, peers=True)
    return None
