"""What a table comes to promise counts from then on: neither its past nor that of views is read so."""

from __future__ import annotations

import asyncio

import pytest

from tests.adapter.harness import House

HISTORY = "WITH (RETAIN HISTORY FOR '1h')"


def now(house: House) -> int:
    return house.environment.coordinator.oracle.read_ts()


def test_a_view_is_read_as_it_was_before_its_table_promised_more(
    runner: asyncio.Runner, house: House
) -> None:
    async def scenario() -> None:
        await house.query("s", f"DROP TABLE IF EXISTS t CASCADE; CREATE TABLE t (k int) {HISTORY}")
        await house.query("s", f"CREATE MATERIALIZED VIEW m {HISTORY} AS SELECT k FROM t")
        await house.query("s", f"CREATE MATERIALIZED VIEW mm {HISTORY} AS SELECT k FROM m")
        await house.query("s", "INSERT INTO t VALUES (NULL), (1), (1)")
        assert await house.query("s", "SELECT count(*) FROM mm") == "3\nSELECT 1"
        before = now(house)
        await house.query("s", "DELETE FROM t; INSERT INTO t VALUES (1)")
        assert await house.query("s", "SELECT count(*) FROM mm") == "1\nSELECT 1"
        await house.query("s", "ALTER TABLE t ADD PRIMARY KEY (k)")
        for _ in range(2):
            for view in ("m", "mm"):
                nulls = f"SELECT count(*) FROM {view} WHERE k IS NULL AS OF {before}"
                assert await house.query("s", nulls) == "1\nSELECT 1"
                distinct = f"SELECT DISTINCT k FROM {view} WHERE k = 1 AS OF {before}"
                assert await house.query("s", distinct) == "1\nSELECT 1"
                others = f"SELECT 2 NOT IN (SELECT k FROM {view}) AS OF {before}"
                assert await house.query("s", others) == "NULL\nSELECT 1"
            refused = await house.query("s", f"SELECT * FROM t AS OF {before}")
            assert refused.startswith("ERROR 22023: "), refused
            await house.close()
            await house.open()

    runner.run(scenario())


@pytest.mark.parametrize("more", ["", "ADD COLUMN z int, "])
def test_what_holds_by_what_the_same_block_writes_holds_from_its_commit_on(
    runner: asyncio.Runner, house: House, more: str
) -> None:
    async def scenario() -> None:
        await house.query("s", f"DROP TABLE IF EXISTS t CASCADE; CREATE TABLE t (k int) {HISTORY}")
        await house.query("s", "INSERT INTO t VALUES (NULL), (1)")
        await house.query("s", "BEGIN; DELETE FROM t WHERE k IS NULL")
        await house.query("s", f"ALTER TABLE t {more}ALTER COLUMN k SET NOT NULL")
        await asyncio.sleep(0.05)
        within = now(house)
        assert await house.query("s", "COMMIT") == "COMMIT"
        nulls = f"SELECT count(*) FROM t WHERE k IS NULL AS OF {within}"
        refused = await house.query("s", nulls)
        assert refused.startswith("ERROR 22023: "), refused
        assert await house.query("s", "SELECT k FROM t") == "1\nSELECT 1"

    runner.run(scenario())


def test_an_index_is_not_read_for_what_its_table_did_not_promise_then(
    runner: asyncio.Runner, house: House
) -> None:
    async def scenario() -> None:
        await house.query("s", f"DROP TABLE IF EXISTS t CASCADE; CREATE TABLE t (k int) {HISTORY}")
        await house.query("s", f"CREATE INDEX i ON t (k) {HISTORY}")
        await house.query("s", "INSERT INTO t VALUES (NULL), (1)")
        assert await house.query("s", "SELECT k FROM t WHERE k = 1") == "1\nSELECT 1"
        before = now(house)
        await house.query("s", "DELETE FROM t WHERE k IS NULL")
        await house.query("s", "ALTER TABLE t ALTER COLUMN k SET NOT NULL")
        nulls = f"SELECT count(*) FROM t WHERE k IS NULL AS OF {before}"
        refused = await house.query("s", nulls)
        assert refused.startswith("ERROR 22023: "), refused

    runner.run(scenario())


def test_a_view_whose_plan_was_made_of_nothing_but_promises(
    runner: asyncio.Runner, house: House
) -> None:
    async def scenario() -> None:
        await house.query("s", "DROP TABLE IF EXISTS t CASCADE; CREATE TABLE t (k int)")
        nulls = "SELECT count(*) AS n FROM t WHERE k IS NULL"
        await house.query("s", f"CREATE MATERIALIZED VIEW m AS {nulls}")
        assert await house.query("s", "SELECT * FROM m") == "0\nSELECT 1"
        altered = await house.query("s", "ALTER TABLE t ALTER COLUMN k SET NOT NULL")
        assert altered == "ALTER TABLE"
        await house.query("s", f"CREATE MATERIALIZED VIEW later AS {nulls}")
        await house.query("s", "INSERT INTO t VALUES (1)")
        for _ in range(2):
            assert await house.query("s", "SELECT * FROM m, later") == "0|0\nSELECT 1"
            shown = await house.query("s", "SELECT pg_get_viewdef('m'::regclass)")
            await house.close()
            await house.open()
        assert "(SELECT" not in shown  # the table is named as it was
        await house.query("s", "ALTER TABLE t ALTER COLUMN k DROP NOT NULL")

    runner.run(scenario())
