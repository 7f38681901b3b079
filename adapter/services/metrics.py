"""Metrics: those of CREATE METRIC that are followed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal as OneOf
from typing import Protocol

from foreshore.ids import GlobalId


@dataclass(slots=True)
class Status:
    """How a metric does; `since` is in milliseconds since 1970."""

    state: OneOf["starting", "running", "stalled"]
    since: int
    error: str | None = None


class Metrics(Protocol):
    """The metrics of the environment."""

    def statuses(self) -> Mapping[GlobalId, tuple[Status, int]]:
        """Return the status of each metric, and the number of its series."""
