"""One contract for every consensus service."""

import asyncio
import socket
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest

from foreshore.errors import Fenced, InvalidParameterValue
from foreshore.storage import epoch, postgres_consensus
from foreshore.storage.consensus import (
    Committed,
    Consensus,
    MemoryConsensus,
    Mismatch,
    SqliteConsensus,
    Versioned,
)
from foreshore.storage.consensus_services import open_consensus
from foreshore.storage.epoch import EpochState, Register
from foreshore.storage.fault import Determinate, Indeterminate
from foreshore.storage.postgres_consensus import PostgresConsensus

Test = Callable[[Consensus], Awaitable[None]]
Run = Callable[[Test], None]
Open = Callable[[], Consensus]

_schemas = count(1)


def new_schema(postgres_url: str) -> str:
    """Return the URL of a separate schema in the tests' PostgreSQL."""
    return f"{postgres_url}?schema=Consensus%20{next(_schemas)}"


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Return a function that opens the same service, each time as another client."""
    match request.param:
        case "memory":
            service = MemoryConsensus()
            return lambda: service
        case "sqlite":
            return lambda: SqliteConsensus(tmp_path / "consensus.sqlite")
        case _:
            url = new_schema(request.getfixturevalue("postgres_url"))
            return lambda: PostgresConsensus(url)


@pytest.fixture
def run(opened: Open) -> Run:
    def run(test: Test) -> None:
        async def main() -> None:
            async with closing(opened()) as consensus:
                await test(consensus)

        asyncio.run(main())

    return run


@asynccontextmanager
async def closing(consensus: Consensus) -> AsyncIterator[Consensus]:
    try:
        yield consensus
    finally:
        await consensus.close()


def test_change_after_the_end_fails(tmp_path: Path) -> None:
    async def main() -> None:
        consensus = SqliteConsensus(tmp_path / "consensus.sqlite")
        await consensus.close()
        async with asyncio.timeout(20):
            with pytest.raises(Indeterminate):
                await consensus.compare_and_set("k", None, b"a")

    asyncio.run(main())


def test_head_is_last_committed_version(run: Run) -> None:
    async def test(consensus: Consensus) -> None:
        assert await consensus.head("k") is None
        first = await consensus.compare_and_set("k", None, b"a")
        assert isinstance(first, Committed)
        second = await consensus.compare_and_set("k", first.seqno, b"b")
        assert isinstance(second, Committed)
        assert second.seqno > first.seqno
        assert await consensus.head("k") == Versioned(second.seqno, b"b")
        assert await consensus.head("other") is None

    run(test)


def test_mismatch_changes_nothing_and_returns_head(run: Run) -> None:
    async def test(consensus: Consensus) -> None:
        assert await consensus.compare_and_set("k", 1, b"x") == Mismatch(None)
        first = await consensus.compare_and_set("k", None, b"a")
        assert isinstance(first, Committed)
        head = Versioned(first.seqno, b"a")
        assert await consensus.compare_and_set("k", None, b"x") == Mismatch(head)
        assert await consensus.compare_and_set("k", first.seqno + 1, b"x") == Mismatch(head)
        assert await consensus.scan("k", 0) == [head]

    run(test)


def test_concurrent_sets_have_one_winner(run: Run) -> None:
    async def test(consensus: Consensus) -> None:
        outcomes = await asyncio.gather(
            *(consensus.compare_and_set("k", None, bytes([i])) for i in range(10))
        )
        assert sum(isinstance(outcome, Committed) for outcome in outcomes) == 1

    run(test)


def test_each_of_many_concurrent_changes_has_its_own_outcome(run: Run) -> None:
    async def test(consensus: Consensus) -> None:
        assert await consensus.compare_and_set("k3", None, b"before") == Committed(1)
        given = [(f"k{i}", 1 if i in (3, 5) else None) for i in range(40)]
        outcomes = await asyncio.gather(
            *(consensus.compare_and_set(key, seqno, key.encode()) for key, seqno in given)
        )
        assert outcomes.pop(5) == Mismatch(None)
        assert outcomes.pop(3) == Committed(2)
        assert outcomes == [Committed(1)] * 38
        heads = await consensus.heads("k")
        assert {key: head.data for key, head in heads.items()} == {
            key: key.encode() for key, _ in given if key != "k5"
        }

    run(test)


def test_racing_clients_get_one_order_without_losses(opened: Open) -> None:
    """Each appends its value to the head's, and truncates versions as it goes."""

    async def add(consensus: Consensus, name: int, times: int) -> list[int]:
        seqnos = []
        for i in range(times):
            while True:
                head = await consensus.head("log")
                new = (head.data if head else b"") + f"{name}.{i} ".encode()
                outcome = await consensus.compare_and_set("log", head.seqno if head else None, new)
                match outcome:
                    case Committed(seqno):
                        seqnos.append(seqno)
                        await consensus.truncate("log", seqno)
                        break
                    case Mismatch(found):
                        assert found is not None
                        assert head is None or found.seqno > head.seqno
        return seqnos

    async def main() -> None:
        clients = [opened() for _ in range(5)]
        taken = await asyncio.gather(*(add(client, n, 12) for n, client in enumerate(clients)))
        head = await clients[0].head("log")
        assert head is not None
        said = head.data.decode().split()
        for name in range(5):
            assert [s for s in said if s.startswith(f"{name}.")] == [
                f"{name}.{i}" for i in range(12)
            ]
        assert len(said) == 60
        seqnos = [seqno for each in taken for seqno in each]
        assert len(set(seqnos)) == 60
        assert head.seqno == max(seqnos)
        assert len(await clients[0].scan("log", 0)) < 6
        for client in clients:
            await client.close()

    asyncio.run(main())


