"""The first rows of outer joins and subqueries are those of first rows of one table."""

import random

import pytest

from tests.adapter.harness import TestEnvironment

SETUP = """CREATE TABLE orders (id int PRIMARY KEY, c int, v int);
CREATE TABLE customers (id int PRIMARY KEY, g int, name text);
CREATE INDEX ON orders (c); CREATE INDEX ON customers (g)"""
PAGE = "in the order of"  # EXPLAIN: until there are enough rows
# Queries whose order decides all; whether they read a page.
QUERIES = {
    "SELECT o.id, k.name FROM orders o LEFT JOIN customers k ON k.id = o.c"
    " WHERE o.id > {a} ORDER BY o.id": True,
    "SELECT o.id, k.name FROM orders o LEFT JOIN customers k ON k.id = o.c AND k.g > 2"
    " ORDER BY o.id DESC": True,
    "SELECT k.id, o.id FROM customers k LEFT JOIN orders o ON o.c = k.id"
    " WHERE k.id > {a} ORDER BY k.id, o.id": False,
    "SELECT k.*, (SELECT count(*) FROM orders o WHERE o.c = k.id) FROM customers k"
    " ORDER BY k.id": True,
    "SELECT k.id, (SELECT max(v) FROM orders o WHERE o.c = k.id) m FROM customers k"
    " WHERE k.id < {a} ORDER BY k.id DESC": True,
    "SELECT k.id, s.n FROM customers k LEFT JOIN"
    " (SELECT c, count(*) n FROM orders GROUP BY c) s ON s.c = k.id ORDER BY k.id": True,
    "SELECT k.id, count(o.id), sum(o.v) FROM customers k LEFT JOIN orders o ON o.c = k.id"
    " GROUP BY k.id ORDER BY k.id": True,
    "SELECT k.id FROM customers k WHERE NOT EXISTS (SELECT FROM orders o WHERE o.c = k.id)"
    " ORDER BY k.id": True,
    "SELECT k.id FROM customers k WHERE EXISTS (SELECT FROM orders o WHERE o.c = k.id AND v > 3)"
    " ORDER BY k.id": True,
    "SELECT k.g, k.id, o.id FROM customers k LEFT JOIN orders o ON o.c = k.id"
    " ORDER BY k.g, k.id, o.id": None,
    # Rows of one customer's group are not next to each other.
    "SELECT k.g, count(*) FROM customers k JOIN orders o ON o.c = k.id GROUP BY k.g"
    " ORDER BY k.g": False,
    "SELECT DISTINCT k.g, o.v FROM customers k LEFT JOIN orders o ON o.c = k.id"
    " ORDER BY k.g, o.v": False,
    "SELECT a.id, b.id FROM orders a LEFT JOIN orders b ON b.id = a.c ORDER BY a.id": None,
    "SELECT o.id, k.name FROM orders o FULL JOIN customers k ON k.id = o.c"
    " ORDER BY o.id, k.id": False,
    "SELECT o.id, k.id FROM orders o RIGHT JOIN customers k ON k.id = o.c"
    " ORDER BY k.id, o.id": False,
}


@pytest.mark.parametrize("query", QUERIES)
async def test_pages_are_parts_of_all_rows(env: TestEnvironment, query: str) -> None:
    """Of tables with orphans, customers without orders, and many orders of a customer."""
    rng = random.Random(query)
    schema = f"pages_{[*QUERIES].index(query)}"
    await env.ran("s", f"CREATE SCHEMA {schema}; SET search_path = {schema}; {SETUP}")
    for _ in range(3):
        orders = ", ".join(
            f"({i}, {rng.choice([*range(40), 'NULL'])}, {rng.randrange(9)})"
            for i in rng.sample(range(2000), 600)
        )
        customers = ", ".join(
            f"({i}, {rng.choice([*range(6), 'NULL'])}, 'n{i}')" for i in rng.sample(range(50), 35)
        )
        await env.ran("s", f"DELETE FROM orders; INSERT INTO orders VALUES {orders}")
        await env.ran("s", f"DELETE FROM customers; INSERT INTO customers VALUES {customers}")
        sql = query.format(a=rng.randrange(30))
        every = (await env.query("s", sql)).splitlines()[:-1]
        for limit, offset in ((1, 0), (5, 0), (7, 20), (40, 3), (1000, 0)):
            page = (await env.query("s", f"{sql} LIMIT {limit} OFFSET {offset}")).splitlines()[:-1]
            assert page == every[offset : offset + limit], sql
    reads_page = QUERIES[query]
    told = await env.query("s", f"EXPLAIN {query.format(a=3)} LIMIT 5")
    if reads_page is not None:
        assert (PAGE in told) == reads_page, told
    await env.ran("s", f"SET search_path = public; DROP SCHEMA {schema} CASCADE")
