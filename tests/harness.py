"""Real processes for tests: a Foreshore server, a PostgreSQL, and the programs both are tried with."""

from __future__ import annotations

import contextlib
import glob
import os
import pwd
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

from foreshore.compute.spark.java import find_java
from foreshore.errors import Unavailable
from foreshore.extras import is_spark_installed
from foreshore.server.start import ALLOCATOR
from tests.loop_guard import MARK

ROOT = Path(__file__).parent.parent
GUARDED = (str(ROOT / "tests" / "guarded_server.py"),)
START_S = 60.0


_RESERVED: list[socket.socket] = []  # until this process ends


def free_port() -> int:
    """Return a port of the loopback on which nobody else listens, not even later.

    A socket that does not listen stays bound to it. So connections to it are refused, the system
    gives it to no other program, and whoever sets SO_REUSEADDR, as servers do, can listen on it.
    """
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind(("127.0.0.1", 0))
    _RESERVED.append(reserved)
    port: int = reserved.getsockname()[1]
    return port


def until(condition: Callable[[], bool], what: str, within_s: float = 60.0) -> None:
    """Wait for `condition`; fails with `what` if it does not come true in time."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {within_s:g} s: {what}"
        time.sleep(0.02)


def file_sizes(directory: Path, pattern: str = "**/*") -> dict[Path, int]:
    """Return the bytes of each file below `directory`; who is at work there may remove any meanwhile."""
    sizes = {}
    for name in glob.iglob(pattern, root_dir=directory, recursive=True):
        path = directory / name
        with contextlib.suppress(FileNotFoundError):
            found = path.stat()
            if stat.S_ISREG(found.st_mode):
                sizes[path] = found.st_size
    return sizes


def indexed(connection: psycopg.Connection[Any], view: str) -> None:
    """Wait until a view is answered from its index."""
    plan = f"EXPLAIN PHYSICAL PLAN FOR SELECT * FROM {view}".encode()

    def used() -> bool:
        return "Index" in str(connection.execute(plan).fetchall())

    until(used, f"the index of {view} is there")


# How the reason of a test's skip begins where a program is missing; the rest names the program.
NOT_INSTALLED = "not installed: "


def program(name: str) -> str:
    """Return the path of a program; skips the test, by name, where it is not installed."""
    for folder in (None, "/usr/lib/postgresql/15/bin"):
        found = shutil.which(name, path=folder)
        if found:
            return found
    pytest.skip(f"{NOT_INSTALLED}{name}")


def java() -> str:
    """Return the Java that Spark would run on; skips where there is none, not even as a wheel."""
    if not is_spark_installed():
        pytest.skip(f"{NOT_INSTALLED}Spark")
    try:
        return find_java()
    except Unavailable:
        pytest.skip(f"{NOT_INSTALLED}Java 17 or later")


def marked(mark: str) -> set[int]:
    """Return all live processes that have `mark`, NAME=VALUE, in their environment."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):  # it ended, or is not ours
            if mark.encode() in path.read_bytes().split(b"\0"):
                found.add(int(path.parent.name))
    return found


