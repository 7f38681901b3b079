"""foreshore.js keeps a local copy right, in node, through cuts of its connection and kills."""

import asyncio
import json
import queue
import random
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.harness import ROOT, Server, program, serving, until

SCRIPT = ROOT / "server" / "http" / "static" / "foreshore.js"
FOLLOW = Path(__file__).parent / "follow.mjs"
ACCOUNTS, TOTAL = 20, 2000


class Proxy:
    """Forwards connections to a port, and cuts them when it is told to."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._open: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self.accepted = 0
        self.port = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)

    async def _listen(self) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        try:
            inner, outer = await asyncio.open_connection("127.0.0.1", self._to)
        except OSError:
            writer.transport.abort()
            return
        self._open.add(writer)
        await asyncio.wait(
            [
                asyncio.ensure_future(self._copy(reader, outer)),
                asyncio.ensure_future(self._copy(inner, writer)),
            ],
            return_when=asyncio.FIRST_COMPLETED,
        )
        self._open.discard(writer)
        writer.transport.abort()
        outer.transport.abort()

    @staticmethod
    async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1000):  # so that cuts are anywhere in the events
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            return

    def cut(self) -> None:
        """Abort all connections."""

        def abort() -> None:
            for each in self._open:
                each.transport.abort()

        self._loop.call_soon_threadsafe(abort)

    def close(self) -> None:
        self.cut()
        self._loop.call_soon_threadsafe(self._server.close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Follower:
    """node that follows a query: what it has written, and the last state of its copy."""

    def __init__(self, url: str, query: str, **options: Any) -> None:
        self._process = subprocess.Popen(
            [program("node"), str(FOLLOW), str(SCRIPT), url, query, json.dumps(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.lines: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self.states: list[dict[str, Any]] = []
        self.others: list[dict[str, Any]] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            found = json.loads(line)
            (self.states if "rows" in found else self.others).append(found)

    @property
    def rows(self) -> Counter[tuple[Any, ...]]:
        return Counter(map(tuple, self.states[-1]["rows"])) if self.states else Counter()

    def said(self, name: str) -> dict[str, Any]:
        """Return the first other line with this member."""
        until(lambda: any(name in each for each in self.others), f"it says {name}")
        return next(each for each in self.others if name in each)

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(30) == 0


@contextmanager
def followed(url: str, query: str, **options: Any) -> Iterator[Follower]:
    follower = Follower(url, query, **options)
    try:
        yield follower
        follower.end()
    finally:
        if follower._process.poll() is None:
            follower._process.kill()


class Transfers:
    """Moves amounts between accounts, each in one transaction, until it is stopped."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._stop = threading.Event()
        self.done = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        draw = random.Random(7)
        while not self._stop.is_set():
            try:
                with psycopg.connect(self._server.url, autocommit=True) as connection:
                    while not self._stop.is_set():
                        giver, taker = draw.sample(range(1, ACCOUNTS + 1), 2)
                        connection.execute(
                            "UPDATE accounts SET amount = amount"
                            " + CASE WHEN id = %s THEN -1 ELSE 1 END WHERE id IN (%s, %s)",
                            [giver, giver, taker],
                        )
                        self.done += 1
            except psycopg.Error:
                self._stop.wait(0.1)  # it is being killed, or starts

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


def make_accounts(server: Server) -> None:
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE accounts (id int PRIMARY KEY, amount int NOT NULL)")
        connection.execute(
            f"INSERT INTO accounts SELECT g, {TOTAL // ACCOUNTS} FROM generate_series(1, {ACCOUNTS}) g"
        )


def selected(server: Server, query: str) -> Counter[tuple[Any, ...]]:
    with psycopg.connect(server.url, autocommit=True) as connection:
        return Counter(tuple(row) for row in connection.execute(query.encode()))


@pytest.mark.full
def test_copy_is_right_at_each_time_through_cuts_and_a_kill(tmp_path: Path) -> None:
    query = "SELECT id, amount FROM accounts"
    with serving(tmp_path / "data") as server:
        make_accounts(server)
        proxy = Proxy(server.http_port)
        transfers = Transfers(server)
        try:
            with followed(f"http://127.0.0.1:{proxy.port}", query, key="id") as follower:
                assert follower.said("ready")["ready"] == ["id", "amount"]
                for _ in range(5):
                    seen = len(follower.states)
                    until(lambda seen=seen: len(follower.states) > seen + 20, "changes come")  # type: ignore[misc]
                    proxy.cut()
                server.kill()
                server.start()
                seen, done = len(follower.states), transfers.done
                until(lambda: len(follower.states) > seen + 20, "changes come after the kill")
                until(lambda: transfers.done > done, "transfers go on")
                transfers.stop()
                expected = selected(server, query)
                until(lambda: follower.rows == expected, "the copy is equal")
        finally:
            transfers.stop()
            proxy.close()
        assert proxy.accepted > 6
        for state in follower.states:  # none is between two times
            assert len(state["rows"]) == ACCOUNTS
            assert sum(amount for _, amount in state["rows"]) == TOTAL
        times = [int(each["time"]) for each in follower.states]
        assert times == sorted(set(times))
        assert sum(each["reset"] for each in follower.states) == 1  # the first: history was kept
        assert follower.said("size") == {"size": ACCOUNTS, "following": True}


