"""Rules of a table, as a program over few rows and by columns, take and refuse the same rows."""

import asyncio
import random
from pathlib import Path

import pytest

from foreshore.adapter.session import planner
from tests.adapter.harness import TestEnvironment

TABLE = (
    "CREATE DOMAIN few AS int CHECK (VALUE < 9)",
    """CREATE TABLE t (k int PRIMARY KEY, a int, b numeric(6, 2) NOT NULL, c text, d few,
        g int GENERATED ALWAYS AS (a * 2) STORED, h text GENERATED ALWAYS AS (upper(c)) STORED,
        w numeric(8, 3) GENERATED ALWAYS AS (b / 3) STORED,
        CONSTRAINT small CHECK (g < 12), CONSTRAINT ratio CHECK (12 / a > 1),
        CONSTRAINT named CHECK (c <> 'bad' AND length(c) < 6),
        CONSTRAINT later CHECK (b < extract(year FROM now())))""",
    "CREATE UNIQUE INDEX ON t (h, w)",
)


def value(rng: random.Random, column: str) -> str:
    if rng.random() < 0.08:
        return "NULL"
    match column:
        case "a" | "d":
            return str(rng.choice([0, 1, 2, 3, 4, 5, 6, 9]))
        case "b":
            return rng.choice(["1.5", "0", "2.345", "9000", "7"])
        case _:
            return rng.choice(["'x'", "'bad'", "'long one'", "'\u00e9'", "''"])


def statement(rng: random.Random) -> str:
    key = rng.randrange(6)

    def row(key: int) -> str:
        return f"({key}, {', '.join(value(rng, each) for each in 'abcd')})"

    changes = [f"{each} = {value(rng, each)}" for each in rng.sample("abcd", 2)]
    returning = rng.choice(["", " RETURNING k, g, h, w"])
    match rng.randrange(4):
        case 0:
            rows = ", ".join(row(rng.randrange(6)) for _ in range(rng.choice([1, 1, 2, 20])))
            return f"INSERT INTO t VALUES {rows}{returning}"
        case 1:
            return f"UPDATE t SET {', '.join(changes)} WHERE k = {key}{returning}"
        case 2:
            return f"INSERT INTO t VALUES {row(key)} ON CONFLICT (k) DO UPDATE SET {changes[0]}"
        case _:
            return f"DELETE FROM t WHERE k IN ({key}, {key + 1}){returning}"


def test_rules_agree_by_rows_and_by_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def said(directory: Path) -> list[str]:
        env, rng = TestEnvironment(directory), random.Random(7)
        await env.open()
        lines = [await env.query("a", sql) for sql in TABLE]
        for _ in range(250):
            sql = statement(rng)
            lines += [sql, await env.query("a", sql)]
        lines.append(await env.query("a", "SELECT * FROM t ORDER BY k"))
        await env.close()
        return lines

    rows = asyncio.run(said(tmp_path / "rows"))
    monkeypatch.setattr(planner, "rules_of", lambda planned: None)
    columns = asyncio.run(said(tmp_path / "columns"))
    for sql, one, other in zip(rows, rows[1:], columns[1:], strict=False):
        assert one == other, sql
    for name in (
        "small",
        "ratio",
        "named",
        "few_check",
        '"b" of',
        "division by zero",
        "INSERT 0 1",
    ):
        assert any(name in line for line in rows), name


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("(NULL, 0, 0)", "23502"),
        ("(1, 0, 0)", "23514"),
        ("(1, 1, 0)", "22012"),
        ("(1, 0, 1), (2, 1, 0)", "23514"),
        ("(1, 1, 0), (2, 0, 1)", "22012"),
        ("(1, 1, 20), (2, 1, 0)", "23514"),
        ("(1, NULL, NULL), (NULL, 1, 0)", "23502"),
    ],
)
async def test_error_of_a_check_comes_in_the_order_of_rows_and_rules(
    env: TestEnvironment, rows: str, said: str
) -> None:
    await env.ran(
        "a",
        "DROP TABLE IF EXISTS ordered",
        "CREATE TABLE ordered (a int NOT NULL, b int CHECK (b > 0), c int, CHECK (10 / c > 0))",
    )
    for source in (f"VALUES {rows}", f"SELECT a::int, b, c FROM (VALUES {rows}) v (a, b, c)"):
        found = await env.query("a", f"INSERT INTO ordered {source}")
        assert found.startswith(f"ERROR {said}"), (source, found)