def test_truncating_keeps_the_head(run: Run) -> None:
    async def test(consensus: Consensus) -> None:
        seqno = None
        for i in range(5):
            outcome = await consensus.compare_and_set("k", seqno, bytes([i]))
            assert isinstance(outcome, Committed)
            seqno = outcome.seqno
        assert seqno is not None
        versions = await consensus.scan("k", 0)
        assert [v.data for v in versions] == [bytes([i]) for i in range(5)]
        await consensus.truncate("k", versions[3].seqno)
        assert await consensus.scan("k", 0) == versions[3:]
        await consensus.truncate("k", seqno + 10)
        assert await consensus.scan("k", 0) == versions[4:]
        assert isinstance(await consensus.compare_and_set("k", seqno, b"next"), Committed)

    run(test)


def test_heads_are_listed_by_prefix_and_in_order(run: Run) -> None:
    async def test(consensus: Consensus) -> None:
        for key in ("shard/u2", "shard/u10", "shard/u1", "log", "shard%", "Shard/u1"):
            await consensus.compare_and_set(key, None, key.encode())
        await consensus.compare_and_set("shard/u10", 1, b"second")
        assert list((await consensus.heads("shard/")).items()) == [
            ("shard/u1", Versioned(1, b"shard/u1")),
            ("shard/u10", Versioned(2, b"second")),
            ("shard/u2", Versioned(1, b"shard/u2")),
        ]
        assert list(await consensus.heads("shard%")) == ["shard%"]
        assert len(await consensus.heads("")) == 6

    run(test)


def test_a_value_may_be_large_and_hold_any_byte(run: Run) -> None:
    async def test(consensus: Consensus) -> None:
        for data in (b"", bytes(range(256)), bytes(range(256)) * (4 << 12)):
            head = await consensus.head("k")
            outcome = await consensus.compare_and_set("k", head.seqno if head else None, data)
            assert isinstance(outcome, Committed)
            assert await consensus.head("k") == Versioned(outcome.seqno, data)

    run(test)


@pytest.mark.parametrize("opened", ["sqlite", "postgres"], indirect=True)
def test_committed_value_outlives_client(opened: Open) -> None:
    async def main() -> None:
        one, two = opened(), opened()
        assert isinstance(await one.compare_and_set("k", None, b"a"), Committed)
        assert isinstance(await two.compare_and_set("k", None, b"b"), Mismatch)
        await one.close()
        await two.close()
        async with closing(opened()) as three:
            head = await three.head("k")
            assert head is not None
            assert head.data == b"a"

    asyncio.run(main())


def test_url_selects_service(tmp_path: Path) -> None:
    assert isinstance(open_consensus(None, tmp_path), SqliteConsensus)
    assert isinstance(open_consensus("memory:", tmp_path), MemoryConsensus)
    assert isinstance(open_consensus("postgresql://u:secret@h/db", tmp_path), PostgresConsensus)
    assert isinstance(open_consensus(f"sqlite://{tmp_path}/c.sqlite", tmp_path), SqliteConsensus)
    for wrong in ("redis://u:secret@h", "postgresql://u:secret@h/db?schema="):
        with pytest.raises(InvalidParameterValue) as raised:
            open_consensus(wrong, tmp_path)
        assert "secret" not in raised.value.message


# --- PostgreSQL: what may go wrong between here and there ----------------------------------------


