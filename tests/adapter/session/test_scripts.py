"""Texts of several statements are parsed and planned once, and mean what they mean then."""

import pytest

from foreshore.adapter.session.planner import SessionPlanner
from tests.adapter.harness import TestEnvironment

RESET = "SELECT pg_advisory_unlock_all();\nCLOSE ALL;\nUNLISTEN *;\nRESET ALL;"


async def test_text_is_planned_once_for_all_sessions(
    own_env: TestEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned: list[str] = []
    prepare = SessionPlanner._prepare

    def noted(self: SessionPlanner, prepared: object) -> None:
        planned.append(prepared.syntax.text)  # type: ignore[attr-defined]
        prepare(self, prepared)  # type: ignore[arg-type]

    monkeypatch.setattr(SessionPlanner, "_prepare", noted)
    first = await own_env.query("a", RESET)
    assert len(planned) == 4
    for session in ("a", "b"):
        assert await own_env.query(session, RESET) == first
    assert len(planned) == 4


async def test_statements_see_what_those_before_have_done(own_env: TestEnvironment) -> None:
    text = "CREATE TABLE IF NOT EXISTS t (a int); INSERT INTO t VALUES (1); SELECT count(*) FROM t"
    for count in (1, 2, 3):
        answer = await own_env.query("a", text)
        assert f"INSERT 0 1\n{count}\nSELECT 1" in answer, answer
    await own_env.ran("a", "DROP TABLE t", "CREATE TABLE t (a text)")
    assert "INSERT 0 1\n1\nSELECT 1" in await own_env.query("a", text)


async def test_errors_have_their_place_in_the_text(own_env: TestEnvironment) -> None:
    session = await own_env.session("a")
    for text in ("SELECT 1; SELECT nothing", "SELECT 12345; SELECT nothing"):
        for _ in range(2):
            with pytest.raises(Exception, match="nothing") as raised:
                async for _ in session.simple(text):
                    pass
            assert raised.value.position == text.index("nothing") + 1  # type: ignore[attr-defined]
            await session.fail()


async def test_failed_block_refuses_known_statements(own_env: TestEnvironment) -> None:
    text = "SELECT 1; SELECT 2"
    assert await own_env.query("a", text) == "1\nSELECT 1\n2\nSELECT 1"
    await own_env.query("a", "BEGIN")
    await own_env.query("a", "SELECT 1 / 0")
    assert "25P02" in await own_env.query("a", text)
    await own_env.ran("a", "ROLLBACK")


async def test_rights_to_settings_count_where_a_plan_is_known(own_env: TestEnvironment) -> None:
    await own_env.ran("a", "CREATE ROLE plain LOGIN")
    for text in ("SHOW data_directory", "SELECT 1; SHOW data_directory"):
        assert "ERROR" not in await own_env.query("a", text)
        await own_env.ran("b", "SET ROLE plain")
        assert "42501" in await own_env.query("b", text)
        await own_env.ran("b", "RESET ROLE")


@pytest.mark.parametrize("verb", ["COMMIT", "ROLLBACK"])
async def test_chain_needs_a_block(own_env: TestEnvironment, verb: str) -> None:
    refused = f"ERROR 25P01: {verb} AND CHAIN can only be used in transaction blocks"
    assert (await own_env.query("a", f"{verb} AND CHAIN")).startswith(refused)
    assert (await own_env.query("a", f"SELECT 1; {verb} AND CHAIN")).endswith(refused)
    session = await own_env.session("a")
    assert session.transaction_status == "I"
    await own_env.ran("a", "BEGIN", f"{verb} AND CHAIN")
    assert session.transaction_status == "T"
    await own_env.ran("a", verb)
    assert session.transaction_status == "I"
