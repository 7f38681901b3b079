"""What drivers and ORMs send, beside PostgreSQL 15: `python -m tests.bench asyncpg [NAME ...]`.

Statements are prepared through asyncpg, over one connection, on both servers by turns. What is
printed are the medians of milliseconds, and of the turns' ratios: below 1 is in our favour. `pool`
is asyncpg's default pool: 20 connections, 40 tasks, of which each acquires one for each look-up.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import asyncpg
import psycopg

from tests.bench.freshness import serving
from tests.harness import postgres

TURNS, WARM, TIMES = 5, 20, 60
ROWS = 100_000
SETUP = (
    "CREATE TABLE customers (id int PRIMARY KEY, name text NOT NULL, age int, region int)",
    f"INSERT INTO customers SELECT i, 'name ' || i, i % 90, i % 100 FROM generate_series(1, {ROWS}) i",
    "CREATE INDEX ON customers (region)",
    "CREATE TABLE regions (id int PRIMARY KEY, title text)",
    "INSERT INTO regions SELECT i, 'region ' || i FROM generate_series(0, 99) i",
    "CREATE TABLE orders (id int PRIMARY KEY, customer int NOT NULL, amount numeric(12, 2), at timestamptz)",
    f"INSERT INTO orders SELECT i, i % {ROWS}, i % 977, now() FROM generate_series(1, {ROWS}) i",
    "CREATE INDEX ON orders (customer)",
    "CREATE TABLE hits (path text PRIMARY KEY, n int)",
    "CREATE TABLE jobs (id int PRIMARY KEY, state text, tries int)",
    "INSERT INTO jobs SELECT i, 'queued', 0 FROM generate_series(1, 5000) i",
    "CREATE INDEX ON jobs (state, id)",
    "CREATE TABLE one (id serial PRIMARY KEY, name text, n int)",
    "INSERT INTO one (name, n) VALUES ('first', 1)",
    "CREATE MATERIALIZED VIEW by_region AS SELECT region, count(*) n, sum(age) s FROM customers GROUP BY region",
    "CREATE INDEX ON by_region (region)",
    "CREATE MATERIALIZED VIEW by_customer AS SELECT customer, count(*) n, sum(amount) s FROM orders GROUP BY customer",
    "CREATE INDEX ON by_customer (customer)",
)


def key() -> int:
    """Return a random key."""
    return random.randrange(1, ROWS)


def keys(count: int = 10) -> list[int]:
    """Return random keys."""
    return random.sample(range(1, ROWS), count)


# Of each form its text, and what makes its arguments.
FORMS: dict[str, tuple[str, Callable[[], Sequence[object]]]] = {
    "Rails: find": (
        'SELECT "customers".* FROM "customers" WHERE "customers"."id" = $1 LIMIT $2',
        lambda: (key(), 1),
    ),
    "Prisma: findUnique": (
        'SELECT "public"."customers"."id", "public"."customers"."name" FROM "public"."customers"'
        ' WHERE ("public"."customers"."id" = $1 AND 1=1) LIMIT $2 OFFSET $3',
        lambda: (key(), 1, 0),
    ),
    "Django: get": (
        'SELECT "customers"."id", "customers"."name" FROM "customers"'
        ' WHERE "customers"."id" = $1 LIMIT 21',
        lambda: (key(),),
    ),
    "= ANY of 10 keys": (
        "SELECT id, name FROM customers WHERE id = ANY($1::int[])",
        lambda: (keys(),),
    ),
    "page of a group": (
        "SELECT id, name FROM customers WHERE region = $1 ORDER BY id DESC LIMIT 20",
        lambda: (key() % 100,),
    ),
    "join by key": (
        "SELECT c.id, c.name, r.title FROM customers c JOIN regions r ON r.id = c.region WHERE c.id = $1",
        lambda: (key(),),
    ),
    "last ten orders, customer": (
        "SELECT o.id, o.amount, c.name FROM orders o JOIN customers c ON c.id = o.customer"
        " ORDER BY o.id DESC LIMIT 10",
        lambda: (),
    ),
    "last ten orders of one": (
        "SELECT o.id, o.amount, c.name FROM orders o JOIN customers c ON c.id = o.customer"
        " WHERE o.customer = $1 ORDER BY o.id DESC LIMIT 10",
        lambda: (key(),),
    ),
    "LEFT JOIN, counts of 10": (
        "SELECT c.id, count(o.id) FROM customers c LEFT JOIN orders o ON o.customer = c.id"
        " WHERE c.id = ANY($1::int[]) GROUP BY c.id",
        lambda: (keys(),),
    ),
    "upsert RETURNING": (
        "INSERT INTO hits (path, n) VALUES ($1, 1)"
        " ON CONFLICT (path) DO UPDATE SET n = hits.n + 1 RETURNING n",
        lambda: (f"/{key() % 1000}",),
    ),
    "dequeue, SKIP LOCKED": (
        "UPDATE jobs SET state = 'running', tries = tries + 1 WHERE id = (SELECT id FROM jobs"
        " WHERE state = 'queued' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id, tries",
        lambda: (),
    ),
    "view JOIN table by key": (
        "SELECT v.region, v.n, r.title FROM by_region v JOIN regions r ON r.id = v.region"
        " WHERE v.region = $1",
        lambda: (key() % 100,),
    ),
    "row of 100,000 groups": ("SELECT * FROM by_customer WHERE customer = $1", lambda: (key(),)),
}
NO_TABLE = {
    "one": "SELECT 1",
    "now()": "SELECT now()",
    "current_setting": "SELECT current_setting('search_path')",
    "nextval": "SELECT nextval('one_id_seq')",
    "row of pg_type": "SELECT typname FROM pg_type WHERE oid = 23",
    "row of pg_class": "SELECT oid, relname FROM pg_class WHERE relname = 'customers'",
    "row of pg_settings": "SELECT name, setting FROM pg_settings WHERE name = 'search_path'",
    "to_regclass": "SELECT to_regclass('customers')::oid",
}
FORMS |= {name: (sql, lambda: ()) for name, sql in NO_TABLE.items()}
CASE = (
    ("INSERT INTO one (name, n) VALUES ($1, $2) RETURNING id", ("new", 2)),
    ("SELECT id, name, n FROM one WHERE id = $1", (1,)),
    ("UPDATE one SET n = n + 1 WHERE id = $1", (1,)),
)


async def one_of(form: str, connection: asyncpg.Connection) -> Callable[[], Awaitable[object]]:
    """Return what runs a form once."""
    if form in ("test case", "test case, savepoints"):
        prepared = [(await connection.prepare(sql), args) for sql, args in CASE]
        around = ("SAVEPOINT s1", "RELEASE SAVEPOINT s1") if "savepoints" in form else ()

        async def block() -> None:
            await connection.execute("BEGIN")
            for number, (statement, args) in enumerate(prepared):
                if around and number < 2:
                    await connection.execute(around[0])
                await statement.fetch(*args)
                if around and number < 2:
                    await connection.execute(around[1])
            await connection.execute("ROLLBACK")

        return block
    sql, arguments = FORMS[form]
    statement = await connection.prepare(sql)
    return lambda: statement.fetch(*arguments())


async def milliseconds(run: Callable[[], Awaitable[object]]) -> float:
    """Return the median time of some runs."""
    times = []
    for _ in range(TIMES):
        began = time.perf_counter()
        await run()
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1e3


@dataclass(frozen=True, slots=True)
class Turns:
    """What both took, turn by turn."""

    ours: list[float]
    theirs: list[float]

    @property
    def ratio(self) -> float:
        """The median of the turns' ratios."""
        return statistics.median(a / b for a, b in zip(self.ours, self.theirs, strict=True))

    def show(self, name: str) -> None:
        """Print a row of the table."""
        one, other = statistics.median(self.ours), statistics.median(self.theirs)
        print(f"| {name} | {one:.3f} | {other:.3f} | {self.ratio:.1f} |", flush=True)


