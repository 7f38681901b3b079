"""Open readers refuse the reads that the server refuses."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foreshore import failpoint
from foreshore.storage.inspection import inspect
from tests.adapter.harness import TestEnvironment, in_environment
from tests.effort import examples
from tests.harness import ROOT
from tests.storage.harness import U1, abandon
from tests.storage.test_capability_model import STEP, Machine

sys.path.append(str(ROOT / "docs" / "open"))
import foreshore_files
import read_pandas


def found(data_dir: Path, name: str, as_of: int | None = None) -> Counter[str]:
    """Return the rows that an open reader reads."""
    rows = foreshore_files.reading(data_dir, name, as_of, read_pandas.table).to_pylist()
    times = [row.pop("__diff") for row in rows]
    lines = ("|".join(map(str, row.values())) for row in rows)
    return Counter(dict(zip(lines, times, strict=True)))


async def tell(env: TestEnvironment, *statements: str) -> int:
    """Run statements that succeed; return the time after them."""
    for statement in statements:
        answer = await env.query("s", statement)
        assert "ERROR" not in answer, answer
    return env.environment.coordinator.oracle.read_ts()


async def answer(env: TestEnvironment, name: str, as_of: int) -> str:
    """Return the server's answer, without the tag of rows."""
    lines = await env.query("s", f"SELECT * FROM {name} AS OF {as_of}")
    return "\n".join(line for line in lines.split("\n") if not line.startswith("SELECT "))


def test_open_reader_refuses_view_over_view_in_error(data_dir: Path) -> None:
    in_error, others = ("v", "w", "w2"), ("side", "t")
    answers: dict[int, dict[str, str]] = {}

    async def main(env: TestEnvironment) -> None:
        async def ask(*statements: str) -> None:
            at = await tell(env, *statements)
            answers[at] = {name: await answer(env, name, at) for name in (*in_error, *others)}

        await ask(
            "CREATE TABLE t (x int)",
            "CREATE MATERIALIZED VIEW v AS SELECT 10 / x AS q FROM t",
            "CREATE VIEW plain AS SELECT q FROM v WHERE q > 0",
            "CREATE MATERIALIZED VIEW w AS SELECT count(*) AS n FROM plain",
            "CREATE MATERIALIZED VIEW w2 AS SELECT n + 1 AS m FROM w",
            "CREATE MATERIALIZED VIEW side AS SELECT x FROM t",
            "INSERT INTO t VALUES (1)",
        )
        await ask("INSERT INTO t VALUES (0)")
        await ask("DELETE FROM t WHERE x = 0")

    in_environment(data_dir, main)
    before, during, after = answers
    for at, as_of in ((before, before), (after, None)):
        assert answers[at] == {"v": "10", "w": "1", "w2": "2", "side": "1", "t": "1"}
        for name, rows in answers[at].items():
            assert found(data_dir, name, as_of) == {rows: 1}
    for name in in_error:
        assert answers[during][name] == "ERROR 22012: division by zero"
        with pytest.raises(foreshore_files.Unreadable, match="22012 division by zero"):
            found(data_dir, name, during)
    for name in others:
        assert found(data_dir, name, during) == {"0": 1, "1": 1}


@settings(max_examples=examples(25))
@given(st.lists(STEP, max_size=14), st.booleans())
def test_open_reader_computes_same_since_as_inspect(
    steps: list[tuple[str, int, int]], cleanly: bool
) -> None:
    async def main(directory: Path) -> None:
        machine = Machine(directory)
        await machine.start()
        for step in steps:
            await machine.step(*step)
            machine.move()
        await (machine.controller.close() if cleanly else abandon(machine.controller))
        states = foreshore_files.states(directory)
        (report,) = inspect(directory).shards
        assert foreshore_files.log(directory, states)[U1].since == report.since

    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(main(Path(directory)))


def refused(data_dir: Path, name: str, as_of: int) -> str:
    with pytest.raises(foreshore_files.Unreadable) as raised:
        found(data_dir, name, as_of)
    return str(raised.value)


def test_table_before_alter_is_refused(data_dir: Path) -> None:
    before = after = promised = 0

    async def main(env: TestEnvironment) -> None:
        nonlocal before, after, promised
        before = await tell(env, "CREATE TABLE t (x int)", "INSERT INTO t VALUES (1)")
        after = await tell(env, "ALTER TABLE t ADD COLUMN y int DEFAULT 7")
        await tell(env, "INSERT INTO t VALUES (2, 8)")
        promised = await tell(env, "ALTER TABLE t ALTER COLUMN x SET NOT NULL")
        assert "can be read from" in await answer(env, "t", before)
        assert "can be read from" in await answer(env, "t", after)
        assert await answer(env, "t", promised) == "1|7\n2|8"

    in_environment(data_dir, main)
    assert "t is readable from" in refused(data_dir, "t", before)
    assert "t is readable from" in refused(data_dir, "t", after)
    assert found(data_dir, "t", promised) == {"1|7": 1, "2|8": 1}


