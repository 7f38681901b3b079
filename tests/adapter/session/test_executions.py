"""Executions of prepared statements: answered as messages handled one by one, and when they arrive."""

import asyncio
import gc
import struct
import weakref
from collections.abc import Sequence
from time import perf_counter
from typing import Any

import pytest

from foreshore.adapter.client import Startup
from foreshore.adapter.session.session import Session
from foreshore.errors import InternalError, QueryCanceled
from foreshore.server import turns
from foreshore.server.executions import MOST
from tests.adapter.harness import TestEnvironment, until
from tests.memory_client import (
    DESCRIBE,
    READY,
    SYNC,
    MemoryClient,
    bind,
    execute,
    frame,
    parse,
    query,
)

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
EAGER = {
    "constant": "SELECT 1, 'a' AS b",
    "constants": "SELECT * FROM (VALUES (1, NULL), (2, 'z')) AS x ORDER BY 1 DESC",
    "row": "SELECT k, s, d FROM t WHERE k = $1",
    "big": "SELECT s FROM t WHERE big = $1",
    "sum": "SELECT k + d AS more FROM t WHERE k = $1",
    "filtered": "SELECT k FROM t WHERE k = $1 AND d > 0",
    "both": "SELECT * FROM other WHERE a = $1 AND b = $2",
    "view": "SELECT * FROM v WHERE d = $1 ORDER BY k",
    "some": "SELECT k FROM v WHERE d = $1 ORDER BY k LIMIT 1",
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
WAITING = {
    "failing": "SELECT 10 / d FROM t WHERE k = $1",
    "all": "SELECT k FROM t ORDER BY k",
    "locked": "SELECT k FROM t WHERE k = $1 FOR UPDATE",
    "insert": "INSERT INTO other VALUES ($1, 'new')",
}
# Of an index, which is late for a moment now and then.
OF_VIEW = ("view", "some", "none")


@pytest.fixture
def client(env: TestEnvironment, runner: asyncio.Runner) -> Any:
    async def connected() -> MemoryClient:
        await env.ran("s", *TABLES)
        env.sessions.pop("client", None)
        client = await MemoryClient.connect(await env.session("client"))
        for name, sql in (EAGER | WAITING).items():
            await client.send(parse(name, sql) + SYNC)
        return client

    client = runner.run(connected())
    yield client
    runner.run(client.close())
    env.sessions.pop("client", None)


ARGUMENTS: dict[str, Sequence[Sequence[bytes | None]]] = {
    "both": ([b"1", b"x"], [b"1", b"y"], [None, b"x"], [b"1", None]),
    "constant": ([],),
    "constants": ([],),
    "all": ([],),
    "insert": ([b"3"], [b"4"]),
}
VALUES = ([b"1"], [b"2"], [b"3"], [b" 3 "], [b"-1"], [b"99"], [None], [b"+4"], [b"99999999999"])


async def test_executions_are_answered_as_single_messages(client: MemoryClient) -> None:
    for name in [*EAGER, *WAITING]:
        for args in ARGUMENTS.get(name, VALUES):
            for most in (0, 1, 2):
                for describe in (b"", DESCRIBE):
                    head = bind(name, args) + describe
                    answered = await client.send(head + execute(most) + SYNC)
                    if name == "insert":
                        await client.send(query("DELETE FROM other WHERE b = 'new'"))
                    # A message that is split is no part of executions.
                    expected = await client.send(
                        bind(name, args, portal="p")
                        + describe.replace(b"P\0", b"Pp\0").replace(b"\0\0\0\x06", b"\0\0\0\x07")
                        + frame(b"E", b"p\0" + struct.pack("!i", most))
                        + SYNC
                    )
                    if name == "insert":
                        await client.send(query("DELETE FROM other WHERE b = 'new'"))
                    assert answered == expected, (name, args, most)


async def test_reads_by_keys_are_answered_when_they_arrive(client: MemoryClient) -> None:
    for name in EAGER:
        first = next(iter(ARGUMENTS.get(name, VALUES)))
        request = bind(name, first) + execute() + SYNC
        expected = await client.send(request)
        if name not in OF_VIEW:
            assert await client.send_until_at_once(request) == expected, name


async def test_wrong_messages_are_answered_as_ever(client: MemoryClient) -> None:
    one = struct.pack("!i", 1)
    cases = [
        (bind("row", [one], [1], [1]), b""),
        (bind("row", [one], [1], [1, 0, 1]), b""),
        (bind("row", [b"1"], [0], [0, 0, 0]), b""),
        (bind("both", [one, b"x"], [1, 0]), b""),
        (bind("view", [one], [1], [1, 1, 0, 0]), b""),
        (bind("row", [b"1x"], [1]), b"22P03"),
        (bind("row", [b"x"]), b"22P02"),
        (bind("row", [b"\xff"]), b"22021"),
        (bind("row", []), b"08P01"),
        (bind("row", [b"1", b"1"]), b"08P01"),
        (bind("row", [b"1"], [0, 0]), b"08P01"),
        (bind("row", [b"1"], [7]), b"22023"),
        (bind("row", [b"1"], [], [0, 0]), b"08P01"),
        (bind("absent", [b"1"]), b"26000"),
    ]
    for message, error in cases:
        answered = await client.send(message + DESCRIBE + execute() + SYNC)
        assert (b"SERROR" in answered) == bool(error), message
        assert error in answered, message


async def test_unforeseen_error_ends_the_statement_only(
    client: MemoryClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise InternalError("no")

    request = bind("row", [b"1"]) + execute() + SYNC
    expected = await client.send(request)
    with monkeypatch.context() as patch:
        patch.setattr(Session, "attempt", fail)
        assert b"XX000" in await client.send(request)
    assert await client.send(request) == expected


async def test_unnamed_statement_and_query_are_answered_when_they_arrive(
    client: MemoryClient,
) -> None:
    for sql in (EAGER["constant"], "SELECT s FROM t WHERE k = 1"):
        for request in (parse("", sql) + bind("") + DESCRIBE + execute() + SYNC, query(sql)):
            expected = await client.send(request)
            assert await client.send_until_at_once(request) == expected


async def test_pipeline_is_one_answer(client: MemoryClient) -> None:
    parts = [
        bind("row", [b"1"]) + DESCRIBE + execute(),
        bind("row", [b"2"]) + execute(),
        bind("constant") + execute(1),
    ]
    single = [await client.send(part + SYNC) for part in parts]
    ends = len(READY) + 1
    assert (
        await client.send_until_at_once(b"".join(parts) + SYNC)
        == b"".join(each[:-ends] for each in single) + READY + b"I"
    )


async def test_error_ends_a_pipeline(client: MemoryClient, env: TestEnvironment) -> None:
    head = bind("row", [b"1"]) + execute() + bind("insert", [b"7"]) + execute()
    answered = await client.send(head + bind("failing", [b"2"]) + execute() + SYNC)
    assert b"one" in answered
    assert b"22012" in answered
    assert await env.ran("s", "SELECT count(*) FROM other WHERE a = 7") == "0\nSELECT 1"


async def test_read_sees_each_acknowledged_write(
    client: MemoryClient, env: TestEnvironment
) -> None:
    for number in range(20):
        await env.ran("s", f"UPDATE t SET s = 'now {number}', d = 1 WHERE k = 1")
        for name in ("row", "view"):
            answered = await client.send(bind(name, [b"1"]) + execute() + SYNC)
            assert f"now {number}".encode() in answered


async def test_block_reads_its_own_writes_at_its_own_time(
    client: MemoryClient, env: TestEnvironment
) -> None:
    await client.send(query("BEGIN"))
    read = bind("row", [b"1"]) + execute() + SYNC
    before = await client.send(read)
    await env.ran("s", "UPDATE t SET s = 'other' WHERE k = 1")
    assert await client.send(read) == before
    await client.send(query("ROLLBACK"))
    assert b"other" in await client.send_until_at_once(read)


async def test_changed_definitions_are_noticed(client: MemoryClient, env: TestEnvironment) -> None:
    await env.ran("s", "DROP INDEX v_by_d", "ALTER TABLE other ADD COLUMN c int DEFAULT 5")
    answered = await client.send(bind("view", [b"1"]) + execute() + SYNC)
    assert b"one" in answered
    answered = await client.send(bind("both", [b"1", b"x"]) + execute() + SYNC)
    assert b"0A000" in answered  # its columns are others now
    await env.ran("s", "DROP TABLE other")
    answered = await client.send(bind("both", [b"1", b"x"]) + execute() + SYNC)
    assert b"42P01" in answered


async def test_settings_of_the_session_count(client: MemoryClient) -> None:
    await client.send(query("SET max_result_rows = 1"))
    answered = await client.send(bind("view", [b"1"]) + execute() + SYNC)
    assert b"C53200\0" in answered
    await client.send(query("RESET max_result_rows"))
    await client.send(query("SET cluster_replica = 'absent'"))
    answered = await client.send(bind("view", [b"1"]) + execute() + SYNC)
    assert b"42704" in answered
    await client.send(query("SET emit_timestamp_notice = on"))
    answered = await client.send(bind("row", [b"1"]) + execute() + SYNC)
    assert b"query timestamp" in answered


async def test_many_requests_let_others_have_their_turn(
    client: MemoryClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = bind("constant") + execute() + SYNC
    await client.send(request)
    monkeypatch.setattr(turns, "SLICE_S", -1)  # over before it begins: one request
    client.receive(request * 100)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert client.transport.written.count(READY) <= 2
    assert len(await client.ready(100)) % 100 == 0
    answered = await client.send((bind("constant") + execute()) * (MOST + 1) + SYNC)
    assert answered.count(b"SELECT 1\0") == MOST + 1


async def test_connections_share_the_slice_of_a_step(
    client: MemoryClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = bind("constant") + execute() + SYNC
    await client.send(request)
    answers = []

    def receive_late() -> None:
        assert turns.turns_of_loop().has_time()  # another connection asks
        later = perf_counter() + 2 * turns.SLICE_S
        monkeypatch.setattr(turns, "perf_counter", lambda: later)
        client.wire.data_received(request * 5)
        answers.append(client.take())

    asyncio.get_running_loop().call_soon(receive_late)
    await asyncio.sleep(0)
    assert answers == [b""]
    assert len(await client.ready(5)) % 5 == 0


async def test_request_cut_anywhere_is_answered(client: MemoryClient) -> None:
    request = bind("row", [b"1"]) + DESCRIBE + execute() + SYNC
    expected = await client.send(request)
    for cut in range(1, len(request)):
        client.receive(request[:cut])
        if cut % 2:
            await asyncio.sleep(0)
        client.receive(request[cut:])
        assert await client.ready() == expected, cut


async def test_answer_waits_for_the_lease(client: MemoryClient) -> None:
    lease = client.wire._lease
    lease._from = lease._until = 0.0
    assert await client.send_at_once(bind("row", [b"1"]) + execute() + SYNC) == b""
    await lease.renew()
    assert b"one" in await client.ready()


async def test_activity_is_shown(client: MemoryClient, env: TestEnvironment) -> None:
    await client.send(bind("both", [b"1", b"x"]) + execute() + SYNC)
    shown = await env.ran(
        "s", f"SELECT state, query FROM pg_stat_activity WHERE pid = {client.session.pid}"
    )
    assert shown == f"idle|{EAGER['both']}\nSELECT 1"


async def test_statements_keep_no_rows_of_dropped_tables(
    client: MemoryClient, env: TestEnvironment
) -> None:
    await client.send(bind("row", [b"1"]) + execute() + SYNC)
    coordinator, statements = client.session.coordinator, client.session.statements
    read = statements["row"].made.programs.row_read
    assert read is not None
    held: list[weakref.ref[Any]] = [
        weakref.ref(each.arrangement) for each in coordinator.keys.of(read.sources[0].id).values()
    ]
    await env.ran("s", "DROP TABLE t CASCADE")
    async with asyncio.timeout(20):
        while any(each() is not None for each in held):
            gc.collect()
            await asyncio.sleep(0.01)


async def test_policy_that_others_commit_holds_in_a_block_with_own_tables(
    client: MemoryClient, env: TestEnvironment
) -> None:
    """The transaction's catalog follows what others commit before a plan is found valid."""
    await env.ran("s", "CREATE ROLE watched LOGIN", "GRANT SELECT ON t TO watched")
    await client.send(query("SET ROLE watched"))
    await client.send(query("BEGIN"))
    await client.send(query("CREATE TEMP TABLE own (a int)"))
    request = bind("row", [b"1"]) + execute() + SYNC
    assert b"one" in await client.send(request)
    await env.query("s", "ALTER TABLE t ENABLE ROW LEVEL SECURITY", alone=False)
    await env.query("s", "CREATE POLICY none ON t USING (false)", alone=False)
    assert b"SELECT 0" in await client.send(request)
    await env.query("s", "DROP TABLE t CASCADE", alone=False)
    assert b"C42P01" in await client.send(request)
    await client.send(query("ROLLBACK"))
    await env.ran("s", "DROP OWNED BY watched", "DROP ROLE watched")


async def test_rows_that_an_execution_leaves_can_be_fetched(client: MemoryClient) -> None:
    await client.send(query("BEGIN"))
    head = frame(b"B", b"q\0constants\0" + bytes(6))
    first = await client.send(head + frame(b"E", b"q\0\0\0\0\x01") + SYNC)
    assert b"s\0\0\0\x04" in first  # PortalSuspended
    assert b"FETCH 1\0" in await client.send(query("FETCH ALL FROM q"))
    await client.send(query("ROLLBACK"))


@pytest.mark.parametrize("portal", [b"", b"p"])
async def test_sync_before_the_data_of_copy_is_ignored(client: MemoryClient, portal: bytes) -> None:
    await client.send(parse("copied", "COPY other FROM STDIN") + SYNC)
    head = frame(b"B", portal + b"\0copied\0" + bytes(6))
    client.receive(head + frame(b"E", portal + b"\0\0\0\0\0") + SYNC)
    data = frame(b"d", b"7\tseven\n") + frame(b"c") + SYNC
    answered = await client.send(data)
    assert b"COPY 1\0" in answered
    assert (await client.send(query("SELECT 1"))).count(READY) == 1
    await client.send(query("DELETE FROM other WHERE a = 7"))


async def test_subscription_ends_with_its_transaction(client: MemoryClient) -> None:
    await client.send(parse("sub", "SUBSCRIBE t") + SYNC)
    client.receive(bind("sub") + execute() + SYNC)
    await until(lambda: b"one" in client.transport.written)
    followed = [each for each in gc.get_objects() if type(each).__name__ == "Subscriber"]
    assert followed
    client.session.interrupts.request(QueryCanceled())
    assert b"C57014" in await client.ready()
    assert {type(each._state).__name__ for each in followed} == {"Ended"}


async def test_arguments_are_read_as_the_executions_before_have_set(client: MemoryClient) -> None:
    sql = "SELECT set_config('TimeZone', $1, false), $2::timestamptz AT TIME ZONE 'UTC'"
    await client.send(parse("zoned", sql) + SYNC)
    zones = (b"UTC", b"Asia/Tokyo", b"UTC")
    each = [bind("zoned", [zone, b"2020-01-01 00:00"]) + execute() for zone in zones]
    answered = await client.send(b"".join(each) + SYNC)
    assert answered.count(b"2020-01-01 00:00:00") == 2
    assert answered.count(b"2019-12-31 15:00:00") == 1


async def test_locks_do_not_depend_on_when_a_sync_comes(client: MemoryClient) -> None:
    await client.send(parse("lock", "LOCK TABLE t") + SYNC)
    whole = await client.send(bind("lock") + execute() + SYNC)
    client.receive(bind("lock") + execute())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert await client.send(SYNC) == whole


async def test_name_that_is_no_text_finds_no_statement(client: MemoryClient) -> None:
    await client.send(parse("\ufffd", "SELECT 1") + SYNC)
    answered = await client.send(frame(b"B", b"\0\xff\0" + bytes(6)) + execute() + SYNC)
    assert b"C22021" in answered


async def test_long_message_gives_its_room_back(client: MemoryClient) -> None:
    sql = f"SELECT $1::int /* {'x' * 3_000_000} */"
    await client.send(parse("", sql) + bind("", [b"1"]) + execute() + SYNC)
    assert client.wire.reader._gathered.bytes == 0


async def test_encoding_of_the_connection_request_holds_at_once(env: TestEnvironment) -> None:
    startup = Startup("foreshore", "foreshore", {"client_encoding": "LATIN1"})
    session = await env.environment.connect(startup)
    assert session.news.changed_parameters()["client_encoding"] == "LATIN1"
    client = await MemoryClient.connect(session)
    answered = await client.send(query("SELECT chr(233)"))
    assert b"\xe9C" in answered
    assert b"2C" in await client.send(frame(b"Q", b"SELECT length('\xe9x')\0"))
    await client.close()
