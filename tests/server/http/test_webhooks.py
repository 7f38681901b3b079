"""POST /api/webhook/...: rows that are durable, and requests that are refused."""

import asyncio
import hashlib
import hmac
from pathlib import Path
from typing import Any

import pytest

from foreshore.adapter.metrics.scrape import EnvironmentMetrics
from foreshore.adapter.sources import webhooks
from foreshore.server.http.origins import Origins
from tests.adapter.harness import TestEnvironment, in_environment
from tests.adapter.introspection.test_metrics import values
from tests.server.http.serving import Http, over, over_environment

HOOK = "/api/webhook/foreshore/public/w"


async def posted(http: Http, body: bytes | str, **headers: str | bytes) -> int:
    """Return the status of a request to webhook `w`."""
    named: Any = {name.replace("_", "-"): value for name, value in headers.items()}
    return (await http.client.post(HOOK, content=body, headers=named)).status_code


def test_bodies_become_rows_by_their_format(tmp_path: Path) -> None:
    async def go(http: Http) -> None:
        for format, body, rows in (
            ("JSON", '{"b": 1,  "a": [null]}', ['{"a": [null], "b": 1}']),
            ("JSON", '{"a": 1}\n\n[2]\r\n', ['{"a": 1}', "[2]"]),
            ("JSON", '{"a":\n 1}', ['{"a": 1}']),
            ("JSON ARRAY", '[1, {"x": "é"}]', ["1", '{"x": "é"}']),
            ("JSON ARRAY", "7", ["7"]),
            ("JSON ARRAY", "[]", []),
            ("TEXT", "a\nb", ["a\nb"]),
        ):
            await http.ran(f"CREATE SOURCE w FROM WEBHOOK BODY FORMAT {format}")
            assert await posted(http, body.encode()) == 200
            found = await http.rows("SELECT body::text FROM w")
            assert sorted(row[0] for row in found) == sorted(rows), format
            await http.ran("DROP SOURCE w")
        await http.ran("CREATE SOURCE w FROM WEBHOOK BODY FORMAT BYTES")
        assert await posted(http, b"\x00\xff") == 200
        assert await http.rows("SELECT body FROM w") == [["\\x00ff"]]
        assert await posted(http, b"x" * (2 << 20)) == 200
        assert await posted(http, b"x" * ((2 << 20) + 1)) == 413

    over_environment(tmp_path, go)


def test_headers_have_columns(tmp_path: Path) -> None:
    async def go(http: Http) -> None:
        await http.ran(
            "CREATE SOURCE w FROM WEBHOOK BODY FORMAT JSON INCLUDE HEADER 'X-Id' AS id"
            " INCLUDE HEADER 'x-raw' AS raw BYTES INCLUDE HEADERS (NOT 'Authorization', NOT 'host')"
        )
        assert await posted(http, "[1]\n[2]", x_id="7", x_raw="é".encode()) == 200
        assert await posted(http, "3", authorization="secret") == 200
        shown = (
            "SELECT body, id, raw, headers ? 'authorization', headers -> 'x-id' FROM w ORDER BY 1"
        )
        assert await http.rows(shown) == [
            [3, None, None, False, None],
            [[1], "7", "\\xc3a9", False, "7"],
            [[2], "7", "\\xc3a9", False, "7"],
        ]
        (create,) = await http.rows("SHOW CREATE SOURCE w")
        await http.ran("DROP SOURCE w", create[1])
        assert await http.rows("SHOW CREATE SOURCE w") == [create]

    over_environment(tmp_path, go)