class Between:
    """A proxy on the loopback interface that stops forwarding, or ends connections, on request."""

    def __init__(self, host: str, port: int) -> None:
        self._target = host, port
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0
        self.swallow_answers = False
        self.seen = asyncio.Event()  # an answer that was swallowed

    async def __aenter__(self) -> "Between":
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(*self._target)
        self._writers += [writer, back]
        for source, sink, answers in ((reader, back, False), (there, writer, True)):
            task = asyncio.create_task(self._pass_on(source, sink, answers))
            self._tasks.add(task)

    async def _pass_on(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, answers: bool
    ) -> None:
        try:
            while data := await source.read(1 << 16):
                if answers and self.swallow_answers:
                    self.seen.set()
                    continue
                sink.write(data)
                await sink.drain()
        except OSError:
            pass  # the other end was cut
        finally:
            sink.transport.abort()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_consensus, "PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(epoch, "PAUSE_SECONDS", 0.01)


@asynccontextmanager
async def disturbed(postgres_url: str) -> AsyncIterator[tuple[Between, Consensus]]:
    port = postgres_url.rpartition(":")[2].partition("/")[0]
    async with Between("127.0.0.1", int(port)) as between:
        url = new_schema(postgres_url).replace(f":{port}/", f":{between.port}/")
        async with closing(PostgresConsensus(url)) as consensus:
            yield between, consensus


@pytest.mark.usefixtures("quick")
def test_connection_lost_during_commit_is_indeterminate(
    postgres_url: str,
) -> None:
    async def main() -> None:
        async with disturbed(postgres_url) as (between, consensus):
            await consensus.compare_and_set("k", None, b"")
            first = await consensus.compare_and_set("k", 1, b"a")
            assert isinstance(first, Committed)  # and the statement is a prepared one now
            between.swallow_answers = True
            change = asyncio.create_task(consensus.compare_and_set("k", first.seqno, b"b"))
            await between.seen.wait()
            between.swallow_answers = False
            between.cut()
            with pytest.raises(Indeterminate):
                await change
            # over a new connection; it had happened
            assert await consensus.head("k") == Versioned(first.seqno + 1, b"b")

    asyncio.run(main())


@pytest.mark.usefixtures("quick")
def test_answer_after_timeout_is_indeterminate(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_consensus, "STATEMENT_SECONDS", 0.3)

    async def main() -> None:
        url = new_schema(postgres_url)
        async with closing(PostgresConsensus(url)) as consensus:
            first = await consensus.compare_and_set("k", None, b"a")
            assert isinstance(first, Committed)
            holder = await asyncpg.connect(postgres_url)
            schema = f'"Consensus {url.rpartition("%20")[2]}"'
            async with holder.transaction():
                await holder.execute(f"SELECT * FROM {schema}.head FOR UPDATE")
                with pytest.raises(Indeterminate):
                    await consensus.compare_and_set("k", first.seqno, b"b")
            await holder.close()
            head = await consensus.head("k")
            assert head in (Versioned(1, b"a"), Versioned(2, b"b"))

    asyncio.run(main())


@pytest.mark.usefixtures("quick")
def test_register_resolves_indeterminate_change(postgres_url: str) -> None:
    async def main() -> None:
        async with disturbed(postgres_url) as (between, consensus):
            register = Register(consensus, "epoch", EpochState)
            await register.claim(1, EpochState(epoch=1))
            for epoch_taken in range(2, 6):
                between.seen.clear()
                between.swallow_answers = True
                change = asyncio.create_task(register.change(EpochState(epoch=epoch_taken)))
                await between.seen.wait()
                between.swallow_answers = False
                between.cut()
                await change
            head = await consensus.head("epoch")
            assert head is not None
            assert head.seqno == 5  # each of them once
            newer = Register(consensus, "epoch", EpochState)
            await newer.claim(9, None)
            with pytest.raises(Fenced):
                await register.change(EpochState(epoch=6))

    asyncio.run(main())


