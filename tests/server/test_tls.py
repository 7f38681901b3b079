"""TLS over sockets: negotiated and direct, by libpq, psql and asyncpg."""

import asyncio
import contextlib
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import asyncpg
import psycopg
import pytest

from foreshore.errors import ConfigurationFileError
from foreshore.server.tls import Tls, TlsFiles, TlsLayer
from foreshore.server.wire import Wire
from foreshore.types import INT4, TEXT
from tests.server.certificates import Authority, Issued
from tests.server.fake import desc_of
from tests.server.serving import Served, serve
from tests.wire.raw import Raw, fields


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def certificate(authority: Authority) -> Issued:
    return authority.issue("localhost", "server")


@pytest.fixture
def tls(authority: Authority, certificate: Issued) -> Tls:
    return Tls(TlsFiles(certificate.certificate, certificate.key, authority.file))


@pytest.fixture
def secured(tls: Tls) -> Iterator[Served]:
    for served in serve(tls=tls):
        served.client.rows("select one", desc_of(one=INT4), {"one": [1]})
        long = {"long": ["x" * 100_000] * 100}
        served.client.rows("select long", desc_of(long=TEXT), long)
        served.client.does("hang", lambda session, args: session.hang())
        yield served


def uses_tls(connection: psycopg.Connection[tuple[object, ...]]) -> bool:
    return bool(connection.pgconn.ssl_in_use)


@pytest.mark.parametrize(
    ("mode", "encrypted"),
    [("disable", False), ("allow", False), ("prefer", True), ("require", True)],
)
def test_libpq_gets_encryption_that_its_sslmode_wants(
    secured: Served, mode: str, encrypted: bool
) -> None:
    with psycopg.connect(secured.dsn(sslmode=mode), autocommit=True) as connection:
        assert uses_tls(connection) is encrypted
        assert connection.execute("select one").fetchall() == [(1,)]
        rows = connection.execute("select long").fetchall()
        assert {len(row[0]) for row in rows} == {100_000}
        assert len(rows) == 100


@pytest.mark.parametrize("more", [{}, {"sslnegotiation": "direct"}])
def test_verified_certificate_is_accepted(
    secured: Served, authority: Authority, more: dict[str, str]
) -> None:
    dsn = secured.dsn(sslmode="verify-full", sslrootcert=str(authority.file), **more)
    with psycopg.connect(dsn, autocommit=True) as connection:
        assert uses_tls(connection)
        assert connection.execute("select one").fetchall() == [(1,)]


def test_certificate_of_another_authority_is_refused_by_client(
    secured: Served, tmp_path: Path
) -> None:
    other = Authority(tmp_path, "other")
    with pytest.raises(psycopg.OperationalError, match="certificate verify failed"):
        psycopg.connect(secured.dsn(sslmode="verify-ca", sslrootcert=str(other.file)))
    with psycopg.connect(secured.dsn()):
        pass


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_both_versions_of_tls_work(secured: Served, version: str) -> None:
    dsn = secured.dsn(sslmode="require", ssl_max_protocol_version=version)
    with psycopg.connect(dsn, autocommit=True) as connection:
        assert connection.execute("select one").fetchall() == [(1,)]


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion")
def test_older_versions_of_tls_are_refused(secured: Served) -> None:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_alpn_protocols(["postgresql"])
    with (
        socket.create_connection(("127.0.0.1", secured.port), timeout=10) as plain,
        pytest.raises((ssl.SSLError, OSError)),
    ):
        context.wrap_socket(plain)


@pytest.mark.skipif(shutil.which("psql") is None, reason="needs psql")
def test_psql_requires_tls(secured: Served) -> None:
    done = subprocess.run(
        ["psql", "-XAt", secured.dsn(sslmode="require"), "-c", "select one"],
        capture_output=True, text=True, timeout=20, check=False,
    )  # fmt: skip
    assert (done.stdout, done.returncode) == ("1\n", 0), done.stderr


def test_server_without_certificate_declines(served: Served) -> None:
    with pytest.raises(psycopg.OperationalError, match="does not support SSL"):
        psycopg.connect(served.dsn(sslmode="require"))
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(served.dsn(sslmode="require", sslnegotiation="direct"))


@pytest.mark.parametrize("direct", [False, True])
def test_asyncpg_selects_and_cancels_over_tls(
    secured: Served, authority: Authority, direct: bool
) -> None:
    async def scenario() -> None:
        context = ssl.create_default_context(cafile=str(authority.file))
        if direct:
            context.set_alpn_protocols(["postgresql"])
        connection = await asyncpg.connect(
            host="127.0.0.1", port=secured.port, user="foreshore", database="foreshore",
            ssl=context, direct_tls=direct,
        )  # fmt: skip
        try:
            assert await connection.fetchval("select one") == 1
            with pytest.raises(asyncio.TimeoutError):
                await connection.execute("hang", timeout=0.2)
            assert await connection.fetchval("select one") == 1
        finally:
            await connection.close()

    asyncio.run(scenario())


