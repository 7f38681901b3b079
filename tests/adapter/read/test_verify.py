"""VERIFY MATERIALIZED VIEW names the rows that a view has and should not have, and those it lacks."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pyarrow.compute as pc
import pytest
from msgspec.structs import replace

from foreshore.adapter.audit import Auditor
from foreshore.catalog.item import Item
from foreshore.compute.engine import Evaluator
from foreshore.compute.flow.engine import FlowEngine
from foreshore.compute.protocol import BulkChoice
from foreshore.few_updates import FewUpdates
from foreshore.storage.controller import ShardWrite
from tests.adapter.harness import TestEnvironment

VIEWS = (
    "CREATE MATERIALIZED VIEW sums AS SELECT k, sum(v) AS s, count(*) AS n FROM t GROUP BY k",
    "CREATE MATERIALIZED VIEW rows AS SELECT k, v, 'x' || v AS x FROM t WHERE v <> 7",
    "CREATE MATERIALIZED VIEW reached AS WITH MUTUALLY RECURSIVE r (k int) AS "
    "(SELECT k FROM t UNION SELECT k + 1 FROM r WHERE k < 5) SELECT k FROM r",
)


async def test_views_that_are_right_have_no_differences(own_env: TestEnvironment) -> None:
    env = own_env
    await env.ran(
        "a",
        "CREATE TABLE t (k int, v int)",
        "INSERT INTO t SELECT x % 3, x FROM generate_series(1, 20) AS g (x)",
        *VIEWS,
        "INSERT INTO t SELECT x % 4, x FROM generate_series(1, 9) AS g (x)",
    )
    time = (await env.ran("a", "SELECT mz_now()")).splitlines()[0]
    await env.ran("a", "DELETE FROM t WHERE v % 2 = 0", "UPDATE t SET v = NULL WHERE v = 3")
    for view in ("sums", "rows", "reached"):
        for sql in (
            f"VERIFY MATERIALIZED VIEW {view}",
            f"VERIFY MATERIALIZED VIEW {view} AS OF {time}",
            f"VERIFY MATERIALIZED VIEW {view} ON duckdb",
        ):
            assert await env.query("a", sql) == "SELECT 0", sql
    await env.ran("a", "CREATE VIEW plain AS SELECT 1", "CREATE ROLE r")
    assert "42809" in await env.query("a", "VERIFY MATERIALIZED VIEW plain")
    assert "42P01" in await env.query("a", "VERIFY MATERIALIZED VIEW nothing")
    assert "0A000" in await env.query("a", "VERIFY MATERIALIZED VIEW sums ON hadoop")
    assert "0A000" in await env.query("a", "VERIFY MATERIALIZED VIEW reached ON spark")
    await env.ran("r", "SET SESSION AUTHORIZATION r")
    assert "42501" in await env.query("r", "VERIFY MATERIALIZED VIEW sums")
    await env.ran("a", "GRANT SELECT ON sums TO r")
    assert await env.query("r", "VERIFY MATERIALIZED VIEW sums") == "SELECT 0"


async def test_the_engine_that_is_named_is_asked(
    own_env: TestEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However few rows there are, also if indexes have them all."""
    env, asked = own_env, []
    for_query = FlowEngine.for_query

    def noted(engine: FlowEngine, choice: BulkChoice) -> Evaluator:
        asked.append(choice.engine)
        return for_query(engine, BulkChoice("duckdb"))

    monkeypatch.setattr(FlowEngine, "for_query", noted)
    await env.ran("a", "CREATE TABLE t (k int, v int)", "INSERT INTO t VALUES (1, 1)", *VIEWS)
    for sql in ("SELECT 1", "CREATE INDEX ON t (k)", "CREATE DEFAULT INDEX ON sums"):
        await env.ran("a", sql)
        for engine in ("spark", "duckdb"):
            verified = await env.query("a", f"VERIFY MATERIALIZED VIEW sums ON {engine}")
            assert (verified, asked.pop()) == ("SELECT 0", engine)
        assert await env.query("a", "VERIFY MATERIALIZED VIEW sums") == "SELECT 0"
        assert not asked


