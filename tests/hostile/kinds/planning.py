"""Texts that are deep, wide or slow to plan."""

from collections.abc import Callable
from random import Random

import psycopg

from tests.hostile.kinds.registry import Target, kind


def listed(each: str, count: int, separator: str = ", ") -> str:
    """Return `each` so many times, with the number of each in place of #."""
    return separator.join([each.replace("#", str(i)) for i in range(count)])


def nested(before: str, inner: str, after: str) -> Callable[[int], str]:
    """Return what writes something so many levels deep."""
    return lambda depth: f"SELECT {before * depth}{inner}{after * depth}"


# By the number of elements or levels that they have.
TEXTS: dict[str, Callable[[int], str]] = {
    "targets": lambda n: f"SELECT {listed('# AS c#', n)}",
    "expressions of IN": lambda n: f"SELECT 1 WHERE 1 IN ({listed('# + #', n)})",
    "expressions of VALUES": lambda n: f"VALUES {listed('(# + 1)', n)}",
    "chained WITH": lambda n: (
        "WITH c0 AS (SELECT 1 AS a)"
        + "".join(f", c{i} AS (SELECT a FROM c{i - 1})" for i in range(1, n))
        + f" SELECT * FROM c{n - 1}"
    ),
    "OR": lambda n: f"SELECT 1 FROM pg_class WHERE {listed('relname > #::text', n, ' OR ')}",
    "branches of CASE": lambda n: f"SELECT CASE {listed('WHEN random() = # THEN #', n, ' ')} END",
    "items of FROM": lambda n: f"SELECT 1 FROM {listed('(SELECT 1) AS q#', n)}",
    "statements": lambda n: listed("SELECT #", n, "; "),
    "parentheses": nested("(", "1", ")"),
    "subqueries": nested("(SELECT ", "1", ")"),
    "calls": nested("abs(", "1", ")"),
    "casts": nested("", "1", "::int"),
    "NOT": nested("NOT ", "true", ""),
    "jsonb": lambda n: f"SELECT '{'[' * n}{']' * n}'::jsonb",
    "a regular expression": lambda n: f"SELECT 'a' ~ '{'(' * n}a{')' * n}'",
    "a path of jsonb": lambda n: f"SELECT '{{}}'::jsonb @? '$ ? ({'(' * n}1 == 1{')' * n})'",
    "CUBE": lambda _: (
        "SELECT count(*) FROM (VALUES (1,2,3,4,5,6,7,8,9,10,11,12)) AS v(a,b,c,d,e,f,g,h,i,j,k,l) "
        "GROUP BY CUBE (a,b,c,d,e,f,g,h,i,j,k,l)"
    ),
}
SIZES = (500, 2_000, 20_000)
PATIENCE_MS = 2_000


async def ask(target: Target, text: str, patience_ms: int = PATIENCE_MS) -> str | None:
    """Run a text; return the SQLSTATE of its error, if it has one."""
    connection = await psycopg.AsyncConnection.connect(target.url, autocommit=True)
    try:
        await connection.execute(f"SET statement_timeout = {patience_ms}".encode())
        await connection.execute(text.encode())
    except psycopg.Error as error:
        return error.sqlstate
    finally:
        await connection.close()
    return None


def _register(name: str, write: Callable[[int], str]) -> None:
    @kind(f"planning: {name}")
    async def attack(target: Target, chance: Random) -> None:
        await ask(target, write(chance.choice(SIZES)))


for _name, _write in TEXTS.items():
    _register(_name, _write)
