"""Isolation levels: what the setting transaction_isolation means for the time of a read."""

from dataclasses import dataclass
from typing import Literal as OneOf

from foreshore.setting_kinds import BOUNDED_STALENESS, milliseconds


@dataclass(frozen=True, slots=True)
class BoundedStaleness:
    """Reads see at least all commits older than `ms` milliseconds, and never wait."""

    ms: int

    def __str__(self) -> str:
        return f"bounded staleness {self.ms}ms"


Isolation = OneOf["strict serializable", "serializable"] | BoundedStaleness


def isolation_of(level: str) -> Isolation:
    """Return the isolation of a level's name; weaker levels than serializable get the strongest."""
    if level.startswith(BOUNDED_STALENESS):
        return BoundedStaleness(milliseconds(level.removeprefix(BOUNDED_STALENESS)) or 0)
    return "serializable" if level == "serializable" else "strict serializable"


def standard_level(level: str) -> str:
    """Return the SQL standard's name of a level.

    Strict serializable is stronger than any level of the standard. Reads with bounded staleness are
    serializable, at an earlier time.
    """
    is_standard = level != "strict serializable" and not level.startswith(BOUNDED_STALENESS)
    return level if is_standard else "serializable"
