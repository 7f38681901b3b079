"""Who may run SQL over HTTP: passwords, rules, places, and pages of other origins."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from foreshore.adapter.client import Completed, Login
from foreshore.logs import JsonFormatter
from foreshore.scram import Verifier
from foreshore.server.http.origins import Origins
from foreshore.server.metrics import HTTP_REQUESTS
from tests.server.fake import FakeClient
from tests.server.http.serving import Http, over, policy_of

QUERY = {"query": "SELECT 1"}
PASSWORD = "host all all 127.0.0.1/32 scram-sha-256\n"


def fake() -> FakeClient:
    client = FakeClient()
    client.does("SELECT 1", lambda session, args: Completed("SELECT 1"))
    client.roles["ann"] = Login(
        "o2", "ann", superuser=False, verifier=str(Verifier.of("s3crét")), connection_limit=1
    )
    client.roles["closed"] = Login("o3", "closed", can_login=False)
    return client


def with_fake(scenario: Callable[[Http, FakeClient], Awaitable[None]], **options: Any) -> None:
    async def go() -> None:
        client = fake()
        async with over(client, **options) as http:
            await scenario(http, client)

    asyncio.run(go())


async def refused(http: Http, **options: Any) -> tuple[int, str]:
    answer = await http.post(QUERY, **options)
    return answer.status_code, answer.json()["error"]["code"]


def test_loopback_is_trusted_as_the_first_role_or_the_given_one() -> None:
    async def go(http: Http, client: FakeClient) -> None:
        assert await http.results(QUERY) == [{"ok": "SELECT 1", "notices": []}]
        await http.results(QUERY, auth=("ann", "any"))
        assert [(each.user, each.database) for each in client.startups] == [
            ("foreshore", "foreshore"),
            ("ann", "foreshore"),
        ]
        assert await refused(http, auth=("nobody", "")) == (403, "28000")
        assert await refused(http, auth=("closed", "")) == (403, "28000")

    with_fake(go)


def test_password_is_required_where_the_rule_says_so(tmp_path: Path) -> None:
    async def go(http: Http, client: FakeClient) -> None:
        answer = await http.post(QUERY)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == 'Basic realm="foreshore"'
        script = await http.post(QUERY, headers={"sec-fetch-dest": "empty"})
        assert script.headers["www-authenticate"].startswith("X-Basic")
        assert await refused(http, auth=("ann", "wrong")) == (401, "28P01")
        assert await refused(http, auth=("nobody", "s3crét")) == (401, "28P01")
        await http.results(QUERY, auth=("ann", "s3crét"))
        assert [each.user for each in client.startups] == ["ann"]

    with_fake(go, policy=policy_of(tmp_path, PASSWORD))


def test_rules_that_reject_or_ask_for_certificates_refuse(tmp_path: Path) -> None:
    async def go(http: Http, client: FakeClient) -> None:
        assert await refused(http, auth=("ann", "s3crét")) == (403, "28000")
        assert not client.startups

    with_fake(go, policy=policy_of(tmp_path, "host all all 127.0.0.1/32 reject\n"))
    with_fake(go, policy=policy_of(tmp_path, "host all foreshore all trust\n"))


def test_other_schemes_and_broken_headers_are_refused() -> None:
    async def go(http: Http, client: FakeClient) -> None:
        for header in ("Digest abc", "Basic !", "Basic YQ==", "Basic"):
            answer = await http.post(QUERY, headers={"authorization": header})
            assert answer.json()["error"]["code"] == "28000", header
        assert not client.startups

    with_fake(go)


def test_guesses_are_slowed_down(tmp_path: Path) -> None:
    async def go(http: Http, client: FakeClient) -> None:
        many = [refused(http, auth=("ann", f"guess {n}")) for n in range(40)]
        found = await asyncio.gather(*many)
        assert (503, "53300") in found

    with_fake(go, policy=policy_of(tmp_path, PASSWORD), most=100)


def test_places_are_those_of_all_sessions_and_of_the_role() -> None:
    async def go(http: Http, client: FakeClient) -> None:
        running = asyncio.Event()

        async def wait(session: Any, args: Any) -> Completed:
            running.set()
            await asyncio.sleep(60)
            return Completed("SELECT 1")

        client.does("wait", wait)
        first = asyncio.ensure_future(http.post({"query": "wait"}, auth=("ann", "")))
        await running.wait()
        assert await refused(http, auth=("ann", "")) == (503, "53300")
        assert len(await http.results(QUERY)) == 1
        running.clear()
        second = asyncio.ensure_future(http.post({"query": "wait"}))
        await running.wait()
        assert await refused(http) == (503, "53300")
        first.cancel()
        second.cancel()

    with_fake(go, most=2)


def test_pages_of_other_origins_are_refused() -> None:
    async def go(http: Http, client: FakeClient) -> None:
        for headers in (
            {"origin": "http://evil.example"},
            {"origin": "null"},
            {"origin": f"https://127.0.0.1:{http.port}"},
            {"origin": "http://127.0.0.1:1"},
            {"sec-fetch-site": "cross-site"},
            {"host": "evil.example"},
            {"host": f"evil.example:{http.port}", "origin": f"http://evil.example:{http.port}"},
            {"x-forwarded-for": "10.0.0.1"},
        ):
            assert await refused(http, headers=headers) == (403, "28000"), headers
            asked = await http.client.options("/api/sql", headers=headers)
            assert "access-control-allow-origin" not in asked.headers
        assert not client.startups
        own = {"origin": f"http://localhost:{http.port}", "host": f"localhost:{http.port}"}
        await http.results(QUERY, headers=own)

    with_fake(go)


def test_allowed_origins_and_hosts_are_accepted() -> None:
    async def go(http: Http, client: FakeClient) -> None:
        page = {"origin": "https://app.example", "host": "db.example:1"}
        asked = await http.client.options("/api/sql", headers=page)
        assert asked.headers["access-control-allow-origin"] == "https://app.example"
        answer = await http.post(QUERY, headers=page)
        assert answer.status_code == 200
        assert answer.headers["access-control-allow-origin"] == "https://app.example"

    with_fake(go, origins=Origins(("https://app.example",), ("db.example",)))


def test_host_does_not_matter_to_those_who_prove_who_they_are(tmp_path: Path) -> None:
    async def go(http: Http, client: FakeClient) -> None:
        await http.results(QUERY, auth=("ann", "s3crét"), headers={"host": "db.example"})

    with_fake(go, policy=policy_of(tmp_path, PASSWORD))


def test_requests_before_the_data_is_opened_get_503() -> None:
    async def go(http: Http, client: FakeClient) -> None:
        http.server.open(None)  # type: ignore[arg-type]
        assert await refused(http) == (503, "57P03")

    with_fake(go)


def test_place_is_free_when_the_answer_is_there() -> None:
    async def go(http: Http, client: FakeClient) -> None:
        for _ in range(20):
            await http.results(QUERY, auth=("ann", ""))
            assert not http.sessions.places.taken

    with_fake(go, most=1)


def test_body_is_not_read_before_the_client_has_proven_who_it_is(tmp_path: Path) -> None:
    async def go(http: Http, client: FakeClient) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", http.port)
        head = "POST /api/sql HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: 10000000\r\n\r\n".encode())
        assert b" 401 " in await reader.readline()
        writer.close()

    with_fake(go, policy=policy_of(tmp_path, PASSWORD))


def test_request_has_an_id_in_log_and_answer_and_is_counted() -> None:
    logged: list[str] = []
    record = logging.makeLogRecord({"msg": "slow statement"})

    def ran(session: Any, args: Any) -> Completed:
        logged.append(json.loads(JsonFormatter("server").format(record)).get("request"))
        return Completed("SELECT 1")

    async def go(http: Http, client: FakeClient) -> None:
        client.does("SELECT 1", ran)
        served = HTTP_REQUESTS.labels("/api/sql", "200")._value
        before = served.get()
        answer = await http.post(QUERY, headers={"x-request-id": "a1:b-2"})
        assert served.get() == before + 1
        assert answer.headers["x-request-id"] == "a1:b-2"
        for wrong in ("a b", "x" * 200):
            answer = await http.post(QUERY, headers={"x-request-id": wrong})
            assert answer.headers["x-request-id"] != wrong
        assert logged[0] == "a1:b-2"
        assert logged[2] == answer.headers["x-request-id"]
        assert "request" not in json.loads(JsonFormatter("server").format(record))

    with_fake(go)
