"""COUNTER: the numbers from 1 on."""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from foreshore.sources.outputs import OWN_ROWS
from foreshore.update import DIFF


def counted(begin: int, end: int) -> Mapping[str, pa.Table]:
    """Return the numbers of ticks `begin` to `end`, exclusive: tick 0 has 1."""
    numbers = pa.array(np.arange(begin + 1, end + 1, dtype=np.int64))
    ones = pa.array(np.ones(end - begin, dtype=np.int64))
    return {OWN_ROWS: pa.table({"counter": numbers, DIFF: ones})}
