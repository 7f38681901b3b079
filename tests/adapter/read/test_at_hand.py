"""Requests that are answered in the callback that receives them get the answers of the task."""

import asyncio
import gc
import struct
import weakref
from collections.abc import Sequence
from time import perf_counter
from typing import Any

import pytest

from foreshore.adapter.session.at_hand import StatementsAtHand
from foreshore.adapter.session.session import Session
from foreshore.server import turns
from foreshore.server.answers import Answers
from foreshore.server.at_hand import MOST, MOST_BYTES
from foreshore.server.connection import Conversation
from foreshore.server.lease import Lease
from foreshore.server.wire import Wire
from tests.adapter.harness import TestEnvironment

TABLES = (
    "DROP TABLE IF EXISTS t, other CASCADE",
    "CREATE TABLE t (k int PRIMARY KEY, s text, big bigint UNIQUE, n numeric(10, 2), d int)",
    "INSERT INTO t VALUES (1, 'one', 10, 1.5, 1), (2, NULL, NULL, 2, 0), (3, '', 30, 3, 1),"
    " (4, 'four', 40, 4, 0)",
    "CREATE VIEW v AS SELECT d, k, s, n FROM t",
    "CREATE INDEX v_by_d ON v (d)",
    "CREATE TABLE other (a int, b text, PRIMARY KEY (a, b))",
    "INSERT INTO other VALUES (1, 'x'), (2, 'y')",
)
AT_HAND = {
    "constant": "SELECT 1, 'a' AS b",
    "constants": "SELECT * FROM (VALUES (1, NULL), (2, 'z')) AS x ORDER BY 1 DESC",
    "row": "SELECT k, s, d FROM t WHERE k = $1",
    "big": "SELECT s FROM t WHERE big = $1",
    "sum": "SELECT k + d AS more FROM t WHERE k = $1",
    "filtered": "SELECT k FROM t WHERE k = $1 AND d > 0",
    "both": "SELECT * FROM other WHERE a = $1 AND b = $2",
    "view": "SELECT * FROM v WHERE d = $1",
    "some": "SELECT k FROM v WHERE d = $1 LIMIT 1",
    "none": "SELECT k FROM v WHERE d = $1 LIMIT 0",
    "numeric": "SELECT * FROM t WHERE k = $1",
    "now": "SELECT now() IS NULL FROM t WHERE k = $1",
    "first": "SELECT k, s FROM t WHERE k = $1 ORDER BY s LIMIT 1",
    "two": "SELECT k FROM t WHERE k IN ($1, 2) ORDER BY k DESC",
    "counted": "SELECT count(*), max(s) FROM t WHERE k = $1 OR k = 3",
    "there": "SELECT EXISTS (SELECT FROM t WHERE k = $1)",
    "joined": "SELECT t.n, o.b FROM t JOIN other o ON o.a = t.d AND o.b = 'x' WHERE t.k = $1",
    "left": "SELECT t.s, o.b FROM t LEFT JOIN other o ON o.a = t.k AND o.b = 'y' WHERE t.k = $1",
    "parameter": "SELECT $1::int + 1",
}
LEFT = {
    "failing": "SELECT 10 / d FROM t WHERE k = $1",
    "all": "SELECT k FROM t ORDER BY k",
    "locked": "SELECT k FROM t WHERE k = $1 FOR UPDATE",
    "insert": "INSERT INTO other VALUES ($1, 'new')",
}


class Transport:
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        self.written = bytearray()

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def get_extra_info(self, name: str) -> Any:
        return ("127.0.0.1", 1)

    def is_closing(self) -> bool:
        return False

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self) -> None:
        pass


class Client:
    """A client of a session, connected without a socket."""

    def __init__(self, session: Session, lease: Lease, answers: Answers | None = None) -> None:
        self.answers = answers or Answers()
        self.session = session
        self.transport = Transport()
        self.wire = Wire(lease, self._start)
        self.wire.connection_made(self.transport)  # type: ignore[arg-type]

    def _start(self, wire: Wire) -> asyncio.Task[None]:
        wire.reader.open()
        self.task = asyncio.get_running_loop().create_task(
            Conversation(wire, self.session, self.answers).run()
        )
        return self.task

    def take(self) -> bytes:
        """Return what has been answered since the last call."""
        taken = bytes(self.transport.written)
        self.transport.written.clear()
        return taken

    async def ready(self, times: int = 1) -> bytes:
        """Return what is answered up to so many ReadyForQuery."""
        async with asyncio.timeout(60):
            while self.transport.written.count(b"Z\0\0\0\x05") < times:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        return self.take()

    async def send(self, data: bytes) -> tuple[bytes, bytes]:
        """Return what is answered at once, and all up to ReadyForQuery."""
        await asyncio.sleep(0)
        self.wire.data_received(data)
        at_once = bytes(self.transport.written)
        return at_once, await self.ready()

    async def send_until_at_hand(self, data: bytes) -> bytes:
        """Return what is answered at once, sending it again while the task answers.

        On a busy machine a time often comes in between, for which a view is late, and the turn of
        this loop may be over.
        """
        async with asyncio.timeout(60):
            while True:
                at_once, answered = await self.send(data)
                if at_once:
                    assert at_once == answered
                    return answered


