"""All services, for the context of a statement."""

from typing import Protocol

from foreshore.adapter.services.collections import Collections
from foreshore.adapter.services.engines import Engines
from foreshore.adapter.services.feeds import Feeds
from foreshore.adapter.services.process import Process


class Services(Collections, Engines, Feeds, Process, Protocol):
    """The services of the environment that statements may use."""