@pytest.mark.full
def test_copy_of_computed_query_is_a_multiset_and_starts_anew_if_history_is_gone(
    tmp_path: Path,
) -> None:
    query = "SELECT amount, count(*) > 1 AS shared FROM accounts GROUP BY amount"
    multiset = "SELECT amount % 2 FROM accounts"
    with serving(tmp_path / "data") as server:
        make_accounts(server)
        url = f"http://127.0.0.1:{server.http_port}"
        with followed(url, query) as computed, followed(url, multiset) as many:
            for each in (computed, many):
                each.said("ready")
            assert many.rows == Counter({(0,): ACCOUNTS})
            server.kill()
            server.start()
            with psycopg.connect(server.url, autocommit=True) as connection:
                connection.execute("UPDATE accounts SET amount = id / 2")
            for each, text in ((computed, query), (many, multiset)):
                expected = selected(server, text)
                until(lambda each=each, expected=expected: each.rows == expected, "it is equal")  # type: ignore[misc]
            with psycopg.connect(server.url, autocommit=True) as connection:
                # Its history begins anew, so the stream ends and cannot go on where it was.
                connection.execute("ALTER TABLE accounts ADD COLUMN note text")
                connection.execute("UPDATE accounts SET amount = 7 WHERE id = 1")
            expected = selected(server, multiset)
            until(lambda: many.rows == expected and many.states[-1]["reset"], "it starts anew")


@pytest.mark.full
def test_copy_that_can_never_be_fails_for_good(server: Server) -> None:
    url = f"http://127.0.0.1:{server.http_port}"
    with followed(url, "SELECT * FROM nowhere") as follower:
        assert follower.said("failed") == {"failed": "42P01"}
        assert follower.said("error")["code"] == "42P01"
    with followed(url, "SELECT 1 AS id", key="none") as follower:
        assert follower.said("failed") == {"failed": "42703"}
    with followed(url, "SELECT 1 AS id, 'x' AS t", key="id") as follower:
        assert follower.said("ready") == {"ready": ["id", "t"], "first": {"id": 1, "t": "x"}}


ORDERS = [
    "id",
    "n, id",
    "n DESC, id",
    "n DESC NULLS LAST, id",
    "n NULLS FIRST, id DESC",
    "f DESC, id",
    "big, id",
    "t, id",
    "t DESC, id DESC",
    "b, id",
    "d, id",
    "at DESC, id",
    "z, id",
    "h, id",
    "i, id",
    "2 DESC, 1",
    "abs(n), id",  # no column of the result: the copy has no order
]
VALUES = """
(1, 2, 0.5, 9007199254740993, 'b', true, '2024-03-01', '2024-03-01 00:00:00.000001', '2024-10-27 01:30:00+00', '01:00', '1 mon'),
(2, -0.5, 'NaN', 9007199254740992, 'B', false, 'infinity', '2024-03-01', '2024-10-27 00:45:00+00', '00:30', '29 days'),
(3, -0.45, '-Infinity', -5, 'é', NULL, '0044-03-15 BC', '10000-01-01', '2024-10-27 02:15:00+00', '23:59:59.5', '31 days'),
(4, 123456789012345678901234567890.10, 1e300, 0, '😀', true, '2024-02-29', 'infinity', 'infinity', '24:00', '-1 day'),
(5, 123456789012345678901234567890.1, -1e-300, 7, '\uffee', false, '-infinity', '-infinity', NULL, NULL, '720:00:00'),
(6, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '1999-12-31 23:59:59.999999+00', '00:00', NULL),
(7, 'NaN', 0, 12, '', false, '2024-03-01', '1969-12-31 23:59', '2024-01-01', '12:00', '1 year'),
(8, 10, 1, 100, 'ab', true, '0001-01-01', '2024-03-01 BC', '2024-01-01 BC', '12:00:00.1', '00:00:01')
"""


@pytest.mark.full
def test_rows_come_in_the_order_of_the_query(server: Server) -> None:
    columns = "id int, n numeric, f float8, big int8, t text, b bool, d date, at timestamp"
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(
            f"CREATE TABLE ordered ({columns}, z timestamptz, h time, i interval)".encode()
        )
        connection.execute(f"INSERT INTO ordered VALUES {VALUES}".encode())
        for order in ORDERS:
            for limit in ("", " LIMIT 5"):
                query = f"SELECT id, n, f, big, t, b, d, at, z, h, i FROM ordered ORDER BY {order}{limit}"
                options = {"options": {"TimeZone": "Europe/Berlin"}}
                connection.execute("UPDATE ordered SET n = 3 WHERE id = 1")
                with followed(f"http://127.0.0.1:{server.http_port}", query, **options) as follower:
                    follower.said("ready")
                    connection.execute("UPDATE ordered SET n = 2 WHERE id = 1")
                    ordered = f"SELECT array_agg(id) FROM ({query}) x"
                    ((wanted,),) = connection.execute(ordered.encode()).fetchall()

                    def ids(found: Follower = follower) -> list[int]:
                        return [row[0] for row in found.states[-1]["rows"]] if found.states else []

                    if order.startswith("abs"):
                        until(lambda: sorted(ids()) == sorted(wanted), f"{order}: {wanted}", 20)  # noqa: B023
                    else:
                        until(lambda: ids() == wanted, f"{query}: {wanted}, {ids()}", 20)  # noqa: B023
