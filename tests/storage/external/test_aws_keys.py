"""VALIDATE CONNECTION of one to AWS: whether a store knows its keys."""

import asyncio
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from foreshore.errors import DatabaseError
from foreshore.storage.external.access import Access
from foreshore.storage.ingest.kinds import validate

pytest.importorskip("botocore")
KEYS = {"access key id": "AKIA", "secret access key": "hidden", "session token": "token"}


def told_by(status: int, answer: bytes) -> tuple[DatabaseError | None, dict[str, str]]:
    """Return the error of a connection to a store with this answer, and the request's headers."""
    sent: dict[str, str] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            sent.update({name.lower(): value for name, value in self.headers.items()})
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        endpoint = f"http://127.0.0.1:{server.server_port}"
        try:
            asyncio.run(validate(Access("aws", {**KEYS, "endpoint": endpoint})))
        except DatabaseError as error:
            return error, sent
        finally:
            thread.join()
    return None, sent


def test_keys_that_are_known_are_valid_whatever_they_allow() -> None:
    error, sent = told_by(200, b"<ListAllMyBucketsResult/>")
    assert error is None
    assert "Credential=AKIA/" in sent["authorization"]
    assert sent["x-amz-security-token"] == "token"
    assert "hidden" not in str(sent)
    assert told_by(403, b"<Error><Code>AccessDenied</Code></Error>")[0] is None


@pytest.mark.parametrize(
    ("status", "answer", "sqlstate", "says"),
    [
        (403, b"<Error><Code>InvalidAccessKeyId</Code></Error>", "28P01", "InvalidAccessKeyId"),
        (400, b"<Error><Code>ExpiredToken</Code></Error>", "28P01", "ExpiredToken"),
        (500, b"", "08006", "status 500"),
    ],
)
def test_other_answers_are_told(status: int, answer: bytes, sqlstate: str, says: str) -> None:
    error, _ = told_by(status, answer)
    assert error is not None
    assert error.sqlstate == sqlstate
    assert says in error.message
    assert "hidden" not in error.message


def test_a_store_that_is_away_and_keys_that_lack_are_told() -> None:
    for options, says in (
        ({**KEYS, "endpoint": "http://127.0.0.1:1"}, "could not ask http://127.0.0.1:1/"),
        ({"region": "x"}, 'has no option "ACCESS KEY ID"'),
    ):
        with pytest.raises(DatabaseError, match=says):
            asyncio.run(validate(Access("aws", options)))
