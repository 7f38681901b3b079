"""CREATE SINK ... INTO WEBHOOK: requests with the changes, signed and at least once."""

import asyncio
import hashlib
import hmac
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from foreshore.errors import InsufficientPrivilege, InvalidParameterValue
from foreshore.storage.export.webhook.address import addresses_of, is_public, place_of
from tests.adapter.harness import TestEnvironment


class Receiver:
    """An HTTP server that keeps requests, and answers with given statuses first."""

    def __init__(self) -> None:
        self.requests: list[tuple[dict[str, str], bytes]] = []
        self.statuses: list[int] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.requests.append((dict(self.headers.items()), body))
                status = receiver.statuses.pop(0) if receiver.statuses else 200
                self.send_response(status)
                if 300 <= status < 400:
                    self.send_header("Location", "http://127.0.0.1:1/")
                self.end_headers()
                self.wfile.write(b"so it is")

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook?x=1"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def changes(self) -> list[tuple[int, dict[str, Any]]]:
        """Return the changes of all requests, each request once, without those seen before."""
        bodies = {h["Idempotency-Key"]: json.loads(body) for h, body in self.requests}
        found, seen = [], 0
        for body in sorted(bodies.values(), key=lambda b: (b["lower"], b["upper"], b["part"])):
            found += [(c["diff"], c["row"]) for c in body["changes"] if c["time"] >= seen]
            if body["last"]:
                seen = max(seen, body["upper"])
        return found


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.server.shutdown()
    made.server.server_close()


async def test_requests_have_changes_keys_and_signatures(
    own_env: TestEnvironment, receiver: Receiver
) -> None:
    env = own_env
    env.environment.unlock_secrets(bytes(32))
    await env.ran("a", "CREATE SECRET k AS 'key'", "CREATE SECRET token AS 'Bearer x'")
    await env.ran("a", 'CREATE TABLE t (k int, "v" text)', "INSERT INTO t VALUES (1, 'ä\"')")
    options = f"URL '{receiver.url}', PRIVATE, SECRET k, MAX ROWS 2, HEADER 'X-Own' = 'y'"
    into = f"INTO WEBHOOK ({options}, HEADER 'Authorization' = SECRET token)"
    await env.ran("a", f"CREATE SINK s FROM t {into} WITH (COMMIT INTERVAL '1 ms')")
    await env.ran("a", "WAIT FOR SINKS s")
    ((headers, body),) = receiver.requests
    expected = hmac.new(b"key", body, hashlib.sha256).hexdigest()
    assert headers["Foreshore-Signature"] == f"sha256={expected}"
    assert (headers["Authorization"], headers["X-Own"]) == ("Bearer x", "y")
    found = json.loads(body)
    assert headers["Idempotency-Key"] == "{sink}-{lower}-{upper}-{part}".format(**found)
    assert [each["row"] for each in found["changes"]] == [{"k": 1, "v": 'ä"'}]
    await env.ran("a", "INSERT INTO t SELECT i, NULL FROM generate_series(2, 6) i")
    await env.ran("a", "WAIT FOR SINKS s")
    parts = [json.loads(body) for _, body in receiver.requests[1:]]
    assert [len(each["changes"]) for each in parts] == [2, 2, 1]
    assert [(each["part"], each["last"]) for each in parts] == [(0, False), (1, False), (2, True)]
    assert "2BP01" in await env.query("a", "DROP SECRET token")
    shown = (await env.query("a", "SHOW CREATE SINK s")).splitlines()[0].split("|")[1]
    assert "HEADER 'Authorization' = SECRET foreshore.public.token" in shown
    await env.ran("a", "DROP SINK s", shown, "DROP SINK s")


