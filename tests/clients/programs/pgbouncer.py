"""pgbouncer before the server, in modes session, transaction and statement, used over psycopg."""

import os
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg_pool import ConnectionPool
from steps import equal, parts, raises, run, step

# As the daemon refuses to be root, it becomes this user then.
UNPRIVILEGED = ["-u", "nobody"] if os.geteuid() == 0 else []
PATH = f"{os.environ['PATH']}:/usr/sbin"


def configuration(mode: str, port: int, settings: str) -> str:
    """Return the configuration of a pool of two connections."""
    to = parts()
    return f"""[databases]
pooled = host={to["host"]} port={to["port"]} dbname={to["database"]} user={to["user"]}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = {mode}
default_pool_size = 2
ignore_startup_parameters = extra_float_digits
{settings}
"""


@contextmanager
def pool(mode: str, settings: str = "") -> Iterator[str]:
    """Start pgbouncer; yields its address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        file = Path(folder) / "pgbouncer.ini"
        file.write_text(configuration(mode, port, settings))
        daemon = subprocess.Popen(
            ["pgbouncer", "-q", *UNPRIVILEGED, str(file)],
            env={**os.environ, "PATH": PATH},
            stderr=subprocess.DEVNULL,
        )
        try:
            until = time.monotonic() + 20
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
                except OSError:
                    assert daemon.poll() is None and time.monotonic() < until, "it does not start"
                    time.sleep(0.05)
            yield f"postgres://any@127.0.0.1:{port}/pooled"
        finally:
            daemon.terminate()
            daemon.wait(10)


@step
def many_clients_share_two_connections():
    with pool("transaction") as url:
        clients = [psycopg.connect(url, autocommit=True, prepare_threshold=None) for _ in range(8)]
        servers = set()
        for client in clients:
            servers.add(client.execute("SELECT pg_backend_pid()").fetchone()[0])
        assert 1 <= len(servers) <= 2, servers
        for client in clients:
            client.close()


@step
def transactions_in_transaction_mode():
    with (
        pool("transaction") as url,
        psycopg.connect(url, prepare_threshold=None) as a,
        psycopg.connect(url, prepare_threshold=None) as b,
    ):
        a.execute("CREATE TABLE pooled (i int PRIMARY KEY)")
        a.commit()
        with a.transaction():
            a.execute("INSERT INTO pooled VALUES (%s)", (1,))
            equal(b.execute("SELECT count(*) FROM pooled").fetchone(), (0,))
            b.rollback()
        with raises(psycopg.errors.UniqueViolation, "23505"), a.transaction():
            a.execute("INSERT INTO pooled VALUES (1)")
        with a.cursor(name="c") as cursor:
            cursor.execute("SELECT i FROM generate_series(1, 50) AS g(i) ORDER BY i")
            equal(len(cursor.fetchmany(20)), 20)
        a.rollback()
        a.execute("SET LOCAL statement_timeout = 12345")
        a.commit()
        equal(b.execute("SELECT count(*) FROM pooled").fetchone(), (1,))
        b.rollback()
        with a.cursor().copy("COPY pooled FROM STDIN") as copy:
            for i in range(2, 12):
                copy.write_row((i,))
        a.commit()
        equal(b.execute("SELECT count(*) FROM pooled").fetchone(), (11,))


@step
def session_is_reset_between_clients():
    with pool("session", "default_pool_size = 1\nserver_reset_query = DISCARD ALL") as url:
        with psycopg.connect(url, autocommit=True, prepare_threshold=0) as c:
            first = c.execute("SELECT pg_backend_pid()").fetchone()
            c.execute("SET search_path = pg_catalog")
            c.execute("CREATE TEMPORARY TABLE mine (i int)")
            c.execute("SELECT pg_advisory_lock(77)")
            c.execute("LISTEN channel")
            assert c.execute("SELECT count(*) FROM pg_prepared_statements").fetchone()[0] > 0
        with psycopg.connect(url, autocommit=True, prepare_threshold=None) as c:
            equal(c.execute("SELECT pg_backend_pid()").fetchone(), first)
            equal(c.execute("SELECT count(*) FROM pg_prepared_statements").fetchone(), (0,))
            equal(c.execute("SELECT to_regclass('mine')").fetchone(), (None,))
            equal(c.execute("SELECT count(*) FROM pg_listening_channels()").fetchone(), (0,))
            path = c.execute("SHOW search_path").fetchone()[0]
            assert path != "pg_catalog", path
            equal(
                c.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").fetchone(),
                (0,),
            )


@step
def prepared_statements_in_session_mode():
    with pool("session") as url:
        for _ in range(2):
            with psycopg.connect(url, prepare_threshold=1) as c:
                for i in range(5):
                    equal(c.execute("SELECT %s::int + 1", (i,)).fetchone(), (i + 1,))


@step
def statements_in_statement_mode():
    with (
        pool("statement", "default_pool_size = 1") as url,
        psycopg.connect(url, autocommit=True, prepare_threshold=None) as a,
        psycopg.connect(url, autocommit=True, prepare_threshold=None) as b,
    ):
        a.execute("CREATE TABLE single (i int PRIMARY KEY)")
        for i in range(10):
            (a, b)[i % 2].execute("INSERT INTO single VALUES (%s)", (i,))
        with raises(psycopg.errors.UniqueViolation, "23505"):
            b.execute("INSERT INTO single VALUES (1)")
        equal(a.execute("SELECT count(*) FROM single").fetchone(), (10,))
        with a.cursor().copy("COPY single FROM STDIN") as copy:
            copy.write_row((77,))
        equal(b.execute("SELECT count(*) FROM single").fetchone(), (11,))
        with raises(psycopg.Error):  # a block is refused by the pooler
            b.execute("BEGIN")


@step
def pool_of_psycopg_behind_a_pool():
    with (
        pool("transaction") as url,
        ConnectionPool(url, min_size=4, max_size=8, kwargs={"prepare_threshold": None}) as clients,
    ):

        def count(number: int) -> int:
            with clients.connection() as connection:
                return connection.execute("SELECT %s::int + 1", (number,)).fetchone()[0]

        with ThreadPoolExecutor(8) as threads:
            equal(list(threads.map(count, range(100))), list(range(1, 101)))


@step
def settings_follow_the_client():
    names = ("one", "two", "three")
    with pool("transaction", "default_pool_size = 1") as url:
        clients = [
            psycopg.connect(url, autocommit=True, prepare_threshold=None, application_name=name)
            for name in names
        ]
        for _ in range(2):
            for name, client in zip(names, clients, strict=True):
                equal(client.execute("SHOW application_name").fetchone(), (name,))
        for client in clients:
            client.execute("SET timezone = 'Asia/Tokyo'")
            equal(client.info.parameter_status("TimeZone"), "Asia/Tokyo")
            client.close()


@step
def cancel_reaches_the_statement():
    for mode in ("session", "transaction"):
        with pool(mode) as url, psycopg.connect(url, autocommit=True) as c:
            timer = threading.Timer(0.5, c.cancel)
            timer.start()
            with raises(psycopg.errors.QueryCanceled, "57014"):
                c.execute("SELECT pg_sleep(30)")
            timer.join()
            equal(c.execute("SELECT 1").fetchone(), (1,))


@step
def client_that_goes_away_frees_its_transaction():
    with pool("transaction") as url:
        c = psycopg.connect(url, prepare_threshold=None)
        c.execute("CREATE TABLE left_open (i int)")
        c.close()  # within the transaction: pgbouncer closes the server's connection
        with psycopg.connect(url, prepare_threshold=None) as other:
            equal(other.execute("SELECT to_regclass('left_open')").fetchone(), (None,))


run()
