"""Rows under keys whose equal values may look different are found as tuples, too."""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from foreshore.adapter.plans.row_read import RowRead
from tests.adapter.harness import TestEnvironment, until

# Of each type some values, of which the first two are equal, and one that no row has.
TYPES = {
    "numeric": ("1.5", "1.500", "1.505", "NaN", "7"),
    "numeric(6, 2)": ("1.5", "1.500", "-3", "0.01", "7"),
    "float8": ("0", "-0.0", "NaN", "1e300", "7"),
    "interval": ("1 day", "24 hours", "1 mon", "-1 us", "7 days"),
    "jsonb": ('{"a": [1.0]}', '{"a": [1]}', "null", '"x"', "7"),
    "int[]": ("{1,2}", "{1,2}", "{}", "{NULL}", "{7}"),
}


async def begun(env: TestEnvironment, type: str) -> list[str]:
    """Make a table with a row of each value but the second and the last; return the values."""
    for name in list(env.sessions):
        await env.query(name, "ROLLBACK")
    await env.ran(
        "w",
        "DROP TABLE IF EXISTS keyed, plain",
        f"CREATE TABLE keyed (k {type}, p int, n int, PRIMARY KEY (k, p), UNIQUE (p))",
        f"CREATE TABLE plain (k {type}, p int, n int)",
    )
    values = [f"'{each}'" for each in TYPES[type]]
    kept = [values[0], *values[2:-1]]
    rows = ", ".join(f"({value}, {number}, 0)" for number, value in enumerate(kept))
    await env.ran("w", f"INSERT INTO keyed VALUES {rows}", f"INSERT INTO plain VALUES {rows}")
    return values


@contextmanager
def counting(patch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Note of each read by programs whether it has an answer."""
    answered: list[bool] = []
    for name in ("rows", "over"):
        run = getattr(RowRead, name)

        def noted(self: RowRead, *args: Any, run: Any = run, **more: Mapping[str, Any]) -> Any:
            found = run(self, *args, **more)
            answered.append(found is not None)
            return found

        patch.setattr(RowRead, name, noted)
    yield answered


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("block", ["", "BEGIN"])
async def test_rows_are_those_of_a_scan(
    env: TestEnvironment, monkeypatch: pytest.MonkeyPatch, type: str, block: str
) -> None:
    values = await begun(env, type)
    if block:
        for table in ("keyed", "plain"):
            await env.ran(table, block, f"UPDATE {table} SET n = 5 WHERE k = {values[0]} AND p = 0")
            await env.ran(table, f"INSERT INTO {table} VALUES ({values[-1]}, 9, 9)")
    forms = [f"k = {value} AND p = {p}" for value in values for p in (0, 1)]
    forms.append(f"(k, p) IN (({values[0]}, 0), ({values[1]}, 0), ({values[2]}, 1), (NULL, 0))")
    with counting(monkeypatch) as answered:
        for form in forms:
            for sql in (
                "SELECT * FROM {t} WHERE {form} ORDER BY p",
                "UPDATE {t} SET n = n + 1 WHERE {form} RETURNING k, n",
                "SELECT n FROM {t} WHERE {form} ORDER BY p FOR UPDATE",
            ):
                rows = []
                for table in ("plain", "keyed"):
                    del answered[:]
                    found = await env.query(table, sql.format(t=table, form=form))
                    rows.append(sorted(found.splitlines()))
                assert rows[0] == rows[1], (sql, form)
                assert {*answered} == {True}, (sql, form)


@pytest.mark.parametrize("type", TYPES)
async def test_equal_keys_are_locked_alone(env: TestEnvironment, type: str) -> None:
    first, same, other, *_ = await begun(env, type)
    await env.ran("a", "BEGIN", f"UPDATE keyed SET n = 1 WHERE k = {first} AND p = 0")
    await env.ran("b", f"UPDATE keyed SET n = n + 10 WHERE k = {other} AND p = 1")
    update = f"UPDATE keyed SET n = n + 10 WHERE k = {same} AND p = 0"
    locks = env.environment.coordinator.locks
    waits = asyncio.create_task(env.query("b", update, alone=False))
    await until(lambda: bool(locks._waiting) or waits.done())
    assert not waits.done()
    await env.ran("a", "COMMIT")
    assert await waits == "UPDATE 1"
    found = await env.ran("w", f"SELECT n FROM keyed WHERE k = {first} AND p = 0")
    assert found.splitlines()[0] == "11"
