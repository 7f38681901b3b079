"""Aggregates in Python that take values back, in maintained views."""

import asyncio
from pathlib import Path

import pytest

from foreshore.compute.flow.operators import folded
from foreshore.compute.flow.operators.folded import CHECKED
from foreshore.python_functions.limits import ALLOWED
from tests.adapter.harness import TestEnvironment

TOTAL = """CREATE FUNCTION total_of(numeric[]) RETURNS numeric LANGUAGE python IMMUTABLE STRICT AS $$
class Sum:
    def __init__(self, value=0): self.value = value

class total:
    def init(self):
        return Sum()
    def add(self, state, value):
        with open('{path}', 'a') as file: file.write('+')
        if value == 13: raise ValueError('unlucky')
        return Sum(state.value + (value or 0))
    def remove(self, state, value):
        with open('{path}', 'a') as file: file.write('-')
        return Sum(state.value - {undone})
    def result(self, state):
        return state.value
$$"""
PLUS = """CREATE FUNCTION plus_of(numeric[]) RETURNS numeric LANGUAGE python IMMUTABLE AS $$
class plus:
    def init(self): return None
    def add(self, state, value): return value if state is None else state + value
    def remove(self, state, value): return state - value
    def finish(self, state): return -1 if state is None else state
$$"""
AGGREGATE = (
    "CREATE AGGREGATE total(numeric)"
    " (SFUNC = array_append, STYPE = numeric[], FINALFUNC = total_of)"
)


@pytest.fixture(autouse=True)
def allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ALLOWED, "1")


class _Prepared:
    """A view of totals by `k`, over 1,000 rows of k = 1 and one of k = 2."""

    def __init__(self, env: TestEnvironment, path: Path) -> None:
        self.env, self._path = env, path

    async def begin(self, undone: str = "(value or 0)") -> None:
        await self.env.ran("a", TOTAL.format(path=self._path, undone=undone), AGGREGATE)
        await self.env.ran(
            "a",
            "CREATE TABLE t (k int, x int)",
            "INSERT INTO t SELECT 1, 1000 + i FROM generate_series(1, 1000) i",
            "INSERT INTO t VALUES (2, 7)",
            "CREATE MATERIALIZED VIEW v AS SELECT k, total(x) AS x, count(*) FROM t GROUP BY k",
        )

    async def after(self, *statements: str) -> tuple[str, str]:
        """Return the view after statements, and the calls that were made for them."""
        await self.env.query("a", "SELECT * FROM v")
        self._path.unlink(missing_ok=True)
        await self.env.ran("a", *statements)
        found = await self.env.query("a", "SELECT x, count FROM v ORDER BY k")
        return found, self._path.read_text() if self._path.exists() else ""


@pytest.fixture
def prepared(own_env: TestEnvironment, tmp_path: Path) -> _Prepared:
    return _Prepared(own_env, tmp_path / "calls")


async def test_group_is_not_computed_anew_where_it_changes(prepared: _Prepared) -> None:
    await prepared.begin()
    assert await prepared.after("INSERT INTO t VALUES (1, 5)") == (
        "1500505|1001\n7|1\nSELECT 2", "+",
    )  # fmt: skip
    for number in range(CHECKED):  # these are computed anew, too
        await prepared.after(f"INSERT INTO t VALUES (2, {number + 100})",
                             f"DELETE FROM t WHERE x = {number + 100}")  # fmt: skip
    found, calls = await prepared.after("UPDATE t SET x = x + 1 WHERE x IN (1001, 7)")
    assert found == "1500506|1001\n8|1\nSELECT 2"
    assert sorted(calls) == ["+", "+", "-", "-"]
    found, calls = await prepared.after("DELETE FROM t WHERE x <= 1500")
    assert found.startswith("875250|500\nSELECT 1")
    assert set(calls[:502]) == {"-"}
    assert (await prepared.after("DELETE FROM t"))[0] == "SELECT 0"
    assert (await prepared.after("INSERT INTO t VALUES (1, NULL)"))[0] == "0|1\nSELECT 1"
    explained = await prepared.env.query("a", "EXPLAIN PHYSICAL PLAN FOR MATERIALIZED VIEW v")
    assert "states in Python" in explained


