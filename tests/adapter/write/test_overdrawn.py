"""A statement may not take away more rows of a key than there are, whatever made it try."""

from __future__ import annotations

import asyncio

import pyarrow as pa
import pytest

from foreshore.adapter.write.tables import plan_of_table, write_rows
from foreshore.errors import InternalError
from foreshore.ids import GlobalId
from foreshore.rows import counted, negated
from tests.adapter.harness import TestEnvironment


def id_of(env: TestEnvironment, name: str) -> GlobalId:
    state = env.environment.coordinator.state
    return next(item.id for item in state.items() if item.name == name)


@pytest.mark.parametrize("new", [[], [7], [7, 7]])
@pytest.mark.parametrize("before", ["SELECT 1", "UPDATE t SET v = v", "INSERT INTO t VALUES (3,3)"])
def test_a_row_is_not_taken_away_twice(
    runner: asyncio.Runner, env: TestEnvironment, before: str, new: list[int]
) -> None:
    async def scenario() -> None:
        await env.query("s", "DROP TABLE IF EXISTS t; CREATE TABLE t (k int PRIMARY KEY, v int)")
        await env.query("s", "INSERT INTO t VALUES (1, 1), (2, 2)")
        await env.query("s", f"BEGIN; SELECT count(*) FROM t; {before}")
        session, id = await env.session("s"), id_of(env, "t")
        context = session.context()
        planned = plan_of_table(context, id)
        schema = planned.desc.stored_schema()

        def rows(values: list[int]) -> pa.Table:
            columns = [pa.array([1] * len(values), pa.int32()), pa.array(values, pa.int32())]
            return counted(pa.Table.from_arrays(columns, schema=schema))

        with pytest.raises(InternalError):
            await write_rows(context, id, planned, negated(rows([1, 1])), rows(new))
        await write_rows(context, id, planned, negated(rows([1])), rows(new[:1]))
        if not new:
            with pytest.raises(InternalError):
                await write_rows(context, id, planned, negated(rows([1])))
        assert await env.query("s", "COMMIT") == "COMMIT"
        left = await env.query("s", "SELECT v FROM t WHERE k = 1")
        assert left == ("7\nSELECT 1" if new else "SELECT 0")

    runner.run(scenario())


def test_what_others_have_taken_away_is_a_conflict(
    runner: asyncio.Runner, env: TestEnvironment
) -> None:
    async def scenario() -> None:
        await env.query("s", "DROP TABLE IF EXISTS t; CREATE TABLE t (k int PRIMARY KEY, v int)")
        await env.query("s", "INSERT INTO t VALUES (1, 1), (2, 2)")
        await env.query("s", "BEGIN; SELECT count(*) FROM t")
        await env.query("other", "DELETE FROM t WHERE k = 1")
        assert await env.query("s", "DELETE FROM t WHERE v = 1") == "DELETE 1\nT"
        assert (await env.query("s", "COMMIT")).startswith("ERROR 40001")

    runner.run(scenario())