def doubled(write: ShardWrite) -> ShardWrite:
    """Return what a fault would write: each update twice."""
    updates = write.updates
    assert not isinstance(updates, FewUpdates)
    place = updates.num_columns - 1
    diffs = pc.multiply(updates.column(place), 2)
    return replace(write, updates=updates.set_column(place, updates.schema.field(place), diffs))


async def test_rows_that_differ_are_named_with_both_counts(
    own_env: TestEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = own_env
    await env.ran(
        "a", "CREATE TABLE t (k int, v int)", "INSERT INTO t VALUES (1, 1), (1, 2)", *VIEWS
    )
    await env.ran("a", "SELECT * FROM sums", "SELECT * FROM rows")
    coordinator = env.environment.coordinator
    (item,) = (each for each in coordinator.state.all(Item) if each.name == "rows")
    stored = await env.ran("a", "SELECT * FROM rows ORDER BY v")
    assert stored == "1|1|x1\n1|2|x2\nSELECT 2"
    append = env.storage.append

    def twice(writes: Sequence[ShardWrite]) -> Any:
        return append([doubled(write) if write.id == item.id else write for write in writes])

    monkeypatch.setattr(env.storage, "append", twice)
    await env.ran("a", "INSERT INTO t VALUES (2, 8), (2, 8), (3, 9)", "SELECT * FROM rows")
    monkeypatch.undo()
    differences = (await env.ran("a", "VERIFY MATERIALIZED VIEW rows")).splitlines()
    assert sorted(differences) == ["2|8|x8|2|4", "3|9|x9|1|2", "SELECT 2"]
    assert await env.query("a", "VERIFY MATERIALIZED VIEW sums") == "SELECT 0"
    auditor = Auditor(env.environment, random.Random(3))
    while len(coordinator.audits) < 3:
        await auditor.audit_one()
    await auditor.audit(item, coordinator.oracle.read_ts())
    audits = "SELECT name, differences, error FROM mz_internal.mz_view_audits JOIN mz_objects o ON o.id = object_id"
    found = (await env.ran("a", f"{audits} ORDER BY name")).splitlines()
    assert [found[0], *found[2:]] == ["reached|0|NULL", "sums|0|NULL", "SELECT 3"]
    assert found[1] == "rows|2|NULL"
    await auditor.audit(item, 1)
    assert "rows|NULL|22023 " in await env.ran("a", audits)


async def test_view_that_skips_errors_is_compared_without_the_rows_that_have_them(
    own_env: TestEnvironment,
) -> None:
    env = own_env
    skips = "WITH (ON ERROR = SKIP) AS"
    await env.ran(
        "a",
        "CREATE TABLE t (k int, v int)",
        "INSERT INTO t SELECT x % 3, x % 4 FROM generate_series(1, 20) AS g (x)",
        f"CREATE MATERIALIZED VIEW rows {skips} SELECT k, 10 / v AS q, 1 + 5 / v AS r FROM t",
        f"CREATE MATERIALIZED VIEW sums {skips} SELECT k, sum(10 / v) AS s FROM t GROUP BY k",
        f"CREATE MATERIALIZED VIEW few {skips} SELECT * FROM t WHERE 10 / v > 3",
        f"CREATE MATERIALIZED VIEW tops {skips} SELECT * FROM t ORDER BY 10 / v LIMIT 3",
        f"CREATE MATERIALIZED VIEW joined {skips} SELECT a.k FROM t a JOIN t b ON 5 / a.v = b.k",
    )
    for sql in ("SELECT 1", "DELETE FROM t WHERE v = 0 AND k = 1", "INSERT INTO t VALUES (0, 0)"):
        await env.ran("a", sql)
        for view in ("rows", "sums", "few", "tops", "joined"):
            assert await env.ran("a", f"SELECT * FROM {view}") != "SELECT 0"
            for on in ("", " ON duckdb"):
                sql = f"VERIFY MATERIALIZED VIEW {view}{on}"
                assert await env.query("a", sql) == "SELECT 0", sql
