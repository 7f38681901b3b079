"""`foreshore.replica`: a local copy equals its query at each time that it reports."""

import json
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import foreshore
from foreshore.embedded.copy import Copy
from foreshore.embedded.copy_async import Connected, CopyEvent, Disconnected, Reread
from foreshore.embedded.database import Database
from foreshore.errors import DatabaseError, LockFileExists
from tests.embedded.proxy import Proxy
from tests.harness import free_port, until

pytestmark = pytest.mark.full

ROWS = 2000
SLICE = "SELECT k, v, n FROM {} WHERE region = 'EU'"


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[Database]:
    data = tmp_path_factory.mktemp("copy") / "data"
    with foreshore.open(data, listen=f"127.0.0.1:{port}") as opened:
        yield opened


@pytest.fixture
def table(db: Database, request: pytest.FixtureRequest) -> Iterator[str]:
    """Yield the name of a table with rows, of which the half is of the EU."""
    name: str = request.node.name.removeprefix("test_")[:40].partition("[")[0]
    db.execute(
        f"CREATE TABLE {name} (k int, v text, n numeric(10, 2), region text)"
        " WITH (RETAIN HISTORY = FOR '1h')"
    )
    db.execute(
        f"INSERT INTO {name} SELECT i % 900, 'x', NULL, CASE WHEN i % 2 = 0 THEN 'EU' END"
        f" FROM generate_series(1, {2 * ROWS}) i"
    )
    yield name
    db.execute(f"DROP TABLE IF EXISTS {name}")


def change(db: Database, table: str, chance: random.Random) -> int:
    """Change some rows in one transaction; return how many updates of the slice that are at most."""
    k = chance.randrange(900)
    with db.transaction():
        db.execute(f"INSERT INTO {table} VALUES ({k}, NULL, {k / 4}, 'EU'), ({k}, 'y', NULL, 'US')")
        db.execute(f"UPDATE {table} SET v = 'u{k}' WHERE k = {(k + 7) % 900}")
        db.execute(f"DELETE FROM {table} WHERE k = {(k + 13) % 900}")
    return 60


def slice_at(db: Database, table: str, time: int) -> list[tuple[object, ...]]:
    query = f"{SLICE.format(table)} ORDER BY k NULLS LAST, v NULLS LAST, n NULLS LAST AS OF {time}"
    return db.sql(query).fetchall()


def told(copy: Copy) -> tuple[int, list[tuple[object, ...]]]:
    order = "k NULLS LAST, v NULLS LAST, n NULLS LAST"
    time, found = copy.sql_with_time(f"SELECT k, v, n FROM copy ORDER BY {order}")
    return time, found.fetchall()


@pytest.mark.parametrize("in_file", [True, False])
def test_copy_is_right_at_each_time_through_disconnects(
    db: Database, table: str, port: int, tmp_path: Path, in_file: bool
) -> None:
    chance, proxy, events = random.Random(2), Proxy(port), list[CopyEvent]()
    url = f"postgresql://foreshore@127.0.0.1:{proxy.port}/foreshore"
    path = tmp_path / "copy.duckdb" if in_file else None
    updates = cuts = 0
    with foreshore.replica(url, SLICE.format(table), path=path, on_event=events.append) as copy:
        for _ in range(40):
            updates += change(db, table, chance)
            if chance.random() < 0.3:
                proxy.cut()
                cuts += 1
            time, rows = told(copy)
            assert rows == slice_at(db, table, time)
        proxy.cut()
        until(lambda: sum(isinstance(each, Connected) for each in events) > 3, "connected again")
        copy.wait(int(db.sql("SELECT mz_now()").scalar()), timeout=60)
        time, rows = told(copy)
        assert rows == slice_at(db, table, time)
        until(lambda: copy.state == "live", "live")
        assert any(isinstance(each, Disconnected) for each in events)
        assert not any(isinstance(each, Reread) for each in events)
        connected = [each for each in events if isinstance(each, Connected)]
        assert all(each.time is not None for each in connected[1:]), "contents came once"
        assert copy.received < 2 * ROWS + 2 * updates
    proxy.close()


CHILD = """
import json, sys
import foreshore
url, query, path = sys.argv[1:]
with foreshore.replica(url, query, path=path) as copy:
    time = copy.time
    while True:
        order = "k NULLS LAST, v NULLS LAST, n NULLS LAST"
        found, rows = copy.sql_with_time(f"SELECT k, v, n::text FROM copy ORDER BY {order}")
        print(json.dumps([found, rows.fetchall(), copy.received]), flush=True)
        time = copy.wait(time + 1)
"""


