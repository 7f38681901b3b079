"""Pages inside of a query are read in the order of a key, with whatever is equal at their ends."""

import random

import pytest

from tests.adapter.harness import TestEnvironment

SETUP = """CREATE TABLE orders (id int PRIMARY KEY, c int, v int);
CREATE TABLE customers (id int PRIMARY KEY, g int, name text, mail int UNIQUE);
CREATE INDEX ON orders (c); CREATE INDEX ON orders (v, c); CREATE INDEX ON customers (g)"""
PAGE = "in the order of"  # EXPLAIN: until there are enough rows
# Queries, and whether they read pages. `+ 0` in place of {k} keeps the meaning and has no key.
QUERIES = {
    "SELECT (SELECT id FROM orders WHERE id > {a} ORDER BY id{k} LIMIT 1)": True,
    "SELECT * FROM (SELECT id, c FROM orders ORDER BY id{k} DESC LIMIT {n}) o": True,
    "SELECT o.id, k.name FROM (SELECT * FROM orders ORDER BY id{k} DESC LIMIT {n}) o"
    " JOIN customers k ON k.id = o.c": True,
    "WITH p AS (SELECT * FROM customers ORDER BY id{k} LIMIT {n} OFFSET 2)"
    " SELECT p.id, count(o.id) FROM p LEFT JOIN orders o ON o.c = p.id GROUP BY p.id": True,
    "SELECT id FROM (SELECT id FROM orders ORDER BY id{k} LIMIT {n}) a UNION ALL"
    " SELECT id FROM (SELECT id FROM customers ORDER BY id{k} DESC LIMIT {n}) b": True,
    "SELECT * FROM customers WHERE id = (SELECT c FROM orders WHERE v % 3 < 2 ORDER BY id{k} LIMIT 1)": True,
    # What is equal at the end is decided by all columns, whichever way it is read.
    "SELECT * FROM (SELECT v, id FROM orders ORDER BY v{k} LIMIT {n}) o": True,
    "SELECT * FROM (SELECT c, v FROM orders WHERE c > 3 ORDER BY c{k} DESC NULLS FIRST LIMIT {n}) o": True,
    "SELECT * FROM (SELECT id FROM orders WHERE v = 3 ORDER BY c{k} LIMIT {n}) o": True,
    "SELECT * FROM (SELECT id, mail FROM customers ORDER BY mail{k} DESC LIMIT {n}) o": True,
    "SELECT max(id{k}) FROM orders": True,
    "SELECT min(id{k}) FROM orders WHERE v % 7 > 3": True,
    "SELECT max(c{k}), 1 FROM orders": True,
    "SELECT min(c{k}) FROM orders WHERE v = {a}": True,
    "SELECT * FROM orders WHERE id = (SELECT max(id{k}) FROM orders)": True,
    "SELECT min(id{k}), max(id{k}) FROM orders": False,
    # Ranges of one table, and what their rows find by keys.
    "SELECT o.id, k.name FROM orders o JOIN customers k ON k.id = o.c WHERE o.id{k} > {a} * 60": None,
    "SELECT o.id, k.name FROM orders o LEFT JOIN customers k ON k.id = o.c AND k.g > 2"
    " WHERE o.id{k} BETWEEN {a} AND {a} + {n}": None,
    "SELECT id FROM orders WHERE id{k} < {n} UNION ALL SELECT id FROM orders WHERE id{k} = {a}": None,
    "SELECT id FROM orders WHERE id{k} < {n} EXCEPT SELECT id FROM customers WHERE id{k} > {a}": None,
    "SELECT k.id, (SELECT count(*) FROM orders o WHERE o.c = k.id) FROM customers k"
    " WHERE k.id{k} BETWEEN {a} AND {a} + 5": None,
    "SELECT * FROM (SELECT id FROM orders ORDER BY v * 2{k} LIMIT {n}) o": False,
    "SELECT * FROM (SELECT id FROM orders ORDER BY id{k} LIMIT {n}) o, customers": False,
}


