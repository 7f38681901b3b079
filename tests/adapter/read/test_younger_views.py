"""A materialized view answers at times from before it was made, from what its query reads."""

from __future__ import annotations

from tests.adapter.harness import TestEnvironment


async def _time(env: TestEnvironment) -> str:
    return (await env.ran("t", "SELECT mz_now()")).splitlines()[0]


async def _history(env: TestEnvironment) -> list[str]:
    """Make a table with changes at several times, which are returned; then views over it."""
    await env.ran("a", "CREATE TABLE t (k int, v int) WITH (RETAIN HISTORY FOR '1 hour')")
    times = []
    for k in range(6):
        await env.ran(
            "a",
            f"INSERT INTO t VALUES ({k % 2}, {k})",
            f"DELETE FROM t WHERE v = {k - 3}",
            f"UPDATE t SET v = v + 10 WHERE v = {k - 2}",
        )
        times.append(await _time(env))
    await env.ran(
        "a",
        "CREATE MATERIALIZED VIEW sums AS SELECT k, sum(v) AS s, count(*) AS n FROM t GROUP BY k",
        "CREATE MATERIALIZED VIEW top AS SELECT max(s) AS m FROM sums",
        "CREATE INDEX ON top (m)",
        "CREATE VIEW plain AS SELECT m + 1 AS m FROM top",
        "SELECT * FROM top",
    )
    return times


async def test_a_view_made_later_answers_at_earlier_times(own_env: TestEnvironment) -> None:
    env = own_env
    times = await _history(env)
    asked = {
        "SELECT k, s, n FROM sums": "SELECT k, sum(v), count(*) FROM t GROUP BY k",
        "SELECT m FROM top": "SELECT max(s) FROM (SELECT sum(v) AS s FROM t GROUP BY k) AS q",
        "SELECT m FROM plain": "SELECT max(s) + 1 FROM (SELECT sum(v) AS s FROM t GROUP BY k) AS q",
        "SELECT s.n, t.v FROM sums AS s JOIN t USING (k)": (
            "SELECT count(*) OVER (PARTITION BY k), v FROM t"
        ),
    }
    for time in times:
        for of_view, of_table in asked.items():
            answers = [
                sorted((await env.ran("a", f"{query} AS OF {time}")).splitlines())
                for query in (of_view, of_table)
            ]
            assert answers[0] == answers[1], (of_view, time)
    before = int(times[0]) - 1_000_000_000
    assert "22023" in await env.query("a", f"SELECT * FROM sums AS OF {before}")


async def test_a_subscription_to_a_view_begins_before_it_was_made(own_env: TestEnvironment) -> None:
    env = own_env
    times = await _history(env)
    for relation, query in (
        ("sums", "SELECT k, sum(v) AS s, count(*) AS n FROM t GROUP BY k"),
        ("top", "SELECT max(s) AS m FROM (SELECT sum(v) AS s FROM t GROUP BY k) AS q"),
    ):
        until = await _time(env)
        of_view, of_query = [
            await env.ran("a", f"SUBSCRIBE {of} AS OF {times[1]} UP TO {until}")
            for of in (f"TO {relation}", f"({query})")
        ]
        assert sorted(of_view.splitlines()) == sorted(of_query.splitlines())
        assert len(of_view.splitlines()) > 5


async def test_a_view_with_a_schedule_has_no_earlier_times(own_env: TestEnvironment) -> None:
    env = own_env
    times = await _history(env)
    await env.ran(
        "a", "CREATE MATERIALIZED VIEW daily WITH (REFRESH EVERY '1 day') AS SELECT count(*) FROM t"
    )
    assert "22023" in await env.query("a", f"SELECT * FROM daily AS OF {times[0]}")
