"""What connections dial: an address that was checked, whatever a name means a moment later."""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from foreshore.errors import DatabaseError, InsufficientPrivilege
from foreshore.storage.blob import Blob
from foreshore.storage.export.webhook.address import Place
from foreshore.storage.export.webhook.request import Call
from foreshore.storage.external import dial
from foreshore.storage.external.access import Access, Tunnel
from foreshore.storage.external.dial import addresses, is_link_local
from foreshore.storage.ingest.kinds import validate

METADATA = "169.254.169.254"
BODY = b"what only this machine can see"
KEYS = {"access key id": "A", "secret access key": "S"}


class Resolver:
    """Answers the first question about a name with the loopback, and later ones otherwise."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[str] = []
        self._real = socket.getaddrinfo
        monkeypatch.setattr(socket, "getaddrinfo", self)

    def __call__(self, host: Any, port: Any, *more: Any, **options: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        if name != "rebound.example":
            return self._real(host, port, *more, **options)
        self.asked.append(name)
        address = "127.0.0.1" if len(self.asked) == 1 else METADATA
        return self._real(address, port, *more, **options)


@contextmanager
def recording(
    answer: Callable[[BaseHTTPRequestHandler], None], port: int = 0
) -> Iterator[tuple[int, list[str]]]:
    """Yield the port of a server on the loopback, and the requests that it gets; 0: any port."""
    seen: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(f"{self.command} {self.path} {self.headers}")
            self.rfile.read(int(self.headers.get("Content-Length", "0")))
            answer(self)

        do_POST = do_HEAD = do_PUT = do_GET

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.server_port, seen
        finally:
            server.shutdown()
            thread.join()


def answered(status: int, body: bytes = BODY, **headers: str) -> Callable[..., None]:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        for name, value in (headers | {"Content-Length": str(len(body))}).items():
            request.send_header(name, value)
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(body)

    return answer


def test_addresses_within_others_are_link_local_too() -> None:
    for each in (
        METADATA, "fe80::1", "fe80::1%eth0", f"::ffff:{METADATA}", f"::{METADATA}",
        f"64:ff9b::{METADATA}", "2002:a9fe:a9fe::1", "fd00:ec2::254", "100.100.100.200",
    ):  # fmt: skip
        assert is_link_local(each), each
    for each in ("127.0.0.1", "::1", "::", "10.0.0.1", "64:ff9b::808:808", "2002:808:808::1"):
        assert not is_link_local(each), each


@pytest.mark.parametrize("host", ["", "x" * 70_000, "ä" * 300, "a..b", "nowhere.invalid", "\0"])
def test_what_is_no_name_has_no_address(host: str) -> None:
    try:
        addresses(host, 80)
    except (OSError, ValueError):
        return
    assert not host, "an empty name is this machine"


def webhook(port: int) -> None:
    place = Place("http", "rebound.example", port, "/")
    Call().post(place, b"{}", {}, 10, private=True)


def registry(port: int) -> None:
    url = f"http://rebound.example:{port}"
    asyncio.run(validate(Access("confluent schema registry", {"url": url})))


def glue(port: int) -> None:
    pytest.importorskip("botocore")
    options = {**KEYS, "region": "r", "endpoint": f"http://rebound.example:{port}"}
    asyncio.run(validate(Access("aws glue schema registry", options)))


def aws(port: int) -> None:
    pytest.importorskip("botocore")
    options = {**KEYS, "endpoint": f"http://rebound.example:{port}"}
    asyncio.run(validate(Access("aws", options)))


def iceberg(port: int) -> None:
    pytest.importorskip("pyiceberg")
    options = {"catalog type": "rest", "url": f"http://rebound.example:{port}"}
    asyncio.run(validate(Access("iceberg catalog", options)))


def postgres(port: int) -> None:
    options = {"host": "rebound.example", "port": str(port), "database": "d", "user": "u"}
    asyncio.run(validate(Access("postgres", options, by_superuser=True)))


def ssh_tunnel(port: int) -> None:
    pytest.importorskip("asyncssh")
    tunnel = Tunnel("rebound.example", port, "u", None, "/nonexistent/kept", ())
    asyncio.run(validate(Access("ssh tunnel", {}, tunnel)))


SLOW = pytest.param(iceberg, marks=pytest.mark.full)  # it tries again
DIALLERS = [webhook, registry, glue, aws, SLOW, postgres, ssh_tunnel]


@pytest.mark.parametrize("connect", DIALLERS, ids=lambda each: each.__name__)
def test_a_name_is_resolved_once(
    connect: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it means next, the connection goes to the address that was checked."""
    reached = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            link, _ = server.accept()
            reached.set()
            link.close()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        resolver = Resolver(monkeypatch)
        with pytest.raises((DatabaseError, OSError)) as raised:
            connect(server.getsockname()[1])
        assert reached.is_set(), raised.value
        thread.join()
    assert not isinstance(raised.value, InsufficientPrivilege) or len(resolver.asked) > 1