@pytest.mark.parametrize("query", QUERIES)
async def test_pages_inside_are_those_of_all_rows(env: TestEnvironment, query: str) -> None:
    """Of tables with many equal values, NULLs, and none at all; also rows of a transaction."""
    rng = random.Random(query)
    schema = f"inside_{[*QUERIES].index(query)}"
    await env.ran("s", f"CREATE SCHEMA {schema}; SET search_path = {schema}; {SETUP}")
    for size in (0, 1, 30, 600):
        orders = ", ".join(
            f"({i}, {rng.choice([*range(40), 'NULL'])}, {rng.randrange(9)})"
            for i in rng.sample(range(2000), size)
        )
        customers = ", ".join(
            f"({i}, {rng.choice([*range(6), 'NULL'])}, 'n{i}', {rng.choice([i * 7 % 50, 'NULL'])})"
            for i in rng.sample(range(50), 35)
        )
        await env.ran("s", "DELETE FROM orders; DELETE FROM customers")
        await env.ran("s", f"INSERT INTO customers VALUES {customers}")
        await env.ran("s", f"INSERT INTO orders VALUES {orders}" if size else "SELECT 1")
        for own in (False, True):
            if own:
                await env.ran("s", "BEGIN; DELETE FROM orders WHERE id % 3 = 1")
                await env.ran(
                    "s", "INSERT INTO orders VALUES (-1, 4, 3), (3000, 9, 3), (7777, 1, 1)"
                )
            for n in (0, 1, 5, 40, 2000):
                a = rng.randrange(30)
                found = await env.query("s", query.format(k="", a=a, n=n))
                every = await env.query("s", query.format(k=" + 0", a=a, n=n))
                assert sorted(found.splitlines()) == sorted(every.splitlines()), (query, n)
        await env.ran("s", "ROLLBACK")
    told = await env.query("s", f"EXPLAIN {query.format(k='', a=3, n=5)}")
    reads_page = QUERIES[query]
    assert "Used key" in told if reads_page is None else (PAGE in told) == reads_page, told
    await env.ran("s", f"SET search_path = public; DROP SCHEMA {schema} CASCADE")


async def test_first_rows_by_functions_of_values_of_any_length(env: TestEnvironment) -> None:
    """Rows are looked at one by one: whether they are short, and whether they are wanted."""
    await env.ran("s", "CREATE TABLE numbers (id int PRIMARY KEY, x numeric, t text, g int)")
    await env.ran("s", "CREATE INDEX ON numbers (g)")
    values = ", ".join(f"({i}, {i * 7 % 50}.5, 'v{i}', {i % 2})" for i in range(60))
    await env.ran("s", f"INSERT INTO numbers VALUES {values}, (-1, 2.5, repeat('l', 5000), 1)")
    for order in ("ORDER BY id DESC", "ORDER BY id"):
        for where in (
            "abs(x) > 3",
            "x > 3::float8",
            "repeat(t, 2) > 'v'",
            "x::text <> t AND g = 1",
        ):
            query = f"SELECT id FROM numbers WHERE {where} {order}"
            every = (await env.query("s", query)).splitlines()[:-1]
            found = await env.query("s", f"{query} LIMIT 5")
            assert found.splitlines()[:-1] == every[:5], (query, found)
    found = await env.query("s", "SELECT id FROM numbers WHERE g = 1 AND abs(x) > 3 LIMIT 5")
    assert len(found.splitlines()) == 6
    await env.ran("s", "DROP TABLE numbers")


async def test_numerics_are_read_in_order(env: TestEnvironment) -> None:
    """Of values whose texts have another order, with NULLs, and of a transaction's own rows."""
    rng = random.Random(7)
    await env.ran("s", "CREATE TABLE prices (id int PRIMARY KEY, p numeric(10, 2), q int)")
    await env.ran("s", "CREATE INDEX ON prices (p); CREATE INDEX ON prices (q, p)")

    def row(id: int) -> str:
        price = rng.choice(["NULL", *(f"{rng.uniform(-200, 2000):.2f}" for _ in range(9))])
        return f"({id}, {price}, {rng.randrange(3)})"

    await env.ran("s", f"INSERT INTO prices VALUES {', '.join(map(row, range(400)))}")
    for own in (False, True):
        if own:
            await env.ran("s", "BEGIN; DELETE FROM prices WHERE id % 3 = 1")
            await env.ran("s", f"INSERT INTO prices VALUES {', '.join(map(row, range(900, 960)))}")
        for where in ("true", "p > 99.5", "p BETWEEN -20 AND 100", "p <= 1000::numeric", "q = 1"):
            for order in ("ASC", "DESC", "DESC NULLS LAST"):
                sql = f"SELECT p FROM prices WHERE {where} ORDER BY p{{}} {order} LIMIT 7 OFFSET 2"
                found = await env.query("s", sql.format(""))
                assert found == await env.query("s", sql.format(" + 0")), sql
            sql = f"SELECT max(p{{}}), count(p) FROM prices WHERE {where}"
            assert await env.query("s", sql.format("")) == await env.query("s", sql.format(" + 0"))
            sql = f"SELECT min(p{{}}) FROM prices WHERE {where}"
            assert await env.query("s", sql.format("")) == await env.query("s", sql.format(" + 0"))
    await env.ran("s", "ROLLBACK")
    told = await env.query("s", "EXPLAIN SELECT id FROM prices ORDER BY p DESC LIMIT 3")
    assert PAGE in told, told
    await env.ran("s", "DROP TABLE prices")
