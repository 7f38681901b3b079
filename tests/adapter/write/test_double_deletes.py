"""A statement cannot delete more rows of a key than exist."""

from __future__ import annotations

import pytest

from foreshore.adapter.write.stage_changes import stage
from foreshore.adapter.write.target import target_of
from foreshore.errors import InternalError
from foreshore.ids import GlobalId
from foreshore.table_rows import TableRows
from tests.adapter.harness import TestEnvironment


def id_of(env: TestEnvironment, name: str) -> GlobalId:
    state = env.environment.coordinator.state
    return next(item.id for item in state.items() if item.name == name)


@pytest.mark.parametrize("new", [[], [7], [7, 7]])
@pytest.mark.parametrize("before", ["SELECT 1", "UPDATE t SET v = v", "INSERT INTO t VALUES (3,3)"])
async def test_deleting_a_row_twice_is_refused(
    env: TestEnvironment, before: str, new: list[int]
) -> None:
    await env.query("s", "DROP TABLE IF EXISTS t; CREATE TABLE t (k int PRIMARY KEY, v int)")
    await env.query("s", "INSERT INTO t VALUES (1, 1), (2, 2)")
    await env.query("s", f"BEGIN; SELECT count(*) FROM t; {before}")
    session, id = await env.session("s"), id_of(env, "t")
    context = session.context()
    target = target_of(context, id)

    def rows(values: list[int]) -> TableRows:
        return TableRows(target.desc, [(1, value) for value in values])

    with pytest.raises(InternalError):
        await stage(context, target, deleted=rows([1, 1]), inserted=rows(new))
    await stage(context, target, deleted=rows([1]), inserted=rows(new[:1]))
    if not new:
        with pytest.raises(InternalError):
            await stage(context, target, deleted=rows([1]))
    assert await env.query("s", "COMMIT") == "COMMIT"
    left = await env.query("s", "SELECT v FROM t WHERE k = 1")
    assert left == ("7\nSELECT 1" if new else "SELECT 0")


async def test_commit_after_others_deleted_the_row_is_a_conflict(env: TestEnvironment) -> None:
    await env.query("s", "DROP TABLE IF EXISTS t; CREATE TABLE t (k int PRIMARY KEY, v int)")
    await env.query("s", "INSERT INTO t VALUES (1, 1), (2, 2)")
    await env.query("s", "BEGIN; SELECT count(*) FROM t")
    await env.query("other", "DELETE FROM t WHERE k = 1")
    assert await env.query("s", "DELETE FROM t WHERE v = 1") == "DELETE 1\nT"
    assert (await env.query("s", "COMMIT")).startswith("ERROR 40001")
