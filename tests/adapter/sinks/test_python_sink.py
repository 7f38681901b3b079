"""CREATE SINK ... INTO PYTHON: functions get changes at least once, classes exactly once."""

import asyncio
import json
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.adapter.harness import TestEnvironment
from tests.adapter.sinks import receiving

DOCS = Path(__file__).parents[3] / "docs/sinks.md"
MODULE = "tests.adapter.sinks.receiving"
STATUS = "SELECT status, error FROM mz_internal.mz_sink_statuses"
AT_ONCE = "WITH (COMMIT INTERVAL '1 ms')"


async def allow(env: TestEnvironment) -> None:
    """Allow the module, as a start of the server does."""
    env.environment.let_import([MODULE])
    await env.environment.equip_sources()


async def shows(env: TestEnvironment, status: str) -> None:
    """Wait until the only sink's status begins so."""
    async with asyncio.timeout(60):
        while True:
            if (await env.query("a", STATUS)).startswith(status):
                return
            await asyncio.sleep(0.02)


def fails(file: Path) -> Path:
    """Let the function fail while the file that is returned is there."""
    failing = Path(f"{file}.fails")
    failing.touch()
    return failing


def copied(path: Path) -> list[tuple[Any, ...]]:
    with sqlite3.connect(path) as database:
        return database.execute("SELECT k, v FROM t ORDER BY k, v").fetchall()


async def test_class_keeps_frontier_and_has_each_change_once(
    own_env: TestEnvironment, tmp_path: Path
) -> None:
    env, path = own_env, tmp_path / "copy.db"
    await allow(env)
    await env.ran("a", "CREATE TABLE t (k int, v text)", "INSERT INTO t VALUES (0, 'x'), (0, 'x')")
    into = f"INTO PYTHON '{MODULE}:Copy' (path '{path}', every '4')"
    await env.ran("a", f"CREATE SINK s FROM t {into} {AT_ONCE}")
    for number in range(1, 13):
        await env.ran("a", f"INSERT INTO t VALUES ({number}, NULL), ({number}, 'y')")
        await env.ran("a", f"DELETE FROM t WHERE k = {number - 3}", "UPDATE t SET v = v || 'z'")
        if number % 3 == 0:
            env.export.last.kill()
        if number % 6 == 0:
            await env.reopen()
            await allow(env)
    await env.ran("a", "WAIT FOR SINKS s")
    rows = await env.query("a", "SELECT k, v FROM t ORDER BY k, v NULLS FIRST")
    found = [f"{k}|{'NULL' if v is None else v}" for k, v in copied(path)]
    assert found == rows.splitlines()[:-1]
    shown = (await env.query("a", "SHOW CREATE SINK s")).splitlines()[0].split("|")[1]
    assert f"PYTHON '{MODULE}:Copy'" in shown
    kind = "SELECT type, envelope_type FROM mz_sinks"
    assert (await env.query("a", kind)).startswith("python|append")
    path.unlink()
    env.export.last.kill()
    await shows(env, "stalled|the target has lost how far the sink has come")
    await env.ran("a", "INSERT INTO t VALUES (99, 'x')")
    said = await env.query("a", "WAIT FOR SINKS s")
    await env.ran("a", "DELETE FROM t WHERE k = 99")
    assert "HINT: The sink cannot go on. Drop it, empty the target" in said
    await env.ran("a", "DROP SINK s", shown, "WAIT FOR SINKS s")
    assert [f"{k}|{'NULL' if v is None else v}" for k, v in copied(path)] == found


