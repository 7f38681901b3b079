"""Functions that tools call: of Materialize, of rights, of sessions that wait."""

import asyncio
from pathlib import Path

from tests.adapter.harness import TestEnvironment, in_environment

ROWS = {
    r"SELECT * FROM regexp_extract('(\d+)-(?P<x>\w)(?:z)?', 'a 12-f 3-g')": "12|f",
    r"SELECT column1, x FROM regexp_extract('(\d+)-(?<x>\w)', 'a 12-f')": "12|f",
    r"SELECT * FROM regexp_extract('[(](?P<in>[^)]*)[)]', 'f(x)')": "x",
    "SELECT * FROM regexp_extract('(a)|(b)', 'b')": "NULL|b",
    "SELECT * FROM regexp_extract('(a)', 'b')": "",
    "SELECT * FROM regexp_extract('(a)', NULL)": "",
    "SELECT t.a, e.n FROM t, regexp_extract('(?P<n>.)$', t.b) e": "1|o\n3|t",
    'SELECT * FROM csv_extract(2, E\'a,b\\n"c""d""","e,f"\\nx\\n\\ny,z\')': 'a|b\nc"d"|e,f\ny|z',
    "SELECT column3 FROM csv_extract(3, '1,2,')": "",
    "SELECT length(column1) FROM csv_extract(1, repeat('x', 200000))": "200000",
    "SELECT * FROM csv_extract(2, E'a\\u2028b,c')": "a\u2028b|c",
    "SELECT t.a, c.column2 FROM t, csv_extract(2, t.b || ',' || t.a) c": "1|1\n3|3",
    "SELECT a FROM t, repeat_row_non_negative(a)": "1\n3\n3\n3",
    "SELECT count(*) FROM repeat_row_non_negative(0)": "0",
    "SELECT repeat_row_non_negative(2)": "()\n()",
    "SELECT has_cluster_privilege('quickstart', 'USAGE'),"
    " has_cluster_privilege('r', 'quickstart', 'USAGE'),"
    " has_cluster_privilege('r', 'quickstart', 'CREATE')": "t|t|f",
    "SELECT bool_and(has_cluster_privilege(oid, 'USAGE')) FROM mz_clusters": "t",
    "SELECT has_secret_privilege('public.s', 'USAGE'), has_secret_privilege('r', 's', 'USAGE'),"
    " has_secret_privilege('r', 's', 'USAGE WITH GRANT OPTION')": "t|t|f",
    "SELECT has_connection_privilege('c', 'USAGE'), has_connection_privilege('r', 'c', 'USAGE')": (
        "t|f"
    ),
    "SELECT has_system_privilege('CREATEROLE'), has_system_privilege('r', 'CREATEDB'),"
    " has_system_privilege('r', 'createcluster'), has_system_privilege('r', 'CREATEROLE,CREATEDB')": (
        "t|t|f|t"
    ),
    "SELECT mz_environment_id() ~ '^foreshore-local-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}-0$'": (
        "t"
    ),
    "SELECT mz_row_size(t) > 0 FROM t": "t\nt",
    "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0') = mz_now()::text::numeric": "t",
}
ERRORS = {
    "SELECT * FROM regexp_extract('a', 'b')": "22023: regexp_extract needs a pattern with a group",
    "SELECT * FROM regexp_extract('(', 'b')": "2201B: ",
    "SELECT * FROM t, regexp_extract(t.b, 'b')": "0A000: regexp_extract needs a text constant",
    "SELECT * FROM csv_extract(0, 'b')": "22023: csv_extract needs at least one column, not 0",
    "SELECT * FROM csv_extract(100000, 'b')": "22023: functions can return at most 1600 columns",
    "SELECT 1 FROM repeat_row_non_negative(-1)": "22023: repeat_row_non_negative needs a number",
    "SELECT 1 FROM repeat_row_non_negative()": "42883: ",
    "SELECT has_cluster_privilege('nope', 'USAGE')": '42704: cluster "nope" does not exist',
    "SELECT has_secret_privilege('nope', 'USAGE')": '42704: secret "nope" does not exist',
    "SELECT has_connection_privilege('a.b', 'USAGE')": '42704: connection "a.b" does not exist',
    "SELECT has_secret_privilege('s', 'SELECT')": '22023: unrecognized privilege type: "SELECT"',
    "SELECT has_system_privilege('USAGE')": '22023: unrecognized privilege type: "USAGE"',
}


async def _rows(env: TestEnvironment, session: str, sql: str) -> str:
    """Return the rows of a query in the order of their texts."""
    *rows, tag = (await env.query(session, sql)).split("\n")
    assert tag == f"SELECT {len(rows)}", (sql, rows, tag)
    return "\n".join(sorted(rows))


def test_functions_of_materialize_and_of_rights(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        env.environment.unlock_secrets(bytes(32))
        await env.ran(
            "a",
            "CREATE TABLE t (a int, b text)",
            "INSERT INTO t VALUES (1, 'hello'), (3, 'at')",
            "CREATE ROLE r CREATEDB",
            "CREATE SECRET s AS 'x'",
            "CREATE CONNECTION c TO KAFKA (BROKER 'localhost:9092') WITH (VALIDATE = false)",
            "GRANT USAGE ON SECRET s TO r",
        )
        for sql, answer in ROWS.items():
            assert await _rows(env, "a", sql) == answer, sql
        for sql, error in ERRORS.items():
            assert (await env.query("a", sql)).startswith(f"ERROR {error}"), sql

    in_environment(tmp_path, scenario)


def test_view_keeps_rows_of_extracting_functions_up_to_date(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await env.ran(
            "a",
            "CREATE TABLE t (a int, b text)",
            "CREATE MATERIALIZED VIEW v AS SELECT t.a, e.column1, c.column2"
            " FROM t, regexp_extract('(.),', t.b) e, csv_extract(2, t.b) c,"
            " repeat_row_non_negative(t.a)",
            "INSERT INTO t VALUES (1, 'x,y'), (2, 'no'), (2, 'p,q')",
        )
        assert await _rows(env, "a", "SELECT * FROM v") == "1|x|y\n2|p|q\n2|p|q"
        await env.ran("a", "UPDATE t SET a = 0 WHERE b = 'p,q'")
        assert await _rows(env, "a", "SELECT * FROM v") == "1|x|y"

    in_environment(tmp_path, scenario)


def test_session_that_waits_for_a_lock_is_blocked_by_its_holder(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        holder, waiter = await env.session("holder"), await env.session("waiter")
        blocking = f"SELECT pg_blocking_pids({waiter.pid}) = ARRAY[{holder.pid}]"
        await env.ran("holder", "SELECT pg_advisory_lock(7)")
        assert await _rows(env, "other", blocking) == "f"
        waits = asyncio.create_task(env.query("waiter", "SELECT pg_advisory_lock(7)"))
        while await _rows(env, "other", blocking) == "f":
            assert not waits.done()
        await env.ran("holder", "SELECT pg_advisory_unlock(7)")
        await waits
        assert await _rows(env, "other", blocking) == "f"

    in_environment(tmp_path, scenario)
