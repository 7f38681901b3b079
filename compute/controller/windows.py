"""Deduplicates updates that several replicas send in windows of their own."""

import pyarrow as pa
import pyarrow.compute as pc

from foreshore.compute.inputs import times_of
from foreshore.errors import InternalError
from foreshore.update import Timestamp


def new_part(
    lower: Timestamp, upper: Timestamp, updates: pa.Table | None, reached: Timestamp
) -> pa.Table | None:
    """Return the updates in [lower, upper) at or beyond `reached`, None if there are none."""
    if lower > reached:
        raise InternalError(f"a window [{lower}, {upper}) leaves a gap after {reached}")
    if updates is None or upper <= reached or not updates.num_rows:
        return None
    if lower < reached:
        updates = updates.filter(pc.greater_equal(times_of(updates), reached))
    return updates if updates.num_rows else None
