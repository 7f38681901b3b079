"""The Model Context Protocol, by the protocol's own client over HTTP."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from tests.server.http.serving import Http, over_environment

SHOP = (
    "CREATE TABLE orders (id int PRIMARY KEY, item text NOT NULL DEFAULT 'tea', paid numeric)",
    "COMMENT ON TABLE orders IS 'what was sold'",
    "COMMENT ON COLUMN orders.item IS 'the article'",
    "INSERT INTO orders SELECT g, 'tea', g FROM generate_series(1, 50) g",
    "CREATE MATERIALIZED VIEW totals AS SELECT item, count(*) AS n FROM orders GROUP BY item",
    "CREATE VIEW plain AS SELECT * FROM orders",
    "CREATE VIEW indexed AS SELECT item FROM orders",
    "CREATE INDEX indexed_item ON indexed (item)",
    "CREATE SEQUENCE numbers",
)


@asynccontextmanager
async def client_of(
    http: Http,
    audience: str = "agent",
    auth: tuple[str, str] | None = None,
    mode: str = "auto",
) -> AsyncIterator[Client]:
    """Connect a client as a role."""
    async with create_mcp_http_client(auth=auth) as asking:  # type: ignore[arg-type]
        transport = streamable_http_client(f"{http.url}/api/mcp/{audience}", http_client=asking)
        async with Client(transport, mode=mode) as client:
            yield client


async def called(client: Client, tool: str, **arguments: Any) -> Mapping[str, Any]:
    """Return what a tool returns that does not fail."""
    found = await client.call_tool(tool, arguments)
    assert not found.is_error, found
    assert isinstance(found.structured_content, dict)
    return found.structured_content


async def refused(client: Client, tool: str, **arguments: Any) -> str:
    """Return the text of a tool's error."""
    found = await client.call_tool(tool, arguments)
    assert found.is_error, found
    text: str = found.content[0].text  # type: ignore[union-attr]
    return text


def with_shop(
    data_dir: Path, scenario: Callable[[Http], Awaitable[None]], *more: str, **options: Any
) -> None:
    async def go(http: Http) -> None:
        await http.ran(*SHOP, *more)
        await scenario(http)

    over_environment(data_dir, go, **options)


def names(found: Mapping[str, Any]) -> Sequence[str]:
    return [each["name"] for each in found["objects"]]


@pytest.mark.parametrize("mode", ["2026-07-28", "legacy", "auto"])
def test_client_of_either_kind_of_revision_lists_and_calls_tools(tmp_path: Path, mode: str) -> None:
    async def go(http: Http) -> None:
        async with client_of(http, mode=mode) as client:
            tools = (await client.list_tools()).tools
            assert [each.name for each in tools] == [
                "list_objects", "describe_object", "query", "subscribe"
            ]  # fmt: skip
            assert all(each.input_schema["type"] == "object" for each in tools)
            found = await called(client, "query", query="SELECT 1 AS a, 2::bigint AS b")
            assert found == {
                "columns": [{"name": "a", "type": "integer"}, {"name": "b", "type": "bigint"}],
                "rows": [[1, "2"]],
                "row_count": 1,
                "truncated": False,
            }
        async with client_of(http, "developer", mode=mode) as client:
            more = {each.name for each in (await client.list_tools()).tools}
            assert more - {each.name for each in tools} == {"explain", "show_states"}

    over_environment(tmp_path, go)


def test_agents_are_shown_what_is_ready_to_be_read(tmp_path: Path) -> None:
    async def go(http: Http) -> None:
        async with client_of(http) as agent, client_of(http, "developer") as developer:
            found = await called(agent, "list_objects")
            assert names(found) == ["indexed", "orders", "totals"]
            orders = found["objects"][1]
            assert (orders["kind"], orders["comment"]) == ("table", "what was sold")
            assert orders["estimated_rows"] == "50"
            assert {"numbers", "plain"} <= set(names(await called(developer, "list_objects")))
            few = await called(agent, "list_objects", name_contains="D", limit=1)
            assert (names(few), few["more"]) == (["indexed"], True)
            rest = await called(agent, "list_objects", name_contains="D", limit=1, offset=1)
            assert (names(rest), rest["more"]) == (["orders"], False)
            assert names(await called(agent, "list_objects", kind="view")) == ["indexed"]

    with_shop(tmp_path, go)