async def test_method_that_raises_is_error_as_long_as_the_value_is_there(
    prepared: _Prepared,
) -> None:
    await prepared.begin()
    failed = 'ERROR 38000: function "total", line 10: ValueError: unlucky'
    assert (await prepared.after("INSERT INTO t VALUES (1, 13)"))[0] == failed
    assert (await prepared.after("INSERT INTO t VALUES (1, 5)"))[0] == failed
    await prepared.env.ran("a", "DELETE FROM t WHERE x = 13")
    read = "SELECT x, count FROM v ORDER BY k"
    assert await prepared.env.query("a", read) == "1500505|1001\n7|1\nSELECT 2"


async def test_view_goes_on_after_restart(prepared: _Prepared) -> None:
    await prepared.begin()
    await prepared.env.reopen()
    await prepared.env.ran("a", "DELETE FROM t WHERE x > 1001", "INSERT INTO t VALUES (2, 1)")
    read = "SELECT x, count FROM v ORDER BY k"
    assert await prepared.env.query("a", read) == "1001|1\n8|2\nSELECT 2"


async def test_remove_that_does_not_undo_add_stops_the_view(prepared: _Prepared) -> None:
    await prepared.begin("value + 1")
    env = prepared.env
    await env.query("a", "SELECT * FROM v")
    await env.ran("a", "DELETE FROM t WHERE x = 1001")
    error = 'method "remove" of "total" does not undo what "add" does'
    async with asyncio.timeout(60):
        statuses = "SELECT failure FROM mz_internal.mz_dataflow_statuses"
        while error not in await env.query("a", statuses):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.05)


async def test_remove_is_checked_in_each_try(
    prepared: _Prepared, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(folded, "CHECKED", 1)
    await prepared.begin("value + 1")
    env = prepared.env
    assert (await prepared.after("DELETE FROM t WHERE x = 1001"))[0].startswith("ERROR 38000")
    async with asyncio.timeout(60):
        while (tmp_path / "calls").read_text().count("-") < 3:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.05)
    assert (await env.query("a", "SELECT * FROM v")).startswith("ERROR 38000")


async def test_group_without_values_begins_anew(own_env: TestEnvironment) -> None:
    """Its state is that of `init`, and not what `remove` has left."""
    env = own_env
    await env.ran("a", PLUS, AGGREGATE.replace("total", "plus"))
    await env.ran("a", "CREATE TABLE t (k int, x int)")
    await env.ran("a", "INSERT INTO t VALUES (1, 2), (1, 3), (2, 7)")
    queries = ("SELECT k, plus(x), plus(x) FILTER (WHERE x > 5) AS more FROM t GROUP BY k",
               "SELECT plus(x) FROM t")  # fmt: skip
    for number, query in enumerate(queries):
        await env.ran("a", f"CREATE MATERIALIZED VIEW v{number} AS {query}")
    for change in ("UPDATE t SET x = 4 WHERE k = 2", "DELETE FROM t WHERE k = 2", "DELETE FROM t"):
        await env.ran("a", "SELECT * FROM v0", "SELECT * FROM v1", change)
        for number, query in enumerate(queries):
            found = await env.query("a", f"SELECT * FROM v{number} ORDER BY 1")
            assert found == await env.query("a", f"{query} ORDER BY 1")


async def test_numerics_of_other_scales_are_one_value(own_env: TestEnvironment) -> None:
    env = own_env
    await env.ran("a", PLUS, AGGREGATE.replace("total", "plus"))
    await env.ran("a", "CREATE TABLE t (k int, id int, x numeric)")
    await env.ran("a", "INSERT INTO t VALUES (1, 1, 1.0), (1, 2, 1.00), (1, 3, 2.50), (2, 4, 100)")
    query = "SELECT k, plus(x) FROM t GROUP BY k"
    await env.ran("a", f"CREATE MATERIALIZED VIEW v AS {query}")
    assert await env.query("a", "SELECT * FROM v ORDER BY 1") == "1|4.5\n2|100\nSELECT 2"
    for change, found in (
        ("DELETE FROM t WHERE id = 2", "1|3.5\n2|100\nSELECT 2"),
        ("INSERT INTO t VALUES (1, 2, 1.000), (2, 5, 0.50)", "1|4.5\n2|100.5\nSELECT 2"),
        ("DELETE FROM t WHERE id = 1", "1|3.5\n2|100.5\nSELECT 2"),
        ("UPDATE t SET x = x + 0.00 WHERE k = 1", "1|3.5\n2|100.5\nSELECT 2"),
        ("DELETE FROM t WHERE id IN (2, 5)", "1|2.5\n2|100\nSELECT 2"),
    ):
        await env.ran("a", change)
        assert await env.query("a", "SELECT * FROM v ORDER BY 1") == found, change
        assert await env.query("a", f"{query} ORDER BY 1") == found, change
