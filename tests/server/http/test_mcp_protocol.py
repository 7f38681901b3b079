"""The messages of the Model Context Protocol as they are on the wire, over the fake client."""

import base64
import json
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from foreshore.server.http.mcp import protocol
from foreshore.server.http.mcp.protocol import decoded
from foreshore.server.http.requests import LONG
from tests.server.fake import FakeClient
from tests.server.http.serving import Http, policy_of
from tests.server.http.test_admission import PASSWORD, with_fake

PATH = "/api/mcp/agent"
VERSION = "io.modelcontextprotocol/protocolVersion"
META = {VERSION: "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}


async def sent(
    http: Http, method: str, params: dict[str, Any] | None = None, **headers: str
) -> httpx.Response:
    """Send a request of the stateless revision; headers are given with underscores."""
    body = {
        "jsonrpc": "2.0",
        "id": 7,
        "method": method,
        "params": {"_meta": META, **(params or {})},
    }
    given = {"mcp-protocol-version": "2026-07-28", "mcp-method": method}
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    return await http.client.post(PATH, json=body, headers=given)


def code(answer: httpx.Response) -> tuple[int, int, Any]:
    found = answer.json()
    return answer.status_code, found["error"]["code"], found["id"]


def test_stateless_request_must_repeat_version_method_and_name_in_headers() -> None:
    async def go(http: Http, client: FakeClient) -> None:
        found = (await sent(http, "server/discover")).json()["result"]
        assert found["resultType"] == "complete"
        assert found["supportedVersions"][0] == "2026-07-28"
        assert code(await sent(http, "tools/list", mcp_method="tools/call")) == (400, -32020, 7)
        assert code(await sent(http, "tools/call", {"name": "x"})) == (400, -32020, 7)
        other = await sent(http, "tools/list", mcp_protocol_version="2025-11-25")
        assert code(other) == (400, -32020, 7)
        encoded = f"=?base64?{base64.b64encode('ä'.encode()).decode()}?="
        named = await sent(http, "tools/call", {"name": "ä"}, mcp_name=encoded)
        assert code(named) == (400, -32602, 7)  # there is no such tool
        broken = await sent(http, "tools/call", {"name": "ä"}, mcp_name="=?base64?!?=")
        assert code(broken) == (400, -32020, 7)

    with_fake(go)


def test_unknown_versions_and_methods_are_refused() -> None:
    async def go(http: Http, client: FakeClient) -> None:
        answer = await sent(http, "tools/list", mcp_protocol_version="1999-01-01")
        assert code(answer) == (400, -32022, 7)
        data = answer.json()["error"]["data"]
        assert data["requested"] == "1999-01-01"
        assert "2025-11-25" in data["supported"]
        for method in ("nothing", "initialize", "ping"):
            assert code(await sent(http, method)) == (404, -32601, 7), method
        assert code(await sent(http, "tools/list", {"_meta": {}})) == (400, -32602, 7)

    with_fake(go)


@pytest.mark.parametrize(
    ("asked", "agreed"), [("2025-03-26", "2025-03-26"), ("2024-11-05", "2025-11-25")]
)
def test_handshake_agrees_on_a_version(asked: str, agreed: str) -> None:
    async def go(http: Http, client: FakeClient) -> None:
        body = {"jsonrpc": "2.0", "id": "a", "method": "initialize"}
        answer = await http.client.post(PATH, json={**body, "params": {"protocolVersion": asked}})
        assert answer.json()["result"]["protocolVersion"] == agreed
        assert "mcp-session-id" not in answer.headers
        ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        answer = await http.client.post(PATH, json=ready)
        assert (answer.status_code, answer.content) == (202, b"")
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        assert (await http.client.post(PATH, json=ping)).json()["result"] == {}
        unknown = await http.client.post(PATH, json={**ping, "method": "nothing"})
        assert code(unknown) == (200, -32601, 1)

    with_fake(go)


def test_bodies_that_are_no_message_are_refused() -> None:
    async def go(http: Http, client: FakeClient) -> None:
        for body, expected in ((b"{", -32700), (b"[]", -32600), (b'{"jsonrpc": "1.0"}', -32600)):
            json_type = {"content-type": "application/json"}
            answer = await http.client.post(PATH, content=body, headers=json_type)
            assert code(answer) == (400, expected, None), body
        assert (await http.client.post(PATH, content=b"{}")).status_code == 415
        assert (await http.client.get(PATH)).status_code == 405
        assert (await http.client.delete(PATH)).status_code == 405

    with_fake(go)


def test_long_message_is_decoded_on_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[bool] = []

    def noted(body: bytes) -> protocol.Message:
        threads.append(threading.current_thread() is not threading.main_thread())
        return decoded(body)

    async def go(http: Http, client: FakeClient) -> None:
        monkeypatch.setattr(protocol, "decoded", noted)
        for padding in ("", "x" * LONG):
            ping = {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"padding": padding}}
            assert (await http.client.post(PATH, json=ping)).json()["result"] == {}

    with_fake(go)
    assert threads == [False, True]


def test_numbers_keep_their_digits() -> None:
    body = b'{"jsonrpc": "2.0", "params": {"arguments": {"params": [123456789012345.6789010]}}}'
    assert str(decoded(body).params["arguments"]["params"][0]) == "123456789012345.6789010"


def test_clients_are_admitted_as_those_of_sql_are(tmp_path: Path) -> None:
    async def open_to_all(http: Http, client: FakeClient) -> None:
        for headers in ({"origin": "http://evil.example"}, {"host": "evil.example"}):
            assert (await sent(http, "tools/list", None, **headers)).status_code == 403
        http.server.open(None)  # type: ignore[arg-type]
        assert (await sent(http, "tools/list")).status_code == 503

    async def with_password(http: Http, client: FakeClient) -> None:
        assert (await sent(http, "tools/list")).status_code == 401
        right = base64.b64encode("ann:s3crét".encode()).decode()
        assert (await sent(http, "tools/list", authorization=f"Basic {right}")).status_code == 200
        assert not client.startups  # a list of tools needs no session

    with_fake(open_to_all)
    with_fake(with_password, policy=policy_of(tmp_path, PASSWORD))


def test_tools_have_schemas_with_descriptions() -> None:
    async def go(http: Http, client: FakeClient) -> None:
        for each in (await sent(http, "tools/list")).json()["result"]["tools"]:
            schema = each["inputSchema"]
            assert schema["additionalProperties"] is False
            assert all("description" in given for given in schema["properties"].values()), each
            assert "$ref" not in json.dumps(schema)
            assert each["annotations"]["readOnlyHint"]

    with_fake(go)
