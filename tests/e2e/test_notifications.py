"""LISTEN, NOTIFY and UNLISTEN, tried on Foreshore and on PostgreSQL alike."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import asyncpg
import psycopg
import pytest
from psycopg import errors

from tests.harness import Server
from tests.wire.raw import Raw

Connection = psycopg.Connection[Any]


@pytest.fixture
def sessions(url: str) -> Iterator[list[Connection]]:
    """Three sessions; the first two listen on channel a."""
    with ExitStack() as stack:
        made = [
            stack.enter_context(psycopg.connect(url, autocommit=True, application_name=f"s{i}"))
            for i in range(3)
        ]
        for each in made[:2]:
            each.execute("LISTEN a")
        yield made


def received(session: Connection, number: int) -> list[tuple[str, str]]:
    """Return so many notifications without a query of the session."""
    found = session.notifies(timeout=20, stop_after=number)
    return [(each.channel, each.payload) for each in found]


def repeat(run: Callable[[], None], times: int) -> None:
    """Call `run` so often."""
    for _ in range(times):
        run()


def nothing(session: Connection) -> None:
    """Assert that the session has nothing to receive: one to itself comes first."""
    session.execute("LISTEN own")
    session.execute("NOTIFY own, 'mine'")
    assert received(session, 1) == [("own", "mine")]


def test_notify_reaches_idle_listeners_with_the_senders_pid(sessions: list[Connection]) -> None:
    first, second, sender = sessions
    sender.execute("NOTIFY a, 'hello'")
    sender.execute("NOTIFY A")
    (found, empty) = first.notifies(timeout=20, stop_after=2)
    assert (found.pid, found.channel, found.payload) == (
        sender.info.backend_pid,
        "a",
        "hello",
    )
    assert empty.payload == ""
    assert received(second, 2) == [("a", "hello"), ("a", "")]
    nothing(sender)


def test_transaction_sends_at_commit_once_and_in_order(sessions: list[Connection]) -> None:
    first, _, sender = sessions
    sender.execute("CREATE TABLE IF NOT EXISTS notified (v int)")
    with sender.transaction():
        for payload in ("x", "y", "x"):
            sender.execute("SELECT pg_notify('a', %s)", [payload])
        with sender.transaction(force_rollback=True):
            sender.execute("NOTIFY a, 'of a savepoint'")
        sender.execute("INSERT INTO notified VALUES (1)")
        sender.execute("NOTIFY a, 'z'")
        nothing(first)
    assert received(first, 3) == [("a", "x"), ("a", "y"), ("a", "z")]
    sender.execute("DROP TABLE notified")


def test_transaction_that_fails_sends_and_hears_nothing(sessions: list[Connection]) -> None:
    first, second, sender = sessions
    sender.execute("BEGIN; NOTIFY a; LISTEN b")
    with pytest.raises(errors.DivisionByZero):
        sender.execute("SELECT 1 / 0")
    sender.execute("COMMIT")
    with pytest.raises(errors.DivisionByZero):
        sender.execute("NOTIFY a; SELECT 1 / 0")
    with first.transaction(force_rollback=True):
        first.execute("UNLISTEN a")
    first.execute("SELECT pg_notify(c, p) FROM (VALUES ('b', '1'), ('a', '2')) AS t (c, p)")
    assert received(first, 1) == received(second, 1) == [("a", "2")]
    nothing(sender)


def test_listener_in_a_block_receives_at_its_end(sessions: list[Connection]) -> None:
    first, _, sender = sessions
    got: list[str] = []
    first.add_notify_handler(lambda each: got.append(each.payload))
    with first.transaction():
        first.execute("SELECT 1")
        sender.execute("NOTIFY a, 'meanwhile'")
        first.execute("SELECT 2")
        assert got == []
    first.execute("SELECT 3")
    assert got == ["meanwhile"]


def test_listening_is_seen_and_ends(sessions: list[Connection]) -> None:
    first, second, sender = sessions
    channels = "SELECT * FROM pg_listening_channels() ORDER BY 1"
    with first.transaction():
        first.execute('LISTEN "B b"')
        assert first.execute(channels).fetchall() == [("a",)]
        first.execute("""NOTIFY "B b", 'to myself'""")
    assert first.execute(channels).fetchall() == [("B b",), ("a",)]
    assert received(first, 1) == [("B b", "to myself")]
    first.execute("UNLISTEN a")
    assert first.execute("SELECT pg_listening_channels()").fetchall() == [("B b",)]
    first.execute("UNLISTEN nosuch")
    first.execute("DISCARD ALL")
    second.execute("UNLISTEN *")
    assert first.execute(channels).fetchall() == second.execute(channels).fetchall() == []
    sender.execute("NOTIFY a")
    nothing(first)
    ((usage,),) = sender.execute("SELECT pg_notification_queue_usage()").fetchall()
    assert 0 <= usage < 0.1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["", "x"], "channel name cannot be empty"),
        ([None, "x"], "channel name cannot be empty"),
        (["c" * 64, "x"], "channel name too long"),
        (["c", "é" * 4000], "payload string too long"),
    ],
)
def test_wrong_arguments_are_refused(
    sessions: list[Connection], arguments: list[str | None], message: str
) -> None:
    with pytest.raises(errors.InvalidParameterValue, match=message):
        sessions[2].execute("SELECT pg_notify(%s, %s)", arguments)


def test_longest_payload_arrives(sessions: list[Connection]) -> None:
    payload = "é" * 3999 + "x"
    sessions[2].execute("SELECT pg_notify('a', %s)", [payload])
    assert received(sessions[0], 1) == [("a", payload)]


def test_many_notifications_arrive_in_the_order_of_commits(sessions: list[Connection]) -> None:
    first, second, sender = sessions
    for number in range(3):
        sender.execute(f"SELECT pg_notify('a', '{number}-' || i) FROM generate_series(1, 1000) i")
    expected = [("a", f"{number}-{i}") for number in range(3) for i in range(1, 1001)]
    assert received(first, 3000) == expected
    assert received(second, 3000) == expected


def test_asyncpg_listener_hears(url: str) -> None:
    async def listen() -> list[tuple[int, str, object]]:
        listener, sender = await asyncpg.connect(url), await asyncpg.connect(url)
        heard: asyncio.Queue[tuple[int, str, object]] = asyncio.Queue()

        def hear(connection: object, pid: int, channel: str, payload: object) -> None:
            heard.put_nowait((pid, channel, payload))

        await listener.add_listener("news", hear)
        await sender.execute("SELECT pg_notify($1, $2)", "news", "one")
        await sender.execute("NOTIFY news, 'two'")
        async with asyncio.timeout(20):
            got = [await heard.get(), await heard.get()]
        assert [pid for pid, _, _ in got] == [sender.get_server_pid()] * 2
        await listener.remove_listener("news", hear)
        await asyncio.gather(listener.close(), sender.close())
        return got

    assert [each[1:] for each in asyncio.run(listen())] == [("news", "one"), ("news", "two")]


def test_listener_that_does_not_read_stays_and_the_sender_fails(server: Server) -> None:
    many = "SELECT pg_notify('deaf', lpad(i::text, 7999)) FROM generate_series(1, 500) AS i"
    with server.connect() as sender, server.connect() as other:
        deaf = Raw(server.port)
        deaf.send("Q", b"LISTEN deaf\0")
        deaf.until("Z")
        other.execute("LISTEN deaf")

        def send() -> None:
            sender.execute(many)
            assert len(received(other, 500)) == 500

        with pytest.raises(errors.ProgramLimitExceeded, match="too many notifications in the NOT"):
            repeat(send, 40)
        sender.execute("SELECT 1")
        deaf.send("Q", b"UNLISTEN *\0")
        deaf.until("C")
        deaf.until("Z")
        sender.execute(many)
        assert len(received(other, 500)) == 500
