"""What a role that may only log in asks for takes a bounded part of a server's memory, for a while.

Each kind of `hungry.py` is tried on a real server: at its peak the server may have grown by what
`foreshore/memory_shares.py` allows, and when the client has gone, memory is back.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing

import psycopg
import pytest

from tests.harness import Server, indexed, serving, until
from tests.hostile.bystander import growth, resident
from tests.hostile.hungry import KINDS, Session, prepare, query, sizes

MIB = 1 << 20
# Beside DuckDB's 512 MB: rows that are made, encoded, or written, of which one in turn is long.
MOST = 800 * MIB
LEFT = 100 * MIB
HOLD_S = 20.0
GONE_S = 60.0
# What a kind needs beyond that, which docs/security.md names.
MORE = {"WebSocket": 1000 * MIB, "MCP": 1000 * MIB}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("hungry") / "data") as running:
        prepare(running)
        with running.connect() as connection:  # what the replica takes for it is nobody's attack
            indexed(connection, "stored_view")
        yield running


# Some ways in; all others take half a minute each, too, and not all of them are bounded so far.
OFTEN = {
    "COPY TO: a series",
    "portals: a thousand long values",
    "computed: calls: array to text",
    "writes: one transaction",
}
TRIED = [
    pytest.param(name, marks=pytest.mark.full if name in OFTEN else pytest.mark.slow)
    for name in KINDS
]


def end_statements(server: Server) -> None:
    """End what the role's sessions still compute, as a time-out would."""
    with server.connect() as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'hostile'"
        )


@pytest.mark.parametrize("name", TRIED)
def test_memory_is_bounded_and_given_back(server: Server, name: str) -> None:
    assert server.process is not None
    with server.connect() as honest, ExitStack() as opened:
        before, at_first = resident(server), sizes(server, "RssAnon").server
        for session in KINDS[name](server):
            opened.enter_context(closing(session))
        deadline = time.monotonic() + HOLD_S
        while time.monotonic() < deadline:
            assert honest.execute("SELECT 1").fetchone() == (1,)
            peak = sizes(server, "RssAnon").server - at_first  # mapped files can be dropped
            assert peak < MOST + MORE.get(name.partition(":")[0], 0), f"{peak // MIB} MB"
            assert server.process.poll() is None, "the server died"
    end_statements(server)
    until(lambda: growth(before, resident(server)) < LEFT, "the memory is back", GONE_S)


@pytest.mark.full
def test_client_that_goes_while_it_is_sent_rows_leaves_none(server: Server) -> None:
    before = resident(server)
    for _ in range(3):
        session = Session(server)
        session.send(query("SELECT repeat('x', 50000000)"))
        session.read_until(b"xxxx")
        session.close()
    until(lambda: growth(before, resident(server)) < LEFT // 2, "its rows are let go of")
    with pytest.raises(psycopg.Error), server.connect() as connection:
        connection.execute("SELECT repeat('x', 1000000000)")
