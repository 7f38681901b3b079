"""Live queries as server-sent events, over an environment."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from foreshore.server.http import subscribe
from tests.adapter.harness import until
from tests.server.http.serving import Http, over_environment


class Event(NamedTuple):
    name: str
    data: Any
    id: str | None


class Events:
    """The events of one answer, and the rows that they add up to."""

    def __init__(self, lines: AsyncIterator[str]) -> None:
        self._lines = lines
        self.rows: Counter[tuple[Any, ...]] = Counter()
        self.token = ""

    async def next(self) -> Event:
        fields: dict[str, str] = {}
        async with asyncio.timeout(60):
            async for line in self._lines:
                if not line and "data" in fields:
                    return Event(fields["event"], json.loads(fields["data"]), fields.get("id"))
                name, _, value = line.partition(": ")
                fields[name] = value
        raise EOFError

    async def progress(self) -> list[Event]:
        """Return the events up to the next progress, and add up their rows."""
        found: list[Event] = []
        while not found or found[-1].name != "progress":
            found.append(await self.next())
            if found[-1].name == "rows":
                for count, row in found[-1].data["rows"]:
                    self.rows[tuple(row)] += count
        assert found[-1].id is not None
        self.token = found[-1].id
        return found

    async def until(self, *rows: tuple[Any, ...]) -> None:
        """Take events until they add up to these rows."""
        while +self.rows != Counter(rows) or not self.token:
            await self.progress()


@asynccontextmanager
async def following(http: Http, query: str, **options: Any) -> AsyncIterator[Events]:
    params = {"query": query, **options.pop("params", {})}
    async with http.client.stream("GET", "/api/subscribe", params=params, **options) as answer:
        if answer.status_code != 200:
            await answer.aread()
            raise AssertionError((answer.status_code, answer.json()["error"]["code"]))
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield Events(answer.aiter_lines())


async def refused(http: Http, query: str, **options: Any) -> tuple[int, str]:
    with pytest.raises(AssertionError) as error:
        async with following(http, query, **options):
            raise EOFError
    found: tuple[int, str] = error.value.args[0]
    return found


def test_snapshot_then_changes_of_each_time(tmp_path: Path) -> None:
    async def go(http: Http) -> None:
        await http.results(
            {"query": "CREATE TABLE t (a int, b text); INSERT INTO t VALUES (1, 'x')"}
        )
        async with following(http, "SELECT b, a FROM t -- all") as events:
            first = await events.progress()
            assert [each.name for each in first] == ["rows", "rows", "progress"]
            assert [each["name"] for each in first[0].data["desc"]["columns"]] == ["b", "a"]
            assert events.rows == Counter([("x", 1)])
            await http.results(
                {"query": "INSERT INTO t VALUES (2, NULL); UPDATE t SET b = 'y' WHERE a = 1"}
            )
            await events.until(("y", 1), (None, 2))
            assert await http.rows(
                "SELECT state FROM pg_stat_activity WHERE query LIKE 'SUBSCRIBE%'"
            ) == [["active"]]
        await until(lambda: not http.env.environment.sessions)

    over_environment(tmp_path, go)


def test_resumed_stream_has_each_later_change_once(tmp_path: Path) -> None:
    async def go(http: Http) -> None:
        await http.results({"query": "CREATE TABLE t (a int)"})
        await http.results({"query": "INSERT INTO t VALUES (1), (1)"})
        query = "SELECT a % 10 AS a, count(*) AS n FROM t GROUP BY 1"
        async with following(http, query) as events:
            await events.until((1, "2"))
        await http.results({"query": "INSERT INTO t VALUES (11), (2)"})
        async with following(http, query, headers={"last-event-id": events.token}) as again:
            again.rows = events.rows
            await again.until((1, "3"), (2, "1"))
        async with following(http, query, params={"after": again.token}) as third:
            await http.results({"query": "DELETE FROM t WHERE a = 2"})
            third.rows = again.rows
            await third.until((1, "3"))

    over_environment(tmp_path, go)


def test_stream_is_reset_if_history_is_gone(tmp_path: Path) -> None:
    async def go(http: Http) -> None:
        await http.results({"query": "CREATE TABLE t (a int); INSERT INTO t VALUES (1)"})
        async with following(http, "TABLE t", headers={"last-event-id": "5"}) as events:
            assert (await events.next()).name == "reset"
            await events.progress()
            assert events.rows == Counter([(1,)])

    over_environment(tmp_path, go)


def test_constant_ends_after_its_rows(tmp_path: Path) -> None:
    async def go(http: Http) -> None:
        async with following(http, "SELECT $1::int + 1", params={"params": "[1]"}) as events:
            await events.progress()
            assert events.rows == Counter([(2,)])
            assert (await events.next()).name == "end"
            with pytest.raises(EOFError):
                await events.next()

    over_environment(tmp_path, go)


def test_error_of_data_and_dropped_table_end_the_stream(tmp_path: Path) -> None:
    async def go(http: Http) -> None:
        await http.results({"query": "CREATE TABLE t (a int)"})
        async with following(http, "SELECT 10 / a AS q FROM t") as events:
            await events.progress()
            await http.results({"query": "INSERT INTO t VALUES (0)"})
            while (event := await events.next()).name != "error":
                pass
            assert event.data["code"] == "22012"
        async with following(http, "TABLE t") as events:
            await events.progress()
            await http.results({"query": "DROP TABLE t"})
            while (event := await events.next()).name != "error":
                pass
            assert event.data["code"] == "55000"

    over_environment(tmp_path, go)


def test_requests_that_cannot_be_followed_are_refused(tmp_path: Path) -> None:
    async def go(http: Http) -> None:
        await http.results({"query": "CREATE TABLE t (a int)"})
        assert await refused(http, "") == (400, "08P01")
        assert await refused(http, "SELECT * FROM nothing") == (400, "42P01")
        assert await refused(http, "SELECT 1; SELECT 2") == (400, "42601")
        assert await refused(http, "DELETE FROM t RETURNING a") == (400, "42601")
        assert await refused(http, "TABLE t", params={"after": "x"}) == (400, "22023")
        assert await refused(http, "TABLE t", params={"params": "{}"}) == (400, "08P01")
        assert await refused(http, "TABLE t", params={"options": '{"database": "no"}'}) == (
            400,
            "3D000",
        )
        assert await refused(http, "TABLE t", headers={"origin": "http://evil.example"}) == (
            403,
            "28000",
        )
        assert await refused(http, "TABLE t", headers={"sec-fetch-site": "cross-site"}) == (
            403,
            "28000",
        )

    over_environment(tmp_path, go)


def test_idle_stream_is_kept_alive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscribe, "KEEP_ALIVE_S", 0.02)

    async def go(http: Http) -> None:
        await http.results({"query": "CREATE TABLE t (a int)"})
        stream = http.client.stream("GET", "/api/subscribe", params={"query": "TABLE t"})
        async with stream as answer, asyncio.timeout(30):
            async for line in answer.aiter_lines():
                if line == ": keep-alive":
                    break

    over_environment(tmp_path, go)


def test_terminated_subscription_ends_its_answer(tmp_path: Path) -> None:
    async def go(http: Http) -> None:
        await http.results({"query": "CREATE TABLE t (a int)"})
        async with following(http, "TABLE t") as events:
            await events.progress()
            await http.rows(
                "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query LIKE 'SUBSCRIBE%'"
            )
            while (event := await events.next()).name != "error":
                pass
            assert event.data["code"] == "57014"

    over_environment(tmp_path, go)


def test_stream_is_reset_if_the_query_means_something_else(tmp_path: Path) -> None:
    async def go(http: Http) -> None:
        await http.ran(
            "CREATE TABLE t (a int)",
            "INSERT INTO t VALUES (1), (2)",
            "CREATE VIEW small AS SELECT a FROM t WHERE a < 2",
        )
        async with following(http, "SELECT * FROM small") as events:
            await events.until((1,))
        token = {"last-event-id": events.token}
        await http.ran("CREATE INDEX i ON small (a)")  # another plan of the same query
        async with following(http, "SELECT * FROM small", headers=token) as again:
            assert [each.name for each in await again.progress()] == ["rows", "progress"]
        await http.ran(
            "DROP INDEX i", "CREATE OR REPLACE VIEW small AS SELECT a FROM t WHERE a > 1"
        )
        async with following(http, "SELECT * FROM small", headers=token) as other:
            assert (await other.next()).name == "reset"
            await other.until((2,))

    over_environment(tmp_path, go)
