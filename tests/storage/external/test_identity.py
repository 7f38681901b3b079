"""Connections send nothing but what their own definition holds, to whoever they are led to.

A process whose environment and home are full of the operator's secrets reaches rogue peers, which
record what they are sent and ask for more. Each kind of connection is tried.
"""

import base64
import json
import os
import re
import shutil
import socket
import ssl
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from foreshore.connection_spec import RULES
from tests.server.certificates import Authority

PLANTED = "planted"  # is in all that the operator has
OWN = "of-the-connection"
KEYS = {"access key id": f"AKIA-{OWN}", "secret access key": "S", "session token": f"t-{OWN}"}
SSL_REQUEST, GSS_REQUEST = b"\x00\x00\x00\x08\x04\xd2\x16/", b"\x00\x00\x00\x08\x04\xd2\x160"
# What a server that speaks PostgreSQL's protocol asks for.
ASKS = {
    "password": struct.pack(">cii", b"R", 8, 3),
    "md5": struct.pack(">cii4s", b"R", 12, 5, b"salt"),
    "scram": struct.pack(">cii", b"R", 23, 10) + b"SCRAM-SHA-256\0\0",
    "gss": struct.pack(">cii", b"R", 8, 7),
    "sspi": struct.pack(">cii", b"R", 8, 9),
    "kerberos": struct.pack(">cii", b"R", 8, 2),
    "trust": struct.pack(">cii", b"R", 8, 0) + struct.pack(">cic", b"Z", 5, b"I"),
}
CHALLENGE = (
    b"HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Negotiate\r\nWWW-Authenticate: NTLM\r\n"
    b'WWW-Authenticate: Basic realm="x"\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}'
)


class Rogue:
    """Listens, records, and asks for more."""

    def __init__(self, asks: str = "password", tls: ssl.SSLContext | None = None) -> None:
        self.heard: list[bytes] = []  # of each client
        self.certificates: list[Any] = []
        self._asks, self._tls = ASKS[asks], tls
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                link, _ = self._socket.accept()
            except OSError:
                return
            self.heard.append(b"")
            serve = threading.Thread(
                target=self._serve, args=(link, len(self.heard) - 1), daemon=True
            )
            serve.start()

    def _serve(self, link: socket.socket, number: int) -> None:
        link.settimeout(20)
        with suppress(OSError), ExitStack() as stack:
            stack.callback(link.close)
            while True:
                data = link.recv(65_536)
                self.heard[number] += data
                if not data:
                    return
                if data == SSL_REQUEST and self._tls is not None:
                    link.sendall(b"S")
                    link = self._tls.wrap_socket(link, server_side=True)
                    stack.callback(link.close)
                    self.certificates.append(link.getpeercert())
                elif data in (SSL_REQUEST, GSS_REQUEST):
                    link.sendall(b"N")
                elif data[:2] == b"\0\0" and b"user\0" in data:
                    link.sendall(self._asks)
                elif b" HTTP/1." in data:
                    link.sendall(CHALLENGE)
                    return
                elif data.startswith(b"SSH-"):
                    link.sendall(b"SSH-2.0-Rogue\r\n")
                else:
                    return

    def close(self) -> None:
        self._socket.close()


@contextmanager
def rogue(asks: str = "password", tls: ssl.SSLContext | None = None) -> Iterator[Rogue]:
    found = Rogue(asks, tls)
    try:
        yield found
    finally:
        found.close()


