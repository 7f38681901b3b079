"""Formats of tables: directories of Parquet files with metadata about which of them count."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import pyarrow as pa

from foreshore.storage.lake import delta, iceberg

if TYPE_CHECKING:
    from foreshore.storage.lake.writing import Written


class TableFormat(Protocol):
    """A module that reads and writes the tables of one format."""

    def package(self) -> Any:
        """Return the optional package; raises FeatureNotSupported if it is not installed."""

    def is_table(self, path: Path) -> bool:
        """Whether there is a table in the directory."""

    def rows_of(
        self, path: Path, version: int | None, names: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a version of a table, None for the last one."""

    def create(
        self, place: Path, target: Path, files: Sequence["Written"], schema: pa.Schema, id: str
    ) -> None:
        """Make a table of the Parquet files in `place`, which the caller moves to `target`.

        The `id` of the export is in the names of these files, and of all others that are made.
        """

    def replace(
        self, table: Path, place: Path, files: Sequence["Written"], schema: pa.Schema, id: str
    ) -> None:
        """Make a version of a table that has the Parquet files of `place` alone."""

    def remove_unnamed(self, table: Path, id: str) -> None:
        """Remove the files of an export, whose process has ended, that no version names."""


Name = Literal["delta", "iceberg"]
NAMES: tuple[Name, ...] = ("delta", "iceberg")
TABLES: Mapping[str, TableFormat] = {"delta": delta, "iceberg": iceberg}


def format_of(path: Path) -> Name | None:
    """Return the format of the table in a directory, None if there is none."""
    return next((name for name in NAMES if TABLES[name].is_table(path)), None)
