"""Compare the columns of a foreign key with those of the key that they refer to.

Values are cast to the other type. A value that the other type does not have equals none of its
values: it is out of range, or would be rounded. So each cast is checked by casting back.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from foreshore.compute.arrange.key import pairs_equal
from foreshore.expr.evaluate import outcome
from foreshore.expr.functions.casts import exact_cast
from foreshore.expr.ir import Call, Column, Scalar
from foreshore.types import SqlType, arrow_type


@lru_cache(1024)
def _cast(source: SqlType, target: SqlType) -> Scalar | None:
    """Return the cast of a column, None if its values are the same."""
    column = Column(0, source)
    if source == target:
        return None
    resolved = exact_cast(source, target)
    if resolved.key == "relabel" and arrow_type(source) == arrow_type(target):
        return None
    return Call(resolved.key, (column,), target)


def are_same(sources: Sequence[SqlType], targets: Sequence[SqlType]) -> bool:
    """Whether no value has to be cast."""
    return all(_cast(*pair) is None for pair in zip(sources, targets, strict=True))


def cast_keys(
    columns: Sequence[pa.Array], sources: Sequence[SqlType], targets: Sequence[SqlType]
) -> tuple[list[pa.Array], npt.NDArray[np.bool_]]:
    """Return columns without NULL as `targets`, and which rows have values of these types.

    The values of other rows are undefined.
    """
    rows = len(columns[0])
    valid = np.ones(rows, np.bool_)
    found = []
    for column, source, target in zip(columns, sources, targets, strict=True):
        there = _cast(source, target)
        if there is None:
            found.append(column)
            continue
        cast, errors = outcome(there, [column], rows)
        back = _cast(target, source)
        again = cast if back is None else outcome(back, [cast], rows)[0]
        valid &= pairs_equal(again, column, source)
        if errors is not None:
            valid &= errors.is_null().to_numpy(zero_copy_only=False)
        found.append(cast)
    return found, valid
