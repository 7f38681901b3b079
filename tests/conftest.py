"""Fixtures that start real processes, and the list of what could not be tried on this machine."""

import gc
import os
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

# Last, so that a checkout tests the package it was told to: the folder foreshore/ at the root is
# only the vocabulary of it.
sys.path.append(str(Path(__file__).parent.parent))

from foreshore.extras import is_spark_installed
from foreshore.processes import file_modes
from tests.effort import register_profiles
from tests.harness import (
    NOT_INSTALLED,
    ObjectStore,
    Server,
    java,
    object_store,
    postgres,
    serving,
)
from tests.kept_umask import kept_umask

register_profiles()

collect_ignore = [] if is_spark_installed() else ["files/test_data_source.py"]


@pytest.fixture(autouse=True)
def umask_is_kept() -> Iterator[None]:
    """Commands that run in the tests' process do not change its umask for other tests."""
    assert file_modes.operators_umask() == -1, "a fixture has changed the umask"
    with kept_umask():
        yield


# Data goes to memory if there is enough of it: on a disk most of a short test is waiting for fsync.
# `make test-full` names a disk.
MEMORY = Path("/dev/shm")
ENOUGH_BYTES = 2 << 30
if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= ENOUGH_BYTES:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))

# What `make test` leaves to `make test-full` by the folder it is in, or by what it needs; of other
# folders a test or a file says so itself by the marker `full`.
FULL_FOLDERS = ("kill", "files")
FULL_FIXTURES = {"spark_server"}

# What Spark runs here is over before its compiling well would pay: a third less work for all.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Refuse cases from a set: processes order them differently and cannot share the tests."""
    for mark in metafunc.definition.iter_markers("parametrize"):
        if isinstance(mark.args[1], set | frozenset):
            raise pytest.UsageError(f"{metafunc.definition.nodeid} has its cases from a set")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of `make test-full`, before tests are chosen by their markers."""
    here = Path(__file__).parent
    for item in items:
        folder = item.path.relative_to(here).parts[0]
        if folder in FULL_FOLDERS or FULL_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker("full")


def pytest_collection_finish() -> None:
    """Let the collector of garbage look less often, and not at what all tests share.

    Of 40 s of the processor for the tests of sql/ and foreshore/, it took 12.
    """
    gc.set_threshold(10_000, 20, 20)
    _keep_what_is_there()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Let the tests of the next file have nothing to do with what those of this one have left."""
    if nextitem is not None and nextitem.path != item.path:
        _keep_what_is_there()


def _keep_what_is_there() -> None:
    """Collect garbage; what is no garbage now is not looked at again."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say for want of which programs tests did not run."""
    missing: Counter[str] = Counter()
    for report in terminalreporter.stats.get("skipped", ()):
        if isinstance(report.longrepr, tuple):
            reason = report.longrepr[2].removeprefix("Skipped: ")
            if reason.startswith(NOT_INSTALLED):
                missing[reason.removeprefix(NOT_INSTALLED)] += 1
    if missing:
        counts = ", ".join(f"{name} ({count} tests)" for name, count in missing.items())
        terminalreporter.write_line(f"not run for want of: {counts}", yellow=True)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that all tests of a run share; each makes a schema of its own."""
    with serving(tmp_path_factory.mktemp("shared") / "data") as running:
        yield running


@pytest.fixture(autouse=True)
def nothing_holds_up_the_server(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let a test fail that holds up the event loop of the shared server."""
    running: Server | None = None
    if "server" in request.fixturenames:  # had before the test, it is torn down after this
        running = request.getfixturevalue("server")
    yield
    if running is not None:
        slow = running.slow_callbacks()
        assert not slow, slow


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """A place for the data of a server that a test starts, and kills, for itself."""
    return tmp_path / "data"


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """The address of a live PostgreSQL 15; skips where none is installed."""
    with postgres() as url:
        yield url


@pytest.fixture(scope="session")
def publisher_url() -> Iterator[str]:
    """The address of a live PostgreSQL 15 whose tables can be replicated."""
    with postgres("wal_level=logical") as url:
        yield url


@pytest.fixture(scope="session")
def objects() -> Iterator[ObjectStore]:
    """An S3 that all tests of a run share; each takes a prefix of its own."""
    with object_store() as running:
        yield running


@pytest.fixture(scope="session")
def spark_server(server: Server) -> Server:
    """The shared server, with a cluster `spark` whose views keep up within a fraction of a second."""
    java()
    with server.connect() as connection:
        connection.execute("CREATE CLUSTER spark (SIZE = 'spark', TICK INTERVAL = '100ms')")
        connection.execute("GRANT USAGE, CREATE ON CLUSTER spark TO PUBLIC")
    return server
