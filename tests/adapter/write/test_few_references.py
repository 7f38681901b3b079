"""Foreign keys of few rows, as tuples, do and say what they do as columns."""

import asyncio
import random
from pathlib import Path

import pytest

from foreshore.compute.keys import references
from tests.adapter.harness import TestEnvironment

TABLES = (
    "CREATE TABLE p (a int, b text, n int UNIQUE, PRIMARY KEY (a, b))",
    "CREATE TABLE q (k int PRIMARY KEY, a int, b text, up int REFERENCES q ON DELETE CASCADE,"
    " FOREIGN KEY (a, b) REFERENCES p ON DELETE SET NULL (a) ON UPDATE CASCADE)",
    "CREATE TABLE r (k int PRIMARY KEY, n int DEFAULT 2 REFERENCES p (n) ON DELETE SET DEFAULT"
    " ON UPDATE RESTRICT, w bigint REFERENCES q)",
    "CREATE TABLE s (k int PRIMARY KEY, n int REFERENCES p (n) DEFERRABLE INITIALLY DEFERRED,"
    " a int, b text, FOREIGN KEY (b, a) REFERENCES p (b, a) MATCH FULL)",
)


def statement(rng: random.Random) -> str:
    k, a, n = (rng.randrange(5) for _ in range(3))
    b = rng.choice(["'x'", "'y'", "NULL"])
    up = rng.choice(["NULL", str(rng.randrange(5))])
    match rng.randrange(16):
        case 0 | 1:
            return f"INSERT INTO p VALUES ({a}, {rng.choice(['NULL', b])}, {n})"
        case 2 | 3:
            return f"INSERT INTO q VALUES ({k}, {a}, {b}, {up}), ({k + 5}, {up}, 'x', {k})"
        case 4 | 5:
            return f"INSERT INTO r VALUES ({k}, {n}, {up})"
        case 6 | 7:
            return f"INSERT INTO s VALUES ({k}, {n}, {up}, {b})"
        case 8:
            return f"UPDATE p SET a = {n}, n = {k} WHERE a = {a} AND b = {b}"
        case 9:
            return f"UPDATE p SET n = {k} WHERE n = {n}"
        case 10:
            return f"UPDATE q SET a = {a}, up = {up}, k = {n} WHERE k = {k}"
        case 11:
            return f"UPDATE s SET a = {a}, b = {b}, n = {n} WHERE k = {k}"
        case 12:
            return f"DELETE FROM p WHERE n = {n}"
        case 13:
            return f"DELETE FROM {rng.choice('qrs')} WHERE k = {k}"
        case 14:
            return "BEGIN"
        case _:
            return rng.choice(["COMMIT", "ROLLBACK", "TRUNCATE s", "SET CONSTRAINTS ALL IMMEDIATE"])


def test_foreign_keys_agree_as_tuples_and_as_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def said(directory: Path) -> list[str]:
        env, rng = TestEnvironment(directory), random.Random(3)
        await env.open()
        lines = [await env.query("a", sql) for sql in TABLES]
        for number in range(600):
            sql = statement(rng)
            lines += [sql, await env.query("a", sql)]
            if number % 10 == 0:
                await env.query("a", "COMMIT")
                lines += [await env.query("b", f"SELECT * FROM {t} ORDER BY 1, 2") for t in "pqrs"]
        await env.close()
        return lines

    rows = asyncio.run(said(tmp_path / "rows"))
    monkeypatch.setattr(references, "FEW", -1)
    columns = asyncio.run(said(tmp_path / "columns"))
    for sql, one, other in zip(rows, rows[1:], columns[1:], strict=False):
        assert one == other, sql
    for told in ("still referenced", "is not present", "MATCH FULL", "DELETE 1", "UPDATE 1"):
        assert any(told in line for line in rows), told