def planted(home: Path, elsewhere: Rogue, agent: str) -> dict[str, str]:
    """Fill a home directory with secrets; return an environment with as many."""
    there = f"http://{PLANTED}:{PLANTED}@127.0.0.1:{elsewhere.port}"
    files = {
        ".pgpass": f"*:*:*:*:{PLANTED}-pgpass\n",
        ".pg_service.conf": f"[{PLANTED}]\npassword={PLANTED}-service\noptions=-c {PLANTED}.x=1\n",
        ".aws/credentials": f"[default]\naws_access_key_id = AKIA{PLANTED}\n"
        f"aws_secret_access_key = {PLANTED}\naws_session_token = {PLANTED}-token\n",
        ".aws/config": f"[default]\nregion = {PLANTED}\nendpoint_url = {there}\n",
        ".netrc": f"machine 127.0.0.1 login {PLANTED} password {PLANTED}-netrc\n"
        f"default login {PLANTED} password {PLANTED}-netrc\n",
        ".ssh/config": f"Host *\n  User {PLANTED}\n  IdentityAgent {agent}\n",
        ".pyiceberg.yaml": f"catalog:\n  foreshore:\n    token: {PLANTED}-yaml\n    uri: {there}\n",
        "krb5cc": f"{PLANTED}-ticket",
    }
    for name, text in files.items():
        path = home / name
        path.parent.mkdir(exist_ok=True)
        path.touch(mode=0o600)
        path.write_text(text)
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", PLANTED, "-f", home / ".ssh/id_ed25519"],
        check=True,
    )  # fmt: skip
    proxies = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
    return {
        **dict.fromkeys(proxies, there),
        "HOME": str(home),
        "NETRC": str(home / ".netrc"),
        "SSH_AUTH_SOCK": agent,
        "KRB5CCNAME": f"FILE:{home}/krb5cc",
        "PGHOST": "127.0.0.1", "PGHOSTADDR": "127.0.0.1", "PGPORT": str(elsewhere.port),
        "PGUSER": PLANTED, "PGDATABASE": PLANTED, "PGPASSWORD": f"{PLANTED}-password",
        "PGSERVICE": PLANTED, "PGOPTIONS": f"-c {PLANTED}.x=1", "PGAPPNAME": PLANTED,
        "PGDATESTYLE": PLANTED, "PGTZ": PLANTED, "PGGEQO": PLANTED, "PGKRBSRVNAME": PLANTED,
        "PGREQUIREAUTH": "none", "PGGSSENCMODE": "prefer", "PGCLIENTENCODING": "LATIN1",
        "PGSSLCERT": str(home / "client.crt"), "PGSSLKEY": str(home / "client.key"),
        "PGSSLROOTCERT": str(home / "ca.crt"), "PGTARGETSESSIONATTRS": "standby",
        "AWS_ACCESS_KEY_ID": f"AKIA{PLANTED}", "AWS_SECRET_ACCESS_KEY": PLANTED,
        "AWS_ENDPOINT_URL": there, "AWS_PROFILE": "default", "AWS_REGION": PLANTED,
        "AWS_EC2_METADATA_SERVICE_ENDPOINT": there, "AWS_METADATA_ENDPOINT": there,
        "AWS_CONTAINER_CREDENTIALS_FULL_URI": there,
        "AWS_CONTAINER_AUTHORIZATION_TOKEN": PLANTED,
        "PYICEBERG_CATALOG__FORESHORE__TOKEN": f"{PLANTED}-token",
        "PYICEBERG_CATALOG__FORESHORE__URI": there,
        "FORESHORE_PASSWORD": PLANTED, "FORESHORE_REPLICA_SECRET": PLANTED,
    }  # fmt: skip


class Walk:
    """Reaches rogue peers from a process with secrets."""

    def __init__(self, home: Path, stack: ExitStack) -> None:
        self.elsewhere = stack.enter_context(rogue())
        self.agent = stack.enter_context(socket.socket(socket.AF_UNIX))
        path = f"/proc/{os.getpid()}/fd/{os.open(home, os.O_RDONLY)}/agent"
        self.agent.bind(path)
        self.agent.listen()
        self.environment = {
            "PATH": os.environ["PATH"],
            **planted(home, self.elsewhere, str(home / "agent")),
        }

    def said(self, *cases: tuple[str, dict[str, str], str, bool]) -> list[str]:
        """Reach each of these, and return what a user is told."""
        program = "tests.storage.external.reaching"
        ran = subprocess.run(
            [sys.executable, "-m", program],
            input=json.dumps(cases).encode(),
            env=self.environment,
            capture_output=True,
            check=False,
            timeout=400,
        )
        assert ran.returncode == 0, ran.stderr.decode()[-2_000:]
        return [json.loads(line) for line in ran.stdout.decode().splitlines()]

    def check(self, *peers: Rogue) -> None:
        """Nobody has been sent what is the operator's, and no other place was dialled."""
        for heard in (each for peer in peers for each in peer.heard):
            assert PLANTED not in plain(heard), heard
        assert self.elsewhere.heard == [], "another place was dialled"
        self.agent.setblocking(False)
        with pytest.raises(BlockingIOError):
            self.agent.accept()


