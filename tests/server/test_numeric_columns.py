"""Numerics encoded by column are as those encoded one by one."""

import asyncio
from decimal import Decimal, localcontext

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from foreshore.numeric_columns import numeric_columns
from foreshore.server import copying
from foreshore.server.binary_values import numeric_bytes
from foreshore.server.codec import CHUNK
from tests.effort import examples

MOST = 2**63 - 1
numbers = st.integers(-MOST, MOST) | st.integers(-10_000, 10_000) | st.sampled_from([10**16, 0])


def decimals(unscaled: list[int | None], scale: int) -> pa.Array:
    with localcontext(prec=60):
        values = [None if each is None else Decimal(each).scaleb(-scale) for each in unscaled]
        return pa.array(values, pa.decimal128(38, scale))


@settings(max_examples=examples(300))
@given(st.lists(numbers | st.none(), max_size=20), st.integers(0, 16), st.booleans())
@example([MOST, -MOST, None, 0, 1, -1, 10_000, 99_999_999, 5 * 10**15], 16, True)
@example([], 0, False)
def test_short_numerics_are_those_of_single_values(
    unscaled: list[int | None], scale: int, trims: bool
) -> None:
    column = decimals([7, *unscaled], scale)[1:]  # with an offset
    shown = None if trims else scale
    found = numeric_columns(column, shown)
    assert found is not None
    with localcontext(prec=60):
        expected = [
            None if each is None else numeric_bytes(each, shown) for each in column.to_pylist()
        ]
    assert found.to_pylist() == expected


@pytest.mark.parametrize(("unscaled", "scale"), [(2**63, 2), (-(2**63), 2), (-(2**64), 0), (1, 17)])
def test_long_numerics_are_left(unscaled: int, scale: int) -> None:
    assert numeric_columns(decimals([1, unscaled], scale), scale) is None


def test_parts_are_encoded_in_order_and_an_error_ends_them() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array(range(5 * CHUNK + 1))], ["c"])

    async def parts(failing: int, *, is_plain: bool) -> list[bytes]:
        def encode(part: pa.RecordBatch) -> bytes:
            first = part.column(0)[0].as_py()
            if first == failing:
                raise ValueError(first)
            return str(first).encode()

        return [bytes(each) async for each in copying.encoded(batch, encode, is_plain=is_plain)]

    for is_plain in (True, False):
        found = asyncio.run(parts(-1, is_plain=is_plain))
        assert found == [str(i * CHUNK).encode() for i in range(6)]
        with pytest.raises(ValueError, match=str(2 * CHUNK)):
            asyncio.run(parts(2 * CHUNK, is_plain=is_plain))
