"""Collections: tables and views with their names and times, for what reads or writes some."""

from typing import Protocol

from foreshore.adapter.services.names import Names
from foreshore.adapter.services.tables import Tables
from foreshore.adapter.services.times import Times
from foreshore.adapter.services.views import Views


class Stored(Names, Times, Tables, Protocol):
    """The collections in shards."""


class Maintained(Names, Times, Views, Protocol):
    """The collections that dataflows maintain."""


class Collections(Stored, Maintained, Protocol):
    """All collections."""
