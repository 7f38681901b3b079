"""Read a Foreshore collection as of a time with pandas.

    python read_pandas.py DATA_DIR NAME [--as-of MS] [--output FILE]

The result is a frame of the distinct rows, `__diff` saying how many times each is there.
"""

import math

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from foreshore_files import main


def contents(files: list[str], as_of: int) -> pd.DataFrame:
    """Return the rows that the updates in the files add up to at `as_of`."""
    # Arrow's types keep NULL apart from NaN, and hold dates that pandas' own cannot.
    read = pa.concat_tables([pq.read_table(file) for file in files])
    updates = read.to_pandas(types_mapper=pd.ArrowDtype)
    updates = updates[updates["__time"] <= as_of].reset_index(drop=True)
    rows = updates.drop(columns=["__time", "__diff"])
    keys = pd.DataFrame({i: exact(rows.iloc[:, i]) for i in range(rows.shape[1])})
    if len(keys.columns):
        group = keys.groupby(list(keys), dropna=False, sort=False).ngroup()
    else:
        group = pd.Series(0, updates.index)
    total = updates["__diff"].astype("int64").groupby(group).transform("sum")
    result = rows.assign(__diff=total.astype("int64[pyarrow]"))
    return result[~group.duplicated() & (total != 0)].reset_index(drop=True)


def exact(column: pd.Series) -> pd.Series:
    """Return values that are equal where the column's are, bit for bit: -0.0 is not 0.0.

    Only NaN is one value, whatever its bits.
    """
    array = pa.chunked_array(column.array.__arrow_array__()).combine_chunks()
    if pa.types.is_floating(array.type):
        array = pc.if_else(pc.is_nan(array), pa.scalar(math.nan, array.type), array)
    array = array.view(bits(array.type))
    if pa.types.is_nested(array.type):
        array = pa.array(map(repr, array.to_pylist()), pa.string())
    return pd.Series(array, dtype=pd.ArrowDtype(array.type))


def bits(type: pa.DataType) -> pa.DataType:
    """Return the type as which values of `type` are compared; floats in lists are as texts."""
    if pa.types.is_floating(type) or pa.types.is_temporal(type):
        return pa.int32() if type.bit_width == 32 else pa.int64()
    if pa.types.is_list(type) and not pa.types.is_floating(type.value_type):
        return pa.list_(bits(type.value_type))
    return type


def table(files: list[str], as_of: int) -> pa.Table:
    """Return `contents` as an Arrow table."""
    return pa.Table.from_pandas(contents(files, as_of), preserve_index=False)


if __name__ == "__main__":
    main(table)
