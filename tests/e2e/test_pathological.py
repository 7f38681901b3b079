"""Pathological statements hold up no other session: a fuzz from one seed, over one server."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from tests.e2e.pathological import statements
from tests.harness import Server, serving
from tests.starvation import Starvation

SEED = 18
COUNT = 1000
FEW = 50  # in `make test`
LONGEST_WAIT_S = 0.1
EXPECTED = {
    "00000", "0A000", "2201B", "22003", "22007", "22008", "22015", "22021", "22023", "22P02", "42601", "42804", "42883",
    "53200", "54000", "54001", "54011", "54023", "57014",
}  # fmt: skip


class Bystander:
    """A session that asks for nothing much, and notes what it waited for longest."""

    def __init__(self, server: Server) -> None:
        self.running = "nothing"
        self.waits: list[tuple[float, str]] = []
        self._server = server
        self._over = threading.Event()

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Ask all the time while the body runs."""
        thread = threading.Thread(target=self._ask)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def _ask(self) -> None:
        process = self._server.process
        assert process is not None
        with self._server.connect() as connection:
            while not self._over.wait(0.002):
                starvation, began = Starvation(process.pid), time.monotonic()
                connection.execute("SELECT 1")
                waited = time.monotonic() - began
                if waited > LONGEST_WAIT_S:  # and not for want of a processor
                    waited -= starvation.seconds()
                if waited > LONGEST_WAIT_S:
                    self.waits.append((waited, self.running))


def sqlstate_of(connection: psycopg.Connection[tuple[object, ...]], sql: str) -> str | None:
    """Run a statement; return the code of its error, 00000 if it has none."""
    try:
        connection.execute(sql.encode())
    except psycopg.Error as error:
        return error.sqlstate
    return "00000"


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("count", [FEW, pytest.param(COUNT, marks=pytest.mark.slow)])
def test_costly_statements_hold_up_no_other_session(data_dir: Path, count: int) -> None:
    with serving(data_dir) as server, server.connect() as connection:
        connection.execute("CREATE TABLE pathological (i int)")
        connection.execute("SELECT length(repeat('a', 1000000))")  # starts what is killed below
        connection.execute("SET statement_timeout = '1s'")
        bystander = Bystander(server)
        with bystander.asking():
            for sql in statements(SEED, count):
                bystander.running = sql[:200]
                answer = sqlstate_of(connection, sql)
                assert answer in EXPECTED, (answer, sql[:500])
        assert not bystander.waits, sorted(bystander.waits, reverse=True)[:10]
        assert connection.execute("SELECT 1").fetchone() == (1,)
