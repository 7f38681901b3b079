"""Planning for a client that has gone: it has a limit, for what is planned then and later."""

import asyncio

import pytest

from foreshore.adapter.statement import activity
from foreshore.adapter.statement.activity import ConnectionLost
from foreshore.errors import DatabaseError
from tests.adapter.harness import TestEnvironment

LONG = "VALUES " + ",".join("(1)" for _ in range(20_000))


@pytest.mark.parametrize("limit_s", [0, 3600])
@pytest.mark.parametrize("is_before", [True, False], ids=["gone before", "gone meanwhile"])
async def test_limit_ends_planning(
    env: TestEnvironment, monkeypatch: pytest.MonkeyPatch, is_before: bool, limit_s: float
) -> None:
    monkeypatch.setattr(activity, "PLANNING_S", limit_s)
    session = await env.session("gone")
    reasons: list[DatabaseError] = []

    def end(reason: DatabaseError) -> None:
        reasons.append(reason)
        task.cancel()

    session.interrupts.when_terminated(end)
    if is_before:
        assert session.outlives_client()
    task = asyncio.create_task(session.extended.parse("", LONG, ()))
    if not is_before:
        await asyncio.sleep(0)  # it begins
        assert session.outlives_client()
    if limit_s:
        await task
        assert not reasons
    else:
        with pytest.raises(asyncio.CancelledError):
            await task
        assert isinstance(reasons[0], ConnectionLost)
    await session.close()


async def test_session_that_has_ended_is_kept_by_no_timer(env: TestEnvironment) -> None:
    await env.session("checked")
    await env.ran("checked", "SET client_connection_check_interval = '20h'")
    session = env.sessions.pop("checked")
    assert session.outlives_client()
    timer = session.activity._gone_timer
    assert timer is not None
    assert not timer.cancelled()
    await session.close()
    assert timer.cancelled()