async def pooled(url: str) -> float:
    """Return the milliseconds for one look-up through a pool."""
    sql = "SELECT name FROM customers WHERE id = $1"
    async with asyncpg.create_pool(url, min_size=20, max_size=20) as pool:

        async def task(count: int) -> None:
            for _ in range(count):
                async with pool.acquire() as connection:
                    await connection.fetchval(sql, key())

        await asyncio.gather(*(task(10) for _ in range(40)))
        began = time.perf_counter()
        await asyncio.gather(*(task(25) for _ in range(40)))
        return (time.perf_counter() - began) * 1e3 / 1000


async def measure(names: Sequence[str], ours: str, theirs: str) -> None:
    """Print the figures of forms."""
    every = [*FORMS, "test case", "test case, savepoints"]
    connections = [await asyncpg.connect(url) for url in (ours, theirs)]
    for name in every:
        if names and name not in names:
            continue
        runs = [await one_of(name, each) for each in connections]
        for run in runs:
            for _ in range(WARM):
                await run()
        figures = Turns([], [])
        for _ in range(TURNS):
            figures.ours.append(await milliseconds(runs[0]))
            figures.theirs.append(await milliseconds(runs[1]))
        figures.show(name)
    if not names or "pool" in names:
        pool = Turns([], [])
        for _ in range(TURNS):
            pool.ours.append(await pooled(ours))
            pool.theirs.append(await pooled(theirs))
        pool.show("pool")


def main(names: Sequence[str]) -> None:
    """Print the figures of the forms with these names; all, without names."""
    with serving() as server, postgres() as theirs:
        for url in (server.url, theirs):
            with psycopg.connect(url, autocommit=True) as connection:
                for statement in SETUP:
                    connection.execute(statement.encode())
                connection.execute("ANALYZE")
        print("| form | Foreshore, ms | PostgreSQL, ms | ratio |\n|---|---|---|---|", flush=True)
        asyncio.run(measure(names, server.url, theirs))


if __name__ == "__main__":
    main(sys.argv[1:])
