"""POST /api/sql, over an environment."""

import asyncio
import json
import re
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from foreshore.errors import ProtocolViolation
from foreshore.server.http import statements
from foreshore.types import TEXT
from tests.adapter.harness import until
from tests.server.http.serving import Http, over_environment

JSON = {"content-type": "application/json"}


def test_values_have_their_forms_of_json(tmp_path: Path) -> None:
    async def go(http: Http) -> None:
        (result,) = await http.results(
            {
                "query": "SELECT 1::int2, 2, 3::int8, 1.50::numeric, 1.25::float8, 'NaN'::float8, true,"
                " NULL::text, E'q\"b\\\\n\\n\\x01é', '{\"b\": [1, null]}'::jsonb, ARRAY['a b', NULL],"
                " DATE '2020-02-03', '\\xff'::bytea"
            }
        )
        assert result["rows"] == [
            [1, 2, "3", "1.50", 1.25, "NaN", True, None, 'q"b\\n\n\x01é', {"b": [1, None]},
             '{"a b",NULL}', "2020-02-03", "\\xff"]
        ]  # fmt: skip
        assert result["tag"] == "SELECT 1"
        assert result["desc"]["columns"][1] == {
            "name": "int4",
            "type_oid": 23,
            "type_len": 4,
            "type_mod": -1,
        } | {"name": "?column?"}

    over_environment(tmp_path, go)


def test_statements_of_one_text_are_one_transaction_up_to_the_first_error(tmp_path: Path) -> None:
    async def go(http: Http) -> None:
        await http.results({"query": "CREATE TABLE t (a int)"})
        found = await http.results(
            {"query": "INSERT INTO t VALUES (1); SELECT a FROM t; SELECT 1 / 0; SELECT 5"}
        )
        assert [each.get("ok") or each.get("tag") for each in found[:2]] == [
            "INSERT 0 1",
            "SELECT 1",
        ]
        assert found[2] == {
            "error": {"message": "division by zero", "code": "22012"},
            "notices": [],
        }
        assert len(found) == 3
        assert await http.rows("SELECT a FROM t") == []

    over_environment(tmp_path, go)


def test_extended_queries_take_parameters_and_commit_together(tmp_path: Path) -> None:
    async def go(http: Http) -> None:
        await http.results({"query": "CREATE TABLE t (a int, b text)"})
        insert = {"query": "INSERT INTO t VALUES ($1, $2)", "params": ["1", None]}
        select = {"query": "SELECT a, b FROM t WHERE a = $1", "params": ["1"]}
        first, second = await http.results({"queries": [insert, select]})
        assert first == {"ok": "INSERT 0 1", "notices": []}
        assert second["rows"] == [[1, None]]
        failing = {"query": "SELECT $1::int", "params": ["x"]}
        found = await http.results({"queries": [insert, failing, select]})
        assert [sorted(each) for each in found] == [["notices", "ok"], ["error", "notices"]]
        assert found[1]["error"]["code"] == "22P02"
        assert await http.rows("SELECT count(*) FROM t") == [["1"]]

    over_environment(tmp_path, go)


def test_one_statement_takes_parameters_beside_its_query(tmp_path: Path) -> None:
    async def go(http: Http) -> None:
        (found,) = await http.results({"query": "SELECT $1::int + 1", "params": [4]})
        assert found["rows"] == [[5]]
        (found,) = await http.results({"query": "SELECT 1; SELECT 2", "params": []})
        assert found["error"]["code"] == "42601"
        misplaced = await http.post({"queries": [{"query": "SELECT $1::int"}], "params": [4]})
        assert (misplaced.status_code, misplaced.json()["error"]["code"]) == (400, "08P01")
        nul = await http.post({"query": "SELECT $1", "params": ["\0"]})
        assert nul.json()["error"]["code"] == "22021"

    over_environment(tmp_path, go)


async def _parameter(http: Http, query: str, value: str) -> Any:
    """Return the only value of a query whose parameter is this JSON, or an error's code."""
    body = f'{{"queries": [{{"query": "{query}", "params": [{value}]}}]}}'
    headers = {"content-type": "application/json"}
    answer = await http.client.post("/api/sql", content=body, headers=headers)
    (result,) = answer.json()["results"]
    return result["error"]["code"] if "error" in result else result["rows"][0][0]