@pytest.mark.full
def test_description_has_columns_keys_indexes_and_what_it_depends_on(tmp_path: Path) -> None:
    async def go(http: Http) -> None:
        async with client_of(http) as agent, client_of(http, "developer") as developer:
            orders = await called(agent, "describe_object", name="orders")
            assert orders["columns"][1] == {
                "name": "item",
                "type": "text",
                "nullable": False,
                "default": "'tea'::text",
                "comment": "the article",
            }
            assert [each["definition"] for each in orders["constraints"]] == ["PRIMARY KEY (id)"]
            assert "depends_on" not in orders
            view = await called(agent, "describe_object", name="public.indexed")
            assert [each["name"] for each in view["indexes"]] == ["indexed_item"]
            totals = await called(developer, "describe_object", name="totals")
            assert [each["name"] for each in totals["depends_on"]] == ["orders"]
            assert "GROUP BY" in totals["definition"]
            assert '"42P01"' in await refused(agent, "describe_object", name="plain")
            assert '"42P01"' in await refused(agent, "describe_object", name="nothing")
            listed = (await agent.list_resources()).resources
            assert [str(each.uri) for each in listed] == [
                "foreshore:///public/indexed", "foreshore:///public/orders",
                "foreshore:///public/totals",
            ]  # fmt: skip
            read = await agent.read_resource("foreshore:///public/orders")
            assert "the article" in read.contents[0].text  # type: ignore[union-attr]

    with_shop(tmp_path, go)


@pytest.mark.full
def test_query_is_bounded_in_rows_bytes_and_time(tmp_path: Path) -> None:
    async def go(http: Http) -> None:
        async with client_of(http) as agent:
            found = await called(agent, "query", query="SELECT id FROM orders", max_rows=7)
            assert (found["row_count"], len(found["rows"]), found["truncated"]) == (7, 7, True)
            whole = await called(agent, "query", query="SELECT id FROM orders", max_rows=50)
            assert (whole["row_count"], whole["truncated"]) == (50, False)
            wide = "SELECT repeat('x', 400000) FROM orders"
            found = await called(agent, "query", query=wide)
            assert (len(found["rows"]), found["truncated"]) == (2, True)
            widest = "SELECT repeat('x', 2000000) FROM orders"
            assert '"54000"' in await refused(agent, "query", query=widest)
            slow = await refused(agent, "query", query="SELECT pg_sleep(60)", timeout_seconds=1)
            assert '"57014"' in slow
            given = await called(
                agent, "query", query="SELECT id FROM orders WHERE id = $1", params=[3]
            )
            assert given["rows"] == [[3]]
            assert '"22023"' in await refused(agent, "query", query="SELECT 1", max_rows=5000)
            assert '"42601"' in await refused(agent, "query", query="SELECT 1; SELECT 2")

    with_shop(tmp_path, go)


WRITING = (
    "INSERT INTO orders VALUES (1000) RETURNING id",
    "WITH gone AS (DELETE FROM orders RETURNING id) SELECT * FROM gone",
    "SELECT nextval('numbers')",
    "SELECT set_config('transaction_read_only', 'off', true), nextval('numbers')",
    "SELECT pg_notify('a', 'b')",
    "SELECT pg_terminate_backend(pg_backend_pid())",
    "SELECT * FROM orders FOR UPDATE",
    "CREATE TABLE other (a int)",
    "COPY orders TO STDOUT",
    "BEGIN READ WRITE",
    "SUBSCRIBE orders",
)