@dataclass
class Server:
    """A `foreshore serve` of its own, over a data directory that outlives it."""

    data_dir: Path
    args: tuple[str, ...] = ()
    program: tuple[str, ...] = GUARDED
    port: int = field(default_factory=free_port)
    http_port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None
    mark: str = field(default_factory=lambda: f"FORESHORE_TEST_MARK={secrets.token_hex(8)}")
    environment: dict[str, str] = field(default_factory=dict)
    _log_read: int = 0

    @property
    def url(self) -> str:
        """Return the address to connect to."""
        return f"postgres://foreshore@127.0.0.1:{self.port}/foreshore"

    @property
    def log(self) -> Path:
        """Return the file that holds what the server said."""
        return self.data_dir.parent / f"{self.data_dir.name}.log"

    def start(self) -> Server:
        """Start and wait until it takes connections."""
        before = self.spawn()

        def ready() -> bool:
            assert self.process is not None
            said = self.log.read_bytes()[before:]
            assert self.process.poll() is None, f"the server ended:\n{said.decode()[-4000:]}"
            return b"foreshore ready: " in said

        until(ready, "the server is ready", START_S)
        self._log_read = self.log.stat().st_size
        return self

    def spawn(self) -> int:
        """Start and do not wait; returns where in the log it begins to say something."""
        assert self.process is None or self.process.poll() is not None, "it runs already"
        name, _, value = self.mark.partition("=")
        with self.log.open("ab") as log:
            before = log.tell()
            self.process = subprocess.Popen(
                [
                    *(sys.executable, *self.program, "serve"),
                    *("--data-dir", str(self.data_dir)),
                    *("--pg-listen", f"127.0.0.1:{self.port}"),
                    *("--http-listen", f"127.0.0.1:{self.http_port}"),
                    *self.args,
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={
                    **os.environ,
                    "PYTHONFAULTHANDLER": "1",
                    **ALLOCATOR,
                    **self.environment,
                    name: value,
                },
            )
        return before

    def processes(self) -> set[int]:
        """Return all live processes that this server, or one before it, brought into the world.

        They are known by what they inherited, so also where their parent has been killed.
        """
        return marked(self.mark)

    def children(self) -> set[int]:
        """Return the live replicas that the server started, as the operating system knows them.

        A process that evaluates costly constants is not one of them.
        """
        assert self.process is not None
        found = set()
        for pid in self.processes():
            with contextlib.suppress(OSError):
                stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                is_replica = b"isolated.worker" not in Path(f"/proc/{pid}/cmdline").read_bytes()
                if is_replica and int(stat[1]) == self.process.pid and stat[0] != "Z":
                    found.add(pid)
        return found

    def processor_seconds(self) -> float:
        """Return the processor time that the server and its workers have used, without replicas."""
        ticks = 0
        for pid in self.processes() - self.children():
            with contextlib.suppress(OSError):  # it has ended
                found = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                ticks += int(found[11]) + int(found[12])  # in user and in kernel mode
        return ticks / os.sysconf("SC_CLK_TCK")

    def kill(self) -> None:
        """End it as a power cut would: SIGKILL for the server, at once."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def slow_callbacks(self) -> list[str]:
        """Return what has held up the event loop since it was ready, or since the last call."""
        with self.log.open("rb") as log:
            log.seek(self._log_read)
            said = log.read().decode(errors="replace")
            self._log_read = log.tell()
        return [line for line in said.splitlines() if line.startswith(MARK)]

    def stop(self) -> int:
        """End it in good order and return its exit status; nothing has held up its event loop."""
        assert self.process is not None
        slow = self.slow_callbacks() if self._log_read else []
        status = self._end()
        assert not slow, slow
        return status

    def _end(self) -> int:
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(30)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)

    def connect(self, **options: Any) -> psycopg.Connection[Any]:
        """Return a new psycopg connection in autocommit mode."""
        return psycopg.connect(self.url, autocommit=True, **options)


@contextlib.contextmanager
def serving(data_dir: Path, *args: str) -> Iterator[Server]:
    """Run a server over `data_dir` for the length of a block."""
    server = Server(data_dir, args)
    try:
        yield server.start()
    finally:
        server.stop()


@dataclass(frozen=True)
class ObjectStore:
    """An S3 of our own, with one bucket."""

    endpoint: str
    bucket: str = "foreshore"

    def url(self, prefix: str) -> str:
        """Return the blob store's URL for a prefix of the bucket."""
        return f"s3://{self.bucket}/{quote(prefix)}?endpoint={quote(self.endpoint)}"


@contextlib.contextmanager
def object_store() -> Iterator[ObjectStore]:
    """Run moto's S3 in a process of its own; its objects are gone when it ends."""
    os.environ.setdefault("AWS_ACCESS_KEY_ID", "test")  # any will do, none will not
    os.environ.setdefault("AWS_SECRET_ACCESS_KEY", "test")
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    store = ObjectStore(f"http://127.0.0.1:{port}")

    def answers() -> bool:
        request = urllib.request.Request(f"{store.endpoint}/{store.bucket}", method="PUT")
        try:
            with urllib.request.urlopen(request, timeout=10):
                return True
        except OSError:
            return False

    try:
        until(answers, "the object store answers", START_S)
        yield store
    finally:
        process.terminate()
        process.wait(30)


@contextlib.contextmanager
def postgres(*settings: str) -> Iterator[str]:
    """Run a PostgreSQL 15 of its own, with its default durability; yields its address.

    `settings` are such as `wal_level=logical`.
    """
    with initialised_postgres() as folder, running_postgres(folder, settings=settings) as url:
        yield url


def postgres_account(folder: Path) -> dict[str, Any]:
    """Return what makes a process run as a user whom PostgreSQL accepts, and give it `folder`."""
    if os.getuid() != 0:
        return {}
    user = pwd.getpwnam("postgres")
    os.chown(folder, user.pw_uid, user.pw_gid)
    return {"user": "postgres", "group": user.pw_gid, "extra_groups": []}


@contextlib.contextmanager
def initialised_postgres() -> Iterator[Path]:
    """Yield a folder with the data directory of a new PostgreSQL 15 that does not run yet."""
    initdb = program("initdb")
    folder = Path(tempfile.mkdtemp(prefix="foreshore-pg-"))
    try:
        subprocess.run(
            [
                *(initdb, "-D", str(folder / "data"), "-U", "postgres", "-A", "trust"),
                *("--locale=C", "--encoding=UTF8"),
            ],
            check=True,
            capture_output=True,
            cwd="/",
            **postgres_account(folder),
        )
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def running_postgres(
    folder: Path,
    end: signal.Signals = signal.SIGINT,
    settings: tuple[str, ...] = (),
    port: int | None = None,
) -> Iterator[str]:
    """Run the PostgreSQL of such a folder for the length of a block; yields its address.

    `end` is how it is told to stop: SIGQUIT makes it end as in a crash.
    """
    port = port or free_port()
    process = subprocess.Popen(
        [
            *(program("postgres"), "-D", str(folder / "data"), "-p", str(port)),
            *("-h", "127.0.0.1", "-k", str(folder)),
            *(word for each in settings for word in ("-c", each)),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        **postgres_account(folder),
    )
    url = f"postgres://postgres@127.0.0.1:{port}/postgres"

    def answers() -> bool:
        try:
            psycopg.connect(url).close()
        except psycopg.OperationalError:
            return False
        return True

    try:
        until(answers, "PostgreSQL answers", START_S)
        yield url
    finally:
        process.send_signal(end)
        process.wait(60)