def frame(code: bytes, body: bytes = b"") -> bytes:
    return code + struct.pack("!i", len(body) + 4) + body


def parse(name: str, sql: str) -> bytes:
    return frame(b"P", name.encode() + b"\0" + sql.encode() + b"\0\0\0")


def bind(
    name: str,
    args: Sequence[bytes | None] = (),
    formats: Sequence[int] = (),
    results: Sequence[int] = (),
    portal: str = "",
) -> bytes:
    values = [
        struct.pack("!i", -1) if arg is None else struct.pack("!i", len(arg)) + arg for arg in args
    ]
    return frame(
        b"B",
        b"".join(
            (
                *(portal.encode(), b"\0", name.encode(), b"\0"),
                struct.pack(f"!h{len(formats)}h", len(formats), *formats),
                *(struct.pack("!h", len(args)), *values),
                struct.pack(f"!h{len(results)}h", len(results), *results),
            )
        ),
    )


def execute(most: int = 0) -> bytes:
    return frame(b"E", b"\0" + struct.pack("!i", most))


DESCRIBE = frame(b"D", b"P\0")
SYNC = frame(b"S")
FLUSH = frame(b"H")
READY = b"Z\0\0\0\x05I"


@pytest.fixture
def client(env: TestEnvironment, runner: asyncio.Runner) -> Any:
    async def connected() -> Client:
        await env.ran("s", *TABLES)
        lease = Lease(lambda: None, lambda: 0.0)
        await lease.renew()
        env.sessions.pop("client", None)
        client = Client(await env.session("client"), lease)
        await client.ready()
        for name, sql in (AT_HAND | LEFT).items():
            await client.send(parse(name, sql) + SYNC)
        await with_view(client)
        return client

    client = runner.run(connected())
    yield client

    async def ended() -> None:
        client.task.cancel()
        await asyncio.gather(client.task, return_exceptions=True)
        await client.session.close()
        env.sessions.pop("client", None)

    runner.run(ended())


ARGUMENTS: dict[str, Sequence[Sequence[bytes | None]]] = {
    "both": ([b"1", b"x"], [b"1", b"y"], [None, b"x"], [b"1", None]),
    "constant": ([],),
    "constants": ([],),
    "all": ([],),
    "insert": ([b"3"], [b"4"]),
}
VALUES = ([b"1"], [b"2"], [b"3"], [b" 3 "], [b"-1"], [b"99"], [None], [b"+4"], [b"99999999999"])


async def with_view(client: Client) -> None:
    """Wait until there is a mirror of the view that knows the newest time."""
    await client.send_until_at_hand(bind("view", [b"1"]) + execute() + SYNC)


async def test_answers_at_once_are_those_of_the_task(client: Client) -> None:
    for name in [*AT_HAND, *LEFT][:-1]:  # without the one that writes
        first = next(iter(ARGUMENTS.get(name, VALUES)))
        await client.send(bind(name, first) + execute() + SYNC)
        for args in ARGUMENTS.get(name, VALUES):
            for most in (0, 1, 2):
                for describe in (b"", DESCRIBE):
                    await with_view(client)
                    head = bind(name, args) + describe
                    at_once, answered = await client.send(head + execute(most) + SYNC)
                    if name == "insert":
                        await client.send(bind("undo") + execute() + SYNC)
                    assert at_once in (b"", answered)
                    # A Flush between leaves them to the task.
                    later, expected = await client.send(head + execute(most) + FLUSH + SYNC)
                    assert later == b""
                    if name == "insert":
                        assert b"23505" in expected  # the first was not undone
                        continue
                    assert answered == expected, (name, args)
                    if name in AT_HAND and b"22003" not in answered and not at_once:
                        assert await client.send_until_at_hand(head + execute(most) + SYNC)
                    if name in LEFT and name != "failing":  # which fails for some rows only
                        assert not at_once


