"""Who may connect: rules, passwords, certificates and limits, over sockets."""

import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from foreshore.adapter.client import Login
from foreshore.errors import ConfigurationFileError, TooManyConnections
from foreshore.scram import Verifier
from foreshore.server import listener
from foreshore.server.admission import throttle
from foreshore.server.admission.policy import Policy, Sources
from foreshore.server.admission.rules import address_of
from foreshore.server.admission.throttle import Throttle
from foreshore.server.tls import Tls, TlsFiles
from foreshore.tokens import new_token
from tests.server.certificates import Authority
from tests.server.fake import FakeClient
from tests.server.serving import Served, serve
from tests.wire.raw import Raw, fields

VERIFIER = str(Verifier.of("correct horse"))
ROLES = {
    "foreshore": Login("o1", "foreshore", verifier=VERIFIER),
    "alice": Login(
        "o2", "alice", superuser=False, verifier=VERIFIER, groups=frozenset({"alice", "staff"}),
        connection_limit=1,
    ),
    "expired": Login("o3", "expired", verifier=VERIFIER, valid_until=1),
    "nologin": Login("o4", "nologin", can_login=False, verifier=VERIFIER),
    "plain": Login("o5", "plain", superuser=False),
    "program": Login("o6", "program", superuser=False, token=3),
}  # fmt: skip