@pytest.mark.parametrize("audience", ["agent", "developer"])
def test_query_cannot_change_anything(tmp_path: Path, audience: str) -> None:
    async def go(http: Http) -> None:
        async with client_of(http, audience) as client:
            for each in WRITING:
                assert '"error"' in await refused(client, "query", query=each), each
            assert '"error"' in await refused(client, "subscribe", query=WRITING[1])
        assert await http.rows("SELECT count(*) FROM orders") == [["50"]]
        assert await http.rows("SELECT nextval('numbers')") == [["1"]]

    with_shop(tmp_path, go)


def test_agents_are_refused_what_is_not_offered(tmp_path: Path) -> None:
    async def go(http: Http) -> None:
        async with client_of(http) as agent, client_of(http, "developer") as developer:
            for query in ("SELECT * FROM plain", "SELECT * FROM pg_class", "SHOW work_mem"):
                assert '"42501"' in await refused(agent, "query", query=query), query
                await called(developer, "query", query=query)
            assert '"42501"' in await refused(agent, "subscribe", query="SELECT * FROM plain")
            for view in ("indexed", "totals", "orders"):
                await called(agent, "query", query=f"SELECT * FROM {view}")

    with_shop(tmp_path, go)


@pytest.mark.full
def test_role_sees_and_reads_what_it_has_rights_on(tmp_path: Path) -> None:
    async def go(http: Http) -> None:
        async with client_of(http, auth=("ann", "")) as agent:
            assert names(await called(agent, "list_objects")) == ["totals"]
            await called(agent, "query", query="SELECT * FROM totals")
            assert '"42501"' in await refused(agent, "query", query="SELECT * FROM orders")
            assert '"42501"' in await refused(agent, "subscribe", query="SELECT * FROM orders")
            assert '"42P01"' in await refused(agent, "describe_object", name="orders")

    with_shop(tmp_path, go, "CREATE ROLE ann LOGIN", "GRANT SELECT ON totals TO ann")


@pytest.mark.full
def test_subscription_goes_on_from_its_cursor(tmp_path: Path) -> None:
    async def go(http: Http) -> None:
        query = "SELECT item, n FROM totals"
        async with client_of(http) as agent:
            first = await called(agent, "subscribe", query=query)
            assert first["changes"] == [[1, ["tea", "50"]]]
            assert [each["name"] for each in first["columns"]] == ["item", "n"]
            nothing = await called(
                agent, "subscribe", query=query, cursor=first["cursor"], timeout_seconds=1
            )
            assert (nothing["changes"], nothing["reset"]) == ([], False)
            waiting = asyncio.ensure_future(
                called(
                    agent, "subscribe", query=query, cursor=nothing["cursor"], timeout_seconds=60
                )
            )
            await http.ran("INSERT INTO orders VALUES (51)")
            found = await waiting
            assert sorted(found["changes"]) == [[-1, ["tea", "50"]], [1, ["tea", "51"]]]
            await http.ran("DELETE FROM orders WHERE id > 40", "DELETE FROM orders WHERE id > 30")
            copy: dict[str, int] = {"51": 1}
            cursor = found["cursor"]
            while copy != {"30": 1}:
                found = await called(agent, "subscribe", query=query, cursor=cursor)
                for count, (_, n) in found["changes"]:
                    copy[n] = copy.get(n, 0) + count
                copy = {n: count for n, count in copy.items() if count}
                cursor = found["cursor"]
            later = await called(agent, "subscribe", query=query, snapshot=False, timeout_seconds=1)
            assert (later["changes"], later["cursor"] is None) == ([], False)

    with_shop(tmp_path, go)