async def test_binary_and_named_forms_are_answered_alike(client: Client) -> None:
    one = struct.pack("!i", 1)
    cases = [
        (bind("row", [one], [1], [1]), True),
        (bind("row", [one], [1], [1, 0, 1]), True),
        (bind("row", [b"1"], [0], [0, 0, 0]), True),
        (bind("row", [b"1x"], [1]), False),  # an error
        (bind("row", [b"x"]), False),
        (bind("row", [b"\xff"]), False),
        (bind("row", []), False),
        (bind("row", [b"1", b"1"]), False),
        (bind("row", [b"1"], [0, 0]), False),
        (bind("row", [b"1"], [7]), False),
        (bind("row", [b"1"], [], [0, 0]), False),
        (bind("absent", [b"1"]), False),
        (bind("both", [one, b"x"], [1, 0]), True),
        (bind("view", [one], [1], [1, 1, 0, 0]), True),
    ]
    await client.send(bind("both", [b"1", b"x"]) + execute() + SYNC)  # planned with the index
    await client.send(bind("row", [b"1"]) + execute() + SYNC)
    for message, is_at_hand in cases:
        request = message + DESCRIBE + execute() + SYNC
        if is_at_hand:
            answered = await client.send_until_at_hand(request)
        else:
            await with_view(client)
            at_once, answered = await client.send(request)
            assert at_once == b"", message
        _, expected = await client.send(message + DESCRIBE + execute() + FLUSH + SYNC)
        assert answered == expected, message
    named = bind("row", [b"1"], portal="p") + frame(b"E", b"p\0\0\0\0\0") + SYNC
    at_once, answered = await client.send(named)
    assert at_once == b""
    assert b"one" in answered


