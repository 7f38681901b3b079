"""Watermarks of tables and sources: late rows, EMIT ON WINDOW CLOSE, restarts."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.adapter.harness import TestEnvironment
from tests.adapter.sources.test_files import allowed, put, reaches

TABLE = "CREATE TABLE t (at timestamp, k int, WATERMARK FOR at AS at - INTERVAL '5 seconds')"
VIEW = (
    "CREATE MATERIALIZED VIEW closed WITH (EMIT ON WINDOW CLOSE) AS SELECT window_end, count(*)"
    " FROM TUMBLE(t, at, INTERVAL '1 minute') GROUP BY window_end"
)


@pytest.fixture(autouse=True)
def dropped(runner: asyncio.Runner, env: TestEnvironment) -> Iterator[None]:
    """Drop the tables of a test after it."""
    yield
    runner.run(env.ran("s", "DROP TABLE IF EXISTS t, plain CASCADE"))


def row(second: int, k: int = 1) -> str:
    """Return the INSERT of a row of a second after midnight."""
    at = f"2020-01-01 {second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"
    return f"INSERT INTO t VALUES ('{at}', {k})"


async def test_view_shows_window_once_watermark_has_passed_its_end(env: TestEnvironment) -> None:
    await env.ran("s", TABLE, VIEW, row(10), row(64))
    assert await env.query("s", "SELECT * FROM closed") == "SELECT 0"
    await env.ran("s", row(65))
    assert await env.query("s", "SELECT * FROM closed") == "2020-01-01 00:01:00|1\nSELECT 1"
    await env.ran("s", "INSERT INTO t VALUES (NULL, 2), ('infinity', 2)", row(60), row(125))
    shown = await env.query("s", "SELECT * FROM closed ORDER BY 1")
    assert shown == "2020-01-01 00:01:00|1\n2020-01-01 00:02:00|3\nSELECT 2"


async def test_insert_below_watermark_fails_also_after_restart(own_env: TestEnvironment) -> None:
    env = own_env
    await env.ran("s", TABLE, VIEW, row(100))
    for _ in range(2):
        assert (await env.query("s", row(94))).startswith("ERROR 23514: new row is below the water")
        await env.reopen()
    await env.ran("s", row(95))
    several = (
        "INSERT INTO t SELECT '2020-01-01 00:01:34'::timestamp, g FROM generate_series(1, 50) g"
    )
    assert "ERROR 23514" in await env.query("s", several)
    await env.ran("s", "BEGIN", row(200), row(95))  # one commit is compared with what was before
    await env.ran("s", "COMMIT")
    assert "ERROR 23514" in await env.query("s", row(194))
    shown = await env.query("s", "SELECT * FROM closed ORDER BY 1")
    assert shown == "2020-01-01 00:02:00|3\nSELECT 1"
    await env.reopen()
    read = "SELECT column_name, delay, watermark FROM mz_internal.mz_watermarks"
    await reaches(env, read, "at|00:00:05|2020-01-01 00:03:15+00")


async def test_watermark_follows_changes_of_its_table(env: TestEnvironment) -> None:
    await env.ran("s", TABLE, VIEW, row(100))
    assert "ERROR 2BP01" in await env.query("s", "ALTER TABLE t DROP COLUMN at")
    await env.ran("s", "ALTER TABLE t RENAME COLUMN at TO happened")
    await env.ran("s", "ALTER TABLE t ADD COLUMN more int NOT NULL DEFAULT 3")
    shown = await env.query("s", "SHOW CREATE TABLE t")
    assert "WATERMARK FOR happened AS happened - INTERVAL '00:00:05') WITH (APPEND ONLY)" in shown
    assert "ERROR 23514" in await env.query("s", row(94))
    await env.ran("s", row(185))
    shown = await env.query("s", "SELECT * FROM closed ORDER BY 1")
    assert shown == "2020-01-01 00:02:00|1\nSELECT 1"
    assert "ERROR 55000" in await env.query("s", "DELETE FROM t")


async def test_watermark_is_shown_as_constraint_and_copied_by_like(env: TestEnvironment) -> None:
    await env.ran("s", TABLE.replace("at ", '"At" ').replace("(at", '("At"'))
    read = (
        "SELECT conname, pg_get_constraintdef(c.oid), relchecks FROM pg_constraint c"
        " JOIN pg_class r ON r.oid = conrelid WHERE relname = '{}'"
    )
    text = 'WATERMARK FOR "At" AS "At" - INTERVAL \'00:00:05\''
    assert await env.query("s", read.format("t")) == f"t_At_watermark|{text}|1\nSELECT 1"
    await env.ran("s", "CREATE TABLE plain (LIKE t INCLUDING ALL)")
    assert await env.query("s", read.format("plain")) == f"plain_At_watermark|{text}|1\nSELECT 1"
    await env.ran("s", "DROP TABLE plain", "CREATE TABLE plain (LIKE t INCLUDING DEFAULTS)")
    assert await env.query("s", read.format("plain")) == "SELECT 0"
    await env.ran(
        "s", "DROP TABLE plain", 'CREATE TABLE plain ("At" date, CONSTRAINT w CHECK (true))'
    )
    await env.ran(
        "s", "DROP TABLE t", f'CREATE TABLE t ("At" timestamp, CONSTRAINT t_At_watermark {text})'
    )
    assert await env.query("s", read.format("t")) == f"t_At_watermark|{text}|1\nSELECT 1"


async def test_watermark_is_for_those_who_may_read_its_column(env: TestEnvironment) -> None:
    table = TABLE.replace("timestamp", "timestamptz")
    rights = "GRANT INSERT, SELECT (k) ON t TO writer"
    await env.ran("s", "SET TimeZone = 'Asia/Tokyo'", table, row(100), "CREATE ROLE writer", rights)
    times = "Its time is 2020-01-01 00:00:10+09, and the watermark is 2020-01-01 00:01:35+09."
    assert f"DETAIL: {times}" in await env.query("s", row(10))
    read = "SELECT delay, watermark FROM mz_internal.mz_watermarks"
    assert await env.query("s", read) == "00:00:05|2019-12-31 15:01:35+00\nSELECT 1"
    await env.ran("s", "SET ROLE writer", row(101))
    refused = await env.query("s", row(10))
    assert refused.startswith('ERROR 23514: new row is below the watermark of column "at"\nHINT')
    assert await env.query("s", read) == "00:00:05|NULL\nSELECT 1"
    await env.ran("s", "RESET ROLE", "RESET TimeZone", "DROP TABLE t", "DROP ROLE writer")


async def test_write_fails_alone_if_its_watermark_is_not_known(env: TestEnvironment) -> None:
    await env.ran("s", TABLE, "BEGIN", row(100))
    env.environment.coordinator.watermarks._greatest.clear()
    assert (await env.query("s", "COMMIT")).startswith("ERROR XX000: the watermark of ")
    await env.ran("s", row(100))
    assert "ERROR 23514" in await env.query("s", row(94))


async def test_month_is_closed_at_its_end_though_times_are_moved(env: TestEnvironment) -> None:
    emit = "CREATE MATERIALIZED VIEW {} WITH (EMIT ON WINDOW CLOSE) AS SELECT {}, count(*) FROM t"
    after = "date_trunc('month', at) + INTERVAL '30 days'"
    before = "date_trunc('month', at - INTERVAL '1 day')"
    await env.ran("s", TABLE)
    await env.ran("s", f"{emit.format('after', after)} GROUP BY 1")
    await env.ran("s", f"{emit.format('before', before)} GROUP BY 1")
    for at in ("01-30", "01-31", "02-01 00:00:04.999999"):
        await env.ran("s", f"INSERT INTO t VALUES ('2021-{at}', 1)")
        assert await env.query("s", "SELECT * FROM after") == "SELECT 0"
    await env.ran("s", "INSERT INTO t VALUES ('2021-02-01 00:00:05', 1)")
    assert await env.query("s", "SELECT * FROM after") == "2021-01-31 00:00:00|2\nSELECT 1"
    assert await env.query("s", "SELECT * FROM before") == "SELECT 0"
    await env.ran("s", "INSERT INTO t VALUES ('2021-02-02 00:00:05', 1)")
    assert await env.query("s", "SELECT * FROM before") == "2021-01-01 00:00:00|4\nSELECT 1"


async def test_view_without_watermark_in_its_groups_is_refused(env: TestEnvironment) -> None:
    await env.ran("s", TABLE, "CREATE TABLE plain (at timestamp, k int)")
    emit = "CREATE MATERIALIZED VIEW v WITH (EMIT ON WINDOW CLOSE) AS SELECT"
    for query in (
        "k, count(*) FROM t GROUP BY k",
        "count(*) FROM t",
        "date_trunc('hour', at) AS h, count(*) FROM plain GROUP BY 1",
        "max(at) FROM t GROUP BY k",
        "k, count(*) FROM TUMBLE(t, at, INTERVAL '1 minute') GROUP BY k, window_end",
        "t.at, plain.k FROM t, plain WHERE t.k = plain.k",
        "window_start, count(*) FROM SESSION(t, at, INTERVAL '1 minute') GROUP BY 1",
        "x.at FROM t x FULL JOIN t y ON x.k = y.k AND x.at = y.at",
        "x.at FROM t x JOIN t y ON x.k = y.k AND y.at > x.at",
        "x.at FROM t x LEFT JOIN plain y ON x.k = y.k AND y.at <= x.at",
    ):
        found = await env.query("s", f"{emit} {query}")
        assert found.startswith("ERROR 0A000: EMIT ON WINDOW CLOSE needs a column"), (query, found)
        assert "HINT: Group by window_end of TUMBLE, HOP or SESSION" in found


async def test_temporary_table_has_a_watermark(env: TestEnvironment) -> None:
    await env.ran("s", TABLE.replace("CREATE", "CREATE TEMPORARY"), row(100))
    assert "ERROR 23514" in await env.query("s", row(94))
    await env.ran("s", row(95))


@pytest.mark.parametrize("key", ["date_trunc('MINS', at)", "date_bin('1 min', at, '2000-01-01')"])
async def test_beginning_of_window_is_final_at_its_end(env: TestEnvironment, key: str) -> None:
    emit = "CREATE MATERIALIZED VIEW v WITH (EMIT ON WINDOW CLOSE) AS SELECT"
    await env.ran("s", TABLE, f"{emit} {key} AS begin, count(*) FROM t GROUP BY 1")
    await env.ran("s", row(10), row(64))
    assert await env.query("s", "SELECT * FROM v") == "SELECT 0"
    await env.ran("s", row(65))
    assert await env.query("s", "SELECT * FROM v") == "2020-01-01 00:00:00|1\nSELECT 1"


async def test_wrong_watermark_is_refused(env: TestEnvironment) -> None:
    for part, state in {
        "WATERMARK FOR k AS k": "42804",
        "WATERMARK FOR none AS none": "42703",
        "WATERMARK FOR at AS k": "42601",
        "WATERMARK FOR at AS at - INTERVAL '1 month'": "0A000",
        "WATERMARK FOR at AS at - INTERVAL '-1 s'": "22023",
        "WATERMARK FOR at AS at - INTERVAL '89478486 days'": "22015",
        "WATERMARK FOR at AS at, WATERMARK FOR at AS at": "42601",
    }.items():
        found = await env.query("s", f"CREATE TABLE x (at timestamp, k int, {part})")
        assert found.startswith(f"ERROR {state}"), found


async def test_view_is_append_only_for_views_over_it(env: TestEnvironment) -> None:
    await env.ran("s", TABLE, VIEW)
    await env.ran("s", "CREATE MATERIALIZED VIEW most AS SELECT max(count) FROM closed")
    explained = await env.query("s", "EXPLAIN PHYSICAL PLAN FOR MATERIALIZED VIEW most")
    assert "first and last rows, as the input is monotonic" in explained
    shown = await env.query("s", "SHOW CREATE MATERIALIZED VIEW closed")
    text = shown.splitlines()[0].split("|")[1]
    await env.ran("s", "DROP MATERIALIZED VIEW most, closed", text, row(1), row(65))
    assert await env.query("s", "SELECT * FROM closed") == "2020-01-01 00:01:00|1\nSELECT 1"


async def test_late_rows_of_source_go_to_relation_beside_it(
    own_env: TestEnvironment, tmp_path: Path
) -> None:
    env, place = own_env, allowed(own_env, tmp_path)
    put(place, "a.csv", "2020-01-01 00:01:40,1\n2020-01-01 00:00:30,2\n")
    source = (
        "CREATE SOURCE t (at timestamp, k int, WATERMARK FOR at AS at - INTERVAL '5 seconds')"
        f" FROM FILES '{place}/*.csv' (FORMAT csv, POLL INTERVAL '10 ms')"
    )
    await env.ran("a", source, VIEW)
    await reaches(env, "SELECT count(*) FROM t", "2")
    put(place, "b.csv", "2020-01-01 00:01:34,3\n2020-01-01 00:01:35,4\n")
    await reaches(env, "SELECT k FROM t ORDER BY k", "1", "2", "4")
    await reaches(env, "SELECT * FROM t_late", "2020-01-01 00:01:34|3")
    await reaches(env, "SELECT * FROM closed", "2020-01-01 00:01:00|1")
    shown = (await env.query("a", "SHOW CREATE SOURCE t")).splitlines()[0].split("|")[1]
    assert "k integer, WATERMARK FOR at AS at - INTERVAL '00:00:05')" in shown
    assert "needed by source" in await env.query("a", "ALTER SOURCE t DROP TABLE t_late")
    await env.reopen()
    env.environment.let_copy([str(place)], tmp_path / "data")
    await env.environment.equip_sources()
    put(place, "c.csv", "2020-01-01 00:01:33,5\n2020-01-01 00:02:35,6\n")
    await reaches(env, "SELECT k FROM t_late ORDER BY k", "3", "5")
    windows = ("2020-01-01 00:01:00|1", "2020-01-01 00:02:00|2")
    await reaches(env, "SELECT * FROM closed ORDER BY 1", *windows)
    await env.ran("a", "DROP SOURCE t CASCADE", shown)