def plain(heard: bytes) -> str:
    """Return what was heard, and what is base64 in it."""
    found = heard.decode("latin-1")
    for each in re.findall(r"[A-Za-z0-9+/]{8,}={0,2}", found):
        with suppress(ValueError):
            found += base64.b64decode(each + "=" * (-len(each) % 4)).decode("latin-1")
    return found.lower()


@pytest.fixture
def walk(tmp_path: Path) -> Iterator[Walk]:
    if shutil.which("ssh-keygen") is None:
        pytest.skip("needs ssh-keygen")
    with ExitStack() as stack:
        yield Walk(tmp_path, stack)


def postgres(port: int, **more: str) -> dict[str, str]:
    return {"host": "127.0.0.1", "port": str(port), "database": "d", "user": OWN, **more}


def cases(port: int) -> list[tuple[str, dict[str, str], str, bool]]:
    """Return connections of each kind to a port, and how they are used."""
    url = f"http://127.0.0.1:{port}"
    ssh = {"host": "127.0.0.1", "port": str(port), "user": OWN, "kept": "/nonexistent/kept"}
    catalog = {"catalog type": "rest", "url": url}
    every: list[tuple[str, dict[str, str], str, str]] = [
        ("postgres", postgres(port), "validate", "psycopg"),
        ("postgres", postgres(port), "sink", "psycopg"),
        ("postgres", postgres(port), "stream", "psycopg"),
        ("kafka", {"broker": f"127.0.0.1:{port}"}, "validate", "confluent_kafka"),
        ("kafka", {"broker": f"127.0.0.1:{port}", "security protocol": "ssl"}, "validate", "confluent_kafka"),
        (
            "kafka",
            {
                "broker": f"127.0.0.1:{port}", "sasl mechanisms": "oauthbearer",
                "sasl username": OWN, "sasl password": "p", "oauth2 server url": f"{url}/token",
            },
            "validate", "confluent_kafka",
        ),
        ("confluent schema registry", {"url": url}, "validate", "httpx"),
        ("confluent schema registry", {"url": url, "username": OWN}, "validate", "httpx"),
        ("aws glue schema registry", {**KEYS, "region": "r", "endpoint": url}, "validate", "botocore"),
        ("aws", {**KEYS, "endpoint": url}, "validate", "botocore"),
        ("aws", {**KEYS, "endpoint": url}, "files", "obstore"),
        ("aws", {**KEYS, "endpoint": url}, "delta", "deltalake"),
        ("iceberg catalog", catalog, "validate", "pyiceberg"),
        ("iceberg catalog", {**catalog, "credential": f"{OWN}:p"}, "validate", "pyiceberg"),
        ("iceberg catalog", {**catalog, "token": OWN}, "validate", "pyiceberg"),
        ("iceberg catalog", {**KEYS, "catalog type": "glue", "url": url, "region": "r"}, "validate", "boto3"),
        (
            "iceberg catalog",
            {**KEYS, "catalog type": "s3tablesrest", "url": url, "region": "r"},
            "validate", "boto3",
        ),
        ("ssh tunnel", ssh, "validate", "asyncssh"),
    ]  # fmt: skip
    assert {each[0] for each in every} == set(RULES), "each kind of connection is walked"
    return [(kind, options, how, True) for kind, options, how, needs in every if find_spec(needs)]


