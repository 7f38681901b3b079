"""PostgreSQL's statistics views count rows that statements change, and transactions."""

from pathlib import Path

from tests.adapter.harness import TestEnvironment, in_environment

COUNTS = (
    "SELECT n_tup_ins, n_tup_upd, n_tup_del, n_live_tup FROM pg_stat_user_tables"
    " WHERE relname = 't'"
)


def test_changed_rows_are_counted_as_in_postgresql(tmp_path: Path) -> None:
    async def play(env: TestEnvironment) -> None:
        await env.ran(
            "a",
            "CREATE TABLE t (id int PRIMARY KEY, a text)",
            "INSERT INTO t SELECT g, 'x' FROM generate_series(1, 100) AS g",
            "UPDATE t SET a = 'y' WHERE id <= 10",
            "DELETE FROM t WHERE id > 95",
        )
        assert (await env.query("a", COUNTS)).splitlines()[0] == "100|10|5|95"
        await env.ran("a", "TRUNCATE t", "INSERT INTO t VALUES (1, 'z')")
        assert (await env.query("a", COUNTS)).splitlines()[0] == "101|10|5|1"
        function = "SELECT pg_stat_get_tuples_inserted('t'::regclass)"
        assert (await env.query("a", function)).splitlines()[0] == "101"
        await env.ran(
            "a",
            "BEGIN",
            "INSERT INTO t SELECT g, 'x' FROM generate_series(10, 19) AS g",
            "SAVEPOINT a",
            "DELETE FROM t",
            "ROLLBACK TO a",
            "DELETE FROM t WHERE id = 19",
        )
        assert (await env.query("b", COUNTS)).splitlines()[0] == "111|10|17|1"
        await env.ran("a", "COMMIT", "BEGIN", "DELETE FROM t", "ROLLBACK")
        assert (await env.query("a", COUNTS)).splitlines()[0] == "111|10|27|10"
        await env.ran("a", "CREATE TABLE same (a int)")
        await env.ran("a", "INSERT INTO same SELECT 1 FROM generate_series(1, 100)")
        assert (await env.query("a", COUNTS.replace("'t'", "'same'"))).startswith("100|0|0|100\n")
        await env.reopen()
        assert (await env.query("b", COUNTS)).splitlines()[0].startswith("0|0|0|")

    in_environment(tmp_path, play)


def test_transactions_and_sessions_of_a_database_are_counted(tmp_path: Path) -> None:
    async def play(env: TestEnvironment) -> None:
        query = (
            "SELECT numbackends, xact_commit, xact_rollback FROM pg_stat_database"
            " WHERE datname = current_database()"
        )
        await env.session("other")
        before = [int(each) for each in (await env.query("a", query)).split("\n")[0].split("|")]
        await env.ran(
            "a", "CREATE TABLE t (id int)", "BEGIN", "INSERT INTO t VALUES (1)", "ROLLBACK"
        )
        after = [int(each) for each in (await env.query("a", query)).split("\n")[0].split("|")]
        assert after[0] == 2
        assert after[1] > before[1]
        assert after[2] == before[2] + 1
        await env.ran("a", "CREATE DATABASE second")
        of_first = query.replace("current_database()", "'foreshore'")
        await env.ran("a", "SET database = second")
        counts = await env.query("a", query)
        assert int(counts.split("|")[1]) < after[1]
        assert int((await env.query("a", of_first)).split("|")[1]) >= after[1]

    in_environment(tmp_path, play)
