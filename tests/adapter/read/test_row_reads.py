"""Few rows read as tuples are those that the pipeline reads: rows, types, errors, own writes."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from foreshore.adapter.plans.row_read import RowRead
from foreshore.adapter.session import planner
from foreshore.adapter.session.planner import SessionPlanner
from tests.adapter.harness import TestEnvironment

TABLES = (
    "CREATE TABLE t (k int PRIMARY KEY, a int, s text, n numeric(10, 2), f float8, d date, j jsonb,"
    " l int[], UNIQUE (a, s))",
    "CREATE TABLE u (k bigint PRIMARY KEY, t int, x text)",
    "CREATE TABLE p (a int, b text, c int, PRIMARY KEY (a, b))",
    "CREATE INDEX t_a ON t (a)",
    "CREATE INDEX t_d ON t (d, s)",
    "CREATE INDEX u_x ON u (x)",
    "CREATE INDEX u_t ON u (t, k)",
    """INSERT INTO t SELECT i, i % 3, CASE WHEN i % 4 > 0 THEN 's' || i END, i / 2.0, i * 1.5,
        date '2024-01-01' + i, ('{"a": ' || i || '}')::jsonb, ARRAY[i, NULL]
        FROM generate_series(0, 20) i""",
    "INSERT INTO u SELECT i, i / 2, 'u' || i FROM generate_series(0, 20) i",
    "INSERT INTO p SELECT i / 2, CASE WHEN i % 2 = 0 THEN 'x' ELSE 'y' END, i"
    " FROM generate_series(0, 9) i",
)
# Each is run with $1 of several values.
FORMS = (
    "SELECT * FROM t WHERE k = $1",
    "SELECT * FROM t WHERE k = $1 LIMIT 1",
    "SELECT * FROM t WHERE k = $1 LIMIT $1",
    "SELECT * FROM t WHERE k = $1 OFFSET 1",
    "SELECT k FROM t WHERE k = $1 OR k = 3 OR k = 5 ORDER BY k DESC LIMIT 2 OFFSET 1",
    "SELECT k, s FROM t WHERE k IN ($1, 2, 4, 4) ORDER BY s NULLS FIRST, k",
    "SELECT k FROM t WHERE k = ANY(ARRAY[$1, 7, NULL]) ORDER BY 1",
    "SELECT k FROM t WHERE k = ANY('{1, 2, 3}') AND a = $1 ORDER BY 1",
    "SELECT k, s FROM t WHERE k = ANY(ARRAY[$1, 7, NULL]::int[]) ORDER BY 1",
    "SELECT k FROM t WHERE a = ANY(ARRAY[$1, 2]::int[]) AND k > 4 ORDER BY 1 LIMIT 3",
    "SELECT count(*), count(s), sum(k), sum(n), avg(a), min(s), max(d) FROM t WHERE k IN ($1, 4)",
    "SELECT a, count(*), sum(f), array_agg(k ORDER BY k DESC), string_agg(s, ',' ORDER BY k)"
    " FROM t WHERE k IN ($1, 2, 3, 5, 8) GROUP BY a ORDER BY a",
    "SELECT jsonb_agg(j), json_agg(s ORDER BY k), jsonb_object_agg(k, j), max(f), min(f),"
    " array_agg(f), array_agg(j ORDER BY k DESC) FROM t WHERE k IN ($1, 4, 9)",
    "SELECT json_agg(t) FROM t WHERE k IN ($1, 4)",
    "SELECT json_agg(json_build_object('k', k, 'l', l)), jsonb_agg(to_jsonb(p)) FROM t JOIN p"
    " ON p.a = t.a WHERE k IN ($1, 4)",
    "SELECT a, percentile_cont(0.4) WITHIN GROUP (ORDER BY f), mode() WITHIN GROUP (ORDER BY a),"
    " percentile_disc(0.5) WITHIN GROUP (ORDER BY n), corr(f, k), regr_slope(f, a) FROM t"
    " WHERE k IN ($1, 2, 3, 5, 8) GROUP BY a ORDER BY a",
    "SELECT count(DISTINCT a), count(*) FILTER (WHERE k > 2) FROM t WHERE k IN ($1, 2, 3, 5)",
    "SELECT DISTINCT a FROM t WHERE k IN ($1, 2, 3, 5, 6) ORDER BY a",
    "SELECT a FROM t WHERE k IN ($1, 2, 3) GROUP BY a HAVING count(*) > 1 ORDER BY a",
    "SELECT EXISTS (SELECT FROM t WHERE k = $1), NOT EXISTS (SELECT FROM t WHERE k = 7)",
    "SELECT (SELECT s FROM t WHERE k = $1), (SELECT count(*) FROM p WHERE a = $1 AND b = 'x')",
    "SELECT t.k, u.x FROM t JOIN u ON u.k = t.a WHERE t.k = $1",
    "SELECT t.k, u.x FROM t LEFT JOIN u ON u.k = t.k + 10 WHERE t.k IN ($1, 20) ORDER BY 1",
    "SELECT t.k, p.c FROM t LEFT JOIN p ON p.a = t.a AND p.b = 'y' WHERE t.k IN ($1, 4, 9)"
    " ORDER BY 1",
    "SELECT t.k FROM t WHERE t.k IN ($1, 2, 3) AND EXISTS (SELECT FROM u WHERE u.k = t.a)"
    " ORDER BY 1",
    "SELECT t.k FROM t WHERE t.k IN ($1, 2, 3) AND NOT EXISTS (SELECT FROM u WHERE u.k = t.k * 9)"
    " ORDER BY 1",
    "SELECT a.k, b.k FROM t a, t b WHERE a.k = $1 AND b.k = a.a ORDER BY 1, 2",
    "SELECT a.k, b.k FROM t a JOIN t b ON b.a = a.a AND b.s = a.s WHERE a.k = $1 ORDER BY 1, 2",
    "SELECT a.k, c.k FROM t a JOIN t b ON b.k = a.a LEFT JOIN t c ON c.k = b.k + 1 WHERE a.k = $1",
    "SELECT k, unnest(l) FROM t WHERE k = $1 + 1 ORDER BY 1, 2",
    "SELECT t.k, p.c FROM t LEFT JOIN p ON p.a = t.a AND p.b = lower('X') WHERE t.k = $1 + 1",
    "SELECT k FROM t WHERE k IN ($1 + 1, 2) AND EXISTS (SELECT FROM u WHERE u.k = t.a + $1 / 2)"
    " ORDER BY 1",
    "SELECT k FROM t WHERE k = $1 AND $1 + 1 IN (SELECT u.k FROM u)",
    "SELECT t.k, e FROM t, unnest(t.l) WITH ORDINALITY AS u (e, o) WHERE k IN ($1, 2) ORDER BY 1, o",
    "SELECT i FROM generate_series(1, $1) AS i ORDER BY i DESC LIMIT 3",
    "SELECT t.k, i FROM t, generate_series(t.k, t.k + $1, 2) AS i WHERE k IN ($1, 3) ORDER BY 1, 2",
    "SELECT k, sum(k) OVER (ORDER BY k ROWS BETWEEN 1 PRECEDING AND $1 FOLLOWING) FROM t ORDER BY 1",
    "SELECT k, array_agg(k) OVER (ORDER BY a GROUPS $1 PRECEDING EXCLUDE TIES) FROM t ORDER BY 1",
    "SELECT * FROM p ORDER BY a, b",
    "SELECT count(*), max(c) FROM p WHERE c <> $1",
    "SELECT t.k, u.x FROM t JOIN u ON u.t = t.k ORDER BY 1, 2 LIMIT 4",
    "SELECT (SELECT 1 LIMIT $1 - 1)",
    "SELECT k FROM t WHERE k = $1 UNION ALL SELECT k FROM u WHERE k = 3 ORDER BY 1",
    "SELECT k FROM t WHERE k = $1 UNION SELECT k FROM u WHERE k = 3 ORDER BY 1",
    "SELECT k FROM t WHERE k IN ($1, 3) EXCEPT SELECT k::int FROM u WHERE k = 3 ORDER BY 1",
    "SELECT k FROM t WHERE k IN ($1, 3) INTERSECT SELECT k::int FROM u WHERE k = 3 ORDER BY 1",
    "WITH w AS (SELECT * FROM t WHERE k = $1) SELECT a.k, b.s FROM w a, w b",
    "SELECT k + a, -k, k * 2, k / 2, k % 2, n + 1, n * f, f / 2, abs(k) FROM t WHERE k = $1",
    "SELECT 10 / k FROM t WHERE k = $1",
    "SELECT CASE WHEN k = 0 THEN -1 ELSE 10 / k END, coalesce(s, 'none') FROM t WHERE k = $1",
    "SELECT nullif(k, 3), greatest(k, a, 4), least(k, a) FROM t WHERE k = $1",
    "SELECT k FROM t WHERE k = $1 AND (a > 1 OR s LIKE 's%')",
    "SELECT k FROM t WHERE k = $1 AND s IS NULL",
    "SELECT k FROM t WHERE k = $1 AND a IN (1, NULL)",
    "SELECT k FROM t WHERE k = $1 AND a NOT IN (1, 2)",
    "SELECT k, k = ANY(l), k <> ALL(l), a = ANY(ARRAY[$1::int, NULL]), NULL = ANY(l) FROM t WHERE k IN (3, 4)"
    " ORDER BY k",
    "SELECT k FROM t WHERE k = $1 AND a IS DISTINCT FROM 1",
    "SELECT upper(s) || '!', length(s), substr(s, 2), s || k FROM t WHERE k = $1",
    "SELECT d + 1, d - date '2024-01-01', extract(year FROM d), to_char(d, 'YYYY') FROM t"
    " WHERE k = $1",
    "SELECT j, j -> 'a', j ->> 'a', j @> '{\"a\": 3}' FROM t WHERE k = $1",
    "SELECT l, l[1], cardinality(l), k = ANY(l) FROM t WHERE k = $1",
    "SELECT e FROM t, unnest(l) AS e WHERE k = $1 ORDER BY 1",
    "SELECT x, o FROM t, unnest(l) WITH ORDINALITY AS e (x, o) WHERE k = $1 ORDER BY 2",
    "SELECT k::text, k::bigint, n::int, f::numeric, s::varchar(2), k::smallint FROM t WHERE k = $1",
    "SELECT row_number() OVER (ORDER BY k), sum(k) OVER () FROM t WHERE k IN ($1, 2) ORDER BY 1",
    "SELECT k, rank() OVER (ORDER BY a), dense_rank() OVER (ORDER BY a), lag(s) OVER (ORDER BY k),"
    " lead(k, 2, -1) OVER (PARTITION BY a ORDER BY k DESC) FROM t WHERE k IN ($1, 2, 5, 6, 8)"
    " ORDER BY k",
    "SELECT k, sum(a) OVER (ORDER BY k), count(s) FILTER (WHERE k > 2) OVER (PARTITION BY a),"
    " max(d) OVER (ORDER BY a), last_value(k) OVER (ORDER BY k), ntile(2) OVER (ORDER BY k)"
    " FROM (SELECT k, a, s, d FROM t WHERE k IN ($1, 2, 5, 6, 8)) x ORDER BY k",
    "SELECT * FROM (SELECT k, a, row_number() OVER (PARTITION BY a ORDER BY k DESC) AS n FROM t"
    " WHERE k IN ($1, 2, 5, 6, 8)) x WHERE n = 1 ORDER BY k",
    "SELECT k FROM t WHERE k IN ($1, 2, 3, 4) ORDER BY f DESC, n LIMIT 3",
    "SELECT k FROM t WHERE k IN ($1, 2, 3, 4) ORDER BY a % 2, s DESC NULLS LAST",
    "SELECT * FROM p WHERE a = $1 AND b = 'x'",
    "SELECT * FROM p WHERE (a, b) IN (($1, 'x'), (1, 'y')) ORDER BY c",
    "SELECT * FROM u WHERE k = $1",
    "SELECT * FROM t WHERE a = $1 AND s = 's4'",
    "SELECT t.*, x.m FROM t, LATERAL (SELECT max(u.k) AS m FROM u WHERE u.k = t.a) x WHERE t.k = $1",
    "SELECT * FROM t WHERE a = $1 ORDER BY k",
    "SELECT count(*) FROM t WHERE a = $1",
    "SELECT count(*) FROM (SELECT k FROM t WHERE a = $1 LIMIT 5) x",
    "SELECT a FROM t WHERE a = $1 LIMIT 2",
    "SELECT sum(b.k), max(c) FROM t b JOIN p ON p.a = b.k WHERE b.a = $1",
    "SELECT k, s FROM t WHERE a IN ($1, 2) AND n > 2 ORDER BY k DESC LIMIT 3",
    "SELECT k, a, s FROM t WHERE k = $1 OR a = 2 ORDER BY k",
    "SELECT k, x FROM u WHERE k = $1 OR x = 'u' || $1 OR x = 'u7' ORDER BY k",
    "SELECT k FROM t WHERE (a = $1 AND s = 's4') OR k IN (2, $1) ORDER BY k DESC LIMIT 3",
    "SELECT k FROM t WHERE n > 1 AND (k = $1 OR d = date '2024-01-05') ORDER BY k",
    "SELECT count(*) FROM (SELECT k FROM t WHERE k = $1 OR a = 1 LIMIT 5) x",
    "SELECT u.k, t.s FROM u JOIN t ON t.k = u.t WHERE u.k = $1 OR u.x = 'u7' ORDER BY 1",
    "SELECT c FROM p WHERE (a = $1 AND b = 'x') OR (a = 1 AND b = 'y') OR a = 3 ORDER BY c",
    "SELECT * FROM t WHERE k > $1 ORDER BY k LIMIT 3",
    "SELECT * FROM t WHERE k <= $1 ORDER BY k DESC LIMIT 3 OFFSET 1",
    "SELECT k FROM t WHERE k BETWEEN $1 AND $1 + 10 ORDER BY k",
    "SELECT count(*), sum(n) FROM t WHERE k >= $1 AND k < 9",
    "SELECT k, l FROM t ORDER BY k LIMIT $1",
    "SELECT k FROM t WHERE s IS NOT NULL ORDER BY k DESC LIMIT $1 OFFSET 2",
    "SELECT k, d, s FROM t WHERE d > date '2024-01-01' + $1::int ORDER BY d, s LIMIT 4",
    "SELECT k, t FROM u WHERE t = $1 ORDER BY t DESC, k DESC LIMIT 1",
    "SELECT k FROM u WHERE t > $1 ORDER BY t, k LIMIT 4",
    "SELECT k FROM u WHERE (t, k) > ($1, 3) ORDER BY t, k LIMIT 4",
    "SELECT x FROM u WHERE x = 'u' || $1 OR x = 'u7' ORDER BY x",
    "SELECT x FROM u WHERE x LIKE 'u1%' ORDER BY x LIMIT $1",
    "SELECT * FROM p WHERE a = $1 ORDER BY b",
    "SELECT c FROM p WHERE a = $1 AND b > 'x' ORDER BY c",
    "SELECT 10 / (k + 7) FROM t WHERE k > $1 ORDER BY k LIMIT 2",
    "SELECT t.k, u.k FROM t JOIN u ON u.t = t.a WHERE t.k IN ($1, 5) ORDER BY 1, 2",
    "SELECT relname, relkind, relnatts FROM pg_class WHERE relname = 't' AND $1 > 2",
    "SELECT c.relname, a.attname, a.attnum FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid"
    " WHERE c.relname = 't' AND a.attnum BETWEEN 1 AND $1 ORDER BY a.attnum",
    "SELECT typname, typinput, typcategory FROM pg_type WHERE typname = 'int' || $1::int",
    "SELECT count(*) FROM pg_namespace WHERE nspname IN ('public', 'pg_catalog', $1::text)",
    "SELECT $1 + 1, $1 || 'x', $1 IS NULL",
    "SELECT $1::int WHERE $1 > 2",
    "SELECT now() = now(), current_user = session_user, version() IS NULL, $1 + 0",
    "SELECT * FROM (VALUES ($1, 'a'), (2, 'b')) v (n, s) ORDER BY n, s",
    "SELECT k, t FROM t WHERE k = $1",
    "SELECT sum(x) FROM (SELECT n AS x FROM t WHERE k IN ($1, 3) UNION ALL SELECT 0.5) y",
    "SELECT t.k, u.x FROM t JOIN u ON u.k = t.a WHERE t.k <> $1 ORDER BY t.k DESC LIMIT 3",
    "SELECT u.k, t.s FROM u JOIN t ON t.k = u.t AND t.s IS NULL ORDER BY u.k DESC LIMIT $1",
    "SELECT u.k + 1, t.s FROM u JOIN t ON t.k = u.t WHERE t.a <> 1 ORDER BY u.k LIMIT 4 OFFSET $1",
    "SELECT u.t, t.s, u.k FROM u, t WHERE t.k = u.t AND u.t > $1 ORDER BY u.t, u.k LIMIT 5",
    "SELECT u.k FROM u JOIN t ON t.k = u.t AND t.s = 'none' AND u.k <> $1 ORDER BY u.k LIMIT 1",
    "SELECT k, a FROM t WHERE a = $1 ORDER BY k DESC LIMIT 2",
    "SELECT u.k, u.t FROM u WHERE x > 'u1' AND k <> $1 ORDER BY x, k LIMIT 4",
    "SELECT nspname, amname FROM pg_namespace, pg_am WHERE nspname < 'pg_d' AND $1 > 3 ORDER BY 1, 2",
    "SELECT c.relname, n.nspname FROM pg_class c LEFT JOIN pg_namespace n ON n.oid = c.relnamespace"
    " LEFT JOIN pg_am m ON m.oid = c.relam WHERE c.relname IN ('t', 'u') AND $1 > 2 ORDER BY 1",
    "SELECT stddev(f), bool_and(k > 1), corr(f, k) FROM t WHERE k IN ($1, 2, 3)",
    "SELECT a, k FROM t WHERE k IN ($1, 2, 3, 4, 5) AND k = (SELECT max(k) FROM t i WHERE i.k = 4)",
)
VALUES = ("3", "0", "4", "-1", "NULL", "21", "2147483647")
# Forms that a row program computes; the others are what no key restricts.
FEWEST = 117


async def ran(env: TestEnvironment, name: str) -> list[str]:
    """Return what each form gives for each value, in a block with own writes, too."""
    found = []
    for number, form in enumerate(FORMS):
        session = f"{name} {number}"
        kind = "" if "$1 ||" not in form else " (int)"
        await env.ran(session, f"PREPARE p{kind} AS {form}")
        for value in VALUES:
            found.append(f"{form} {value}: " + await env.query(session, f"EXECUTE p({value})"))
        await env.ran(
            session,
            "BEGIN",
            "UPDATE t SET a = a + 1, s = s || 'own' WHERE k IN (3, 4)",
            "DELETE FROM u WHERE k = 3",
            "INSERT INTO p VALUES (0, 'z', 99), (4, 'w', 98)",
            "INSERT INTO t (k, a) VALUES (21, 4)",
        )
        for value in VALUES[:3] + VALUES[-2:]:
            again = await env.query(session, f"EXECUTE p({value})")
            found.append(f"{form} {value} after writes: " + again)
            if "ERROR" in again:
                break
        await env.ran(session, "ROLLBACK")
        await env.sessions.pop(session).close()
    return found


@pytest.mark.full
def test_rows_are_those_of_the_pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    prepare = SessionPlanner._prepare

    def noted(planner: Any, prepared: Any) -> None:
        prepare(planner, prepared)
        if prepared.made.programs.row_read is not None and prepared.parameters:
            compiled.append(prepared.syntax.text)

    async def found(path: Path, name: str) -> list[str]:
        env = TestEnvironment(path)
        await env.open()
        await env.ran("s", *TABLES)
        answers = await ran(env, name)
        await env.close()
        return answers

    with monkeypatch.context() as patch:
        patch.setattr(SessionPlanner, "_prepare", noted)
        rows = asyncio.run(found(tmp_path / "rows", "rows"))
    with monkeypatch.context() as patch:
        patch.setattr(planner, "plan_row_read", lambda peek, planned: None)
        columns = asyncio.run(found(tmp_path / "columns", "columns"))
    for one, other in zip(rows, columns, strict=True):
        assert one == other
    print(len(dict.fromkeys(compiled)), [f for f in FORMS if not any(f in c for c in compiled)])
    assert len(dict.fromkeys(compiled)) >= FEWEST


async def test_distances_between_long_numbers_are_exact(env: TestEnvironment) -> None:
    await env.ran(
        "a",
        "CREATE TABLE long (k int PRIMARY KEY, n numeric(38, 2))",
        f"INSERT INTO long VALUES (1, {36 * '9'}.01), (2, {36 * '9'}.02), (3, {36 * '9'}.03)",
    )
    for order, counts in (("n", "1 2 2"), ("n DESC", "2 2 1")):
        found = await env.query(
            "a",
            f"SELECT count(*) OVER (ORDER BY {order} RANGE 0.01 PRECEDING) FROM long"
            " WHERE k IN (1, 2, 3) ORDER BY k",
        )
        assert found.split() == [*counts.split(), "SELECT", "3"]


async def test_sums_of_numerics_without_scale_are_of_rows_unless_they_are_long(
    env: TestEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    await env.ran(
        "a",
        "CREATE TABLE prices (k int PRIMARY KEY, p numeric)",
        "INSERT INTO prices SELECT i, i / 7.0 - 3 FROM generate_series(1, 60) AS i",
        "INSERT INTO prices VALUES (100, 1.50), (101, 'NaN'), (102, repeat('9', 2000)::numeric)",
    )
    select = "SELECT sum(p), avg(p), max(p), stddev(p), min(p * 2 - 1) FROM prices WHERE k"
    rows, answered = RowRead.rows, list[bool]()

    def noted(read: RowRead, *args: Any) -> Any:
        found = rows(read, *args)
        answered.append(found is not None)
        return found

    for keys, is_of_rows in (("<= 30", True), ("IN (3, 100)", True), ("IN (1, 101)", True)):
        with monkeypatch.context() as patch:
            patch.setattr(RowRead, "rows", noted)
            found = await env.query("a", f"{select} {keys}")
        assert answered.pop() is is_of_rows
        with monkeypatch.context() as patch:
            patch.setattr(RowRead, "rows", lambda *args: None)
            assert await env.query("a", f"{select} {keys}") == found
    monkeypatch.setattr(RowRead, "rows", noted)
    await env.query("a", f"{select} IN (1, 102)")
    assert answered == [False]
