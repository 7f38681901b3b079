"""What of sessions and statements is logged."""

import logging
from pathlib import Path

import pytest

from tests.adapter.harness import TestEnvironment, in_environment

SLOW = "slow statement"


def logged(caplog: pytest.LogCaptureFixture, message: str) -> list[logging.LogRecord]:
    return [each for each in caplog.records if each.message == message]


def test_statements_are_logged_from_a_duration_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def scenario(env: TestEnvironment) -> None:
        await env.ran("s", "CREATE TABLE t (k int PRIMARY KEY, v text)")
        assert not logged(caplog, SLOW)
        await env.ran("s", "SET log_min_duration_statement = '1h'", "INSERT INTO t VALUES (1, 'a')")
        assert not logged(caplog, SLOW)
        await env.ran("s", "SET log_min_duration_statement = 0", "SELECT v FROM t WHERE k = 1")
        await env.ran("s", "ALTER ROLE foreshore PASSWORD 'hunter2hunter2'")
        assert "22012" in await env.query("s", "SELECT 1 / (k - 1) FROM t")
        assert await env.query("s", "SHOW log_min_duration_statement") == "0\nSHOW"
        await env.ran("s", "SET log_min_duration_statement = -1", "SELECT 42")

    in_environment(tmp_path, scenario)
    records = [vars(each) for each in logged(caplog, SLOW)]
    texts = [each["statement"] for each in records]
    assert "SELECT v FROM t WHERE k = 1" in texts
    assert "SELECT 42" not in texts
    assert not any("hunter2" in text for text in texts)
    assert {each["role"] for each in records} == {"foreshore"}
    assert all(each["duration_ms"] >= 0 for each in records)
    (failed,) = (each for each in records if "sqlstate" in each)
    assert failed["sqlstate"] == "22012"


def test_statements_are_logged_by_kind_and_if_they_fail(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def scenario(env: TestEnvironment) -> None:
        await env.ran("s", "SET log_statement = ddl", "CREATE TABLE t (k int PRIMARY KEY)")
        await env.ran("s", "INSERT INTO t VALUES (1)", "SET log_statement = mod")
        await env.ran("s", "INSERT INTO t VALUES (2)", "SELECT * FROM t", "TRUNCATE t")
        await env.query("s", "SELECT 1 / 0")
        await env.ran("s", "SET log_statement = 'all'", "SELECT 7", "SET log_statement = none")
        await env.ran("s", "SET log_min_error_statement = error", "SELECT 8")
        await env.query("s", "SELECT 2 / 0")
        assert "22023" in await env.query("s", "SET log_statement = 'some'")

    in_environment(tmp_path, scenario)
    assert [vars(each)["statement"] for each in logged(caplog, "statement")] == [
        "CREATE TABLE t (k int PRIMARY KEY)",
        "INSERT INTO t VALUES (2)",
        "TRUNCATE t",
        "SET log_statement = 'all'",
        "SELECT 7",
    ]
    (failed, _) = (vars(each) for each in logged(caplog, "statement failed"))
    assert (failed["statement"], failed["sqlstate"]) == ("SELECT 2 / 0", "22012")
    assert failed["error"] == "division by zero"


def test_sessions_are_logged_if_asked(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def scenario(env: TestEnvironment) -> None:
        await env.ran("a", "SELECT 1", "ALTER SYSTEM SET log_connections = on")
        await env.ran("a", "ALTER SYSTEM SET log_disconnections = on")
        await env.ran("b", "SELECT 1")
        env.environment.forget(env.sessions["b"])

    in_environment(tmp_path, scenario)
    (begun,), (ended, *_) = logged(caplog, "session begun"), logged(caplog, "session ended")
    assert vars(begun)["session"] == vars(ended)["session"]
    assert (vars(begun)["role"], vars(begun)["database"]) == ("foreshore", "foreshore")


def test_setting_is_for_superusers(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await env.ran("s", "CREATE ROLE joe LOGIN", "SET ROLE joe")
        assert "42501" in await env.query("s", "SET log_min_duration_statement = 0")

    in_environment(tmp_path, scenario)