def test_parameters_are_values_of_json_and_keep_their_digits(tmp_path: Path) -> None:
    async def go(http: Http) -> None:
        for query, value, expected in (
            ("SELECT $1::int + 1", "41", 42),
            ("SELECT $1::numeric", "1.10000000000000000000000000001", None),
            ("SELECT $1::numeric", "123456789012345678901234567890", None),
            ("SELECT $1::text", "1.50", "1.50"),
            ("SELECT NOT $1", "true", False),
            ("SELECT 2 = ANY($1::int[])", "[1, 2, null]", True),
            (
                "SELECT $1::text[]",
                r'["a,b", "null", null, "\"", ""]',
                r'{"a,b","null",NULL,"\"",""}',
            ),
            ("SELECT $1::int[][]", "[[1, 2], [3, 4]]", "{{1,2},{3,4}}"),
            ("SELECT $1::jsonb", '[1, {"a": [2.10]}]', [1, {"a": [2.1]}]),
            ("SELECT $1::jsonb -> 'a'", '{"a": [true]}', [True]),
            ("SELECT $1::int", "[1]", "42804"),
            ("SELECT $1::int", "1.5", "22P02"),
            ("SELECT 1", "1", "08P01"),
        ):
            found = await _parameter(http, query, value)
            assert found == (value if expected is None else expected), (query, value)

    over_environment(tmp_path, go)


def test_session_is_named_by_the_client(tmp_path: Path) -> None:
    async def go(http: Http) -> None:
        show: dict[str, Any] = {"query": "SHOW application_name"}
        (shown,) = await http.results(show, headers={"user-agent": "shop/1.0"})
        assert shown["rows"] == [["shop/1.0"]]
        show |= {"options": {"Application_Name": "mine"}}
        (shown,) = await http.results(show, headers={"user-agent": "shop/1.0"})
        assert shown["rows"] == [["mine"]]

    over_environment(tmp_path, go)


def test_options_set_session_variables(tmp_path: Path) -> None:
    async def go(http: Http) -> None:
        show = {"query": "SHOW search_path", "options": {"search_path": "a, b"}}
        assert (await http.results(show))[0]["rows"] == [["a, b"]]
        numbers = {"statement_timeout": 1500, "default_transaction_read_only": True}
        found = await http.results(
            {
                "query": "SHOW statement_timeout; SHOW default_transaction_read_only",
                "options": numbers,
            }
        )
        assert [each["rows"] for each in found] == [[["1500ms"]], [["on"]]]
        del show["options"]
        given = {"options": json.dumps({"search_path": "c"})}
        assert (await http.results(show, params=given))[0]["rows"] == [["c"]]
        (unknown,) = await http.results({"query": "SELECT 1", "options": {"nothing": "1"}})
        assert [each["severity"] for each in unknown["notices"]] == ["warning"]
        wrong = await http.post({"query": "SELECT 1", "options": {"statement_timeout": "x"}})
        assert (wrong.status_code, wrong.json()["error"]["code"]) == (400, "22023")
        many = await http.post(
            {"query": "SELECT 1", "options": {f"a.b{i}": "" for i in range(9999)}}
        )
        assert (many.status_code, many.json()["error"]["code"]) == (400, "54000")
        missing = await http.post({"query": "SELECT 1", "options": {"database": "nowhere"}})
        assert missing.json()["error"]["code"] == "3D000"

    over_environment(tmp_path, go)


def test_requests_that_are_none_are_refused(tmp_path: Path) -> None:
    async def go(http: Http) -> None:
        for body in (
            b"",
            b"{",
            b"[]",
            b"{}",
            b'{"query": "SELECT 1", "queries": []}',
            b'{"query": 1}',
            b"\xff",
        ):
            answer = await http.client.post("/api/sql", content=body, headers=JSON)
            assert answer.status_code == 400, body
            assert answer.json()["error"]["code"] == "08P01"
        zero = await http.post({"query": "SELECT '\0'"})
        assert (zero.status_code, zero.json()["error"]["code"]) == (400, "22021")
        plain = await http.client.post("/api/sql", content=b'{"query": "SELECT 1"}')
        assert plain.status_code == 415
        assert (await http.client.get("/api/sql")).status_code == 405

    over_environment(tmp_path, go)


def test_body_that_is_too_long_is_refused(tmp_path: Path) -> None:
    async def go(http: Http) -> None:
        content = b'{"query": "' + b" " * (17 << 20) + b'"}'
        answer = await http.client.post("/api/sql", content=content, headers=JSON)
        assert answer.status_code == 413
        assert await http.rows("SELECT 1") == [[1]]

    over_environment(tmp_path, go)