async def test_function_gets_changes_at_least_once_with_bounds(
    own_env: TestEnvironment, tmp_path: Path
) -> None:
    env, file = own_env, tmp_path / "lines"
    await allow(env)
    await env.ran("a", "CREATE TABLE t (k int, v text)", "INSERT INTO t VALUES (0, 'x')")
    into = f"INTO PYTHON '{MODULE}:told' (file '{file}')"
    await env.ran("a", f"CREATE SINK s FROM t {into} {AT_ONCE}")
    for number in range(1, 9):
        await env.ran("a", f"INSERT INTO t VALUES ({number}, NULL)")
        if number % 2 == 0:
            env.export.last.kill()
    failing = fails(file)
    await env.ran("a", "INSERT INTO t VALUES (9, NULL)")
    await shows(env, "stalled|OSError: the disk is full")
    failing.unlink()
    await env.ran("a", "WAIT FOR SINKS s")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    lines.sort(key=lambda each: each[:3])
    seen, found = 0, []
    for _, upper, _, last, changes in lines:
        found += [each for each in changes if each["mz_timestamp"] >= seen]
        if last:
            seen = max(seen, upper)
    assert [(each["mz_diff"], each["k"]) for each in found] == [(1, k) for k in range(10)]
    assert all(
        lower <= each["mz_timestamp"] < upper for lower, upper, _, _, c in lines for each in c
    )


async def test_example_of_the_docs_has_each_change_once(
    own_env: TestEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    (tmp_path / "shop_copy.py").write_text(example)
    monkeypatch.syspath_prepend(tmp_path)
    env, path = own_env, tmp_path / "copy.db"
    env.environment.let_import(["shop_copy"])
    await env.ran("a", "CREATE TABLE totals (item text PRIMARY KEY, total int8)")
    await env.ran("a", "INSERT INTO totals VALUES ('tea', 3), ('milk', 1)")
    into = f"INTO PYTHON 'shop_copy:Totals' (path '{path}') {AT_ONCE}"
    await env.ran("a", f"CREATE SINK s FROM totals {into}")
    for number in range(6):
        await env.ran("a", f"UPDATE totals SET total = total + {number}")
        env.export.last.kill()
    await env.ran("a", "DELETE FROM totals WHERE item = 'milk'", "WAIT FOR SINKS s")
    with sqlite3.connect(path) as database:
        assert database.execute("SELECT * FROM totals").fetchall() == [("tea", 18)]


async def test_call_that_takes_too_long_stalls_until_it_ends(own_env: TestEnvironment) -> None:
    env = own_env
    receiving.ENOUGH.clear()
    await allow(env)
    await env.ran("a", "CREATE TABLE t (k int)", "INSERT INTO t VALUES (0)")
    options = "WITH (TIMEOUT '50 ms', COMMIT INTERVAL '1 ms')"
    await env.ran("a", f"CREATE SINK s FROM t INTO PYTHON '{MODULE}:stuck' {options}")
    await shows(env, "stalled|a call takes longer than 0.05 seconds")
    await shows(env, "stalled|a call that has taken too long has not ended yet")
    receiving.ENOUGH.set()
    await env.ran("a", "WAIT FOR SINKS s")


@pytest.mark.parametrize(
    ("target", "error"),
    [
        ("'os:getcwd'", "42501"),
        (f"'{MODULE}:none'", "22023"),
        (f"'{MODULE}'", "22023"),
        (f"'{MODULE}:told'", "22023"),
        (f"'{MODULE}:Nothing'", "22023"),
        (f"'{MODULE}:Copy' (path 'x', much 'y')", "22023"),
        (f"'{MODULE}:told' (file 'x') ENVELOPE UPSERT", "22023"),
        (f"'{MODULE}:told' (file 'x') FORMAT JSON", "22023"),
        (f"'{MODULE}:told' (file 'x') KEY (k) NOT ENFORCED ENVELOPE UPSERT", "0A000"),
    ],
)
async def test_what_cannot_be_done_is_refused(
    env: TestEnvironment, target: str, error: str
) -> None:
    await allow(env)
    await env.query("a", "CREATE TABLE IF NOT EXISTS t (k int)")
    assert f"ERROR {error}" in await env.query("a", f"CREATE SINK s FROM t INTO PYTHON {target}")


async def test_only_superusers_write_to_python(own_env: TestEnvironment) -> None:
    env = own_env
    await allow(env)
    await env.ran("a", "CREATE TABLE t (k int)", "CREATE ROLE r", "GRANT ALL ON t TO r")
    await env.ran("a", "GRANT CREATE ON SCHEMA public TO r", "SET ROLE r")
    made = await env.query("a", f"CREATE SINK s FROM t INTO PYTHON '{MODULE}:stuck'")
    assert "ERROR 42501: must be superuser" in made
