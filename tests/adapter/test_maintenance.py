"""VACUUM compacts what has been written; ANALYZE has nothing to do."""

from tests.adapter.harness import TestEnvironment
from tests.harness import file_sizes


async def test_vacuum_moves_log_into_batches(env: TestEnvironment) -> None:
    await env.query("s", "CREATE TABLE swept (i int)")
    await env.query("s", "INSERT INTO swept SELECT generate_series(1, 1000)")
    query = "SELECT id FROM mz_catalog.mz_tables WHERE name = 'swept'"
    id = (await env.query("s", query)).splitlines()[0]
    assert await env.query("s", "ANALYZE swept") == "ANALYZE"
    assert not file_sizes(env.data_dir, f"**/{id}/*.parquet")
    assert await env.query("s", "VACUUM swept") == "VACUUM"
    assert len(file_sizes(env.data_dir, f"**/{id}/*.parquet")) == 1
    assert await env.query("s", "SELECT count(*), sum(i) FROM swept") == "1000|500500\nSELECT 1"