@pytest.mark.full
def test_no_kind_of_connection_sends_what_is_the_operators(walk: Walk) -> None:
    with ExitStack() as stack:
        peers = [stack.enter_context(rogue()) for _ in cases(0)]
        every = [cases(peer.port)[number] for number, peer in enumerate(peers)]
        for case, peer, said in zip(every, peers, walk.said(*every), strict=True):
            assert said != "ok", case
            assert PLANTED not in said.lower(), (case, said)
            assert peer.heard, (case, said)
        walk.check(*peers)


@pytest.mark.full
def test_a_server_gets_the_password_of_the_connection_only(walk: Walk) -> None:
    """Whatever it asks for, and whoever owns the connection."""
    with ExitStack() as stack:
        peers = {asks: stack.enter_context(rogue(asks)) for asks in ASKS}
        ways = (("stream", False), ("stream", True), ("sink", False))
        every = [
            ("postgres", postgres(peer.port, **own), how, by_superuser)
            for peer in peers.values()
            for own in ({}, {"password": OWN})
            for how, by_superuser in ways
        ]
        told = walk.said(*every)
        walk.check(*peers.values())
        for number, asks in enumerate(ASKS):
            without, own = told[6 * number :][:3], told[6 * number :][3:6]
            for each in (without[0], without[2]):
                assert each.startswith("2F003: password is required"), (asks, told)
            refused = asks not in ("password", "md5", "scram")
            for each in (own[0], own[2]):
                assert each.startswith("2F003: password is required") == refused, (asks, each)
            assert (without[1] == "ok") == (asks == "trust"), "a superuser's may be trusted"
        sent = [
            each for peer in peers.values() for each in peer.heard if OWN.encode() + b"\0" in each
        ]
        assert any(each.endswith(f"{OWN}\0".encode()) for each in peers["password"].heard)
        asked = {name for each in sent for name in settings(each)}
    assert asked <= {
        "user",
        "database",
        "application_name",
        "client_encoding",
        "options",
        "replication",
    }


def settings(heard: bytes) -> list[str]:
    """Return the names of what a client's first message says."""
    begins = heard.find(b"\0\x03\0\0")
    parts = heard[begins + 4 :].partition(b"\0\0")[0].split(b"\0") if begins >= 0 else []
    return [each.decode() for each in parts[::2]]


@pytest.mark.full
def test_certificates_of_a_home_are_not_sent(walk: Walk, tmp_path: Path) -> None:
    made = tmp_path / "made"
    made.mkdir()
    authority = Authority(made)
    server, client = authority.issue("server", host="127.0.0.1"), authority.issue(PLANTED)
    home = tmp_path / ".postgresql"
    home.mkdir()
    for file, name in ((client.certificate, "crt"), (client.key, "key")):
        for path in (home / f"postgresql.{name}", tmp_path / f"client.{name}"):
            shutil.copy(file, path)
            path.chmod(0o600)
    for path in (home / "root.crt", tmp_path / "ca.crt"):
        shutil.copy(authority.file, path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.file))
    context.load_cert_chain(server.certificate, server.key)
    context.verify_mode = ssl.CERT_OPTIONAL
    with rogue("trust", context) as peer:
        mode = {"ssl mode": "require"}
        own = {
            "ssl certificate": client.certificate.read_text(),
            "ssl key": client.key.read_text(),
        }
        told = walk.said(
            ("postgres", postgres(peer.port, **mode), "stream", True),
            ("postgres", postgres(peer.port, password=OWN, **mode), "sink", False),
            ("postgres", postgres(peer.port, **mode, **own), "stream", False),
        )
        assert len(peer.certificates) == 3, told
        assert peer.certificates[:2] == [None, None], "sent without being the connection's"
        assert peer.certificates[2], "the connection's own is sent"
        assert told[1].startswith("2F003")
