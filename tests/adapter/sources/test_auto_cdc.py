"""AUTO_CDC over a topic of Debezium's changes, and over a table that only grows."""

import asyncio
import json
from typing import Any

import pytest

from tests.adapter.harness import TestEnvironment
from tests.adapter.sources.test_kafka import created, until
from tests.kafka import MockKafka

FEED = """CREATE VIEW changes AS
    SELECT (coalesce(nullif(p -> 'after', 'null'), p -> 'before') ->> 'id')::int AS id,
           p -> 'after' ->> 'name' AS name, p -> 'after' ->> 'city' AS city,
           to_timestamp((p ->> 'ts_ms')::int8 / 1000) AT TIME ZONE 'UTC' AS at,
           (p -> 'source' ->> 'lsn')::int8 AS lsn, p ->> 'op' AS op
    FROM (SELECT coalesce(data -> 'payload', data) AS p FROM raw) AS messages"""
CLAUSES = "TABLE changes KEYS (id) SEQUENCE BY (at, lsn) APPLY AS DELETE WHEN op = 'd'"


@pytest.fixture(scope="module")
def kafka() -> MockKafka:
    return MockKafka()


@pytest.fixture
def env(runner: asyncio.Runner, own_env: TestEnvironment, kafka: MockKafka) -> TestEnvironment:
    runner.run(own_env.ran("a", f"CREATE CONNECTION k TO KAFKA (BROKER '{kafka.address}')"))
    return own_env


def change(lsn: int, op: str, before: Any, after: Any) -> bytes:
    """Return a message of Debezium, a second after 2024-01-01 for each number of the log."""
    payload = {"before": before, "after": after, "op": op, "source": {"lsn": lsn}}
    return json.dumps({"payload": {**payload, "ts_ms": 1704067200000 + 1000 * lsn}}).encode()


async def test_topic_of_changes_is_kept_as_rows_and_as_history(
    env: TestEnvironment, kafka: MockKafka
) -> None:
    ann, bob = {"id": 1, "name": "Ann", "city": "Rome"}, {"id": 2, "name": "Bob", "city": "Oslo"}
    messages = [
        change(1, "c", None, ann),
        change(2, "c", None, bob),
        change(5, "u", ann, {**ann, "city": "Paris"}),
        change(6, "d", bob, None),
    ]
    kafka.write("customers", [(b"k", each) for each in messages], partition=0)
    topic = "FROM KAFKA CONNECTION k (TOPIC 'customers')"
    await created(env, f"CREATE SOURCE raw {topic} FORMAT JSON INCLUDE OFFSET")
    await env.ran(
        "a",
        FEED,
        f"CREATE MATERIALIZED VIEW now AS SELECT id, name, city FROM AUTO_CDC({CLAUSES})",
        "CREATE MATERIALIZED VIEW history AS SELECT id, city, extract(second FROM valid_from)::int "
        "AS since, extract(second FROM valid_to)::int AS until, is_current "
        f"FROM AUTO_CDC({CLAUSES} STORED AS SCD TYPE 2 TRACK HISTORY ON city)",
    )
    await until(env, "SELECT * FROM now ORDER BY 1", "1|Ann|Paris")
    versions = "SELECT * FROM history ORDER BY id, since"
    await until(env, versions, "1|Rome|1|5|f\n1|Paris|5|NULL|t\n2|Oslo|2|6|f")
    env.ingest.last.kill()
    late = change(3, "u", ann, {**ann, "city": "Bern"})
    again = change(9, "c", None, {**bob, "name": "Bo"})
    kafka.write("customers", [(b"k", late), (b"k", messages[1]), (b"k", late), (b"k", again)])
    await until(env, "SELECT * FROM now ORDER BY 1", "1|Ann|Paris\n2|Bo|Oslo")
    await env.reopen()
    expected = "1|Rome|1|3|f\n1|Bern|3|5|f\n1|Paris|5|NULL|t\n2|Oslo|2|6|f\n2|Oslo|9|NULL|t"
    await until(env, versions, expected)
    for view in ("now", "history"):
        assert await env.query("a", f"VERIFY MATERIALIZED VIEW {view}") == "SELECT 0"


async def test_present_rows_of_a_growing_table_need_no_more_than_the_last_change(
    env: TestEnvironment,
) -> None:
    await env.ran("a", "CREATE TABLE feed (k int, s int, v text) WITH (APPEND ONLY)")
    query = "SELECT k, v FROM AUTO_CDC(feed KEYS (k) SEQUENCE BY s APPLY AS DELETE WHEN v = '')"
    await env.ran("a", f"CREATE MATERIALIZED VIEW present AS {query}")
    plan = await env.ran("a", "EXPLAIN PHYSICAL PLAN FOR MATERIALIZED VIEW present")
    assert "onoton" in plan, plan
    await env.ran("a", "INSERT INTO feed VALUES (1, 2, 'b'), (2, 1, 'x')")
    await env.ran("a", "INSERT INTO feed VALUES (1, 1, 'a'), (2, 2, '')")
    assert await env.query("a", "SELECT * FROM present") == "1|b\nSELECT 1"
    assert await env.query("a", f"{query} WHERE k = 1".replace(" WHERE", " AS c WHERE")) == (
        "1|b\nSELECT 1"
    )
