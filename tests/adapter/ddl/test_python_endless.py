"""Functions in Python that take long, or for ever: whom they hold up, and what users see."""

import asyncio
import os
from pathlib import Path

import pytest

from foreshore.python_functions.limits import ALLOWED, SECONDS
from tests.adapter.harness import TestEnvironment

ENDLESS = """CREATE FUNCTION endless(a int) RETURNS int LANGUAGE python IMMUTABLE AS $$
def endless(a):
    while a == 3: pass
    return a
$$"""
ENDLESS_SUM = """CREATE FUNCTION sums_of(int[]) RETURNS int LANGUAGE python IMMUTABLE AS $$
import os
class sums_of:
    def init(self): return 0
    def add(self, state, value):
        if value == 3:
            with open('{path}', 'w') as file: file.write(str(os.getpid()))
        while value == 3: pass
        return state + value
    def remove(self, state, value): return state - value
    def finish(self, state): return state
$$"""
AGGREGATE = (
    "CREATE AGGREGATE sum_of(int) (SFUNC = array_append, STYPE = int[], FINALFUNC = sums_of)"
)
LATE = 'ERROR 38000: function "endless" took longer than {} s for a row'


@pytest.fixture(autouse=True)
def allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ALLOWED, "1")


async def _prepare(env: TestEnvironment, name: str) -> None:
    """`name` makes it another function, as answers are kept by the process."""
    await env.ran("a", ENDLESS.replace("AS $$", f"AS $$# {name}"), "CREATE TABLE t (id int, a int)")
    await env.ran("a", "INSERT INTO t SELECT i, i FROM generate_series(1, 5) i")


async def _until(env: TestEnvironment, sql: str, part: str) -> str:
    async with asyncio.timeout(20):
        while part not in (found := await env.query("a", sql)):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.02)
    return found


async def test_view_with_an_endless_row_has_its_error_until_the_row_goes(
    own_env: TestEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SECONDS, "2")
    env = own_env
    await _prepare(env, "row")
    await env.ran("a", "CREATE MATERIALIZED VIEW v AS SELECT id, endless(a) AS b FROM t")
    assert await env.query("a", "SELECT * FROM v") == LATE.format(2)
    await env.ran("a", "DELETE FROM t WHERE a = 3")
    assert await env.query("a", "SELECT sum(b) FROM v") == "12\nSELECT 1"
    await env.ran("a", "INSERT INTO t VALUES (6, 3)")
    assert await env.query("a", "SELECT * FROM v") == LATE.format(2)
    await env.ran("a", "DELETE FROM t WHERE a = 3")
    assert await env.query("a", "SELECT sum(b) FROM v") == "12\nSELECT 1"


@pytest.mark.parametrize("over", ["SELECT id, endless(a) AS b FROM t",
                                  "SELECT endless(a) AS b, count(*) FROM t GROUP BY 1"])  # fmt: skip
async def test_view_that_takes_long_holds_up_no_other_ones(
    own_env: TestEnvironment, monkeypatch: pytest.MonkeyPatch, over: str
) -> None:
    monkeypatch.setenv(SECONDS, "600")
    env = own_env
    await _prepare(env, over)
    await env.ran("a", f"CREATE MATERIALIZED VIEW v AS {over}")
    statuses = "SELECT failure FROM mz_internal.mz_dataflow_statuses"
    await env.ran("a", "CREATE MATERIALIZED VIEW w AS SELECT sum(a) FROM t")
    assert await env.query("a", "SELECT * FROM w") == "15\nSELECT 1"
    await _until(env, statuses, "a function in Python takes long")
    assert "takes long" in await env.query("a", "EXPLAIN FRESHNESS FOR SELECT * FROM v")
    await env.ran("a", "CREATE MATERIALIZED VIEW x AS SELECT count(*) FROM t")
    assert await env.query("a", "SELECT * FROM x") == "5\nSELECT 1"
    await env.ran(
        "a", "DROP MATERIALIZED VIEW v", "CREATE VIEW y AS SELECT endless(4) AS b, a FROM t"
    )
    await env.ran("a", "CREATE INDEX ON y (a)")
    assert await env.query("a", "SELECT b FROM y WHERE a = 3") == "4\nSELECT 1"


async def test_look_up_that_never_ends_ends_by_timeout(own_env: TestEnvironment) -> None:
    env = own_env
    await _prepare(env, "look-up")
    await env.ran("a", "CREATE VIEW v AS SELECT id, a + 0 AS a FROM t", "CREATE INDEX ON v (id)")
    assert await env.query("a", "SELECT endless(a) FROM v WHERE id = 4") == "4\nSELECT 1"
    await env.ran("a", "SET statement_timeout = '500ms'")
    for _ in range(4):  # more than there are hosts
        found = await env.query("a", "SELECT endless(a) FROM v WHERE id = 3")
        assert found == "ERROR 57014: canceling statement due to statement timeout"
    await env.ran("a", "SET statement_timeout = 0")
    assert await env.query("a", "SELECT endless(a + 5) FROM v WHERE id = 4") == "9\nSELECT 1"