class Guarded:
    """Servers with a certificate, whose rules a test writes."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory)
        issued = self.authority.issue("localhost", "server")
        self.tls = Tls(TlsFiles(issued.certificate, issued.key, self.authority.file))
        self.rules = directory / "pg_hba.conf"
        self.names = directory / "pg_ident.conf"

    def serve(self, rules: str, names: str = "", **options: Any) -> Iterator[Served]:
        self.rules.write_text(rules)
        self.names.write_text(names)
        policy = Policy(Sources(self.rules, self.names, verifies_clients=True))
        return serve(FakeClient(roles=dict(ROLES)), policy, tls=self.tls, **options)


@pytest.fixture
def guarded(tmp_path: Path) -> Guarded:
    return Guarded(tmp_path)


@pytest.fixture
def by_password(guarded: Guarded) -> Iterator[Served]:
    yield from guarded.serve("host all all all scram-sha-256")


def dsn(served: Served, **more: str) -> str:
    quoted = {name: f"'{value}'" for name, value in more.items()}
    return served.dsn(**({"password": "'correct horse'"} | quoted))


def refusal(dsn: str) -> str:
    """Return the message with which a connection is refused."""
    with pytest.raises(psycopg.OperationalError) as refused:
        psycopg.connect(dsn)
    return str(refused.value)


def state_of(served: Served, user: str) -> dict[str, str]:
    """Return the fields of the error that follows a startup message without TLS."""
    raw = Raw(served.port, start=False)
    raw.startup(user=user, database="foreshore")
    code, body = raw.receive()
    assert code == "E"
    return fields(body)


# --- passwords ----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["disable", "require"])
def test_right_password_is_accepted_and_wrong_one_is_not(by_password: Served, mode: str) -> None:
    with psycopg.connect(dsn(by_password, sslmode=mode)):
        pass
    wrong = refusal(dsn(by_password, sslmode=mode, password="wrong"))
    assert 'password authentication failed for user "foreshore"' in wrong


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_password_is_bound_to_the_channel(by_password: Served, version: str) -> None:
    more = {"channel_binding": "require", "ssl_max_protocol_version": version}
    with psycopg.connect(dsn(by_password, sslmode="require", **more)):
        pass


def test_channel_binding_is_not_offered_without_tls(by_password: Served) -> None:
    refused = refusal(dsn(by_password, sslmode="disable", channel_binding="require"))
    assert "channel binding required" in refused


@pytest.mark.parametrize("user", ["nobody", "plain", "expired"])
def test_role_that_cannot_have_a_password_looks_like_one_with_another(
    by_password: Served, user: str
) -> None:
    def first_message(name: str) -> tuple[int, dict[str, str]]:
        raw = Raw(by_password.port, start=False)
        raw.startup(user=name, database="foreshore")
        assert raw.receive() == ("R", b"\0\0\0\x0aSCRAM-SHA-256\0\0")
        first = b"n,,n=,r=abcdefgh"
        raw.send("p", b"SCRAM-SHA-256\0" + len(first).to_bytes(4, "big") + first)
        _, body = raw.receive()
        parts = body[4:].decode().split(",")
        return len(body), {part[0]: part[2:] for part in parts}

    size, said = first_message(user)
    known, _ = first_message("foreshore")
    again, same = first_message(user)
    assert size == known == again
    assert said["s"] == same["s"], "the salt of a role does not change"
    assert f'password authentication failed for user "{user}"' in refusal(
        dsn(by_password, user=user)
    )


def test_role_without_login_is_told_so_after_its_password(by_password: Served) -> None:
    assert 'role "nologin" is not permitted to log in' in refusal(dsn(by_password, user="nologin"))
    wrong = refusal(dsn(by_password, user="nologin", password="x"))
    assert "password authentication failed" in wrong


def test_password_itself_is_asked_for_only_over_tls(guarded: Guarded) -> None:
    for served in guarded.serve("host all all all password"):
        with psycopg.connect(dsn(served, sslmode="require")):
            pass
        assert "password authentication failed" in refusal(
            dsn(served, sslmode="require", password="x")
        )
        for user in ("foreshore", "nobody"):
            refused = state_of(served, user)
            assert refused["C"] == "28000"
            assert "needs an encrypted connection" in refused["M"]
    for served in guarded.serve("host all all all password plaintext=1"):
        with psycopg.connect(dsn(served, sslmode="disable")):
            pass


def test_token_is_accepted_where_the_password_itself_is_sent(guarded: Guarded) -> None:
    token, other = new_token("o6", 3).text(), new_token("o6", 4).text()
    for served in guarded.serve("host all all all password plaintext=1"):
        with psycopg.connect(dsn(served, user="program", password=token)):
            login = served.client.startups[-1].login
            assert login is not None
            assert login.token == 3  # so it is not let in if that was dropped meanwhile
        for user, password in (("program", other), ("foreshore", token)):
            refused = refusal(dsn(served, user=user, password=password))
            assert "password authentication failed" in refused
    for served in guarded.serve("host all all all scram-sha-256"):
        refused = refusal(dsn(served, user="program", password=token))
        assert "password authentication failed" in refused


# --- rules --------------------------------------------------------------------------------------


def test_rules_decide_by_user_database_and_encryption(guarded: Guarded) -> None:
    rules = """
        # comment
        hostssl    all        "alice"   127.0.0.1  255.255.255.255  trust
        host       all        alice     samehost   reject   # never over plain TCP
        host       other,all  +staff    all        trust
        hostnossl  sameuser   foreshore 127.0.0.0/8 trust
    """
    for served in guarded.serve(rules):
        with psycopg.connect(dsn(served, user="alice", sslmode="require")):
            pass
        rejected = state_of(served, "alice")
        assert rejected["C"] == "28000"
        assert rejected["M"] == (
            'pg_hba.conf rejects connection for host "127.0.0.1", user "alice", '
            'database "foreshore", no encryption'
        )
        with psycopg.connect(dsn(served, sslmode="disable")):
            pass
        no_rule = refusal(dsn(served, sslmode="require"))
        assert (
            'no pg_hba.conf entry for host "127.0.0.1", user "foreshore", database "foreshore", '
            "SSL encryption" in no_rule
        )


def test_unknown_role_that_is_trusted_does_not_exist(served: Served) -> None:
    refused = state_of(served, "nobody")
    assert (refused["C"], refused["M"]) == ("28000", 'role "nobody" does not exist')


@pytest.mark.parametrize(
    ("line", "mistake"),
    [
        ("tcp all all all trust", 'invalid connection type "tcp"'),
        ("host", "end-of-line before database specification"),
        ("host all", "end-of-line before role specification"),
        ("host all all", "end-of-line before IP address specification"),
        ("host all all 10.0.0.1", "end-of-line before netmask specification"),
        ("host all all all", "end-of-line before authentication method"),
        ("host all all 10.0.0.0/33 trust", 'invalid CIDR mask in address "10.0.0.0/33"'),
        ("host all all 10.0.0.300/8 trust", 'invalid IP address "10.0.0.300"'),
        ("host all all 10.0.0.1 255.0.255.0 trust", 'invalid IP mask "255.0.255.0"'),
        ("host all all ::1 255.0.0.0 trust", "IP address and mask do not match"),
        ("host all all db.example.com trust", "addresses by name are not supported"),
        ("host all all all magic", 'invalid authentication method "magic"'),
        ("host all all all ldap", "not supported by this build"),
        ("host all all all cert", "cert authentication is only supported on hostssl"),
        ("host all all all trust clientcert=verify-full", "clientcert can only be configured"),
        ("hostssl all all all trust clientcert=1", 'invalid value for clientcert: "1"'),
        ("host all all all trust map=m", "only valid for method cert"),
        ("host all all all trust x=1", 'unrecognized authentication option name: "x"'),
        ("host all all all trust x", "not in name=value format"),
        ('host all "all all trust', "a quoted name does not end"),
        ("host all all all,127.0.0.1 trust", "multiple values specified for host address"),
        ("host @file all all trust", "inclusion of files is not supported"),
    ],
)
def test_mistake_names_its_line(tmp_path: Path, line: str, mistake: str) -> None:
    file = tmp_path / "rules"
    file.write_text(f"local all all trust\n\n{line}\nhost all all all trust\n")
    with pytest.raises(ConfigurationFileError) as refused:
        Policy(Sources(file, verifies_clients=True))
    assert refused.value.message == f'could not load "{file}"'
    assert refused.value.detail is not None
    assert refused.value.detail.startswith("line 3: ")
    assert mistake in refused.value.detail


def test_broken_rules_leave_the_old_ones_in_force(guarded: Guarded) -> None:
    guarded.rules.write_text("host all all all reject")
    policy = Policy(Sources(guarded.rules))
    for served in serve(FakeClient(roles=dict(ROLES)), policy):
        assert "rejects connection" in refusal(dsn(served))
        guarded.rules.write_text("host all all all trust\nnonsense")
        with pytest.raises(ConfigurationFileError):
            policy.reload()
        assert [rule.error for rule in policy.written()] == [
            None,
            'invalid connection type "nonsense"',
        ]
        assert "rejects connection" in refusal(dsn(served))
        guarded.rules.write_text("host all all all trust")
        policy.reload()
        with psycopg.connect(dsn(served)):
            pass


# --- client certificates --------------------------------------------------------------------------


def with_certificate(guarded: Guarded, name: str) -> dict[str, str]:
    issued = guarded.authority.issue(name)
    return {"sslmode": "require", "sslcert": str(issued.certificate), "sslkey": str(issued.key)}


def test_certificate_proves_the_user_that_it_names(guarded: Guarded) -> None:
    alice = with_certificate(guarded, "alice")
    for served in guarded.serve("hostssl all all all cert"):
        with psycopg.connect(dsn(served, user="alice", **alice)):
            pass
        refused = refusal(dsn(served, user="foreshore", **alice))
        assert 'certificate authentication failed for user "foreshore"' in refused
        none = {"sslmode": "require", "sslcert": ""}
        refused = refusal(dsn(served, user="alice", **none))
        assert "connection requires a valid client certificate" in refused


def test_certificate_is_mapped_to_users(guarded: Guarded) -> None:
    names = r"""
        people  /^(.*)@example\.com$  \1
        people  root                  foreshore
        others  alice                 foreshore
    """
    mail, root = with_certificate(guarded, "alice@example.com"), with_certificate(guarded, "root")
    for served in guarded.serve("hostssl all all all cert map=people", names):
        for user, more in (("alice", mail), ("foreshore", root)):
            with psycopg.connect(dsn(served, user=user, **more)):
                pass
        for user, more in (("foreshore", mail), ("alice", root)):
            assert "certificate authentication failed" in refusal(dsn(served, user=user, **more))


def test_certificate_is_wanted_beside_a_password(guarded: Guarded) -> None:
    alice = with_certificate(guarded, "alice")
    for served in guarded.serve("hostssl all all all scram-sha-256 clientcert=verify-full"):
        with psycopg.connect(dsn(served, user="alice", **alice)):
            pass
        for user, password in (("alice", "wrong"), ("foreshore", "correct horse")):
            refused = refusal(dsn(served, user=user, password=password, **alice))
            assert "password authentication failed" in refused
    for served in guarded.serve("hostssl all all all trust clientcert=verify-ca"):
        with psycopg.connect(dsn(served, user="foreshore", **alice)):
            pass


# --- limits ---------------------------------------------------------------------------------------


def _is_empty(served: Served) -> bool:
    return served.listener.places.taken == 0


def test_role_has_a_limit_and_superusers_a_reserve(guarded: Guarded) -> None:
    trust = "host all all all trust"
    for served in guarded.serve(trust, max_connections=4, reserved=2):
        with psycopg.connect(dsn(served, user="alice")) as first:
            assert 'too many connections for role "alice"' in refusal(dsn(served, user="alice"))
            with psycopg.connect(dsn(served, user="plain")):
                refused = refusal(dsn(served, user="plain"))
                assert "remaining connection slots are reserved" in refused
                with psycopg.connect(dsn(served)), psycopg.connect(dsn(served)):
                    assert "too many clients already" in refusal(dsn(served))
            first.close()
        served.eventually(partial(_is_empty, served))
        with psycopg.connect(dsn(served, user="alice")):
            pass


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_guesses_wait_longer_with_each_failure() -> None:
    clock = Clock()
    slow = Throttle(clock)
    guesser, other = address_of("192.0.2.1"), address_of("192.0.2.2")
    waits = []
    for _ in range(10):
        waits.append(slow.reserve(guesser, "foreshore"))
        clock.now += waits[-1]
        slow.failed(guesser, "foreshore")
    assert waits == [0.0] * throttle.FREE + [0.25, 0.25, 0.5, 1.0, 2.0]
    assert slow.reserve(other, "foreshore") == 0.0
    assert slow.reserve(guesser, "alice") == 0.0
    clock.now += throttle.CALM + 1
    assert slow.reserve(guesser, "foreshore") == 0.0


def test_guesses_of_many_connections_wait_in_line() -> None:
    slow = Throttle(Clock())
    guesser, neighbour = address_of("2001:db8::1"), address_of("2001:db8::2")  # in one network
    for _ in range(throttle.FREE + 3):
        slow.failed(guesser, "foreshore")
    waits = [slow.reserve(each, "foreshore") for each in (neighbour, guesser) * 3]
    assert waits == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0]
    with pytest.raises(TooManyConnections, match="too many failed authentication attempts"):
        slow.reserve(guesser, "foreshore")


def test_guesses_at_many_roles_wait_too() -> None:
    slow = Throttle(Clock())
    guesser = address_of("192.0.2.1")
    for number in range(throttle.FREE_OF_ADDRESS):
        assert slow.reserve(guesser, f"role{number}") == 0.0
        slow.failed(guesser, f"role{number}")
    slow.succeeded(guesser, "role1")
    assert slow.reserve(guesser, "another") > 0.0


def test_guesses_do_not_keep_out_roles_that_have_proven_their_passwords() -> None:
    clock = Clock()
    slow = Throttle(clock)
    shared = address_of("192.0.2.1")
    for role in ("ann", "a token's role"):
        slow.succeeded(shared, role)
    for number in range(throttle.FREE_OF_ADDRESS + 50):
        slow.failed(shared, f"role{number}")
    for role in ("ann", "a token's role"):
        assert slow.reserve(shared, role) == 0.0
        for _ in range(throttle.FREE):
            slow.failed(shared, role)
        assert slow.reserve(shared, role) > 0.0  # guesses at these roles are counted all the same
    assert slow.reserve(shared, "another") > 0.0
    assert slow.reserve(address_of("192.0.2.2"), "another") == 0.0
    clock.now += throttle.PROVEN + 1
    for number in range(throttle.FREE_OF_ADDRESS):
        slow.failed(shared, f"role{number}")
    assert slow.reserve(shared, "ann") > 0.0


def test_success_forgives_failures_with_its_role() -> None:
    slow = Throttle(Clock())
    guesser = address_of("192.0.2.1")
    for role in ("alice", "foreshore"):
        for _ in range(throttle.FREE + 1):
            slow.failed(guesser, role)
    slow.succeeded(guesser, "alice")
    assert slow.reserve(guesser, "alice") == 0
    assert slow.reserve(guesser, "foreshore") > 0


def test_memory_of_failures_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttle, "MOST", 10)
    slow = Throttle(Clock())
    for number in range(100):
        slow.failed(address_of(f"10.0.0.{number}"), "foreshore")
        slow.succeeded(address_of(f"10.0.0.{number}"), "ann")
    assert len(slow._failures) == len(slow._proven) == 10


@pytest.mark.parametrize("method", ["scram-sha-256", "password plaintext=1"])
def test_guesses_in_flight_are_no_more_than_one_after_the_other(
    guarded: Guarded, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(throttle, "PATIENCE", 1.0)
    for served in guarded.serve(f"host all all all {method}"):
        began = time.monotonic()
        guesses = [Raw(served.port, start=False) for _ in range(60)]
        proofs = []
        for raw in guesses:  # all exchanges are open before the first guess is made
            raw.startup(user="foreshore", database="foreshore")
            raw.receive()
            proofs.append(b"wrong\0")
            if method == "scram-sha-256":
                first = b"n,,n=,r=abcdefgh"
                raw.send("p", b"SCRAM-SHA-256\0" + len(first).to_bytes(4, "big") + first)
                nonce = raw.receive()[1][4:].split(b",")[0]
                proofs[-1] = b"c=biws," + nonce + b",p=" + b"A" * 43 + b"="
        for raw, proof in zip(guesses, proofs, strict=True):
            raw.send("p", proof)
        codes = Counter(fields(raw.receive()[1])["C"] for raw in guesses)
        assert codes["28P01"] + codes["53300"] == 60
        longest = throttle.PATIENCE + throttle.SLOWEST + time.monotonic() - began
        most = throttle.FREE
        line, wait = 0.0, throttle.FIRST
        while line < longest:
            line, wait, most = line + wait, min(2 * wait, throttle.SLOWEST), most + 1
        assert throttle.FREE < codes["28P01"] <= most < 20


def test_right_passwords_in_flight_wait_for_none(by_password: Served) -> None:
    began = time.monotonic()
    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(psycopg.connect(dsn(by_password)))
        with ThreadPoolExecutor(20) as pool:
            for each in pool.map(psycopg.connect, [dsn(by_password)] * 40):
                stack.enter_context(each)
        assert by_password.listener.places.taken == 42
    assert not by_password.listener.authenticator._throttle._failures
    assert time.monotonic() - began < 60


def test_clients_that_prove_nothing_keep_nobody_out(guarded: Guarded) -> None:
    for served in guarded.serve("host all all all scram-sha-256", max_connections=2, reserved=0):
        idle = []
        for _ in range(listener.LOGGING_IN + 2):
            idle.append(Raw(served.port, start=False))
            idle[-1].startup(user="foreshore", database="foreshore")
            idle[-1].receive()
        with psycopg.connect(dsn(served)), psycopg.connect(dsn(served)):
            code, body = idle[0].receive()  # the oldest had to go
            assert (code, fields(body)["C"]) == ("E", "53300")
            assert "too many clients already" in refusal(dsn(served))


def test_sixth_guess_over_a_socket_waits(by_password: Served) -> None:
    for _ in range(throttle.FREE):
        refusal(dsn(by_password, password="wrong"))
    began = time.monotonic()
    with psycopg.connect(dsn(by_password)):
        assert time.monotonic() - began >= throttle.FIRST / 2