async def test_an_unforeseen_error_is_left_to_the_task(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not reach the transport, which would close the connection."""

    def fail(*_: object) -> None:
        raise RuntimeError

    request = bind("row", [b"1"]) + execute() + SYNC
    _, expected = await client.send(request)
    for method in ("holds", "statement"):
        with monkeypatch.context() as patch:
            patch.setattr(StatementsAtHand, method, fail)
            assert await client.send(request) == (b"", expected)
    assert await client.send_until_at_hand(request) == expected


async def test_unnamed_statement_and_query_are_answered_at_once(client: Client) -> None:
    for sql in (AT_HAND["constant"], "SELECT s FROM t WHERE k = 1"):
        again = parse("", sql) + bind("") + DESCRIBE + execute() + SYNC
        _, expected = await client.send(again)
        assert await client.send_until_at_hand(again) == expected
        query = frame(b"Q", sql.encode() + b"\0")
        _, expected = await client.send(query)
        assert await client.send_until_at_hand(query) == expected


async def test_pipeline_is_one_answer(client: Client) -> None:
    await with_view(client)
    parts = [
        bind("row", [b"1"]) + DESCRIBE + execute(),
        bind("view", [b"0"]) + execute(),
        bind("constant") + execute(1),
    ]
    answered = await client.send_until_at_hand(b"".join(parts) + SYNC)
    _, expected = await client.send(b"".join(parts) + FLUSH + SYNC)
    assert answered == expected


async def test_pipeline_left_to_the_task_keeps_its_first_unnamed_statement(client: Client) -> None:
    first, second, left = AT_HAND["constant"], AT_HAND["constants"], "SELECT count(*) FROM t"
    run = bind("") + execute()
    for sql in (first, second, left):  # into the plan cache
        await client.send(parse("", sql) + SYNC)
    for rest in (
        parse("", left) + run,
        parse("", second) + run + parse("", left) + run,
        parse("", "SELECT 2 AS never_seen") + run,
        parse("", "SELEC") + run,
    ):
        await client.send(parse("", first) + run + SYNC)
        at_once, answered = await client.send(run + rest + SYNC)
        assert at_once == b""
        await client.send(parse("", first) + run + SYNC)
        _, expected = await client.send(run + FLUSH + rest + SYNC)
        assert answered == expected
        assert b"SELECT 1" in answered


async def test_pipeline_with_a_write_is_left_as_a_whole(
    client: Client, env: TestEnvironment
) -> None:
    head = bind("row", [b"1"]) + execute() + bind("insert", [b"7"]) + execute()
    at_once, answered = await client.send(head + bind("failing", [b"2"]) + execute() + SYNC)
    assert at_once == b""
    assert b"one" in answered
    assert b"22012" in answered
    assert await env.ran("s", "SELECT count(*) FROM other WHERE a = 7") == "0\nSELECT 1"


async def test_read_sees_each_acknowledged_write(client: Client, env: TestEnvironment) -> None:
    for number in range(20):
        await env.ran("s", f"UPDATE t SET s = 'now {number}', d = 1 WHERE k = 1")
        for name in ("row", "view"):
            _, answered = await client.send(bind(name, [b"1"]) + execute() + SYNC)
            assert f"now {number}".encode() in answered


async def test_block_reads_its_own_writes_at_its_own_time(
    client: Client, env: TestEnvironment
) -> None:
    await client.send(frame(b"Q", b"BEGIN\0"))
    read = bind("row", [b"1"]) + execute() + SYNC
    _, before = await client.send(read)
    await env.ran("s", "UPDATE t SET s = 'other' WHERE k = 1")
    at_once, answered = await client.send(read)
    assert at_once == b""
    assert answered == before
    await client.send(frame(b"Q", b"ROLLBACK\0"))
    assert b"other" in await client.send_until_at_hand(read)


async def test_changed_definitions_are_noticed(client: Client, env: TestEnvironment) -> None:
    await env.ran("s", "DROP INDEX v_by_d", "ALTER TABLE other ADD COLUMN c int DEFAULT 5")
    _, answered = await client.send(bind("view", [b"1"]) + execute() + SYNC)
    assert b"one" in answered
    _, answered = await client.send(bind("both", [b"1", b"x"]) + execute() + SYNC)
    assert b"0A000" in answered  # its columns are others now
    await env.ran("s", "DROP TABLE other")
    _, answered = await client.send(bind("both", [b"1", b"x"]) + execute() + SYNC)
    assert b"42P01" in answered


async def test_settings_of_the_session_count(client: Client) -> None:
    await client.send(frame(b"Q", b"SET max_result_rows = 1\0"))
    at_once, answered = await client.send(bind("view", [b"1"]) + execute() + SYNC)
    assert at_once == b""
    assert b"C53200\0" in answered
    await client.send(frame(b"Q", b"RESET max_result_rows\0"))
    query = frame(b"Q", b"SET cluster_replica = 'absent'\0")
    await client.send(query)
    at_once, answered = await client.send(bind("view", [b"1"]) + execute() + SYNC)
    assert at_once == b""
    assert b"42704" in answered
    await client.send(frame(b"Q", b"SET emit_timestamp_notice = on\0"))
    at_once, answered = await client.send(bind("row", [b"1"]) + execute() + SYNC)
    assert at_once == b""
    assert b"query timestamp" in answered


async def test_many_requests_let_others_have_their_turn(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = bind("constant") + execute() + SYNC
    await client.send(request)  # planned with the index
    await asyncio.sleep(0)
    monkeypatch.setattr(turns, "SLICE_S", -1)  # over before it begins: one request
    client.wire.data_received(request * (3 * MOST + 1))
    assert client.transport.written.count(READY) == 1
    assert len(await client.ready(3 * MOST + 1)) % (3 * MOST + 1) == 0
    long = (bind("constant") + execute()) * (MOST + 1) + SYNC
    at_once, answered = await client.send(long)
    assert at_once == b""
    assert answered.count(b"SELECT 1\0") == MOST + 1


async def test_connections_share_the_slice_of_a_step(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = bind("constant") + execute() + SYNC
    await client.send(request)
    await asyncio.sleep(0)
    assert turns.turns_of_loop().has_time()  # another connection asks
    later = perf_counter() + 2 * turns.SLICE_S
    monkeypatch.setattr(turns, "perf_counter", lambda: later)
    client.wire.data_received(request * 5)
    assert client.transport.written.count(READY) == 1
    assert len(await client.ready(5)) % 5 == 0


async def test_long_answers_let_others_have_their_turn(
    client: Client, env: TestEnvironment
) -> None:
    await env.ran("s", f"UPDATE t SET s = repeat('x', {MOST_BYTES * 2 // 3}) WHERE k = 1")
    one = bind("row", [b"1"]) + execute()
    _, expected = await client.send(one + SYNC)
    await asyncio.sleep(0)
    client.wire.data_received((one + SYNC) * 5)
    assert client.transport.written.count(READY) == 2
    assert await client.ready(5) == expected * 5
    assert (
        await client.send_until_at_hand(one * 2 + SYNC) == expected.replace(READY, b"") * 2 + READY
    )
    at_once, answered = await client.send(one * 3 + SYNC)
    assert not at_once
    assert answered.count(b"SELECT 1\0") == 3


async def test_request_cut_anywhere_is_answered(client: Client) -> None:
    request = bind("row", [b"1"]) + DESCRIBE + execute() + SYNC
    _, expected = await client.send(request)
    for cut in range(1, len(request)):
        client.wire.data_received(request[:cut])
        if cut % 2:
            await asyncio.sleep(0)
        client.wire.data_received(request[cut:])
        assert await client.ready() == expected, cut


async def test_answer_waits_for_the_lease(client: Client) -> None:
    lease = client.wire._lease
    lease._from = lease._until = 0.0
    await asyncio.sleep(0)
    client.wire.data_received(bind("row", [b"1"]) + execute() + SYNC)
    await asyncio.sleep(0.05)
    assert not client.transport.written
    await lease.renew()
    assert b"one" in await client.ready()


async def test_activity_is_shown(client: Client, env: TestEnvironment) -> None:
    await client.send(bind("both", [b"1", b"x"]) + execute() + SYNC)
    shown = await env.ran(
        "s", f"SELECT state, query FROM pg_stat_activity WHERE pid = {client.session.pid}"
    )
    assert shown == f"idle|{AT_HAND['both']}\nSELECT 1"


async def test_repeated_request_is_answered_as_the_task_does_after_any_change(
    client: Client, env: TestEnvironment
) -> None:
    """Answers that were sent before are sent again only while they hold."""
    names = ("row", "view", "at")
    requests = [bind(name, [b"1"]) + DESCRIBE + execute() + SYNC for name in names]
    await env.ran("s", "ALTER TABLE t ADD COLUMN at timestamptz DEFAULT '2020-01-01 12:00+00'")
    await client.send(parse("at", "SELECT at, 1.5::float8 FROM t WHERE k = $1") + SYNC)

    async def check() -> None:
        for request in requests:
            _, found = await client.send(request)
            _, expected = await client.send(request[: -len(SYNC)] + FLUSH + SYNC)
            for _ in range(2):
                at_once, answered = await client.send(request)
                assert at_once in (b"", answered)
                assert answered == found == expected

    await with_view(client)
    await check()
    for change in (
        "UPDATE t SET s = 'changed' WHERE k = 1",
        "UPDATE t SET d = 7 WHERE k = 3",
        "DELETE FROM t WHERE k = 1",
        "INSERT INTO t VALUES (1, 'back', 10, 1.5, 1)",
        "INSERT INTO t SELECT g, 'more', NULL, 0, 1 FROM generate_series(100, 140) g",
        "UPDATE t SET s = s || '!'",
        "CREATE INDEX ON v (k)",
        "CREATE TABLE another (a int)",
    ):
        await env.ran("s", change)
        await check()
    session_changes = ("SET TimeZone = 'Asia/Kolkata'", "SET DateStyle = 'German'", "RESET ALL")
    for change in session_changes:
        await client.send(frame(b"Q", change.encode() + b"\0"))
        await check()


async def test_answers_keep_no_rows_of_dropped_tables(client: Client, env: TestEnvironment) -> None:
    await with_view(client)
    for name in ("row", "view"):
        await client.send_until_at_hand(bind(name, [b"1"]) + execute() + SYNC)
    coordinator, statements = client.session.coordinator, client.session.statements
    read, index_point = statements["row"].row_read, statements["view"].index_point
    assert read is not None
    assert index_point is not None
    mirror = None
    async with asyncio.timeout(60):
        while mirror is None:  # it is late for a moment
            await asyncio.sleep(0)
            now = coordinator.oracle.read_ts()
            mirror = coordinator.compute.mirrors.knowing(index_point.index, now)
    held: list[weakref.ref[Any]] = [weakref.ref(mirror)]
    held += [
        weakref.ref(each.arrangement) for each in coordinator.keys.of(read.tables[0].table).values()
    ]
    del mirror
    await env.ran("s", "DROP TABLE t CASCADE")
    async with asyncio.timeout(20):
        while any(each() is not None for each in held):
            gc.collect()
            await asyncio.sleep(0.01)


async def test_connections_share_answers_and_not_statements(
    client: Client, env: TestEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = Lease(lambda: None, lambda: 0.0)
    await lease.renew()
    env.sessions.pop("other", None)
    other = Client(await env.session("other"), lease, client.answers)
    await other.ready()
    for name, sql in (("row", "SELECT d FROM t WHERE k = $1"), ("same", AT_HAND["row"])):
        await other.send(parse(name, sql) + SYNC)
    request, same = (bind(name, [b"1"]) + execute() + SYNC for name in ("row", "same"))
    for _ in range(3):
        for one, is_theirs in ((client, False), (other, True)):
            _, answered = await one.send(request)
            assert (b"one" in answered) != is_theirs
    _, expected = await client.send(request)
    monkeypatch.setattr(StatementsAtHand, "rows", None)
    assert await other.send(same) == (expected, expected)
    other.task.cancel()
    await other.session.close()
    env.sessions.pop("other", None)