async def test_changes_arrive_over_failures_kills_and_restarts(
    own_env: TestEnvironment, receiver: Receiver
) -> None:
    env = own_env
    await env.ran("a", "CREATE TABLE t (k int)", "INSERT INTO t VALUES (0)")
    receiver.statuses = [503, 429]
    into = f"INTO WEBHOOK (URL '{receiver.url}', PRIVATE) WITH (COMMIT INTERVAL '1 ms')"
    await env.ran("a", f"CREATE SINK s FROM t {into}")
    for number in range(1, 21):
        await env.ran("a", f"INSERT INTO t VALUES ({number})")
        if number % 5 == 0:
            await env.ran("a", "WAIT FOR SINKS s")
            env.export.last.kill()
        if number == 10:
            await env.reopen()
    await env.ran("a", "WAIT FOR SINKS s")
    found = [row["k"] for diff, row in receiver.changes() if diff == 1]
    assert sorted(found) == list(range(21))
    assert len({headers["Idempotency-Key"] for headers, _ in receiver.requests[:3]}) == 1


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, "127.0.0.1 has answered with status 400: so it is"),
        (307, "127.0.0.1 has answered with status 307: redirects are not followed"),
    ],
)
async def test_a_refusal_stalls_the_sink(
    own_env: TestEnvironment, receiver: Receiver, status: int, error: str
) -> None:
    env = own_env
    receiver.statuses = [status]
    await env.ran("a", "CREATE TABLE t (k int)", "INSERT INTO t VALUES (1)")
    into = f"INTO WEBHOOK (URL '{receiver.url}', PRIVATE)"
    await env.ran("a", f"CREATE SINK s FROM t {into}")
    await env.ran("a", "WAIT FOR SINKS s")  # it goes on by itself
    history = "SELECT error FROM mz_internal.mz_sink_status_history WHERE status = 'stalled'"
    assert (await env.query("a", history)).splitlines()[:-1] == [error]
    assert len(receiver.requests) == 2


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("INTO WEBHOOK", '22023: WEBHOOK needs the option "url"'),
        ("INTO WEBHOOK (URL 'http://127.0.0.1/')", "22023: the URL of a webhook must begin"),
        ("INTO WEBHOOK (URL 'https://127.0.0.1/')", '42501: the address 127.0.0.1 of "127.0.0.1"'),
        ("INTO WEBHOOK (URL 'https://localhost/')", "42501: the address"),
        ("INTO WEBHOOK (URL 'https://u:p@x/')", "22023: a URL must not have a password"),
        ("INTO WEBHOOK (URL 'https://x/', HEADER 'Host' = 'y')", '22023: "Host" cannot be a'),
        ("INTO WEBHOOK (URL 'https://x/', SECRET no)", "42704: secret"),
        ("INTO WEBHOOK (URL 'https://127.0.0.1/', PRIVATE) ENVELOPE UPSERT", "0A000: ENVELOPE"),
    ],
)
async def test_what_cannot_be_done_is_refused(
    env: TestEnvironment, statement: str, error: str
) -> None:
    await env.ran("a", "CREATE TABLE IF NOT EXISTS t (k int PRIMARY KEY)")
    assert f"ERROR {error}" in await env.query("a", f"CREATE SINK s FROM t {statement}")
    assert await env.query("a", "SHOW SINKS") == "SELECT 0"


async def test_only_superusers_name_private_addresses(
    own_env: TestEnvironment, receiver: Receiver
) -> None:
    env = own_env
    await env.ran("a", "CREATE TABLE t (k int)", "CREATE ROLE r")
    await env.ran("a", "GRANT ALL ON SCHEMA public TO r", "GRANT SELECT ON t TO r")
    await env.ran("a", "GRANT ALL ON CLUSTER quickstart TO r", "SET ROLE r")
    create = f"CREATE SINK s FROM t INTO WEBHOOK (URL '{receiver.url}', PRIVATE)"
    assert "ERROR 42501: must be superuser to create a sink to a private address" in (
        await env.query("a", create)
    )
    await asyncio.sleep(0)
    assert receiver.requests == []


