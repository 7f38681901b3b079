"""Buckets are computed as Spark computes them, and equal keys are in equal ones."""

import pyarrow as pa

from foreshore.compute.spark.buckets import bucket_select, buckets_of, is_hashable
from foreshore.types import BPCHAR, DATE, FLOAT8, INT4, INT8, TEXT, ColumnType

# What Spark 4.3 gives for the expression of the bucket, of 64, of these keys.
KEYS = {
    (0, "a"): 15, (1, ""): 25, (-1, "Zürich"): 24, (None, None): 42, (1 << 62, None): 25,
    (None, "a"): 10,
}  # fmt: skip


def chunked(values: list[object], type: pa.DataType) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(values, type)])


def test_keys_have_the_buckets_that_spark_gives_them() -> None:
    for (number, text), bucket in KEYS.items():
        columns = [chunked([number], pa.int64()), chunked([text], pa.string())]
        assert buckets_of(columns, 64) == {bucket}


def test_equal_keys_of_other_widths_are_in_one_bucket() -> None:
    small, large = chunked([7, -7], pa.int32()), chunked([7, -7], pa.int64())
    assert buckets_of([small], 64) == buckets_of([large], 64)
    days = chunked([7, -7], pa.int32()).cast(pa.date32())
    assert buckets_of([days], 64) == buckets_of([large], 64)


def test_only_types_whose_equal_values_look_the_same_are_hashed() -> None:
    assert all(is_hashable(ColumnType(type)) for type in (INT4, INT8, TEXT, DATE))
    assert not any(is_hashable(ColumnType(type)) for type in (FLOAT8, BPCHAR))


def test_the_expression_names_each_column_in_its_form() -> None:
    columns = [("c0", ColumnType(INT4)), ("c2", ColumnType(TEXT)), ("c3", ColumnType(DATE))]
    assert bucket_select(columns, 8) == (
        "CAST(pmod(xxhash64(CAST(c0 AS BIGINT), crc32(CAST(c2 AS BINARY)), "
        "CAST(unix_date(c3) AS BIGINT)), 8) AS INT)"
    )
