"""Statements of a long Query message: all are parsed before one runs, and few are kept parsed."""

import pytest

from foreshore.sql.parse import pieces, script
from tests.adapter.harness import TestEnvironment

INSERTS = [f"INSERT INTO t VALUES ({i})" for i in range(20)]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "PIECE", 60)
    monkeypatch.setattr(script, "KEPT", 3)


async def test_statements_of_all_pieces_run_in_order(env: TestEnvironment) -> None:
    await env.ran("a", "DROP TABLE IF EXISTS t", "CREATE TABLE t (i int)")
    said = await env.query("a", ";".join([*INSERTS, "SELECT count(*) AS n, max(i) FROM t"]))
    assert said.splitlines()[:20] == ["INSERT 0 1"] * 20
    assert "20" in said
    assert "19" in said


async def test_syntax_error_in_a_late_piece_lets_nothing_run(env: TestEnvironment) -> None:
    await env.ran("a", "DROP TABLE IF EXISTS t", "CREATE TABLE t (i int)")
    said = await env.query("a", ";".join([*INSERTS, "INSER INTO t VALUES (1)"]))
    assert said == 'ERROR 42601: syntax error at or near "INSER"'
    assert "0" in await env.query("a", "SELECT count(*) FROM t")


async def test_error_in_a_late_piece_undoes_what_ran(env: TestEnvironment) -> None:
    await env.ran("a", "DROP TABLE IF EXISTS t", "CREATE TABLE t (i int)")
    said = await env.query("a", ";".join([*INSERTS, "SELECT 1 / 0 FROM t"]))
    assert "ERROR 22012: division by zero" in said
    assert "0" in await env.query("a", "SELECT count(*) FROM t")


async def test_several_statements_cannot_be_prepared(env: TestEnvironment) -> None:
    session = await env.session("a")
    with pytest.raises(Exception, match="cannot insert multiple commands"):
        await session.parse("", ";".join(["SELECT 1"] * 30), ())
