"""Directories of files as a kind of target."""

import uuid

from foreshore import blocking
from foreshore.errors import FeatureNotSupported
from foreshore.storage.export.exporter import Exporter
from foreshore.storage.export.files.claims import HIDDEN, Claims
from foreshore.storage.export.files.exporter import FilesExporter
from foreshore.storage.export.files.place import location_of, own_columns
from foreshore.storage.export.messages import Export
from foreshore.storage.lake import delta
from foreshore.storage.lake.columns import check_distinct


class FilesSinkKind:
    """Directories of files."""

    def exporter(self, export: Export) -> Exporter:
        """Return a new exporter."""
        return FilesExporter(export, lambda: location_of(export))

    async def check(self, export: Export) -> None:
        """Make the directory if it is not there; raises if it cannot be written."""
        if export.spec.envelope != "append":
            raise FeatureNotSupported(
                f"ENVELOPE {export.spec.envelope.upper()} is not for files",
                hint="Use APPEND, or write INTO DELTA.",
            )
        check_distinct(list(own_columns(export)))
        await blocking.run(None, _check, export)

    async def dispose(self, export: Export) -> None:
        """Remove the sink's claims; the files stay."""
        await blocking.run(None, _dispose, export)


def _check(export: Export) -> None:
    location = location_of(export)
    if location.root is not None and delta.is_table(location.path):
        raise FeatureNotSupported(
            f'"{location.url}" is a Delta table', hint="Write INTO DELTA (URL ...)."
        )
    key = "/".join(filter(None, (location.key, HIDDEN, f"check-{uuid.uuid4().hex[:12]}", "empty")))
    location.blob.put(key, b"")
    location.blob.delete(key)


def _dispose(export: Export) -> None:
    claims = Claims(location_of(export), export.name)
    for name in claims.names():
        claims.location.blob.delete(f"{claims.prefix}{name}")


KIND = FilesSinkKind()