def test_a_check_decides_who_may_send(tmp_path: Path) -> None:
    async def go(http: Http) -> None:
        http.env.environment.unlock_secrets(bytes(range(32)))
        await http.ran(
            "CREATE SECRET k AS 'key'",
            "CREATE SOURCE w FROM WEBHOOK BODY FORMAT TEXT CHECK (WITH (HEADERS, BODY AS b BYTES,"
            " SECRET k AS key BYTES) constant_time_eq(decode(headers -> 'x-sign', 'hex'),"
            " hmac(b, key, 'sha256')))",
        )
        sign = hmac.new(b"key", b"body", hashlib.sha256).hexdigest()
        assert await posted(http, "body", x_sign=sign) == 200
        assert await posted(http, "other", x_sign=sign) == 403
        assert await posted(http, "body") == 403  # NULL is not true
        assert await posted(http, "body", x_sign="no") == 400  # the check fails
        assert await http.rows("SELECT body FROM w") == [["body"]]
        (result,) = await http.results({"query": "DROP SECRET k"})
        assert result["error"]["code"] == "2BP01"
        await http.ran("ALTER SECRET k AS 'new'")
        assert await posted(http, "body", x_sign=sign) == 403
        (create,) = await http.rows("SHOW CREATE SOURCE w")
        await http.ran("DROP SOURCE w", create[1])
        sign = hmac.new(b"new", b"body", hashlib.sha256).hexdigest()
        assert await posted(http, "body", x_sign=sign) == 200

    over_environment(tmp_path, go)


def test_a_secret_without_a_value_lets_nobody_send(tmp_path: Path) -> None:
    async def go(http: Http) -> None:
        http.env.environment.unlock_secrets(bytes(range(32)))
        await http.ran(
            "CREATE SECRET hooksec AS ''",
            "CREATE SOURCE w FROM WEBHOOK BODY FORMAT TEXT CHECK (WITH (HEADERS, BODY AS b BYTES,"
            " SECRET hooksec AS key BYTES) constant_time_eq(decode(headers -> 'x-sign', 'hex'),"
            " hmac(b, key, 'sha256')))",
        )
        signed = {"x-sign": hmac.new(b"", b"body", hashlib.sha256).hexdigest()}
        answer = await http.client.post(HOOK, content=b"body", headers=signed)
        assert answer.status_code == 403
        assert "takes no requests" in answer.text
        assert "hooksec" not in answer.text
        assert await http.rows("SELECT count(*) FROM w") == [["0"]]
        shown = "SELECT status, error FROM mz_internal.mz_source_statuses WHERE name = 'w'"
        ((status, error),) = await http.rows(shown)
        assert status == "stalled"
        assert "hooksec" in error
        await http.ran("ALTER SECRET hooksec AS 'key'")
        assert await posted(http, "body", x_sign=signed["x-sign"]) == 403
        sign = hmac.new(b"key", b"body", hashlib.sha256).hexdigest()
        assert await posted(http, "body", x_sign=sign) == 200
        assert await http.rows(shown) == [["running", None]]

    over_environment(tmp_path, go)


def test_pages_of_other_origins_may_not_send(tmp_path: Path) -> None:
    async def go(http: Http) -> None:
        await http.ran("CREATE SOURCE w FROM WEBHOOK BODY FORMAT TEXT")
        assert await posted(http, "a", origin="http://evil.example") == 403
        assert await posted(http, "b", origin=http.url) == 200
        assert await posted(http, "c", origin="https://app.example") == 200
        assert await http.rows("SELECT body FROM w ORDER BY 1") == [["b"], ["c"]]

    over_environment(tmp_path, go, origins=Origins(["https://app.example"]))


def test_page_that_gives_the_server_a_name_sends_only_by_a_condition(tmp_path: Path) -> None:
    async def go(http: Http) -> None:
        await http.ran(
            "CREATE SOURCE w FROM WEBHOOK BODY FORMAT TEXT",
            "CREATE SOURCE checked FROM WEBHOOK BODY FORMAT TEXT"
            " CHECK (WITH (HEADERS AS h) h->'x-key' = 'k')",
        )
        for host, status in (("evil.example", 403), ("db.example", 200), ("127.0.0.1", 200)):
            assert await posted(http, host, host=host) == status
        sent = {"host": "evil.example", "x-key": "k"}
        hook = HOOK.removesuffix("w") + "checked"
        assert (await http.client.post(hook, content="a", headers=sent)).status_code == 200
        assert await http.rows("SELECT body FROM w ORDER BY 1") == [["127.0.0.1"], ["db.example"]]

    over_environment(tmp_path, go, origins=Origins(hosts=["db.example"]))