async def test_dropped_views_give_their_hosts_back(
    own_env: TestEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SECONDS, "600")
    env = own_env
    await _prepare(env, "dropped")
    statuses = "SELECT failure FROM mz_internal.mz_dataflow_statuses"
    for number in range((os.cpu_count() or 1) + 1):  # more than there are hosts
        await env.ran("a", ENDLESS.replace("endless", f"endless{number}"))
        await env.ran("a", f"CREATE MATERIALIZED VIEW v AS SELECT endless{number}(a) FROM t")
        await env.ran("a", "CREATE MATERIALIZED VIEW w AS SELECT count(*) FROM t")
        await _until(env, statuses, "a function in Python takes long")  # it has given way
        await env.ran("a", "DROP MATERIALIZED VIEW v", "DROP MATERIALIZED VIEW w")
    await env.ran("a", "CREATE MATERIALIZED VIEW x AS SELECT endless(a + 10) AS b FROM t")
    async with asyncio.timeout(120):
        assert await env.query("a", "SELECT sum(b) FROM x") == "65\nSELECT 1"


async def test_dropped_view_ends_an_endless_aggregate(
    own_env: TestEnvironment, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(SECONDS, "600")
    env = own_env
    await _prepare(env, "aggregate")
    await env.ran("a", ENDLESS_SUM.format(path=tmp_path / "begun"), AGGREGATE)
    await env.ran("a", "CREATE MATERIALIZED VIEW v AS SELECT sum_of(a) FROM t WHERE id <> 3")
    assert await env.query("a", "SELECT * FROM v") == "12\nSELECT 1"
    await env.ran("a", "UPDATE t SET id = 6 WHERE a = 3")
    begun = tmp_path / "begun"
    async with asyncio.timeout(60):
        while not (begun.exists() and begun.read_text()):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.02)
    host = Path("/proc") / begun.read_text()
    assert host.exists()
    await env.ran("a", "DROP MATERIALIZED VIEW v")
    async with asyncio.timeout(60):
        while host.exists():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.02)


async def test_aggregate_that_takes_long_holds_up_no_other_views(
    own_env: TestEnvironment, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(SECONDS, "600")
    env = own_env
    await _prepare(env, "waiting")
    gate = tmp_path / "gate"
    slow = ENDLESS_SUM.replace(
        "while value == 3: pass", f"while not os.path.exists('{gate}'): pass"
    )
    await env.ran("a", slow.format(path=tmp_path / "begun"), AGGREGATE)
    gate.touch()
    await env.ran("a", "CREATE MATERIALIZED VIEW v AS SELECT sum_of(a) FROM t WHERE id <> 3")
    await env.ran("a", "CREATE MATERIALIZED VIEW w AS SELECT count(*) FROM t")
    assert await env.query("a", "SELECT * FROM v, w") == "12|5\nSELECT 1"
    gate.unlink()
    await env.ran("a", "INSERT INTO t VALUES (6, 1), (7, 3)")
    statuses = "SELECT failure FROM mz_internal.mz_dataflow_statuses"
    await _until(env, statuses, "a function in Python takes long")
    await env.ran("a", "CREATE MATERIALIZED VIEW x AS SELECT sum(a) FROM t")
    assert await env.query("a", "SELECT * FROM w, x") == "7|19\nSELECT 1"
    assert "takes long" in await env.query("a", "EXPLAIN FRESHNESS FOR SELECT * FROM v")
    gate.touch()
    assert await env.query("a", "SELECT * FROM v") == "16\nSELECT 1"


async def test_aggregate_that_never_ends_has_an_error_until_the_row_goes(
    own_env: TestEnvironment, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(SECONDS, "1")
    env = own_env
    await _prepare(env, "late")
    await env.ran("a", ENDLESS_SUM.format(path=tmp_path / "begun"), AGGREGATE)
    await env.ran("a", "CREATE MATERIALIZED VIEW v AS SELECT sum_of(a) FROM t WHERE id <> 3")
    assert await env.query("a", "SELECT * FROM v") == "12\nSELECT 1"
    await env.ran("a", "UPDATE t SET id = 6 WHERE a = 3")
    assert await env.query("a", "SELECT * FROM v") == LATE.replace("endless", "sums_of").format(1)
    await env.ran("a", "DELETE FROM t WHERE a = 3")
    assert await env.query("a", "SELECT * FROM v") == "12\nSELECT 1"
