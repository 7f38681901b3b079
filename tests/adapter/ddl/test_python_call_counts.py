"""How often IMMUTABLE functions in Python are called: once for a distinct argument, where a sample
is called a second time (`CHECKED` rows of each process, then a tenth)."""

from pathlib import Path

import pytest

from foreshore.python_functions.calls import CHECKED, SHARE
from foreshore.python_functions.limits import ALLOWED
from tests.adapter.harness import TestEnvironment, until

CREATE = """CREATE FUNCTION noted(a int) RETURNS int LANGUAGE python IMMUTABLE STRICT AS $$
def noted(a):
    with open('{}', 'a') as file: file.write(f'{{a}} ')
    return a + 1
$$"""


class _Calls:
    """The calls in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def taken(self) -> list[int]:
        """Return the arguments of all calls since the last time."""
        found = self._path.read_text().split() if self._path.exists() else []
        self._path.unlink(missing_ok=True)
        return list(map(int, found))


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> _Calls:
    monkeypatch.setenv(ALLOWED, "1")
    return _Calls(tmp_path / "calls")


async def _prepare(env: TestEnvironment, tmp_path: Path, rows: int) -> None:
    await env.ran("a", CREATE.format(tmp_path / "calls"), "CREATE TABLE t (id int, a int)")
    await env.ran("a", f"INSERT INTO t SELECT i, i FROM generate_series(1, {rows}) i")


def _check(found: list[int], distinct: range, hosts: int = 2) -> None:
    """Check that each was called once, but for a sample."""
    assert set(found) == set(distinct)
    assert len(found) <= len(distinct) + hosts * CHECKED + len(distinct) // SHARE


VIEWS = {
    "once": "SELECT id, noted(a) AS b FROM t",
    "twice": "SELECT id, noted(a) + noted(a) + 1 AS b FROM t WHERE noted(a) > 0",
    "key": "SELECT noted(a) % 10 AS b, count(*) FROM t GROUP BY 1",
}


@pytest.mark.parametrize("name", VIEWS)
async def test_view_calls_once_for_what_is_new_and_never_for_what_goes(
    own_env: TestEnvironment, tmp_path: Path, calls: _Calls, name: str
) -> None:
    env = own_env
    await _prepare(env, tmp_path, 2000)
    await env.ran("a", f"CREATE MATERIALIZED VIEW v AS {VIEWS[name]}")

    async def after(*statements: str) -> list[int]:
        await env.ran("a", *statements)
        await env.query("a", "SELECT count(*) FROM v")
        return calls.taken()

    _check(await after(), range(1, 2001))
    assert set(await after("INSERT INTO t VALUES (5000, 5000)")) == {5000}
    many = "INSERT INTO t SELECT i, i FROM generate_series(10001, 11000) i"
    _check(await after(many), range(10_001, 11_001), hosts=0)
    assert set(await after("UPDATE t SET a = 30000 WHERE id = 5")) == {30_000}
    for statement in (
        "UPDATE t SET id = id + 50000 WHERE id = 6",
        "UPDATE t SET a = 8 WHERE id = 7",
        "DELETE FROM t WHERE id = 5000",
        "DELETE FROM t WHERE id BETWEEN 10001 AND 11000",
        "DELETE FROM t",
    ):
        assert await after(statement) == [], statement


async def test_index_and_queries_call_once_for_a_distinct_argument(
    own_env: TestEnvironment, tmp_path: Path, calls: _Calls
) -> None:
    env = own_env
    await _prepare(env, tmp_path, 1000)
    query = "SELECT count(x + y) FROM (SELECT noted(a) AS x, noted(a) + 1 AS y FROM t) z"
    assert await env.query("a", query) == "1000\nSELECT 1"
    _check(calls.taken(), range(1, 1001))
    assert await env.query("a", "SELECT noted(9000) + noted(9000)") == "18002\nSELECT 1"
    assert set(calls.taken()) == {9000}
    await env.ran("a", "CREATE VIEW w AS SELECT id, noted(a) AS b FROM t", "CREATE INDEX ON w (id)")
    coordinator = env.environment.coordinator
    await until(lambda: all(map(coordinator.is_hydrated, coordinator.as_ofs)))
    await env.query("a", "SELECT * FROM w WHERE id = 1")
    calls.taken()
    await env.ran("a", "INSERT INTO t VALUES (7000, 7000)")
    assert await env.query("a", "SELECT b FROM w WHERE id = 7000") == "7001\nSELECT 1"
    assert set(calls.taken()) <= {7000}
    await env.ran("a", "DELETE FROM t WHERE id = 7000")
    assert await env.query("a", "SELECT b FROM w WHERE id = 7000") == "SELECT 0"
    assert calls.taken() == []