@pytest.mark.usefixtures("quick")
def test_unusable_connection_counts_as_lost(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with closing(PostgresConsensus(new_schema(postgres_url))) as consensus:
            assert await consensus.compare_and_set("k", None, b"a") == Committed(1)
            faults = 2

            async def fetch(self: asyncpg.Connection, *args: Any, **kwargs: Any) -> Any:
                nonlocal faults
                if faults:
                    faults -= 1
                    raise asyncpg.InternalClientError("cannot switch to state 12")
                return await whole(self, *args, **kwargs)

            whole = asyncpg.Connection.fetch
            monkeypatch.setattr(asyncpg.Connection, "fetch", fetch)
            assert await consensus.head("k") == Versioned(1, b"a")
            assert not faults

    asyncio.run(main())


@pytest.mark.parametrize(
    "lost", [asyncpg.InternalClientError("cannot switch to state 12"), TimeoutError()]
)
def test_change_with_lost_answer_is_indeterminate(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, lost: Exception
) -> None:
    async def main() -> None:
        async with closing(PostgresConsensus(new_schema(postgres_url))) as consensus:
            assert await consensus.compare_and_set("k", None, b"a") == Committed(1)
            used = []

            async def fetchval(self: asyncpg.Connection, *args: Any, **kwargs: Any) -> Any:
                used.append(self)
                await whole(self, *args, **kwargs)
                raise lost

            with monkeypatch.context() as patch:
                whole = asyncpg.Connection.fetchval
                patch.setattr(asyncpg.Connection, "fetchval", fetchval)
                with pytest.raises(Indeterminate):
                    await consensus.compare_and_set("k", 1, b"b")
            assert await consensus.head("k") == Versioned(2, b"b")
            (connection,) = used
            assert connection.is_closed()

    asyncio.run(main())


@pytest.mark.usefixtures("quick")
def test_session_ended_by_server_is_replaced(postgres_url: str) -> None:
    async def main() -> None:
        async with closing(PostgresConsensus(new_schema(postgres_url))) as consensus:
            seqno = None
            for _ in range(5):
                outcome = await consensus.compare_and_set("k", seqno, b"a")
                assert isinstance(outcome, Committed)
                seqno = outcome.seqno
                ended = await asyncio.to_thread(end_sessions, postgres_url)
                assert ended >= 1
                assert await consensus.head("k") == Versioned(seqno, b"a")

    asyncio.run(main())


@pytest.mark.usefixtures("quick")
def test_session_ended_after_answer_keeps_change(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ended(_: object, **__: object) -> None:
        raise asyncpg.AdminShutdownError("terminating connection due to administrator command")

    async def main() -> None:
        async with closing(PostgresConsensus(new_schema(postgres_url))) as consensus:
            assert await consensus.head("k") is None
            monkeypatch.setattr(asyncpg.Connection, "reset", ended)
            assert await consensus.compare_and_set("k", None, b"a") == Committed(1)
            assert await consensus.compare_and_set("k", 1, b"b") == Committed(2)
            assert await consensus.head("k") == Versioned(2, b"b")

    asyncio.run(main())


def end_sessions(url: str) -> int:
    with psycopg.connect(url, autocommit=True) as connection:
        ended = connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE application_name = 'foreshore'"
        )
        return len(ended.fetchall())


@pytest.mark.usefixtures("quick")
def test_refused_connection_is_determinate() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # and does not listen

        async def main() -> None:
            url = f"postgresql://postgres@127.0.0.1:{free.getsockname()[1]}/postgres"
            async with closing(PostgresConsensus(url)) as consensus:
                with pytest.raises(Determinate, match="could not connect"):
                    await consensus.compare_and_set("k", None, b"a")
                with pytest.raises(Determinate, match="could not connect"):
                    await consensus.head("k")

        asyncio.run(main())


def test_refused_statement_is_determinate(postgres_url: str) -> None:
    async def main() -> None:
        url = new_schema(postgres_url)
        async with closing(PostgresConsensus(url)) as consensus:
            assert isinstance(await consensus.compare_and_set("k", None, b"a"), Committed)
            connection = await asyncpg.connect(postgres_url)
            schema = f'"Consensus {url.rpartition("%20")[2]}"'
            await connection.execute(f"ALTER TABLE {schema}.version ADD CHECK (length(data) < 9)")
            with pytest.raises(Determinate, match="check constraint"):
                await consensus.compare_and_set("k", 1, b"0123456789")
            await connection.close()
            assert await consensus.head("k") == Versioned(1, b"a")

    asyncio.run(main())


class Failing:
    """A connection to SQLite on which, for a while, no transaction can be ended."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.fails = True

    @property
    def in_transaction(self) -> bool:
        return self.connection.in_transaction

    def execute(self, sql: str, parameters: tuple[Any, ...] = ()) -> sqlite3.Cursor:
        if self.fails and sql in ("COMMIT", "ROLLBACK"):
            raise sqlite3.OperationalError("disk I/O error")
        return self.connection.execute(sql, parameters)


def test_failed_rollback_is_repeated_before_next_call(tmp_path: Path) -> None:
    async def main() -> None:
        consensus = SqliteConsensus(tmp_path / "c.sqlite")
        connection = consensus._connection
        failing = Failing(connection)
        consensus._connection = failing  # type: ignore[assignment]
        with pytest.raises(Indeterminate):
            await consensus.compare_and_set("k", None, b"never")
        with pytest.raises(Determinate):  # what it would see is not there for others
            await consensus.head("k")
        failing.fails = False
        assert await consensus.head("k") is None
        assert await consensus.compare_and_set("k", None, b"x") == Committed(1)
        consensus._connection = connection
        await consensus.close()

    asyncio.run(main())
