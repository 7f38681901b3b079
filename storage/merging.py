"""Which batches of a shard are to be merged, so that their sizes fall geometrically."""

from foreshore.storage.shard import Shard
from foreshore.storage.trace import Batch

GROWTH = 1.5  # a batch has at least this many times the rows of those after it
ROWS_OF_A_FILE = 1_000  # the cost of a file, in rows, even if it is empty
WORTH_REWRITING = 10_000  # loose updates


def due_for_merging(shard: Shard) -> tuple[Batch, ...]:
    """Return the neighbouring batches that should be merged, none if there are none."""
    batches = shard.batches
    if not batches:
        return ()
    start, rows = len(batches) - 1, batches[-1].rows + ROWS_OF_A_FILE
    while start > 0 and batches[start - 1].rows + ROWS_OF_A_FILE < GROWTH * rows:
        start -= 1
        rows += batches[start].rows
    if start < len(batches) - 1:
        return batches[start:]
    for batch in batches:
        passed = min(shard.durable_since, batch.upper - 1) == batch.upper - 1
        if passed and batch.loose >= WORTH_REWRITING and GROWTH * batch.loose > batch.rows:
            return (batch,)
    return ()
