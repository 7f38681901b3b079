"""Tables of a lake that a source follows, one version after the other."""

from collections.abc import Iterator, Mapping
from typing import Protocol

import pyarrow as pa

from foreshore.storage.lake import delta_steps, iceberg_steps
from foreshore.storage.lake.places import Location
from foreshore.storage.lake.steps import Step
from foreshore.storage.lake.tables import Name


class Followed(Protocol):
    """A module that follows the tables of one format. All of its functions block.

    They raise UndefinedFile if there is no table, and BadCopyFileFormat if it cannot be read.
    """

    def schema(self, location: Location) -> pa.Schema:
        """Return the schema of the newest version."""

    def newest(self, location: Location) -> int:
        """Return the position after the newest version."""

    def steps(self, location: Location, following: int | None) -> Iterator[Step]:
        """Yield the steps from a position to the newest version; from None: all of its files."""


FOLLOWED: Mapping[Name, Followed] = {"delta": delta_steps, "iceberg": iceberg_steps}
