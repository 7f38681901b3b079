"""mz_internal.mz_recent_activity_log shows the statements that have ended, to whom it may."""

import threading
from pathlib import Path

import pytest

from foreshore.adapter.client import Completed
from foreshore.adapter.introspection import statement_history
from foreshore.errors import DatabaseError
from foreshore.redaction import MOST_SHOWN, without_literals
from foreshore.statement_history import MOST, StatementHistory, Who
from tests.adapter.harness import TestEnvironment, in_environment

LOG = "mz_internal.mz_recent_activity_log"


def test_statements_are_kept_with_their_results(tmp_path: Path) -> None:
    async def play(env: TestEnvironment) -> None:
        await env.ran(
            "a",
            "CREATE TABLE t (id int PRIMARY KEY, v text)",
            "SET application_name = 'tool'",
            "INSERT INTO t VALUES (1, 'x'), (2, 'y')",
            "SELECT * FROM t",
        )
        await env.query("a", "SELECT 1 / (id - id) FROM t WHERE v = 'x'")
        await env.ran("a", "CREATE ROLE reader PASSWORD 'hidden'")
        query = (
            "SELECT finished_status, sqlstate, rows_returned, command_tag, application_name, sql,"
            f" redacted_sql FROM {LOG} WHERE finished_at >= began_at ORDER BY execution_id"
        )
        assert (await env.query("a", query)).splitlines()[1:-1] == [
            "success|NULL|NULL|SET|tool|SET application_name = 'tool'|SET application_name = <REDACTED>",
            "success|NULL|NULL|INSERT 0 2|tool|INSERT INTO t VALUES (1, 'x'), (2, 'y')"
            "|INSERT INTO t VALUES (<REDACTED>, <REDACTED>), (<REDACTED>, <REDACTED>)",
            "success|NULL|2|NULL|tool|SELECT * FROM t|SELECT * FROM t",
            "error|22012|NULL|NULL|tool|SELECT 1 / (id - id) FROM t WHERE v = 'x'"
            "|SELECT <REDACTED> / (id - id) FROM t WHERE v = <REDACTED>",
            "success|NULL|NULL|CREATE ROLE|tool|CREATE ROLE reader PASSWORD '...'"
            "|CREATE ROLE reader PASSWORD <REDACTED>",
        ]

    in_environment(tmp_path, play)


def test_other_roles_see_their_own_statements_or_all_with_the_right(tmp_path: Path) -> None:
    async def play(env: TestEnvironment) -> None:
        await env.ran("a", "CREATE ROLE reader", "CREATE ROLE watcher")
        await env.ran("a", "GRANT pg_monitor TO watcher")
        own, count = f"SELECT DISTINCT authenticated_user FROM {LOG}", f"SELECT count(*) FROM {LOG}"
        await env.ran("b", "SET SESSION AUTHORIZATION reader", "SELECT 7")
        assert (await env.query("b", own)).splitlines()[0] == "reader"
        refused = await env.query("b", "SET statement_logging_sample_rate = 0")
        assert refused.startswith("ERROR 42501")
        await env.ran("c", "SET SESSION AUTHORIZATION watcher")
        assert "reader" in (await env.query("c", own)).splitlines()
        await env.ran("a", "SET statement_logging_sample_rate = 0")
        before = await env.query("b", count)
        await env.ran("a", "SELECT 'unseen'")
        assert "unseen" not in await env.query("c", f"SELECT sql FROM {LOG}")
        assert before != await env.query("b", count)  # its own go on

    in_environment(tmp_path, play)


async def test_prepared_statement_is_kept_once_with_its_error(own_env: TestEnvironment) -> None:
    await own_env.ran("a", "CREATE TABLE t (id int PRIMARY KEY)")
    session = await own_env.session("a")
    await session.extended.parse("i", "INSERT INTO t VALUES ($1)", ())
    for value in (1, 2):
        await session.extended.bind("", "i", [value], ())
        assert isinstance(await session.extended.execute("", 0, last=True), Completed)
        await session.extended.sync()
    query = f"SELECT count(*), max(command_tag) FROM {LOG} WHERE sql LIKE 'INSERT%'"
    assert (await own_env.query("b", query)).splitlines()[0] == "2|INSERT 0 1"


async def test_empty_text_ends_and_is_not_kept(own_env: TestEnvironment) -> None:
    session = await own_env.session("s")
    await own_env.query("s", " ; -- nothing")
    assert not session.interrupts.active
    kept = (
        await own_env.query("t", f"SELECT sql FROM {LOG} WHERE sql LIKE '%nothing%'")
    ).splitlines()
    assert kept[-1] == "SELECT 0", kept


async def test_texts_are_searched_for_secrets_on_a_thread(
    own_env: TestEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = set()

    def redacted(text: str, sqlstate: str | None) -> str:
        threads.add(threading.get_ident())
        return text

    monkeypatch.setattr(statement_history, "redacted", redacted)
    await own_env.ran("a", "CREATE TABLE t (id int)", f"SELECT count(*) FROM {LOG}")
    await own_env.ran("a", f"SELECT sql FROM {LOG} JOIN t ON t.id = connection_id")
    assert threads
    assert threading.get_ident() not in threads


def test_history_is_bounded_and_sampled() -> None:
    history, who = StatementHistory(), Who("u1", "a", "d", "", 1)
    for number in range(MOST + 7):
        history.add(who, "1", str(number), 0, 1)
    assert len(history.entries) == MOST
    assert history.entries[-1].text == str(MOST + 6)
    history.add(who, "1", "x" * 100_000, 0, 1, error=DatabaseError("y" * 100_000))
    assert len(history.entries[-1].text) == len(history.entries[-1].message or "") == MOST_SHOWN
    sampled = StatementHistory()
    for _ in range(2000):
        sampled.add(who, "0.1", "", 0, 1)
    assert 100 < len(sampled.entries) < 400


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('SELECT a1, $1, "b 2", t.c2, x_9', 'SELECT a1, $1, "b 2", t.c2, x_9'),
        ("v = -3.5e7 AND w='it''s'", "v = -<REDACTED> AND w=<REDACTED>"),
        ("E'x\\'y', $$q 1$$, $a$ 'b $a$, u&'c', n'5'", ", ".join(["<REDACTED>"] * 5)),
        ("f(1) -- 5\n/* 'x' */", "f(<REDACTED>)  \n "),
        ("'not closed", "<REDACTED>"),
    ],
)
def test_literals_are_hidden(text: str, shown: str) -> None:
    assert without_literals(text) == shown