def test_copy_goes_on_after_kills_and_its_file_has_one_owner(
    db: Database, table: str, port: int, tmp_path: Path
) -> None:
    chance, path = random.Random(3), tmp_path / "copy.duckdb"
    url, query = f"postgresql://foreshore@127.0.0.1:{port}/foreshore", SLICE.format(table)
    last = 0
    for turn in range(4):
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, url, query, str(path)], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        updates = 0
        for number in range(chance.randrange(1, 6)):
            line = child.stdout.readline()
            time, rows, received = json.loads(line)
            expected = [
                [k, v, None if n is None else str(n)] for k, v, n in slice_at(db, table, time)
            ]
            assert rows == expected
            assert time >= last, "a time that was reported is durable"
            last = time
            if turn == 2 and number == 0:
                with pytest.raises(LockFileExists, match="another process"):
                    foreshore.replica(url, query, path=path)
            if turn:
                assert received <= updates + 400, "only what changed since the last time came"
            updates += change(db, table, chance)
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()


def test_lost_history_is_told_and_only_the_difference_changes(
    db: Database, table: str, port: int, tmp_path: Path
) -> None:
    url = f"postgresql://foreshore@127.0.0.1:{port}/foreshore"
    path, events = tmp_path / "copy.duckdb", list[CopyEvent]()
    foreshore.replica(url, SLICE.format(table), path=path).close()
    db.execute(f"INSERT INTO {table} VALUES (-1, 'new', 1.5, 'EU')")
    db.execute(f"ALTER TABLE {table} ADD CHECK (k > -100)")  # which ends the history
    with foreshore.replica(url, SLICE.format(table), path=path, on_event=events.append) as copy:
        copy.wait(int(db.sql("SELECT mz_now()").scalar()), timeout=60)
        (reread,) = [each for each in events if isinstance(each, Reread)]
        assert reread.changed == 1
        time, rows = told(copy)
        assert rows == slice_at(db, table, time)
        db.execute(f"DROP TABLE {table}")
        with pytest.raises(DatabaseError, match="does not exist"):
            copy.wait(time + 10**12, timeout=60)
        assert told(copy)[1] == rows, "what was copied can still be read"


def test_durable_subscription_holds_history_for_a_copy_that_is_away(
    db: Database, table: str, port: int, tmp_path: Path
) -> None:
    url = f"postgresql://foreshore@127.0.0.1:{port}/foreshore"
    path, query = tmp_path / "copy.duckdb", SLICE.format(table)
    foreshore.replica(url, query, path=path, subscription="held").close()
    held = "SELECT count(*) FROM mz_internal.mz_read_holds WHERE kind = 'durable subscription'"
    assert db.sql(held).scalar() == 1
    assert "2BP01" in _refused(db, f"ALTER TABLE {table} ADD CHECK (k > -100)")
    position = "SELECT position FROM mz_subscriptions WHERE name = 'held'"
    before = int(db.sql(position).scalar())
    db.execute(f"INSERT INTO {table} VALUES (-1, 'new', 1.5, 'EU')")
    with foreshore.replica(url, query, path=path, subscription="held") as copy:
        copy.wait(timeout=60)
        assert copy.received == 1
        until(lambda: int(db.sql(position).scalar()) > before, "the position moves")
    db.execute("DROP SUBSCRIPTION held")


def test_copy_can_be_read_while_the_server_is_away(
    db: Database, table: str, port: int, tmp_path: Path
) -> None:
    proxy, path = Proxy(port), tmp_path / "copy.duckdb"
    url = f"postgresql://foreshore@127.0.0.1:{proxy.port}/foreshore"
    with foreshore.replica(url, SLICE.format(table), path=path) as copy:
        time, rows = told(copy)
    proxy.close()
    with foreshore.replica(url, SLICE.format(table), path=path) as copy:
        assert told(copy)[1] == rows
        assert told(copy)[0] >= time
        until(lambda: copy.state == "disconnected", "disconnected")
        assert len(rows) == ROWS
    with pytest.raises(DatabaseError, match="could not connect"):
        foreshore.replica(url, SLICE.format(table))


def _refused(db: Database, statement: str) -> str:
    with pytest.raises(DatabaseError) as refused:
        db.execute(statement)
    return str(refused.value.sqlstate)
