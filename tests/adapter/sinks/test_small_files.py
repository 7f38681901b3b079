"""However often a sink commits, a partition has few small files, and no row is lost or twice."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pytest

from tests.adapter.harness import TestEnvironment
from tests.adapter.lakes import connected, equipped, into, reading
from tests.adapter.sources.test_files import reaches
from tests.iceberg_catalog import IcebergCatalog

pytestmark = pytest.mark.full
MOST, SMALL_BYTES = 16, 1 << 20
CHANGES = [
    "INSERT INTO t VALUES ({0}, 'p{1}')",
    "UPDATE t SET p = 'p{1}' WHERE k = {0} - 3",
    "INSERT INTO t SELECT {0} * 1000 + i, 'p' || i % 2 FROM generate_series(1, 20) i",
    "DELETE FROM t WHERE k % 1000 = {0} - 9",
]


def small_of_delta(place: Path) -> Counter[Any]:
    """Return how many small files each partition has."""
    import pyarrow as pa

    actions = pa.table(deltalake.DeltaTable(str(place)).get_add_actions(flatten=True)).to_pylist()
    small = [each for each in actions if each["size_bytes"] < SMALL_BYTES]
    return Counter(each.get("partition.p") for each in small)


async def commit_often(
    env: TestEnvironment, small: Callable[[], Counter[Any]], again: Callable[[], Any]
) -> None:
    """Commit a change many times, over kills and a restart; count the files after each."""
    most: Counter[Any] = Counter()
    for number in range(60):
        change = CHANGES[number % len(CHANGES)].format(number, number % 2)
        await env.ran("a", change, "WAIT FOR SINKS out")
        most |= small()
        if number % 13 == 6:
            env.export.last.kill()
        if number == 30:
            await env.reopen()
            await again()
    assert max(most.values()) <= MOST, most
    assert max(most.values()) > 3  # else it was not tried


@pytest.mark.parametrize("mode", ["UPSERT", "APPEND"])
@pytest.mark.parametrize("partition", ["", ", PARTITION BY 'p'"])
async def test_delta_table_has_few_small_files(
    own_env: TestEnvironment, tmp_path: Path, mode: str, partition: str
) -> None:
    env, lake = own_env, tmp_path / "lake"
    lake.mkdir()
    await equipped(env, tmp_path)
    await env.ran("a", "CREATE TABLE t (k int PRIMARY KEY, p text)", CHANGES[0].format(-1, 1))
    sink = f"CREATE SINK out FROM t INTO DELTA (URL '{lake}/t'{partition}) MODE {mode}"
    await env.ran("a", f"{sink} WITH (COMMIT INTERVAL '1 ms')", "WAIT FOR SINKS out")
    await env.ran(
        "a", f"CREATE SOURCE r FROM FILES '{lake}/t' (FORMAT delta, POLL INTERVAL '10 ms')"
    )

    async def again() -> None:
        await equipped(env, tmp_path)

    await commit_often(env, lambda: small_of_delta(lake / "t"), again)
    await same(env, mode, "mz_diff")


@pytest.mark.parametrize("mode", ["UPSERT", "APPEND"])
async def test_iceberg_table_has_few_small_files(
    own_env: TestEnvironment, catalog: IcebergCatalog, tmp_path: Path, mode: str
) -> None:
    env = await connected(own_env, catalog, tmp_path)
    await env.ran("a", "CREATE TABLE t (k int PRIMARY KEY, p text)", CHANGES[0].format(-1, 1))
    await env.ran("a", f"CREATE SINK out FROM t {into('t', f'MODE {mode}')}", "WAIT FOR SINKS out")
    await env.ran("a", f"CREATE SOURCE r {reading('t')}")

    def small() -> Counter[Any]:
        tasks = catalog.tables.load_table("n.t").scan().plan_files()
        files = [task.file for task in tasks]
        return Counter(
            str(each.partition) for each in files if each.file_size_in_bytes < SMALL_BYTES
        )

    async def again() -> None:
        await equipped(env, tmp_path)

    await commit_often(env, small, again)
    operations = {
        each.summary.operation.value for each in catalog.tables.load_table("n.t").snapshots()
    }
    if mode == "APPEND":  # programs that follow what is added pass over those that merge
        assert operations == {"append", "replace"}
    await same(env, mode, "_mz_diff")


async def same(env: TestEnvironment, mode: str, diff: str) -> None:
    """Wait until a source of the table has the rows of the relation."""
    rows = "SELECT k, p FROM r"
    if mode == "APPEND":
        rows = f"SELECT k, p FROM r GROUP BY k, p HAVING sum({diff}) > 0"
        twice = f"SELECT count(*) FROM (SELECT 1 FROM r GROUP BY k, p HAVING sum({diff}) > 1) x"
        await reaches(env, twice, "0")
    query = "SELECT (SELECT count(*) FROM (SELECT k, p FROM t EXCEPT {0})) + "
    query += "(SELECT count(*) FROM ({0} EXCEPT SELECT k, p FROM t))"
    await reaches(env, query.format(rows), "0")
