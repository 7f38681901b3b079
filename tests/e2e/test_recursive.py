"""WITH RECURSIVE: what a live PostgreSQL answers, we answer; and a recursion without end can be ended."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest

from tests.harness import Server, until

SETUP = """
    CREATE TABLE edges (a int, b int);
    INSERT INTO edges VALUES (1, 2), (2, 3), (3, 1), (3, 4), (7, 8);
    CREATE TABLE parts (part text, piece text, n int);
    INSERT INTO parts VALUES ('car', 'wheel', 4), ('car', 'engine', 1), ('wheel', 'bolt', 5),
        ('engine', 'bolt', 20), ('engine', 'piston', 4), ('piston', 'ring', 3)
"""
QUERIES = [
    "with recursive t(n) as (select 1 union all select n+1 from t where n < 5) select * from t",
    "with recursive t(n) as (values (1) union all select n+1 from t where n < 100) select sum(n) from t",
    "with recursive r as (select 1 as x union select b from r join edges on a = x) select x from r order by 1",
    "select a, (with recursive r(x) as (select e.b union select f.b from r, edges f where f.a = x) select count(*) from r) from edges e order by a, b",
    "select a, b, (with recursive r(x, d) as (select e.b, 0 union all select f.b, d + 1 from r, edges f where f.a = x and d < e.a) select max(d) from r) from edges e order by a, b",
    "select e.a, r.x from edges e, lateral (with recursive r(x) as (select e.b union select f.b from r join edges f on f.a = r.x) select x from r) r",
    "with recursive f as (select 1 as n, 1::numeric as p union all select n+1, p*(n+1) from f where n < 20) select p from f order by n desc limit 1",
    "with recursive t as (select 1) select * from t",
    "with recursive t as (select n+1 from t) select * from t",
    "with recursive t(n) as (select 1 union all select n::bigint+1 from t) select * from t",
    "with recursive t(n) as (select 1 union all select count(*)::int from t) select * from t",
    "with recursive t(n) as (select 1 union all select a.n+1 from t a, t b where a.n < 3) select * from t",
    "with recursive t(n) as (select n from t union all select 1) select * from t",
    "with recursive t(n) as (select 1 union all select n+1, 2 from t) select * from t",
    "with recursive t(n, m) as (select 1 union all select n+1 from t) select * from t",
    "with recursive t(n) as (select 1 union all select n+1 from t where n<3 order by 1) select * from t",
    "with recursive t(n) as (select 1 union all select n+1 from t where n<3 limit 2) select * from t",
    "with recursive t(n) as (select 1 intersect select n+1 from t) select * from t",
    "with recursive a(n) as (select 1 union all select n+1 from a where n<3), b(m) as (select n from a union all select m+10 from b where m < 20) select * from b order by 1",
    "with recursive a(n) as (select 1 union all select n + (with recursive i(k) as (select 1 union all select k+1 from i where k < 2) select max(k) from i) from a where n<10) select * from a",
    "with recursive a(n) as (select 1 union all select n + (with recursive i(k) as (select a.n union all select k+1 from i where k < a.n + 2) select max(k) from i) from a where n<10) select * from a",
    "with recursive p(part, piece, n) as (select part, piece, n from parts where part = 'car' union all select c.part, c.piece, p.n * c.n from p, parts c where c.part = p.piece) select piece, sum(n) from p group by piece",
    "with recursive t(s) as (select 'a' union all select s || 'b' from t where length(s) < 4) select * from t",
    "with recursive t(n, m) as (select 1, 0 union all select n + 1, 10 / (3 - n) from t where n < 20) select * from t",
    "with recursive t(n) as (select null::int union select n from t) select * from t",
    "with recursive t(n) as ((select 1 union all select 2) union all select n + 2 from t where n < 6) select * from t",
    "with recursive t(n) as (select 1 union select 2 union select n + 2 from t where n < 6) select * from t",
    "with recursive t(n) as (select 1.0 union all select n + 0.5 from t where n < 3) select * from t",
    "with recursive t(n) as (select 1 union all select distinct n+1 from t where n < 3) select * from t",
    "select * from edges where a in (with recursive t(n) as (select 1 union all select n+1 from t where n < 2) select n from t)",
    "with recursive t(n) as (select 1 union all select n+1 from t where n < 5), u as (select n*2 as m from t) select m, n from u, t where n = m",
]


def answers(url: str) -> list[object]:
    """Return the rows, in any order, or the error of each query."""
    found: list[object] = []
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA recursive")
        connection.execute("SET search_path = recursive")
        for statement in SETUP.split(";"):
            connection.execute(statement.encode())
        for query in QUERIES:
            try:
                found.append(sorted(map(repr, connection.execute(query.encode()).fetchall())))
            except psycopg.Error as error:
                found.append((error.sqlstate, error.diag.message_primary))
    return found


def test_recursive_queries_are_answered_as_postgresql_answers_them(
    server: Server, postgres_url: str
) -> None:
    for query, ours, theirs in zip(
        QUERIES, answers(server.url), answers(postgres_url), strict=True
    ):
        assert ours == theirs, query


ENDLESS = "with recursive t(n) as (select 1 union all select n + 1 from t) "
LIMITED = [
    ENDLESS + "select * from t limit 10",
    ENDLESS.replace("all ", "") + "select * from t limit 10",
    ENDLESS + "select * from t limit 0",
    ENDLESS + "select n * 2, 'x' from t where n % 2 = 0 limit 3 offset 5",
    ENDLESS + "select 10 / (5 - n) from t limit 4",
    ENDLESS + "select n from t fetch first 3 rows only",
    ENDLESS + "select count(*), sum(n) from (select * from t limit 5) s",
    ENDLESS + "select exists (select 1 from t where n > 20)",
    ENDLESS + "select 5 where exists (select 1 from t)",
    ENDLESS + "select 1 where 3 in (select n from t limit 5)",
    ENDLESS + "select n from (select n from t limit 4) s order by n desc limit 2",
    ENDLESS + "(select n from t limit 2) union all (select n from t limit 3)",
    ENDLESS + "select (select n from t limit 1), (select n + 1 from t limit 1)",
    "select (with recursive t(n) as (select 1 union all select n + 1 from t) select n from t offset 7 limit 1)",
    "with recursive t(n) as (select 1 union all select b from t join edges on a = n and b < 4) select * from t limit 7",
    "with recursive t(n) as (select 1 union all select n + (with recursive u(m) as (select 1 union all select m + 1 from u) select max(m) from (select m from u limit 3) s) from t) select * from t limit 4",
]


def test_limit_above_an_endless_recursion_ends_it_as_in_postgresql(
    server: Server, postgres_url: str
) -> None:
    found = []
    for url in (server.url, postgres_url):
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CREATE SCHEMA limited")
            connection.execute("SET search_path = limited")
            connection.execute("SET statement_timeout = '20s'")
            for statement in SETUP.split(";")[:2]:
                connection.execute(statement.encode())
            found.append([sorted(connection.execute(query.encode())) for query in LIMITED])
    for query, ours, theirs in zip(LIMITED, *found, strict=True):
        assert ours == theirs, query


def test_limit_as_a_parameter_and_in_a_cursor_ends_a_recursion(server: Server) -> None:
    with server.connect() as connection:
        connection.execute("SET statement_timeout = '20s'")
        rows = connection.execute(ENDLESS + "select * from t limit %s offset %s", (3, 4))
        assert rows.fetchall() == [(5,), (6,), (7,)]
        series = "generate_series(1, 3) as s(a)"
        joined = connection.execute(
            f"{ENDLESS} select n, a from t join {series} on a = n limit 2".encode()
        )
        assert len(joined.fetchall()) == 2
        with connection.transaction():
            connection.execute(f"DECLARE c CURSOR FOR {ENDLESS} select * from t limit 5".encode())
            assert connection.execute("FETCH 2 FROM c").fetchall() == [(1,), (2,)]


ACTIVE = (
    f"SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE '{ENDLESS}%max%'"
)


def test_other_sessions_answer_while_more_recursions_run_than_there_are_threads(
    server: Server,
) -> None:
    def endless(connection: psycopg.Connection[Any]) -> str | None:
        with pytest.raises(psycopg.Error) as raised:
            connection.execute(f"{ENDLESS} select max(n) from t".encode())
        return raised.value.sqlstate

    with ExitStack() as open_until_end:
        *busy, other = [open_until_end.enter_context(server.connect()) for _ in range(7)]
        runners = open_until_end.enter_context(ThreadPoolExecutor(6))
        for each in busy:
            each.execute("SET statement_timeout = '60s'")
        running = [runners.submit(endless, each) for each in busy]
        until(lambda: other.execute(ACTIVE).fetchall() == [(6,)], "all of them run")
        other.execute("SELECT count(*) FROM pg_class WHERE relkind = 'q'")
        assert not any(each.done() for each in running)
        for each in busy:
            each.cancel()
        assert {each.result() for each in running} == {"57014"}


def test_a_recursion_without_end_is_cancelled_and_a_view_of_one_fails(server: Server) -> None:
    endless = "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT n FROM t"
    with server.connect() as connection:
        connection.execute("SET statement_timeout = '300ms'")
        with pytest.raises(psycopg.errors.QueryCanceled):
            connection.execute(endless)
        connection.execute(f"CREATE VIEW endless AS {endless}".encode())
        with pytest.raises(psycopg.errors.QueryCanceled):
            connection.execute("SELECT count(*) FROM endless")
        connection.execute("RESET statement_timeout")
        connection.execute(f"CREATE MATERIALIZED VIEW endless_rows AS {endless}".encode())
        with pytest.raises(psycopg.errors.ProgramLimitExceeded, match="within 1000 iterations"):
            connection.execute("SELECT count(*) FROM endless_rows")
        connection.execute("DROP MATERIALIZED VIEW endless_rows")
        query = "WITH RECURSIVE t(n) AS (SELECT %s::int UNION ALL SELECT n + 1 FROM t WHERE n < %s) SELECT sum(n) FROM t"
        assert connection.execute(query, (3, 6)).fetchall() == [(18,)]


def test_a_recursion_sees_what_its_transaction_wrote(server: Server) -> None:
    with server.connect() as connection:
        connection.execute("CREATE TABLE chain (a int, b int)")
        connection.execute("INSERT INTO chain VALUES (1, 2)")
        query = "WITH RECURSIVE r(x) AS (SELECT 1 UNION SELECT b FROM r JOIN chain ON a = x) SELECT x FROM r ORDER BY x"
        connection.execute("BEGIN")
        connection.execute("INSERT INTO chain VALUES (2, 3)")
        assert connection.execute(query).fetchall() == [(1,), (2,), (3,)]
        connection.execute("ROLLBACK")
        assert connection.execute(query).fetchall() == [(1,), (2,)]
