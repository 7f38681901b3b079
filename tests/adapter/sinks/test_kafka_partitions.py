"""PARTITION BY of a sink to Kafka chooses the partition of each message."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest

from foreshore.expr.functions.checksums import seahash
from foreshore.storage import consolidate
from foreshore.storage.export.kafka import exporter
from tests.adapter.harness import TestEnvironment
from tests.adapter.sinks.waiting import until_read, until_state
from tests.broker import Broker, serving
from tests.kafka_topics import reading

FAST = "WITH (COMMIT INTERVAL '10 ms')"
ROWS = 300


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with serving(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.fixture
def env(runner: asyncio.Runner, own_env: TestEnvironment, broker: Broker) -> TestEnvironment:
    runner.run(own_env.ran("a", f"CREATE CONNECTION k TO KAFKA (BROKER '{broker.address}')"))
    return own_env


def into(topic: str, partition_by: str, partitions: int = 4) -> str:
    options = f"TOPIC '{topic}', TOPIC PARTITION COUNT {partitions}, PARTITION BY {partition_by}"
    return f"INTO KAFKA CONNECTION k ({options})"


@pytest.mark.parametrize("is_on_disk", [False, True])
async def test_hash_of_key_chooses_partition_of_rows_and_deletions(
    env: TestEnvironment, broker: Broker, monkeypatch: pytest.MonkeyPatch, *, is_on_disk: bool
) -> None:
    topic = f"hash-{is_on_disk}"
    if is_on_disk:
        monkeypatch.setattr(exporter, "GATHERED_BYTES", 1_000)
        monkeypatch.setattr(consolidate, "IN_MEMORY", 10_000)
    await env.ran("a", "CREATE TABLE t (k text PRIMARY KEY, v int)")
    await env.ran("a", f"INSERT INTO t SELECT 'k' || i, i FROM generate_series(1, {ROWS}) i")
    where = into(topic, "seahash(t.k)")
    await env.ran("a", f"CREATE SINK s FROM t {where} KEY FORMAT TEXT VALUE FORMAT JSON {FAST}")
    with reading(broker.address, topic) as reader:
        await until_read(reader, ROWS)
        await env.ran("a", "UPDATE t SET v = -v WHERE v <= 100", "DELETE FROM t WHERE v > 200")
        found = await until_read(reader, ROWS + 200)
    for each in found:
        assert each.key is not None
        assert each.partition == seahash(each.key) % 4, each
    assert sum(each.value is None for each in found) == ROWS - 200
    shown = await env.query("a", "SHOW CREATE SINK s")
    assert "PARTITION BY = seahash(k)" in shown, shown


async def test_partition_is_of_the_new_row_and_that_of_null_is_the_first(
    env: TestEnvironment, broker: Broker
) -> None:
    await env.ran("a", "CREATE TABLE t (k int PRIMARY KEY, part int)")
    await env.ran("a", "INSERT INTO t VALUES (1, 1), (2, 7), (3, NULL)")
    where = into("columns", "part", 3)
    await env.ran("a", f"CREATE SINK s FROM t {where} FORMAT JSON ENVELOPE UPSERT {FAST}")
    with reading(broker.address, "columns") as reader:
        await until_read(reader, 3)
        await env.ran("a", "UPDATE t SET part = 2 WHERE k = 1")
        await env.ran("a", "DELETE FROM t WHERE k = 2")
        found = await until_read(reader, 5)
        here = [
            (json.loads(each.key or b"")["k"], each.partition, each.value is None) for each in found
        ]
        assert sorted(here) == [
            (1, 1, False),
            (1, 2, False),
            (2, 1, False),
            (2, 1, True),
            (3, 0, False),
        ]
        await env.reopen()  # the expression is planned again from its text
        await env.ran("a", "INSERT INTO t VALUES (4, 5)")
        assert (await until_read(reader, 6))[-1].partition == 2
        await env.ran("a", "INSERT INTO t VALUES (5, -1)")  # is no uint8
        assert "PARTITION BY fails for a row" in await until_state(env, "stalled")


async def test_shown_statement_has_present_names_of_columns(
    env: TestEnvironment, broker: Broker
) -> None:
    await env.ran("a", "CREATE TABLE t (a int, b int, h map[text=>text], PRIMARY KEY (a, b))")
    where = into("renamed", "t.a * 10 + b")
    await env.ran("a", f"CREATE SINK s FROM t {where} HEADERS h FORMAT JSON {FAST}")
    for old, new in (("a", "c"), ("b", "a"), ("c", "b"), ("h", "heads")):
        await env.ran("a", f"ALTER TABLE t RENAME COLUMN {old} TO {new}")
    shown = (await env.query("a", "SHOW CREATE SINK s")).splitlines()[0].split("|")[1]
    assert "PARTITION BY = b * 10 + a" in shown, shown
    assert "KEY (b, a) NOT ENFORCED HEADERS heads FORMAT JSON" in shown, shown
    await env.ran("a", "INSERT INTO t VALUES (1, 2, '{x=>y}')")
    with reading(broker.address, "renamed") as reader:
        (found,) = await until_read(reader, 1)
    assert found.partition == 12 % 4
    await env.ran("a", "DROP SINK s", shown)


async def test_wrong_partition_by_is_refused(env: TestEnvironment, broker: Broker) -> None:
    await env.ran("a", "CREATE TABLE t (k int PRIMARY KEY, v text)")
    refused = {
        ("v", ""): "PARTITION BY must be of type uint8, not text",
        ("absent", ""): 'column "absent" does not exist',
        ("(SELECT 1)", ""): "cannot use subquery in PARTITION BY",
        ("count(*)", ""): "aggregate functions are not allowed in PARTITION BY",
        ("(random() * 9)::int", ""): "PARTITION BY is not immutable",
        ("length(v)", "ENVELOPE DEBEZIUM"): 'can only use columns of the key, not "v"',
        ("k, PARTITION BY k", ""): "conflicting or redundant options",
    }
    for (by, envelope), message in refused.items():
        statement = f"CREATE SINK s FROM t {into('wrong', by)} KEY (k) FORMAT JSON {envelope}"
        answer = await env.query("a", statement)
        assert message in answer, (by, answer)
