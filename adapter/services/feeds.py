"""Feeds: what brings rows in from other systems, and out to them."""

from typing import Protocol

from foreshore.adapter.services.leftovers import Leftovers
from foreshore.adapter.services.metrics import Metrics
from foreshore.adapter.services.sinks import Exports
from foreshore.adapter.services.sources import Ingestion, Webhooks


class Feeds(Protocol):
    """The sources and sinks that exchange rows with other systems."""

    @property
    def ingestion(self) -> Ingestion:
        """Sources that read."""

    @property
    def webhooks(self) -> Webhooks:
        """Sources to which clients send."""

    @property
    def exports(self) -> Exports:
        """Sinks."""

    @property
    def published(self) -> Metrics:
        """Metrics, which a scrape takes."""

    @property
    def leftovers(self) -> Leftovers:
        """The leftovers of dropped ones in other systems."""
