"""Tables of a lake that a source follows, one version after the other."""

from collections.abc import Iterator
from typing import Protocol

import pyarrow as pa

from foreshore.storage.lake.steps import Position, Step


class Followed(Protocol):
    """A table of one format. All of its methods block.

    They raise UndefinedFile if there is no table, and BadCopyFileFormat if it cannot be read.
    """

    def columns(self) -> tuple[pa.Schema, str]:
        """Return the schema of the newest version, and what tells its columns apart later."""

    def newest(self) -> Position:
        """Return the position after the newest version, in the parts that only grow."""

    def steps(self, position: Position) -> Iterator[Step]:
        """Yield the steps from a position to the newest version.

        From an empty one that is all of its files, and so it is if the table is another one, or the
        files that were read last are not there any more.
        """