def test_large_result_is_streamed_and_is_whole(tmp_path: Path) -> None:
    async def go(http: Http) -> None:
        body = {"query": "SELECT g, 'text ' || g FROM generate_series(1, 100000) g"}
        async with http.client.stream("POST", "/api/sql", json=body) as answer:
            assert "content-length" not in answer.headers
            data = await answer.aread()
        rows = json.loads(data)["results"][0]["rows"]
        assert len(rows) == 100_000
        assert rows[-1] == [100_000, "text 100000"]

    over_environment(tmp_path, go)


def test_error_after_rows_were_sent_is_in_their_result(tmp_path: Path) -> None:
    async def go(http: Http) -> None:
        await http.results({"query": "SET statement_timeout = 0"})
        body = {"query": "SELECT repeat('x', 1000) FROM generate_series(1, 100000)"}
        async with http.client.stream("POST", "/api/sql", json=body) as answer:
            pieces = answer.aiter_bytes()
            data = await anext(pieces)
            ((pid, _),) = await http.rows(
                "SELECT pid, pg_cancel_backend(pid) FROM pg_stat_activity WHERE query LIKE 'SELECT repeat%'"
            )
            async for piece in pieces:
                data += piece
        (result,) = json.loads(data)["results"]
        assert pid
        assert 0 < len(result["rows"]) < 100_000
        assert result["error"]["code"] == "57014"

    over_environment(tmp_path, go)


def test_sessions_are_shown_time_out_and_end_with_their_client(tmp_path: Path) -> None:
    async def go(http: Http) -> None:
        (slow,) = await http.results(
            {"query": "SELECT pg_sleep(60)", "options": {"statement_timeout": "50ms"}}
        )
        assert slow["error"]["code"] == "57014"
        asking = asyncio.ensure_future(http.post({"query": "SELECT pg_sleep(61)"}))
        active = "SELECT count(*) FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(61)'"

        async def running() -> bool:
            return await http.rows(active) == [["1"]]

        async with asyncio.timeout(30):
            while not await running():  # noqa: ASYNC110 - what changes it tells nobody
                await asyncio.sleep(0.01)
        asking.cancel()
        await until(lambda: not http.env.environment.sessions)

    over_environment(tmp_path, go)


def test_statements_that_need_the_port_or_a_stream_are_refused(tmp_path: Path) -> None:
    async def go(http: Http) -> None:
        await http.results({"query": "CREATE TABLE t (a int)"})
        for query in ("COPY t TO STDOUT", "COPY t FROM STDIN", "SUBSCRIBE t"):
            for body in ({"query": query}, {"queries": [{"query": query}]}):
                (result,) = await http.results(body)
                assert result["error"]["code"] == "0A000", query
        assert await http.rows("SELECT * FROM t") == []

    over_environment(tmp_path, go)


def test_terminated_session_answers_with_the_reason(tmp_path: Path) -> None:
    async def go(http: Http) -> None:
        answer = await http.post({"query": "SELECT pg_terminate_backend(pg_backend_pid())"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "57P01")

    over_environment(tmp_path, go)


def test_description_names_what_requests_are_decoded_by(tmp_path: Path) -> None:
    async def go(http: Http) -> None:
        found = (await http.client.get("/api/openapi.json")).json()
        assert found["openapi"].startswith("3.1")
        schemas = found["components"]["schemas"]
        assert set(schemas["SqlRequest"]["properties"]) == {"query", "params", "queries", "options"}
        assert set(schemas["ExtendedQuery"]["properties"]) == {"query", "params"}
        named = re.findall(r'"#/components/schemas/(\w+)"', json.dumps(found))
        assert set(named) <= set(schemas)
        for path, methods in found["paths"].items():
            for method in methods:
                answer = await http.client.request(method, path)
                assert answer.status_code in (400, 415), path  # it is there
        script = await http.client.get("/foreshore.js")
        assert "export function live" in script.text

    over_environment(tmp_path, go)


def test_many_numbers_are_decoded_on_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    session: Any = SimpleNamespace(time_zone="UTC")
    threads: list[int] = []

    async def run(_: Any, function: Any, *given: Any) -> Any:
        threads.append(len(given[0]))
        return function(*given)

    monkeypatch.setattr("foreshore.blocking.run", run)

    async def go() -> None:
        for params in ([1] * 10_000, [Decimal("1." + "1" * 1_000_000)], [1, 2.5, True]):
            types = [TEXT] * len(params)
            assert len(await statements._arguments(session, params, types)) == len(params)
        with pytest.raises(ProtocolViolation, match="supplies 10000 parameters"):
            await statements._arguments(session, [1] * 10_000, [])

    asyncio.run(go())
    assert threads == [10_000, 1]