def test_session_knows_its_encryption(secured: Served, authority: Authority) -> None:
    mine = authority.issue("foreshore")
    more = {"sslcert": str(mine.certificate), "sslkey": str(mine.key)}
    with (
        psycopg.connect(secured.dsn(sslmode="disable")),
        psycopg.connect(secured.dsn(sslmode="require", ssl_max_protocol_version="TLSv1.2", **more)),
    ):
        plain, encrypted = (each.encryption for each in secured.client.startups)
    assert plain is None
    assert encrypted is not None
    assert (encrypted.version, encrypted.bits) == ("TLSv1.2", 256)
    assert (encrypted.client_dn, encrypted.issuer_dn) == ("CN=foreshore", "CN=authority")


def test_direct_tls_without_alpn_is_closed(secured: Served, authority: Authority) -> None:
    context = ssl.create_default_context(cafile=str(authority.file))
    with (
        socket.create_connection(("127.0.0.1", secured.port), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as wrapped,
    ):
        assert wrapped.recv(1) == b""


def test_libpq_cancels_over_tls(secured: Served) -> None:
    with (
        ThreadPoolExecutor(1) as threads,
        psycopg.connect(secured.dsn(sslmode="require"), autocommit=True) as connection,
    ):
        (session,) = secured.client.sessions.values()
        session.cancelled.set()  # cleared when it hangs
        running = threads.submit(connection.execute, "hang")
        secured.eventually(lambda: not session.cancelled.is_set())
        connection.cancel_safe(timeout=10)
        with pytest.raises(psycopg.errors.QueryCanceled):
            running.result(10)
        assert connection.execute("select one").fetchall() == [(1,)]


SSL_REQUEST = b"\0\0\0\x08\x04\xd2\x16\x2f"


def test_plain_text_behind_the_request_is_an_error(secured: Served) -> None:
    raw = Raw(secured.port, start=False)
    raw.socket.sendall(SSL_REQUEST + b"\0\0\0\x1b\0\x03\0\0user\0foreshore\0\0")
    error = fields(raw.receive()[1])
    assert (error["C"], error["M"]) == ("08P01", "received unencrypted data after SSL request")
    assert raw.closed()
    assert not secured.client.startups


def test_plain_text_in_place_of_handshake_ends_connection(secured: Served) -> None:
    raw = Raw(secured.port, start=False)
    raw.socket.sendall(SSL_REQUEST)
    assert raw.socket.recv(1) == b"S"
    raw.socket.sendall(b"\0\0\0\x1b\0\x03\0\0user\0foreshore\0\0")
    left = b""
    with contextlib.suppress(ConnectionResetError):
        while data := raw.socket.recv(1000):
            left += data
    assert b"R\0\0\0\x08" not in left
    assert not secured.client.startups


def test_disconnect_in_handshake_leaves_its_layer_to_the_thread(
    secured: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, send = TlsLayer.step, TlsLayer.send
    begun, ended, closed = threading.Event(), threading.Event(), threading.Event()
    together: list[TlsLayer] = []

    def slow(layer: TlsLayer) -> bool:
        begun.set()
        closed.wait(10)
        try:
            return step(layer)
        finally:
            ended.set()

    def watched(layer: TlsLayer) -> None:
        if not ended.is_set():
            together.append(layer)
        send(layer)

    def finished(wire: Wire, last: bytes = b"") -> None:
        close(wire, last)
        closed.set()

    close = Wire.close
    monkeypatch.setattr(TlsLayer, "step", slow)
    monkeypatch.setattr(TlsLayer, "send", watched)
    monkeypatch.setattr(Wire, "close", finished)
    with socket.create_connection(("127.0.0.1", secured.port)) as client:
        client.sendall(b"\x00\x00\x00\x08\x04\xd2\x16\x2f")
        assert client.recv(1) == b"S"
        client.sendall(b"\x16\x03\x01\x00\x05hello")
        assert begun.wait(10)
    assert closed.wait(10)
    assert ended.wait(10)
    assert not together


def test_reload_serves_new_certificate_to_new_connections(
    secured: Served, tls: Tls, tmp_path: Path, certificate: Issued
) -> None:
    other = Authority(tmp_path, "other")
    dsn = secured.dsn(sslmode="verify-full", sslrootcert=str(other.file))
    with psycopg.connect(secured.dsn(sslmode="require"), autocommit=True) as before:
        other.issue("localhost", "server")  # replaces the files
        with pytest.raises(psycopg.OperationalError, match="certificate verify failed"):
            psycopg.connect(dsn)
        tls.reload()
        with psycopg.connect(dsn):
            pass
        assert before.execute("select one").fetchall() == [(1,)]


def test_broken_new_certificate_keeps_old_one(
    secured: Served, tls: Tls, authority: Authority, certificate: Issued
) -> None:
    certificate.certificate.write_text("nonsense")
    with pytest.raises(ConfigurationFileError, match="could not load server certificate"):
        tls.reload()
    with psycopg.connect(secured.dsn(sslmode="verify-full", sslrootcert=str(authority.file))):
        pass


def test_key_that_others_may_read_is_refused(certificate: Issued) -> None:
    certificate.key.chmod(0o644)
    with pytest.raises(ConfigurationFileError, match="has group or world access"):
        Tls(TlsFiles(certificate.certificate, certificate.key))


def test_client_certificate_of_another_authority_is_refused(
    secured: Served, tmp_path: Path
) -> None:
    mine = Authority(tmp_path, "other").issue("foreshore")
    more = {"sslcert": str(mine.certificate), "sslkey": str(mine.key)}
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(secured.dsn(sslmode="require", **more))
