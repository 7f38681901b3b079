"""A long argument does not keep rows from being streamed."""

import pytest

from foreshore.adapter.client import Rows
from tests.adapter.harness import TestEnvironment

LONG = "x" * 300_000


@pytest.mark.parametrize(
    ("sql", "rows", "longest"),
    [
        ("SELECT g, $1::text FROM generate_series(1, 100000) g LIMIT 2", 2, len(LONG)),
        ("SELECT g, $1::text FROM generate_series(1, 100000) g", None, len(LONG)),
        ("SELECT g, $1::text FROM generate_series(1, 30) g", 30, len(LONG)),
        ("SELECT $1::text", 1, len(LONG)),
    ],
)
async def test_rows_with_a_long_argument_are_streamed(
    env: TestEnvironment, sql: str, rows: int | None, longest: int
) -> None:
    session = await env.session("long")
    await session.extended.parse("", sql, ())
    await session.extended.bind("", "", (LONG,), ())
    execution = await session.extended.execute("", 0)
    assert isinstance(execution, Rows)
    found, size = 0, 0
    async for batch in execution.batches:
        found += batch.num_rows
        assert batch.nbytes <= max(8 << 20, 2 * longest)
        size += batch.nbytes
        if rows is None and size > 100 * len(LONG):
            break
    assert rows is None or found == rows
    await session.extended.sync()
