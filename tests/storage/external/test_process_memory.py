"""What external systems send may take so much memory, and ends one source, sink or request."""

import asyncio
import subprocess
import sys
import threading
from pathlib import Path

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foreshore.memory_shares import of_connectors
from foreshore.processes.child_environment import child_environment, private_home
from foreshore.processes.messages import Message
from foreshore.storage.external.answers import Refused, WithTables, answered
from foreshore.storage.external.process_memory import VARIABLE
from tests.harness import Server, until


def bomb(path: Path) -> Path:
    """Write a Parquet file of some hundred bytes whose only batch has 7.5 GB, and return it."""
    rows = 1 << 16
    column = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), ["x" * 115_000])
    pq.write_table(pa.table({"v": column}), path, compression="zstd", store_schema=False)
    assert path.stat().st_size < 1000
    return path


def test_limit_is_a_quarter_of_the_machine() -> None:
    assert of_connectors(64 << 30) == 16 << 10
    assert of_connectors(2 << 30) == 1024


def test_request_without_memory_is_refused() -> None:
    async def work() -> Message | WithTables:
        raise MemoryError

    found = asyncio.run(answered(work()))
    assert isinstance(found, Refused)
    assert (found.error, found.sqlstate) == ("out of memory", "53200")
    assert found.hint == "The server's option --connector-memory sets the limit."


@pytest.mark.full
def test_file_larger_than_the_limit_fails_to_be_read(tmp_path: Path) -> None:
    program = (
        "import sys, pyarrow.parquet as pq\n"
        "from foreshore.storage.external.process_memory import limit_memory, out_of_memory\n"
        "limit_memory()\n"
        "try:\n    next(pq.ParquetFile(sys.argv[1]).iter_batches())\n"
        "except MemoryError:\n    print(out_of_memory().sqlstate)\n"
        "print(len(bytearray(100 << 20)))"
    )
    command = [sys.executable, "-P", "-c", program, str(bomb(tmp_path / "b.parquet"))]
    environment = child_environment(private_home(), **{VARIABLE: "256"})
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ran.stdout == f"53200\n{100 << 20}\n", ran.stderr


def resident(pid: int) -> int:
    """Return the most memory that a process has had, in bytes; 0 if it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return int(status.partition("VmHWM:")[2].split()[0]) << 10


@pytest.mark.full
def test_bomb_stalls_its_source_alone(tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    bomb(files / "b.parquet")
    server = Server(
        tmp_path / "data", ("--copy-dir", str(files), "--connector-memory", "512")
    ).start()
    most, stopped = [0], threading.Event()

    def watch() -> None:
        while not stopped.wait(0.02):
            most[0] = max(most[0], *map(resident, server.processes()))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        with server.connect() as connection:
            connection.execute("CREATE SOURCE ticks FROM LOAD GENERATOR COUNTER")
            source = f"CREATE SOURCE big FROM FILES '{files}/*.parquet' (FORMAT parquet)"
            connection.execute(source.encode())

            def status(name: str) -> tuple[str, str | None]:
                query = "SELECT status, error FROM mz_internal.mz_source_statuses WHERE name = %s"
                row = connection.execute(query, (name,)).fetchone()
                assert row is not None
                return row[0], row[1]

            def ticks() -> int:
                row = connection.execute("SELECT count(*) FROM ticks").fetchone()
                assert row is not None
                return int(row[0])

            until(lambda: status("big")[0] == "stalled", "the source has stalled")
            assert "out of memory" in (status("big")[1] or "")
            before = ticks()
            until(lambda: ticks() > before + 1, "the other source goes on")
            assert status("ticks") == ("running", None)
    finally:
        stopped.set()
        watcher.join()
        server.stop()
    assert most[0] < 1 << 30


@pytest.mark.full
def test_bomb_fails_its_copy_alone(tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    bomb(files / "b.parquet")
    pq.write_table(pa.table({"v": ["a", "b", None]}), files / "a.parquet")
    server = Server(tmp_path / "data", ("--copy-dir", str(files))).start()
    assert server.process is not None
    with server.connect() as connection:
        connection.execute("CREATE TABLE t (v text)")
        connection.execute("SET max_query_memory = '200MB'")
        copy = f"COPY t FROM 'file://{files}/%s.parquet' (FORMAT parquet)"
        with pytest.raises(psycopg.Error) as raised:
            connection.execute((copy % "b").encode())
        assert raised.value.sqlstate == "53200"
        connection.execute((copy % "a").encode())
        assert connection.execute("SELECT count(*) FROM t").fetchone() == (3,)
    assert resident(server.process.pid) < 1 << 30
    assert server.stop() == 0
