"""CREATE METRIC: rows of maintained relations at /metrics."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from foreshore.adapter.metrics.scrape import EnvironmentMetrics
from foreshore.adapter.metrics.series import Series
from foreshore.errors import DatabaseError
from tests.adapter.harness import TestEnvironment, in_environment

SHOP = (
    "CREATE TABLE orders (id int PRIMARY KEY, item text, region text, paid numeric)",
    "INSERT INTO orders VALUES (1, 'tea', 'EU', 1.5), (2, 'tea', 'US', 2), (3, NULL, 'EU', 4)",
    "CREATE MATERIALIZED VIEW totals AS"
    " SELECT item, region, sum(paid) AS paid, count(*) AS n FROM orders GROUP BY item, region",
)
METRIC = "CREATE METRIC shop_paid FROM totals VALUE paid LABELS (item, region AS area) HELP 'Paid'"


async def exposition(env: TestEnvironment) -> list[str]:
    """Return the lines of /metrics, without those of the server itself."""

    class Found:
        def collect(self) -> object:
            return found

    found = await EnvironmentMetrics(env.environment, 100).metrics()
    registry = CollectorRegistry()
    registry.register(Found())  # type: ignore[arg-type]
    lines = generate_latest(registry).decode().splitlines()
    return [each for each in lines if "foreshore_" not in each]


async def shows(env: TestEnvironment, *lines: str) -> None:
    """Wait until /metrics has these lines beside HELP and TYPE, and no others."""

    async def shown() -> list[str]:
        return sorted(each for each in await exposition(env) if not each.startswith("#"))

    async with asyncio.timeout(200):
        while await shown() != sorted(lines):  # noqa: ASYNC110 - what changes it tells nobody
            await asyncio.sleep(0.02)


async def stalls(env: TestEnvironment, error: str) -> None:
    """Wait until the metric has stalled for a reason."""
    sql = "SELECT status, error FROM mz_internal.mz_metric_statuses"
    async with asyncio.timeout(200):
        while error not in await env.query("w", sql, alone=False):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def with_shop(
    data_dir: Path, scenario: Callable[[TestEnvironment], Awaitable[None]], *more: str
) -> None:
    async def go(env: TestEnvironment) -> None:
        await env.ran("s", *SHOP, *more)
        await scenario(env)

    in_environment(data_dir, go)


def test_metric_shows_the_rows_of_a_view_and_follows_them(tmp_path: Path) -> None:
    async def go(env: TestEnvironment) -> None:
        first = 'shop_paid{area="EU",item="tea"} 1.5'
        others = ('shop_paid{area="US",item="tea"} 2.0', 'shop_paid{area="EU",item=""} 4.0')
        await shows(env, first, *others)
        assert "# HELP shop_paid Paid" in await exposition(env)
        assert "# TYPE shop_paid gauge" in await exposition(env)
        await env.ran("s", "INSERT INTO orders VALUES (4, 'tea', 'EU', 3)")
        await shows(env, 'shop_paid{area="EU",item="tea"} 4.5', *others)
        await env.ran("s", "DELETE FROM orders WHERE region = 'EU'")
        await shows(env, others[0])
        await env.ran("s", "DROP METRIC shop_paid")
        await shows(env)

    with_shop(tmp_path, go, METRIC)


def test_metric_is_there_after_a_restart(tmp_path: Path) -> None:
    async def go(env: TestEnvironment) -> None:
        await env.ran("s", "DELETE FROM orders WHERE id > 1")
        await env.reopen()
        await shows(env, 'shop_paid{area="EU",item="tea"} 1.5')
        shown = await env.query("s", "SHOW CREATE METRIC shop_paid")
        assert (
            "CREATE METRIC foreshore.public.shop_paid FROM foreshore.public.totals VALUE paid"
            " LABELS (item AS item, region AS area) TYPE GAUGE HELP 'Paid' MAX SERIES 1000"
        ) in shown
        await env.ran("s", "ALTER MATERIALIZED VIEW totals RENAME COLUMN region TO zone")
        await env.ran("s", "ALTER MATERIALIZED VIEW totals RENAME TO sums")
        shown = await env.query("s", "SHOW CREATE METRIC shop_paid")
        statement = shown.splitlines()[0].partition("|")[2] or shown.split("\t")[-1]
        assert "FROM foreshore.public.sums" in statement
        assert "zone AS area" in statement
        await env.ran("s", "DROP METRIC shop_paid", statement.strip())
        await shows(env, 'shop_paid{area="EU",item="tea"} 1.5')
        await env.ran("s", "CREATE METRIC shop_bare FROM sums VALUE paid")
        shown = await env.query("s", "SHOW CREATE METRIC shop_bare")
        assert "VALUE paid TYPE GAUGE MAX SERIES 1000" in shown

    with_shop(tmp_path, go, METRIC)


def test_counter_of_a_table_and_gauge_of_an_indexed_view(tmp_path: Path) -> None:
    async def go(env: TestEnvironment) -> None:
        await shows(
            env,
            'sold_total{id="1"} 1.5', 'sold_total{id="2"} 2.0', 'sold_total{id="3"} 4.0',
            "all_orders 3.0",
        )  # fmt: skip
        assert "# TYPE sold_total counter" in await exposition(env)

    with_shop(
        tmp_path,
        go,
        "CREATE METRIC sold FROM orders VALUE paid LABELS (id) TYPE counter",
        "CREATE VIEW number AS SELECT count(*) AS n FROM orders",
        "CREATE INDEX number_index ON number (n)",
        "CREATE METRIC all_orders FROM number VALUE n",
    )


def test_rows_of_the_same_labels_and_without_values_have_no_series(tmp_path: Path) -> None:
    async def go(env: TestEnvironment) -> None:
        await shows(env, 'by_item{item=""} 4.0')
        await env.ran("s", "DELETE FROM orders WHERE id = 2")
        await shows(env, 'by_item{item=""} 4.0', 'by_item{item="tea"} 1.5')
        await env.ran("s", "UPDATE orders SET paid = NULL WHERE id = 3")
        await shows(env, 'by_item{item="tea"} 1.5')

    with_shop(tmp_path, go, "CREATE METRIC by_item FROM orders VALUE paid LABELS (item)")


def test_metric_with_too_many_series_stalls_until_there_are_fewer(tmp_path: Path) -> None:
    async def go(env: TestEnvironment) -> None:
        await stalls(env, "stalled|the metric has more than 2 series")
        await shows(env)
        await env.ran("s", "DELETE FROM orders WHERE id = 1")
        await shows(env, 'few{id="2"} 2.0', 'few{id="3"} 4.0')
        await env.ran(
            "s", "INSERT INTO orders SELECT g, '', '', 1 FROM generate_series(10, 50000) g"
        )
        await stalls(env, "stalled|the metric has more than 2 series")

    with_shop(tmp_path, go, "CREATE METRIC few FROM orders VALUE paid LABELS (id) MAX SERIES 2")


def test_rights_of_the_owner_hold(tmp_path: Path) -> None:
    async def go(env: TestEnvironment) -> None:
        for sql, error in (
            (
                "SET ROLE ann; CREATE METRIC m FROM totals VALUE n",
                "42501: permission denied to create",
            ),
            ("SET ROLE bob; CREATE METRIC m FROM totals VALUE n LABELS (item, region)", ""),
        ):
            answer = await env.query("s", sql)
            assert (error in answer) if error else ("ERROR" not in answer), answer
        await stalls(env, "stalled|permission denied for materialized view totals")
        await env.ran("s", "RESET ROLE", "GRANT SELECT ON totals TO bob")
        await env.ran("s", "DELETE FROM orders WHERE id > 1")
        await shows(env, 'm{item="tea",region="EU"} 1.0')
        await env.ran("s", "REVOKE SELECT ON totals FROM bob")
        await stalls(env, "permission denied")
        await shows(env)

    with_shop(
        tmp_path,
        go,
        "CREATE ROLE ann NOLOGIN",
        "CREATE ROLE bob NOLOGIN",
        "GRANT CREATE ON SCHEMA public TO ann, bob",
        "GRANT pg_write_server_files TO bob",
    )


def test_metric_begins_anew_after_its_session_was_ended(tmp_path: Path) -> None:
    async def go(env: TestEnvironment) -> None:
        await shows(env, "all_orders 3.0")
        ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE"
        await env.ran("s", f"{ended} application_name = 'foreshore metric all_orders'")
        await env.ran("s", "INSERT INTO orders VALUES (4, 'tea', 'EU', 3)")
        await shows(env, "all_orders 4.0")
        await env.ran("s", "DROP INDEX number_index")
        await stalls(env, 'stalled|view "number" has no index')
        await env.ran("s", "CREATE INDEX number_index ON number (n)")
        await shows(env, "all_orders 4.0")

    with_shop(
        tmp_path,
        go,
        "CREATE VIEW number AS SELECT count(*) AS n FROM orders",
        "CREATE INDEX number_index ON number (n)",
        "CREATE METRIC all_orders FROM number VALUE n",
    )


def test_sessions_of_metrics_are_no_clients(tmp_path: Path) -> None:
    async def go(env: TestEnvironment) -> None:
        await env.ran("s", "DELETE FROM orders WHERE id > 1")
        await shows(env, 'shop_paid{area="EU",item="tea"} 1.5')
        types = "SELECT backend_type, application_name FROM pg_stat_activity ORDER BY 1"
        found = "background worker|foreshore metric shop_paid\nclient backend|\nSELECT 2"
        assert await env.query("s", types) == found
        families = await EnvironmentMetrics(env.environment, 100).metrics()
        (counted,) = (each for each in families if each.name == "foreshore_sessions")
        assert sum(each.value for each in counted.samples) == 1

    with_shop(tmp_path, go, METRIC)


REFUSED = (
    ("CREATE METRIC m FROM plain VALUE paid", "42809"),
    ("CREATE METRIC m FROM nothing VALUE paid", "42P01"),
    ("CREATE METRIC m FROM pg_class VALUE oid", "42809"),
    ("CREATE METRIC m FROM totals VALUE nothing", "42703"),
    ("CREATE METRIC m FROM totals VALUE item", "42804"),
    ("CREATE METRIC m FROM totals VALUE n LABELS (nothing)", "42703"),
    ('CREATE METRIC m FROM totals VALUE n LABELS (item AS "a b")', "42602"),
    ("CREATE METRIC m FROM totals VALUE n LABELS (item, region AS item)", "42701"),
    ('CREATE METRIC "a b" FROM totals VALUE n', "42602"),
    ("CREATE METRIC foreshore_x FROM totals VALUE n", "42602"),
    ("CREATE METRIC m FROM totals VALUE n MAX SERIES 0", "22023"),
    ("CREATE METRIC m FROM totals VALUE n TYPE histogram", "42601"),
    ("CREATE METRIC totals FROM totals VALUE n", "42P07"),
    ("CREATE METRIC other.shop_paid FROM totals VALUE n", "42710"),
    ("CREATE METRIC shop_paid_total FROM totals VALUE n", ""),
    ("CREATE METRIC shop_paid_total_total FROM totals VALUE n", ""),
    ("CREATE METRIC sold FROM totals VALUE n TYPE counter", ""),
    ("CREATE METRIC sold_total FROM totals VALUE n", "42710"),
    ("CREATE METRIC sold_total FROM totals VALUE n TYPE counter", "42710"),
    ("CREATE METRIC shop_paid_total_total FROM totals VALUE n TYPE counter", "42P07"),
    ("DROP METRIC sold; CREATE METRIC sold_total FROM totals VALUE n", ""),
    ("CREATE METRIC sold FROM totals VALUE n TYPE counter", "42710"),
    ("CREATE METRIC sold FROM totals VALUE n", ""),
    ("DROP METRIC sold, sold_total, shop_paid_total, shop_paid_total_total", ""),
    ("DROP VIEW shop_paid", "42809"),
    ("DROP METRIC totals", "42809"),
    ("DROP METRIC nothing", "42P01"),
    ("DROP MATERIALIZED VIEW totals", "2BP01"),
)


def test_what_cannot_be_a_metric_is_refused(tmp_path: Path) -> None:
    async def go(env: TestEnvironment) -> None:
        for sql, code in REFUSED:
            answer = await env.query("s", sql)
            expected = f"ERROR {code}" if code else ("CREATE", "DROP")
            assert answer.startswith(expected), (sql, answer)
        assert await env.ran("s", f"{METRIC.replace('METRIC', 'METRIC IF NOT EXISTS')}")
        listed = await env.ran("s", "SELECT name, type, help, labels, max_series FROM mz_metrics")
        assert "shop_paid|gauge|Paid|{item,area}|1000" in listed
        assert "shop_paid" in await env.ran("s", "SHOW METRICS")
        kinds = "SELECT type FROM mz_objects WHERE name = 'shop_paid'"
        assert "metric" in await env.ran("s", kinds)
        await env.ran(
            "s", "COMMENT ON METRIC shop_paid IS 'x'", "ALTER METRIC shop_paid RENAME TO p"
        )
        await env.ran("s", "DROP MATERIALIZED VIEW totals CASCADE")
        assert await env.ran("s", "SELECT count(*) FROM mz_metrics") == "0\nSELECT 1"

    with_shop(
        tmp_path, go, METRIC, "CREATE VIEW plain AS SELECT * FROM totals", "CREATE SCHEMA other"
    )


def test_changes_count_when_all_of_their_time_are_there() -> None:
    series = Series(2)
    series.add([(("a",), "1", 1), (("b",), None, 1)])
    assert series.shown() == []
    series.complete()
    assert series.shown() == [(("a",), 1.0)]
    series.add([(("a",), "1", -1)])
    series.add([(("a",), "NaN", 1)])
    series.complete()
    ((labels, value),) = series.shown()
    assert (labels, value == value) == (("a",), False)
    with pytest.raises(DatabaseError) as raised:
        series.add([((str(n),), "1", 1) for n in range(100)])
    assert raised.value.sqlstate == "54000"


def test_rows_of_the_same_labels_are_bounded() -> None:
    series = Series(2)
    for n in range(4):
        series.add([(("a",), str(n), 1)])
        series.complete()
    series.add([(("a",), "4", 1)])
    with pytest.raises(DatabaseError, match="same labels") as raised:
        series.complete()
    assert raised.value.sqlstate == "54000"


def test_metric_of_very_many_rows_with_the_same_labels_stalls(tmp_path: Path) -> None:
    async def go(env: TestEnvironment) -> None:
        await stalls(env, "stalled|the metric has too many rows with the same labels")
        await env.ran("s", "DELETE FROM orders WHERE id > 1")
        await shows(env, "paid 1.5")

    with_shop(
        tmp_path,
        go,
        "INSERT INTO orders SELECT g, '', '', g FROM generate_series(10, 50000) g",
        "CREATE METRIC paid FROM orders VALUE paid MAX SERIES 2",
    )


def test_metric_ends_when_a_right_is_taken_away_while_nothing_changes(tmp_path: Path) -> None:
    async def go(env: TestEnvironment) -> None:
        shown = 'm{item="tea",region="EU"} 1.0'
        for taken, given in (
            ("REVOKE readers FROM bob", "GRANT readers TO bob"),
            ("REVOKE SELECT ON totals FROM readers", "GRANT SELECT ON totals TO readers"),
        ):
            await shows(env, shown)
            await env.ran("s", taken)
            await stalls(env, "stalled|permission denied for materialized view totals")
            await shows(env)
            await env.ran("s", given)
        await shows(env, shown)

    with_shop(
        tmp_path,
        go,
        "DELETE FROM orders WHERE id > 1",
        "CREATE ROLE bob NOLOGIN",
        "CREATE ROLE readers NOLOGIN",
        "GRANT CREATE ON SCHEMA public TO bob",
        "GRANT pg_write_server_files, readers TO bob",
        "GRANT SELECT ON totals TO readers",
        "SET ROLE bob",
        "CREATE METRIC m FROM totals VALUE n LABELS (item, region)",
        "RESET ROLE",
    )
