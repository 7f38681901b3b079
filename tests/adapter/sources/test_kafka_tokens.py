"""Brokers that know clients by tokens of an OAuth2 server (SASL OAUTHBEARER)."""

import asyncio
import base64
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs

import pytest

from tests.adapter.harness import TestEnvironment
from tests.adapter.sources.test_kafka import until
from tests.broker import Front, serving

pytestmark = pytest.mark.full


def token(subject: str) -> str:
    """Return a token in the form of a JWT, which nobody has signed."""
    now = int(time.time())
    parts = ({"alg": "none", "typ": "JWT"}, {"sub": subject, "iat": now, "exp": now + 600})
    encoded = [base64.urlsafe_b64encode(json.dumps(each).encode()).rstrip(b"=") for each in parts]
    return b".".join([*encoded, base64.urlsafe_b64encode(b"signed")]).decode().rstrip("=")


@pytest.fixture
def issued() -> str:
    return token("reader")


@pytest.fixture
def token_server(issued: str) -> Iterator[str]:
    """Give the token to the client `reader` with the secret `hidden`, for scope `topics`."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            given = base64.b64decode(self.headers["Authorization"].removeprefix("Basic ")).decode()
            right = given == "reader:hidden" and parse_qs(body).get("scope") == ["topics"]
            answer = {"access_token": issued, "expires_in": 600} if right else {"error": "wrong"}
            text = json.dumps(answer).encode()
            self.send_response(200 if right else 401)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{http.server_port}/token"
        http.shutdown()
        thread.join()


@pytest.fixture
def front(issued: str, tmp_path: Path) -> Iterator[Front]:
    with serving(tmp_path / "broker") as broker:
        front = Front(broker.address, {}, tokens={issued})
        yield front
        front.close()


@pytest.fixture
def env(front: Front, runner: asyncio.Runner, own_env: TestEnvironment) -> TestEnvironment:
    own_env.environment.unlock_secrets(bytes(32))
    runner.run(own_env.ran("a", "CREATE SECRET pw AS 'hidden'", "CREATE SECRET bad AS 'x'"))
    return own_env


async def test_source_and_sink_get_tokens_and_wrong_secrets_are_told(
    env: TestEnvironment, front: Front, token_server: str
) -> None:
    options = (
        f"BROKER '{front.address}', SASL MECHANISMS 'OAUTHBEARER', SASL USERNAME 'reader',"
        f" SASL PASSWORD SECRET {{}}, OAUTH2 SERVER URL '{token_server}', SCOPE 'topics'"
    )
    create = f"CREATE CONNECTION k TO KAFKA ({options}) WITH (VALIDATE)"
    wrong = await env.query("a", create.format("bad"))
    assert "ERROR 28P01: no token for Kafka at" in wrong
    assert "HINT: Check OAUTH2 SERVER URL" in wrong
    await env.ran(
        "a",
        create.format("pw"),
        "CREATE TABLE t (x int PRIMARY KEY)",
        "INSERT INTO t VALUES (1)",
        "CREATE SINK o FROM t INTO KAFKA CONNECTION k (TOPIC 'o') FORMAT JSON",
        "WAIT FOR SINKS o",
        "CREATE SOURCE s (x int) FROM KAFKA CONNECTION k (TOPIC 'o') FORMAT JSON",
    )
    await until(env, "SELECT x FROM s", "1")
