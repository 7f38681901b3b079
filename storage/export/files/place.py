"""The place that a sink writes to, which COPY may use."""

from foreshore.sinks.places import DeltaTarget, FilesTarget
from foreshore.sources.files import PLACES
from foreshore.storage.export.messages import Export
from foreshore.storage.lake.places import CopyPlaces, Location
from foreshore.types import INT8, SqlType

TIME_COLUMN, DIFF_COLUMN = "mz_timestamp", "mz_diff"  # of ENVELOPE APPEND


def location_of(export: Export) -> Location:
    """Return the place of a sink; raises InsufficientPrivilege unless it is allowed."""
    target = export.spec.target
    assert isinstance(target, DeltaTarget | FilesTarget), target
    places = CopyPlaces.from_options(export.accesses[PLACES].options)
    return places.find(target.url, is_pattern=False)


def own_columns(export: Export) -> dict[str, SqlType]:
    """Return the columns that a sink writes."""
    desc = export.desc
    found = {name: column.type for name, column in zip(desc.names, desc.columns, strict=True)}
    if export.spec.envelope == "append":
        found |= {TIME_COLUMN: INT8, DIFF_COLUMN: INT8}
    return found