def test_collection_before_its_creation_is_refused(data_dir: Path) -> None:
    made = {
        "t": "CREATE TABLE t (x int); INSERT INTO t VALUES (2)",
        "a": "CREATE TABLE a AS SELECT count(*) AS n FROM base",
        "v": "CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM base",
    }
    before = 0

    async def main(env: TestEnvironment) -> None:
        nonlocal before
        before = await tell(env, "CREATE TABLE base (x int)", "INSERT INTO base VALUES (1), (2)")
        await tell(env, *made.values(), "TABLE v")
        await again(env)

    async def again(env: TestEnvironment) -> None:
        for name in ("t", "a"):
            assert "can be read from" in await answer(env, name, before)
        assert await answer(env, "v", before) == "2"  # by its query; its shard is younger

    in_environment(data_dir, main)
    for name in made:
        assert f"{name} is readable from" in refused(data_dir, name, before)
        assert found(data_dir, name) == {"2": 1}
    in_environment(data_dir, again)


def test_view_where_its_history_was_lost_is_refused(data_dir: Path) -> None:
    lost = 0

    async def main(env: TestEnvironment) -> None:
        nonlocal lost
        await tell(
            env,
            "CREATE CLUSTER c REPLICAS (r1 (SIZE 'embedded'))",
            "CREATE TABLE t (x int)",
            "CREATE MATERIALIZED VIEW v IN CLUSTER c AS SELECT count(*) AS n FROM t",
            "TABLE v",
            "DROP CLUSTER REPLICA c.r1",
        )
        lost = await tell(env, "INSERT INTO t VALUES (1)")
        await tell(env, "INSERT INTO t VALUES (2)", "ALTER TABLE t ADD COLUMN y int")
        make = "CREATE CLUSTER REPLICA c.r2 SIZE 'embedded'"
        await tell(env, make, "INSERT INTO t VALUES (3)", "TABLE v")
        assert "can be read from" in await answer(env, "v", lost)

    in_environment(data_dir, main)
    assert "nobody maintained it" in refused(data_dir, "v", lost)
    assert found(data_dir, "v") == {"3": 1}  # a later time is read of it by the server only


def test_view_where_its_errors_are_unknown_is_refused(data_dir: Path) -> None:
    during = 0

    async def main(env: TestEnvironment) -> None:
        nonlocal during
        make = "CREATE MATERIALIZED VIEW v AS SELECT 1 / x AS q FROM t"
        during = await tell(env, "CREATE TABLE t (x int)", make, "INSERT INTO t VALUES (0)")
        assert await answer(env, "v", during) == "ERROR 22012: division by zero"
        await tell(env, "DELETE FROM t")
        for _ in range(70):  # steps
            await env.query("s", "INSERT INTO t VALUES (0)")
            await env.query("s", "TABLE v")
            await tell(env, "DELETE FROM t", "TABLE v")
        for _ in range(200):  # the steps are stored one after the other
            if "can be read from" in await answer(env, "v", during):
                break
            await env.query("s", "INSERT INTO t VALUES (0)")
            await tell(env, "DELETE FROM t", "TABLE v")
        assert "can be read from" in await answer(env, "v", during)

    in_environment(data_dir, main, lag_ms=1)
    assert "v is readable from" in refused(data_dir, "v", during)


def test_first_start_in_progress_has_nothing_to_read(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(foreshore_files, "TAKEOVER_S", 0.0)
    seen: list[tuple[str, str]] = []

    def look(point: str) -> None:
        seen.append((point, refused(data_dir, "t", 0)))

    async def main(env: TestEnvironment) -> None:
        failpoint.arm(None)

    failpoint.arm(look)
    try:
        in_environment(data_dir, main)
    finally:
        failpoint.arm(None)
    assert len(seen) > 3, seen


def test_name_equal_to_id_of_other_collection_is_refused(data_dir: Path) -> None:
    async def main(env: TestEnvironment) -> None:
        make = "CREATE TABLE {name} (x int); INSERT INTO {name} VALUES ({x})"
        for x, name in enumerate(("t", "u1", "u3")):
            await tell(env, make.format(name=name, x=x))
        ids = [item.id for item in env.environment.coordinator.state.objects.values()]
        assert {"u1", "u2", "u3"} <= {*ids}

    in_environment(data_dir, main)
    for name, rows in {"t": "0", "public.u1": "1", "u2": "1", "u3": "2", "public.u3": "2"}.items():
        assert found(data_dir, name) == {rows: 1}
    with pytest.raises(foreshore_files.Unreadable, match="public.u1"):
        found(data_dir, "u1")
