"""Metrics: those of CREATE METRIC that are followed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal as OneOf
from typing import Protocol, TypeAlias

from foreshore.ids import GlobalId
from foreshore.metric_spec import MetricKind

Labels: TypeAlias = tuple[str, ...]


@dataclass(slots=True)
class Status:
    """How a metric does; `since` is in milliseconds since 1970."""

    state: OneOf["starting", "running", "stalled"]
    since: int
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Family:
    """A metric as a scrape shows it."""

    name: str
    kind: MetricKind
    help: str
    labels: Labels
    series: Sequence[tuple[Labels, float]]


class Metrics(Protocol):
    """The metrics of the environment."""

    def statuses(self) -> Mapping[GlobalId, tuple[Status, int]]:
        """Return the status of each metric, and the number of its series."""

    def families(self) -> Sequence[Family]:
        """Return what a scrape shows."""
