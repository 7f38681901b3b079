"""Which intervals of a sink are in a directory: a claim for each, in a hidden directory beside.

    _foreshore/<sink>/<lower>                  {"upper": ..., "staged": the next one, or null, ...}
    _foreshore/<sink>/<lower>-<upper>-<id>     the rows, until they have their own name

A claim is created only if there is none for its lower bound, so of two exporters that write at the
same time one fails. The frontier is the upper bound of the newest claim.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from foreshore.storage.lake.places import Location
from foreshore.update import Timestamp

HIDDEN = "_foreshore"
KEPT = 100  # claims; older ones can only be asked for by an exporter that is far behind


class Claim(msgspec.Struct, frozen=True):
    """An interval, and where its rows were put before it was claimed; None if there are none.

    `begins` is the lower bound of the sink's newest file, which has the rows of this interval, too;
    None: there is no file yet, or each interval has a file of its own. `grows` says whether that
    file gets the rows of the next interval.
    """

    upper: Timestamp
    staged: str | None
    begins: Timestamp | None = None
    grows: bool = False


@dataclass(frozen=True, slots=True)
class Claims:
    """The claims of one sink. All methods block."""

    location: Location
    sink: str

    @property
    def prefix(self) -> str:
        """Return what all keys of the sink begin with."""
        return "/".join(filter(None, (self.location.key, HIDDEN, self.sink))) + "/"

    def newest(self) -> tuple[Timestamp, Claim] | None:
        """Return the claim with the greatest lower bound, and that bound."""
        lowers = self.lowers()
        if not lowers:
            return None
        data = self.location.blob.get(f"{self.prefix}{lowers[-1]}")
        if data is None:
            return None
        return lowers[-1], msgspec.json.decode(data, type=Claim)

    def claim(self, lower: Timestamp, claim: Claim) -> bool:
        """Claim an interval; return False if another exporter has claimed one from there on."""
        found = self.newest()
        if found is not None and found[1].upper != lower:
            return False
        created = self.location.blob.create(f"{self.prefix}{lower}", msgspec.json.encode(claim))
        for old in self.lowers()[:-KEPT] if created else ():
            self.location.blob.delete(f"{self.prefix}{old}")
        return created

    def lowers(self) -> list[Timestamp]:
        """Return the lower bounds of all claims, in order."""
        return sorted(int(name) for name in self.names() if name.isdecimal())

    def abandoned(self, frontier: Timestamp) -> Iterator[str]:
        """Yield the keys of rows that can be claimed no more, as all before `frontier` is."""
        for name in self.names():
            lower, _, rest = name.partition("-")
            if rest and lower.isdecimal() and int(lower) < frontier:
                yield f"{self.prefix}{name}"

    def names(self) -> list[str]:
        """Return the names of all claims and staged rows."""
        if self.location.root is not None:
            directory = self.location.root / self.prefix
            return [each.name for each in directory.iterdir()] if directory.is_dir() else []
        found = (key for key, _ in self.location.blob.list(self.prefix))
        return [key.removeprefix(self.prefix) for key in found]
