"""What is told of a schema registry that is not reached."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from foreshore.errors import ConnectionFailure, DatabaseError
from foreshore.storage.external.access import Access, Tunnel
from foreshore.storage.external.bounded_http import MOST_BYTES
from foreshore.storage.external.glue_registry import validate
from foreshore.storage.external.schema_registry import Registry


def error_of(url: str, tunnel: Tunnel | None = None) -> ConnectionFailure:
    """Return why a schema cannot be had."""

    async def ask() -> None:
        access = Access("confluent schema registry", {"url": url}, tunnel)
        async with Registry(access) as registry:
            await registry.latest("s", "AVRO")

    with pytest.raises(ConnectionFailure) as error:
        asyncio.run(ask())
    return error.value


@contextmanager
def answering(status: int, answer: bytes, **headers: str) -> Iterator[str]:
    """Yield the URL of a server that answers one request."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer)

        do_POST = do_GET

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        thread.join()


def test_a_password_in_a_url_is_not_told() -> None:
    error = error_of("http://me:hidden@127.0.0.1:1/path")
    assert error.message.startswith("could not ask the schema registry at http://127.0.0.1:1/path:")
    assert "hidden" not in f"{error.message} {error.hint}"


@pytest.mark.parametrize("answer", [b"[]", b'{"error_code": 1}', b'{"schema": 1}', b"<html>"])
def test_an_answer_that_has_no_schema_is_told(answer: bytes) -> None:
    with answering(200, answer) as url:
        error = error_of(url)
    assert error.message.startswith("could not ask the schema registry at http://127.0.0.1:")


def test_a_request_that_aws_repeats_is_not_told() -> None:
    pytest.importorskip("botocore")
    said = "The Canonical String should have been 'x-amz-security-token:hidden'"
    for code, sqlstate in (("InvalidSignatureException", "28P01"), ("Other", "08006")):
        answer = {"__type": f"com.amazon#{code}", "message": "x" * 1_000_000 + said}
        with answering(400, json.dumps(answer).encode()) as url:
            keys = {"access key id": "A", "secret access key": "S", "session token": "hidden"}
            access = Access("aws glue schema registry", {**keys, "region": "r", "endpoint": url})
            with pytest.raises(DatabaseError) as error:
                asyncio.run(validate(access))
        assert error.value.sqlstate == sqlstate
        assert code in error.value.message
        assert "hidden" not in error.value.message
        assert len(error.value.message) < 1_000


def test_an_answer_that_does_not_end_is_given_up() -> None:
    sent = 0

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            nonlocal sent
            self.send_response(200)
            self.end_headers()
            with suppress(OSError):  # the other end has had enough
                while sent < 8 * MOST_BYTES:
                    sent += self.wfile.write(bytes(2**16))

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        error = error_of(f"http://127.0.0.1:{server.server_port}")
        thread.join()
    assert error.message.endswith(": the answer has more than 16 MiB")
    assert sent < 3 * MOST_BYTES


def test_a_wrong_url_behind_a_tunnel_is_told() -> None:
    tunnel = Tunnel("127.0.0.1", 1, "me", None, "", ())
    assert "Invalid port: 'port'" in error_of("http://h:port", tunnel).message


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_where_a_redirect_leads_is_not_told(status: int) -> None:
    with answering(status, b"", location="http://10.1.2.3/inside") as url:
        error = error_of(url)
    assert f"status {status}" in error.message
    assert "10.1.2.3" not in f"{error.message} {error.detail} {error.hint}"
    assert "not followed" in (error.hint or "")