@pytest.mark.parametrize("connect", DIALLERS, ids=lambda each: each.__name__)
def test_the_second_address_is_tried_if_the_first_does_not_answer(
    connect: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that of a machine that has IPv6 for one that has none."""
    real = socket.getaddrinfo

    def resolve(host: Any, *more: Any, **options: Any) -> Any:
        if host not in ("rebound.example", b"rebound.example"):
            return real(host, *more, **options)
        return real("127.0.0.2", *more, **options) + real("127.0.0.1", *more, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=lambda: server.accept()[0].close(), daemon=True)
        thread.start()
        with pytest.raises((DatabaseError, OSError)):
            connect(server.getsockname()[1])
        thread.join(10)
        assert not thread.is_alive(), "it was not reached"


@pytest.mark.parametrize("connect", DIALLERS, ids=lambda each: each.__name__)
def test_a_link_local_name_is_refused_before_anything_is_sent(
    connect: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    Resolver(monkeypatch).asked.append("once")
    with pytest.raises(InsufficientPrivilege, match="is not for connections"):
        connect(80)


def test_a_catalog_leads_nowhere_by_a_redirect(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyiceberg")
    to = f"http://{METADATA}/latest/meta-data"
    with recording(answered(307, Location=to)) as (port, seen):
        options = {"catalog type": "rest", "url": f"http://127.0.0.1:{port}"}
        with pytest.raises(InsufficientPrivilege, match="is not for connections"):
            asyncio.run(validate(Access("iceberg catalog", options)))
    assert len(seen) == 1


@pytest.mark.parametrize("given", [{}, {"token": "t"}], ids=["nothing", "a token"])
def test_a_catalog_is_sent_a_token_only_if_there_is_one(
    given: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("pyiceberg")
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login a password b")
    monkeypatch.setenv("HOME", str(tmp_path))
    sent: list[str | None] = []

    def answer(handler: BaseHTTPRequestHandler) -> None:
        sent.append(handler.headers.get("Authorization"))
        answered(200, b"{}")(handler)

    with recording(answer) as (port, _), suppress(DatabaseError):
        options = {"catalog type": "rest", "url": f"http://127.0.0.1:{port}", **given}
        asyncio.run(validate(Access("iceberg catalog", options)))
    assert set(sent) == ({"Bearer t"} if given else {None})


@pytest.mark.parametrize("option", ["url", "oauth2 server url", "s3.endpoint"])
def test_no_url_of_a_catalog_leads_to_link_local_addresses(option: str) -> None:
    pytest.importorskip("pyiceberg")
    from foreshore.storage.external.iceberg import _Files, opened

    if option == "s3.endpoint":  # a catalog says it of each table
        with pytest.raises(InsufficientPrivilege, match="is not for connections"):
            _Files({}, None).of({"s3.endpoint": f"http://{METADATA}"})
        return
    with recording(answered(200, b"{}")) as (port, _):
        options = {"catalog type": "rest", "url": f"http://127.0.0.1:{port}", "credential": "a:b"}
        options[option] = f"http://{METADATA}/x"
        with pytest.raises(InsufficientPrivilege, match="is not for connections"):
            opened(Access("iceberg catalog", options), None, None)


def object_of(port: int) -> Blob:
    from foreshore.storage.external.aws import bucket_of

    return bucket_of(
        "s3://b/k", Access("aws", {**KEYS, "endpoint": f"http://127.0.0.1:{port}"})
    ).blob


def test_a_store_leads_nowhere_by_a_redirect(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client follows it, to an address that the proxy does not dial."""
    pytest.importorskip("obstore")
    real = dial.is_link_local
    monkeypatch.setattr(dial, "is_link_local", lambda each: each == "127.0.0.2" or real(each))
    with socket.create_server(("127.0.0.2", 0)) as metadata:
        to = f"http://127.0.0.2:{metadata.getsockname()[1]}/meta"
        with recording(answered(307, Location=to)) as (port, seen), pytest.raises(DatabaseError):
            object_of(port).get("k")
        assert len(seen) == 1
        metadata.setblocking(False)
        with pytest.raises(BlockingIOError):
            metadata.accept()


def test_a_store_is_read_and_written_through_the_proxy() -> None:
    pytest.importorskip("obstore")
    headers = {"ETag": '"e"', "Last-Modified": "Wed, 21 Oct 2015 07:28:00 GMT"}
    with recording(answered(200, BODY, **headers)) as (port, seen):
        blob = object_of(port)
        assert blob.get("k") == BODY
        blob.put("k", b"x" * 100_000)
    assert [each.split()[0] for each in seen] == ["GET", "PUT"]
    assert all("proxy" not in each.lower() for each in seen)
    assert all(f"127.0.0.1:{port}" in each for each in seen), "the host is who was signed for"


def test_the_proxy_is_for_those_who_know_its_token() -> None:
    from urllib.parse import urlsplit

    from foreshore.storage.external.checking_proxy import proxy_url

    with recording(answered(200)) as (port, seen):
        place = urlsplit(proxy_url())
        assert place.port is not None
        for head in (
            f"GET http://127.0.0.1:{port}/ HTTP/1.1\r\n",
            f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\n",
            f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\nProxy-Authorization: Basic eDp5\r\n",
        ):
            with socket.create_connection(("127.0.0.1", place.port)) as link:
                link.sendall(head.encode() + b"\r\n")
                assert link.makefile("rb").read().startswith(b"HTTP/1.1 407 ")
        assert seen == []


@pytest.mark.parametrize("status", [200, 301, 400, 401, 403, 404, 409, 412])
def test_an_error_of_a_store_has_no_answer_of_a_host(status: int) -> None:
    """Whoever names a host must not read there what only this machine can see."""
    pytest.importorskip("obstore")
    said = []
    for body in (BODY, b"<Error><Code>Odd</Code><Message>%s</Message></Error>" % BODY):
        with recording(answered(status, body)) as (port, _):
            for ask in (lambda blob: list(blob.list("k/")), lambda blob: blob.create("k", b"")):
                try:
                    ask(object_of(port))
                except DatabaseError as error:
                    said.append(error.message)
    assert said
    assert not any(BODY.decode() in each for each in said), said
