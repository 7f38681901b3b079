"""real_time_recency: a read sees what was there outside when it was asked."""

import asyncio
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.adapter.harness import TestEnvironment
from tests.kafka import MockKafka


async def test_a_read_sees_each_file_that_was_there(
    own_env: TestEnvironment, tmp_path: Path
) -> None:
    env, place = own_env, tmp_path / "incoming"
    place.mkdir()
    env.environment.let_copy([str(place)], tmp_path / "data")
    options = "(FORMAT parquet, POLL INTERVAL '200 ms')"
    await env.ran(
        "a",
        f"CREATE SOURCE s (n int8) FROM FILES '{place}' {options}",
        "CREATE VIEW v AS SELECT count(*) AS n FROM s",
        "SET real_time_recency = on",
    )
    for number in range(1, 4):
        pq.write_table(pa.table({"n": [number]}), place / f".{number}")
        (place / f".{number}").rename(place / f"{number}.parquet")
        if number == 2:
            env.ingest.last.kill()
        assert await env.query("a", "SELECT n FROM v") == f"{number}\nSELECT 1"
    await env.ran("a", "CREATE SOURCE g FROM LOAD GENERATOR COUNTER")
    await env.ran("a", "SELECT count(*) FROM g", "SELECT 1")


async def test_a_source_that_stays_behind_is_not_waited_for_for_ever(
    own_env: TestEnvironment, tmp_path: Path
) -> None:
    env, place = own_env, tmp_path / "incoming"
    place.mkdir()
    env.environment.let_copy([str(place)], tmp_path / "data")
    options = "(FORMAT parquet, POLL INTERVAL '1 hour')"
    await env.ran(
        "a",
        f"CREATE SOURCE s (n int8) FROM FILES '{place}' {options}",
        "SET real_time_recency = on",
        "SELECT * FROM s",
    )
    status = "SELECT status FROM mz_internal.mz_source_statuses"
    while True:  # until it has looked for files, which it does not again for an hour
        if (await env.query("a", status)).startswith("running"):
            break
        await asyncio.sleep(0.01)
    pq.write_table(pa.table({"n": [1]}), place / "a.parquet")
    await env.ran("a", "SET real_time_recency_timeout = '300ms'")
    assert "ERROR 57014" in await env.query("a", "SELECT * FROM s")
    await env.ran("a", "SET transaction_isolation = 'serializable'", "SELECT * FROM s")


async def test_a_read_sees_each_message_that_was_there(own_env: TestEnvironment) -> None:
    env, kafka = own_env, MockKafka()
    kafka.write("t", [(None, b"0")])
    source = "FROM KAFKA CONNECTION k (TOPIC 't', TIMESTAMP INTERVAL '200 ms') FORMAT TEXT"
    await env.ran(
        "a",
        f"CREATE CONNECTION k TO KAFKA (BROKER '{kafka.address}')",
        f"CREATE SOURCE s {source}",
        "SET real_time_recency = on",
    )
    for number in range(1, 5):
        kafka.write("t", [(None, b"x")], partition=number % 2)
        assert await env.query("a", "SELECT count(*) FROM s") == f"{number + 1}\nSELECT 1"
