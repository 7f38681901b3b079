"""Tables to be copied: one of many types, and one whose rows are in a batch and in the log."""

from collections import Counter
from decimal import Decimal
from pathlib import Path

from tests.adapter.harness import TestEnvironment

COLUMNS = (
    "k int, b bool, i2 smallint, i8 bigint, f8 float8, n numeric(12,3), nn numeric, t text, "
    "v varchar(9), c char(4), by bytea, u uuid, j jsonb, d date, ti time, ts timestamp, "
    "tz timestamptz, iv interval, a int[], ta text[]"
)
ROWS = (
    "(1, true, -3, 9223372036854775807, 1.5, 12.345, 1.50, E'a,\"b\"\\nc', 'v', 'ab', '\\x00ff', "
    "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '{\"a\": [1, null]}', '2024-02-29', '23:59:59.5', "
    "'2024-01-02 03:04:05.000006', '2024-01-02 03:04:05+00', '1 mon 2 days', '{1,NULL,3}', '{x,\"y z\"}')",
    "(2" + ", NULL" * 19 + ")",
    "(3, false, 0, 0, 'NaN', 0, -7, '', '', '', '', NULL, 'null', '1999-12-31', '00:00', NULL, "
    "NULL, '-1 us', '{}', '{}')",
)
SETTLED = Counter(
    [
        *((x, f"row {x}", Decimal(x) / 4) for x in range(1, 1001)),
        *(2 * [(-1, None, Decimal(0))]),  # in the log only
    ]
)


async def filled(env: TestEnvironment, place: Path) -> None:
    """Make `t`, of many types, and let COPY use a directory."""
    place.mkdir(exist_ok=True)  # noqa: ASYNC240
    env.environment.let_copy([str(place)], env.data_dir)
    await env.ran("a", f"CREATE TABLE t ({COLUMNS})", f"INSERT INTO t VALUES {', '.join(ROWS)}")


async def settled(env: TestEnvironment, place: Path) -> None:
    """Make `s` with the rows SETTLED, and let COPY use a directory."""
    env.environment.let_copy([str(place)], env.data_dir)
    await env.ran(
        "a",
        "CREATE TABLE s (x int, y text, z numeric(9,2))",
        "INSERT INTO s SELECT x, 'row ' || x, x / 4.0 FROM generate_series(1, 1000) AS g (x)",
    )
    await env.storage.settle()
    await env.ran("a", "INSERT INTO s VALUES (-1, NULL, 0), (-1, NULL, 0)")