def test_subscription_begins_anew_if_its_query_means_something_else(tmp_path: Path) -> None:
    async def go(http: Http) -> None:
        async with client_of(http) as agent:
            query = "SELECT * FROM indexed WHERE item = 'tea'"
            first = await called(agent, "subscribe", query=query, max_rows=5)
            await http.ran(
                "DROP VIEW indexed",
                "CREATE VIEW indexed AS SELECT 'tea'::text AS item FROM orders WHERE id = 1",
                "CREATE INDEX indexed_item ON indexed (item)",
            )
            found = await called(agent, "subscribe", query=query, cursor=first["cursor"])
            assert (found["reset"], found["changes"]) == (True, [[1, ["tea"]]])
            assert '"22023"' in await refused(agent, "subscribe", query=query, cursor="nonsense")

    with_shop(tmp_path, go)


def test_developers_see_plans_and_states(tmp_path: Path) -> None:
    async def go(http: Http) -> None:
        async with client_of(http, "developer") as developer:
            plan = await called(developer, "explain", query="SELECT * FROM totals")
            assert "totals" in plan["rows"][0][0]
            fresh = await called(
                developer, "explain", query="SELECT * FROM totals", what="freshness"
            )
            assert fresh["rows"]
            await refused(developer, "query", query="SELECT 1 / 0")
            states = await called(developer, "show_states")
            assert "totals" in [each["name"] for each in states["lags"]]
            assert states["failed_statements"][0]["sqlstate"] == "22012"

    with_shop(tmp_path, go)


def test_session_of_a_call_is_shown_and_ends_with_its_client(tmp_path: Path) -> None:
    async def go(http: Http) -> None:
        async with client_of(http) as agent:
            asking = asyncio.ensure_future(
                called(agent, "query", query="SELECT pg_sleep(50)", timeout_seconds=60)
            )
            shown = "SELECT application_name FROM pg_stat_activity WHERE query LIKE '%sleep(50)'"

            async def is_shown() -> bool:
                return ["foreshore mcp agent"] in await http.rows(shown)

            async with asyncio.timeout(200):
                while not await is_shown():  # noqa: ASYNC110 - what changes it tells nobody
                    await asyncio.sleep(0.01)
            asking.cancel()
            async with asyncio.timeout(200):
                while await is_shown():  # noqa: ASYNC110
                    await asyncio.sleep(0.01)

    over_environment(tmp_path, go)


@pytest.mark.full
def test_description_says_why_reads_of_a_view_fail(tmp_path: Path) -> None:
    async def go(http: Http) -> None:
        async with client_of(http, auth=("ann", "")) as agent, client_of(http, "developer") as all:
            for client, error in ((all, "division by zero"), (agent, None)):
                errors: list[Any] = []
                async with asyncio.timeout(60):
                    while not errors:
                        found = await called(client, "describe_object", name="over_broken")
                        errors = found["errors"]
                        await asyncio.sleep(0.02)
                (found,) = errors
                assert found == {
                    "in_schema": "public",
                    "in_relation": "broken",
                    "sqlstate": "22012",
                    "error": error,  # values of rows are shown to those who may read them
                    "rows": "1",
                    "skipped": False,
                }
            (left_out,) = (await called(all, "describe_object", name="partial"))["errors"]
            assert (left_out["error"], left_out["skipped"]) == ("division by zero", True)
            states = await called(all, "show_states")
            failing = {each["name"] for each in states["dataflows"] if each["state"] == "failing"}
            assert failing == {"broken", "over_broken"}
            assert (await called(all, "describe_object", name="orders"))["errors"] == []

    with_shop(
        tmp_path,
        go,
        "CREATE MATERIALIZED VIEW broken AS SELECT 1 / (id - 3) AS x FROM orders",
        "CREATE MATERIALIZED VIEW over_broken AS SELECT count(*) AS n FROM broken",
        "CREATE MATERIALIZED VIEW partial WITH (ON ERROR = SKIP) AS SELECT 1 / (id - 3) AS x FROM orders",
        "CREATE ROLE ann LOGIN",
        "GRANT SELECT ON over_broken TO ann",
    )
