"""Random queries answer as on PostgreSQL: aggregates of outer queries, and the order of rows.

A seed makes queries whose subqueries aggregate columns of any query around them, and others that
gather the rows of ordered subqueries. Each gives the same rows, or fails with the same SQLSTATE.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from tests.effort import examples
from tests.harness import Server
from tests.sqllogic.runner import Database, Failed

QUERIES = examples(300)
SETUP = (
    "CREATE SCHEMA random_queries",
    "SET search_path = random_queries",
    "CREATE TABLE t (a int, b int, c text, d int[])",
    "CREATE TABLE u (a int, b int)",
    "INSERT INTO t VALUES (1, 10, 'x', '{3,1}'), (1, 11, 'y', '{}'), (2, 5, 'z', NULL), "
    "(2, 7, 'w', '{2,2,9}'), (3, 1, NULL, '{4}'), (NULL, 3, 'q', '{8,7}')",
    "INSERT INTO u VALUES (1, 100), (1, 101), (2, 50), (4, 1), (NULL, 9)",
)
Aliases = tuple[str, ...]  # of the queries around, the innermost last


@dataclass
class Queries:
    """The queries of one seed."""

    random: random.Random
    aliases: int = 0

    def next(self) -> str:
        """Return another query."""
        if self.random.random() < 0.3:
            return self.gathering()
        items = ", ".join(self.scalar(("t",), 2) for _ in range(self.random.randint(1, 2)))
        groups = self.random.choice(("", " GROUP BY t.a", " GROUP BY t.a, t.b"))
        return f"SELECT {items} FROM t{groups}"

    def column(self, aliases: Aliases) -> str:
        return f"{self.random.choice(aliases)}.{self.random.choice('ab')}"

    def scalar(self, aliases: Aliases, depth: int) -> str:
        """Return an expression over the rows of the queries around it."""
        match self.random.choice(("column", "number", "aggregate", "subquery", "sum")):
            case "number":
                return str(self.random.randint(0, 3))
            case "aggregate":
                return self.aggregate(aliases)
            case "subquery" if depth:
                return self.subquery(aliases, depth - 1)
            case "sum" if depth:
                return f"({self.column(aliases)} + {self.scalar(aliases, depth - 1)})"
            case _:
                return self.column(aliases)

    def aggregate(self, aliases: Aliases) -> str:
        function = self.random.choice(("sum", "max", "min", "count"))
        argument = self.column(aliases)
        if self.random.random() < 0.3:
            argument += f" + {self.column(aliases)}"
        if self.random.random() < 0.2:
            return f"{function}({argument}) FILTER (WHERE {self.column(aliases)} > 4)"
        return f"{function}({argument})"

    def subquery(self, aliases: Aliases, depth: int) -> str:
        """Return a scalar subquery, with a table of its own or without."""
        if self.random.random() < 0.4:
            return f"(SELECT {self.scalar(aliases, depth)})"
        self.aliases += 1
        within = (*aliases, f"s{self.aliases}")
        text = f"SELECT max({within[-1]}.b) + {self.scalar(within, depth)}"
        text += f" FROM {self.random.choice('tu')} AS {within[-1]}"
        if self.random.random() < 0.5:
            text += f" WHERE {self.column(within)} = {self.column(within)}"
        if self.random.random() < 0.2:
            text += f" HAVING {self.aggregate(within)} > 1"
        return f"({text})"

    def gathering(self) -> str:
        """Return a query over an ordered subquery, without an order of its own."""
        choose = self.random.choice
        order = choose(("b", "b DESC", "a NULLS FIRST, b", "c, b DESC", "a DESC, b DESC"))
        limit = choose(("", " LIMIT 3", " OFFSET 1"))
        source = f"SELECT * FROM t ORDER BY {order}{limit}"
        where = choose(("", " WHERE b <> 7"))
        gathered = choose(
            (
                "array_agg(b)",
                "string_agg(c, '-')",
                "jsonb_agg(a)",
                "array_agg(b) FILTER (WHERE b > 4)",
            )
        )
        return choose(
            (
                f"SELECT {gathered} FROM ({source}) AS s{where}",
                f"SELECT a, {gathered} FROM ({source}) AS s{where} GROUP BY a ORDER BY a",
                f"WITH s AS ({source}) SELECT {gathered} FROM s{where}",
                f"SELECT ARRAY(SELECT x.b FROM (SELECT b FROM ({source}) AS s{where}) AS x)",
                f"SELECT b, unnest(d), generate_series(1, 2) FROM ({source}) AS s{where}",
                f"SELECT a, {gathered}, array_agg(x) FROM ({source}) AS s, unnest(d) AS x GROUP BY a"
                " ORDER BY a",
            )
        )


def outcome(database: Database, sql: str) -> list[str] | str:
    """Return the rows, sorted where nothing orders them, or the SQLSTATE."""
    try:
        rows = database.run(sql)
    except Failed as failed:
        return failed.sqlstate
    return rows if "ORDER BY" in sql else sorted(rows)


def test_random_queries_answer_as_on_postgresql(server: Server, postgres_url: str) -> None:
    ours = Database(server.url, is_foreshore=True)
    theirs = Database(postgres_url, is_foreshore=False)
    try:
        for database in (ours, theirs):
            for sql in SETUP:
                database.run(sql)
        queries = Queries(random.Random(18))
        for _ in range(QUERIES):
            sql = queries.next()
            assert outcome(ours, sql) == outcome(theirs, sql), sql
    finally:
        for database in (ours, theirs):
            database.run("DROP SCHEMA random_queries CASCADE")
            database.close()
