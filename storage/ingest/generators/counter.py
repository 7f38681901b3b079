"""COUNTER: the numbers from 1 on."""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from foreshore.sources.generators import LoadGenerator
from foreshore.sources.outputs import OWN_ROWS
from foreshore.storage.ingest.generators.drawn import rows


def counted(spec: LoadGenerator, begin: int, end: int) -> Mapping[str, pa.Table]:
    """Return the numbers of ticks `begin` to `end`, exclusive: tick 0 has 1.

    With a MAX CARDINALITY of n each takes away the number of n ticks before.
    """
    numbers = np.arange(begin + 1, end + 1, dtype=np.int64)
    if spec.max_cardinality is None:
        return {OWN_ROWS: rows(counter=numbers)}
    both = np.stack([numbers, numbers - spec.max_cardinality], axis=1).reshape(-1)
    diffs = np.tile(np.array([1, -1], dtype=np.int64), len(numbers))
    kept = both > 0
    return {OWN_ROWS: rows(diffs[kept], counter=both[kept])}