async def test_a_secret_that_is_no_header_is_not_shown(
    own_env: TestEnvironment, receiver: Receiver
) -> None:
    env = own_env
    env.environment.unlock_secrets(bytes(32))
    await env.environment.equip_sources()
    await env.ran("a", "CREATE TABLE t (k int)", "CREATE SECRET k AS E'topsecret\\n'")
    options = f"URL '{receiver.url}', PRIVATE, HEADER 'Authorization' = SECRET k"
    answer = await env.query("a", f"CREATE SINK s FROM t INTO WEBHOOK ({options})")
    assert 'ERROR 22023: the value of header "Authorization" must' in answer
    assert "topsecret" not in answer


def test_public_addresses() -> None:
    public = ("93.184.216.34", "2606:4700::1111", "64:ff9b::5db8:d822")
    private = (
        *("127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "0.0.0.0"),
        *("100.64.0.1", "224.0.0.1", "::1", "fe80::1%eth0", "fd00::1", "::ffff:10.0.0.1"),
        *("64:ff9b::a00:1", "2002:a00:1::", "::127.0.0.1", "::10.0.0.1", "fec0::1"),
        *("64:ff9b:1::1", "::ffff:0:127.0.0.1", "5f00::1", "4000::1"),
    )
    assert [each for each in public if not is_public(each)] == []
    assert [each for each in private if is_public(each)] == []


def test_a_number_is_an_address_as_well() -> None:
    with pytest.raises(InsufficientPrivilege):
        addresses_of(place_of("https://2130706433/"), private=False)
    with pytest.raises(InvalidParameterValue):
        place_of("https://x/a b")


async def test_column_is_the_body_of_a_request_for_each_change(
    own_env: TestEnvironment, receiver: Receiver
) -> None:
    """Alertmanager's form: an alert that fires while a row is there, and is resolved after."""
    env = own_env
    await env.ran(
        "a",
        "CREATE TABLE readings (machine text, degrees int)",
        """CREATE MATERIALIZED VIEW too_hot AS
           SELECT machine, jsonb_build_array(jsonb_build_object('labels', l, 'endsAt', '9999')) AS
               fires, jsonb_build_array(jsonb_build_object('labels', l)) AS resolved
           FROM (SELECT machine, jsonb_build_object('alertname', 'hot', 'machine', machine) AS l
                 FROM readings GROUP BY machine HAVING max(degrees) > 90) AS hot""",
    )
    options = f"URL '{receiver.url}', PRIVATE, BODY = 'fires', REMOVED BODY = 'resolved'"
    await env.ran("a", f"CREATE SINK s FROM too_hot INTO WEBHOOK ({options})", "WAIT FOR SINKS s")
    assert not receiver.requests
    await env.ran("a", "INSERT INTO readings VALUES ('a', 91), ('b', 90), ('c', 99)")
    await env.ran("a", "WAIT FOR SINKS s")
    await env.ran("a", "UPDATE readings SET degrees = 100 - degrees % 10 WHERE machine <> 'c'")
    await env.ran("a", "DELETE FROM readings WHERE machine = 'c'", "WAIT FOR SINKS s")
    found = [json.loads(body) for _, body in receiver.requests]
    labels = [(each[0]["labels"]["machine"], each[0].get("endsAt")) for each in found]
    assert sorted(labels[:2]) == [("a", "9999"), ("c", "9999")]
    assert sorted(labels[2:], key=str) == [("b", "9999"), ("c", None)]
    keys = [headers["Idempotency-Key"] for headers, _ in receiver.requests]
    assert len(set(keys)) == len(keys)
    shown = (await env.query("a", "SHOW CREATE SINK s")).splitlines()[0].split("|")[1]
    await env.ran("a", "DROP SINK s", shown)
    await env.reopen()
    await env.ran("a", "INSERT INTO readings VALUES ('d', 95)", "WAIT FOR SINKS s")
    assert b'"d"' in receiver.requests[-1][1]
    create = f"CREATE SINK w FROM too_hot INTO WEBHOOK (URL '{receiver.url}', PRIVATE, BODY ="
    assert "42804" in await env.query("a", f"{create} 'machine')")
    assert "42703" in await env.query("a", f"{create} 'text')")
    assert "22023" in await env.query("a", f"{create} 'fires', MAX ROWS 3)")
