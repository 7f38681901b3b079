"""Real clients do with Foreshore what they do with PostgreSQL 15."""

import subprocess
from urllib.parse import urlsplit

import psycopg
import pytest

from tests.clients.clients import OTHERS, SAMPLE, Client
from tests.harness import Server

# A program that hangs is ended after this; its own steps take seconds of processor time.
LIMIT_S = 1800


def in_new_database(url: str, name: str) -> str:
    """Create a database at a server; returns its address."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"'.encode())
    return urlsplit(url)._replace(path=f"/{name}").geturl()


def outcomes(client: Client, url: str) -> dict[str, str]:
    """Run a client's program; returns "ok", or why it failed, by step in their order."""
    done = subprocess.run(
        [*client.command(), in_new_database(url, f"client_{client.name}")],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env=client.environment(),
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = {}
    for line in done.stdout.splitlines():
        what, _, rest = line.partition(" ")
        name, _, reason = rest.partition(": ")
        if what in ("ok", "failed"):
            found[name] = "ok" if what == "ok" else reason
    assert found, done.stdout[-3000:]
    return found


def check(client: Client, server: Server, postgres_url: str) -> None:
    """All steps succeed with PostgreSQL, and those not known to fail with Foreshore."""
    client.command()  # skips before a server starts
    ours = outcomes(client, server.url)
    if client.for_postgres:
        assert outcomes(client, postgres_url) == dict.fromkeys(ours, "ok"), "the program is wrong"
    failed = {name: reason for name, reason in ours.items() if reason != "ok"}
    unknown = {name: reason for name, reason in failed.items() if name not in client.fails}
    assert unknown == {}
    assert sorted(failed) == sorted(client.fails), "a known failure is gone: take it from `fails`"


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("client", SAMPLE, ids=lambda client: client.name)
def test_installed_client_works_as_with_postgresql(
    client: Client, server: Server, postgres_url: str
) -> None:
    check(client, server, postgres_url)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("client", OTHERS, ids=lambda client: client.name)
def test_other_client_works_as_with_postgresql(
    client: Client, server: Server, postgres_url: str
) -> None:
    check(client, server, postgres_url)
