"""Answers that a session of requests reads are bounded, however the other side sends them."""

import gzip
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from requests import Session
from requests.exceptions import ConnectionError

from foreshore.storage.external import checked_requests

MOST = 1 << 20


class Rogue(BaseHTTPRequestHandler):
    """Answers as the path says; what is endless ends when nobody reads it."""

    def do_GET(self) -> None:
        match self.path:
            case "/short":
                self._begin(200, {"Content-Length": "2"})
                self.wfile.write(b"[]")
            case "/compressed":
                body = gzip.compress(b" " * (8 * MOST))
                sizes = {"Content-Length": str(len(body)), "Content-Encoding": "gzip"}
                self._begin(200, sizes)
                self.wfile.write(body)
            case "/slow_headers":
                self.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
                self._send_slowly()
            case "/slow":
                self._begin(200, {"Content-Length": "1000000"})
                self._send_slowly()
            case "/redirect":
                self._begin(302, {"Location": "/short"})
                self._send_without_end()
            case "/error":
                self._begin(500, {})
                self._send_without_end()
            case _:
                self._begin(200, {})
                self._send_without_end()

    do_POST = do_GET

    def _begin(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _send_slowly(self) -> None:
        server: Any = self.server
        try:
            while not server.has_ended.wait(0.01):
                self.wfile.write(b" ")
        except OSError:
            return

    def _send_without_end(self) -> None:
        sent = 0
        try:
            while sent < 64 * MOST:
                self.wfile.write(b" " * 65_536)
                sent += 65_536
        except OSError:  # as it should be
            return
        self.server.read_whole = True  # type: ignore[attr-defined]

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def rogue() -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Rogue)
    server.has_ended = threading.Event()  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.has_ended.set()  # type: ignore[attr-defined]
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.setattr(checked_requests, "MOST_BYTES", MOST)
    made = Session()
    checked_requests.guard(made)
    return made


def url(rogue: ThreadingHTTPServer, path: str) -> str:
    return f"http://127.0.0.1:{rogue.server_port}{path}"


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("path", ["/endless", "/compressed", "/redirect", "/error"])
def test_answer_that_is_too_long_is_refused(
    rogue: ThreadingHTTPServer, session: Session, method: str, path: str
) -> None:
    with pytest.raises(ConnectionError, match="the answer has more than 1 MiB"):
        session.request(method, url(rogue, path), timeout=20)
    assert not hasattr(rogue, "read_whole")


@pytest.mark.parametrize("path", ["/slow", "/slow_headers"])
def test_answer_that_takes_too_long_is_refused(
    rogue: ThreadingHTTPServer, session: Session, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(checked_requests, "LONGEST_SECONDS", 0.1)
    with pytest.raises(ConnectionError, match="no (whole )?answer within 0 seconds"):
        session.get(url(rogue, path), timeout=20)


def test_short_answer_is_read(rogue: ThreadingHTTPServer, session: Session) -> None:
    assert session.get(url(rogue, "/short"), timeout=20).json() == []
    with session.get(url(rogue, "/short"), timeout=20, stream=True) as answer:
        assert answer.raw.read() == b"[]"