def test_what_cannot_be_read_is_refused_alone(tmp_path: Path) -> None:
    async def go(http: Http) -> None:
        assert await posted(http, "1") == 404
        await http.ran("CREATE TABLE t (body jsonb)")
        answer = await http.client.post("/api/webhook/foreshore/public/t", content="1")
        assert answer.status_code == 404
        assert (await http.client.get(HOOK)).status_code == 405
        await http.ran("CREATE SOURCE w FROM WEBHOOK BODY FORMAT JSON")
        bodies: list[bytes | str] = ["{", "1", b"\xff", "2", '"\\u0000"', "", "3", "NaN"]
        found = await asyncio.gather(*(posted(http, each) for each in bodies))
        assert found == [400, 200, 400, 200, 400, 400, 200, 400]
        assert await http.rows("SELECT body FROM w ORDER BY 1") == [[1], [2], [3]]
        (result,) = await http.results({"query": "INSERT INTO w VALUES ('1')"})
        assert result["error"]["code"] == "42809"
        for statement, code in (
            ("CREATE SOURCE x FROM WEBHOOK BODY FORMAT JSON CHECK (body = 1)", "42883"),
            (
                "CREATE SOURCE x FROM WEBHOOK BODY FORMAT JSON CHECK (WITH (SECRET no) true)",
                "42704",
            ),
            ("CREATE SOURCE x FROM WEBHOOK BODY FORMAT JSON CHECK (WITH (URL) true)", "42601"),
            ("CREATE SOURCE x FROM WEBHOOK BODY FORMAT AVRO", "42601"),
            ("CREATE SOURCE x FROM WEBHOOK BODY FORMAT JSON INCLUDE HEADER 'a' AS body", "42701"),
        ):
            (result,) = await http.results({"query": statement})
            assert result.get("error", {}).get("code") == code, (statement, result)

    over_environment(tmp_path, go)


def test_requests_are_refused_when_too_many_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def go(http: Http) -> None:
        await http.ran("CREATE SOURCE w FROM WEBHOOK BODY FORMAT JSON")
        monkeypatch.setattr(webhooks, "MOST_WAITING", 3)
        found = await asyncio.gather(*(posted(http, str(each)) for each in range(20)))
        assert set(found) == {200, 429}
        rows = await http.rows("SELECT count(*) FROM w")
        assert rows == [[str(found.count(200))]]

    over_environment(tmp_path, go)


def test_rows_are_there_after_a_restart(tmp_path: Path) -> None:
    async def serve(env: TestEnvironment) -> None:
        async with over(env.environment) as http:
            await http.ran("CREATE SOURCE w FROM WEBHOOK BODY FORMAT JSON CHECK (body <> '5')")
            found = await asyncio.gather(*(posted(http, str(each)) for each in range(10)))
            assert sorted(found) == [200] * 9 + [403]
        await env.reopen()
        async with over(env.environment) as http:
            assert await http.rows("SELECT count(*) FROM w") == [["9"]]
            assert await posted(http, "5") == 403
            assert await posted(http, "6") == 200

    in_environment(tmp_path, serve)


def test_states_tell_what_a_webhook_has_received_and_refused(tmp_path: Path) -> None:
    async def go(http: Http) -> None:
        await http.ran("CREATE SOURCE w FROM WEBHOOK BODY FORMAT JSON")
        shown = (
            "SELECT status, details->>'received', details->>'refused', details->>'last_refusal',"
            " details->>'last_received_at' IS NULL, details->>'last_refused_at' IS NULL"
            " FROM mz_internal.mz_source_statuses WHERE name = 'w'"
        )
        assert await http.rows(shown) == [["running", "0", "0", None, True, True]]
        assert await posted(http, "{") == 400
        refusal = "22P02 invalid input syntax for type json"
        assert await http.rows(shown) == [["running", "0", "1", refusal, True, False]]
        assert await posted(http, "1\n2") == 200
        assert await http.rows(shown) == [["running", "1", "1", refusal, False, False]]
        counts = (
            "SELECT messages_received, bytes_received, updates_committed"
            " FROM mz_internal.mz_source_statistics"
        )
        assert await http.rows(counts) == [["1", "3", "2"]]
        found = await EnvironmentMetrics(http.env.environment, 10).metrics()
        for name, count in (("updates", 2), ("messages", 1), ("refused", 1)):
            assert list(values(found, f"foreshore_source_{name}_total").values()) == [count], name
        await http.ran("DROP SOURCE w")
        assert await http.rows(shown) == []

    over_environment(tmp_path, go)
