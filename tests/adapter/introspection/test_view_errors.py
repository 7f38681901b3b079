"""What errors a materialized view has had is known after the dataflow that had them has ended."""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from foreshore import failpoint
from foreshore.adapter import environment
from foreshore.adapter.environment import Environment
from foreshore.adapter.introspection import view_errors
from foreshore.adapter.transaction.group_commit import GroupCommit, Write
from foreshore.catalog import state
from foreshore.catalog.item import Item
from foreshore.catalog.state import LAG_HISTORY, SYSTEM_TABLES, VIEW_ERRORS
from foreshore.compute.controller import error_log, outputs
from foreshore.compute.controller.outputs import SinkWriter
from foreshore.errors import DataCorrupted, OutOfDisk
from foreshore.ids import GlobalId
from foreshore.storage import backup
from foreshore.storage.controller import ReadCapability, StorageController
from foreshore.storage.snapshot import Snapshot
from foreshore.update import Timestamp
from tests.adapter.harness import House, until

ERRORS = "mz_internal.mz_materialized_view_errors"
DIVISION = "ERROR 22012: division by zero"
SETUP = (
    "CREATE TABLE t (a int)",
    "INSERT INTO t VALUES (1), (2)",
    "CREATE MATERIALIZED VIEW m AS SELECT 10 / a AS x FROM t",
    "CREATE MATERIALIZED VIEW above AS SELECT sum(x) AS s FROM m",
)
QUERIES = {  # what a view over time has to be, from tables that know all times
    "m": "SELECT 10 / a AS x FROM t",
    "above": "SELECT sum(x) AS s FROM (SELECT 10 / a AS x FROM t) d",
}


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path, lag_ms=3_600_000)  # all that happens here can be read


async def ran(house: House, *statements: str) -> list[str]:
    """Run statements, of which none fails; return the rows of the last."""
    for sql in statements:
        answer = await house.query("w", sql)
        assert "ERROR" not in answer, (sql, answer)
    return answer.splitlines()[:-1]


async def says(house: House, sql: str) -> list[str]:
    """Return a query's rows in an order of their own, or its error."""
    async with asyncio.timeout(20):
        return sorted((await house.query("r", sql)).splitlines())


async def seen(house: House) -> Timestamp:
    """Return a time up to which the views are."""
    await says(house, "SELECT * FROM above")
    return house.environment.coordinator.oracle.read_ts()


async def toggled(house: House, times: int = 2) -> list[Timestamp]:
    """Let an error come and go; return the times before, between and after."""
    found = [await seen(house)]
    for _ in range(times):
        await ran(house, "INSERT INTO t VALUES (0)")
        found.append(await seen(house))
        await ran(house, "DELETE FROM t WHERE a = 0")
        found.append(await seen(house))
    return found


async def passed(house: House, time: Timestamp) -> None:
    """Reopen the house, in which the dataflow of `m` begins later than at `time`."""
    await ran(house, "INSERT INTO t VALUES (10)")  # what it appends is durable
    await seen(house)
    await house.reopen()
    assert house.environment.coordinator.as_ofs[id_of(house, "m")] > time


def id_of(house: House, name: str) -> GlobalId:
    """Return a collection's id."""
    items = house.environment.coordinator.state.items()
    (found,) = [item.id for item in items if item.name == name]
    return found


async def agrees(house: House, times: Iterable[Timestamp]) -> None:
    """Assert that at each time the views are what their queries are."""
    for time in times:
        for view, query in QUERIES.items():
            wanted = await says(house, f"{query} AS OF {time}")
            assert await says(house, f"SELECT * FROM {view} AS OF {time}") == wanted, (view, time)


async def rows(house: House) -> list[str]:
    """Return the table's."""
    return await ran(house, f"SELECT sqlstate, error, at FROM {ERRORS} ORDER BY at")


def test_errors_are_known_at_all_times_after_restarts(house: House) -> None:
    async def main() -> None:
        await house.open()
        await ran(house, *SETUP)
        times = await toggled(house)
        failing = times[1::2]
        await agrees(house, times)
        for _ in range(2):
            await passed(house, times[-1])
            await agrees(house, times)
            for time in failing:
                assert await says(house, f"SELECT * FROM m AS OF {time}") == [DIVISION]
            times += (await toggled(house))[1:]
        await agrees(house, times)
        shown = await rows(house)
        assert [row.rpartition("|")[0] for row in shown] == [
            "22012|division by zero",
            "NULL|NULL",
        ] * (len(shown) // 2)
        assert len(shown) == 12
        await house.close()

    asyncio.run(main())


def test_an_error_that_stays_is_written_once(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        await house.open()
        await ran(house, *SETUP, "INSERT INTO t VALUES (0)")
        await seen(house)
        before = await rows(house)
        written: list[Write] = []
        write = GroupCommit.write

        async def noted(self: GroupCommit, each: Write) -> Timestamp:
            if VIEW_ERRORS.id in each.rows:
                written.append(each)
            return await write(self, each)

        monkeypatch.setattr(GroupCommit, "write", noted)
        for a in (3, 4, 0):
            await ran(house, f"INSERT INTO t VALUES ({a})")
            assert await says(house, "SELECT * FROM m") == [DIVISION]
        await house.reopen()
        assert await says(house, "SELECT * FROM m") == [DIVISION]
        await ran(house, "INSERT INTO t VALUES (5)")
        assert await says(house, "SELECT * FROM above") == [DIVISION]
        assert not written
        assert await rows(house) == before
        await house.close()

    asyncio.run(main())


def test_a_window_with_an_error_in_it_fails(house: House) -> None:
    async def main() -> None:
        await house.open()
        await ran(house, *SETUP)
        first, failing, last = await toggled(house, 1)
        for restarted in (False, True):
            if restarted:
                await passed(house, last)
            for after, through, fails in (
                (first, last, True),
                (first, failing, True),
                (failing, last, True),
                (last, last, False),
                (first, first, False),
            ):
                sql = f"SELECT count(*) FROM CHANGES(m, {after}, {through})"
                assert await says(house, sql) == ([DIVISION] if fails else ["0", "SELECT 1"])
            assert await says(house, "SELECT * FROM CHANGES(m)") == [DIVISION]
            for source in ("m", "above", "(SELECT count(*) FROM m)"):
                for begin, fails in ((first, True), (failing, True), (last, False)):
                    sql = f"SUBSCRIBE {source} AS OF {begin} UP TO {last + 1}"
                    told = await says(house, sql)
                    assert (told == [DIVISION]) == fails, (sql, told)
            own = "(SELECT sum(10 / a) FROM t)"  # whose error is that of no view
            for source in ("m", "above", "(SELECT count(*) FROM m)", own):
                told = await says(house, f"SUBSCRIBE {source} AS OF {first} UP TO {first + 1}")
                assert "ERROR" not in "".join(told), (source, told)
        await house.close()

    asyncio.run(main())


def held_back(house: House, view: str) -> tuple[SinkWriter, asyncio.Event]:
    """Keep a view's shard where it is until an event, whatever its replica has said; its writer."""
    id, gate = id_of(house, view), asyncio.Event()
    writer = house.environment.coordinator.compute._dataflows[id].writers[id]
    inner = writer.errors._store

    class Slow:
        load = inner.load
        settled = inner.settled

        async def store(self, *args: Any) -> None:
            await gate.wait()
            await inner.store(*args)

    writer.errors._store = Slow()
    return writer, gate


@pytest.mark.parametrize("source", ["m", "above", "(SELECT a, x FROM m, t WHERE x <> a)"])
def test_who_follows_hears_of_an_error_that_came_and_went(house: House, source: str) -> None:
    """Both are in one window, as the view's replica was not heard in between."""

    async def main() -> None:
        await house.open()
        await ran(house, *SETUP)
        await says(house, "SELECT * FROM above")
        await house.query("f", f"BEGIN; DECLARE c CURSOR FOR SUBSCRIBE {source}")
        await house.ran("f", "FETCH 1 c")
        coordinator = house.environment.coordinator
        writer, gate = held_back(house, "m")
        await ran(house, "INSERT INTO t VALUES (0)", "DELETE FROM t WHERE a = 0")
        await ran(house, "INSERT INTO t VALUES (4)")
        gone = coordinator.oracle.read_ts()
        await until(lambda: writer.errors.upper is not None and writer.errors.upper > gone)
        gate.set()
        told = await house.query("f", "FETCH 20 c WITH (TIMEOUT = '10s')")
        if not told.startswith("ERROR"):  # the rest of the contents
            begun = {int(row.split("|")[0]) for row in told.splitlines() if "|" in row}
            assert len(begun) == 1, told
            assert max(begun) < gone, told
            told = await house.query("f", "FETCH 20 c WITH (TIMEOUT = '10s')")
        assert told.startswith(DIVISION), told
        await house.query("f", "ROLLBACK")
        await house.close()

    asyncio.run(main())


QUERY = "(SELECT a FROM m, t WHERE x <> a)"
NEWS = " WITH (SNAPSHOT = false)"


@pytest.mark.parametrize(
    ("source", "options", "followed"),
    [
        ("m", "", False),
        ("m", NEWS, False),
        ("above", "", False),
        ("m", "", True),
        ("indexed", "", True),
        (QUERY, "", True),
        (QUERY, NEWS, True),
    ],
)
def test_who_begins_after_an_error_hears_nothing_of_it(
    house: House, source: str, options: str, followed: bool
) -> None:
    """The view has yet to come as far as the error, of which who begins earlier has to hear."""

    async def main() -> None:
        await house.open()
        await ran(house, *SETUP, "CREATE VIEW indexed AS SELECT x + 1 AS y FROM m")
        await ran(house, "CREATE DEFAULT INDEX ON indexed")
        await says(house, "SELECT * FROM above, indexed")
        if followed:
            await house.query("e", f"BEGIN; DECLARE c CURSOR FOR SUBSCRIBE {source}")
            await house.ran("e", "FETCH 1 c WITH (TIMEOUT = '10s')")
        writer, gate = held_back(house, "m")
        await ran(house, "INSERT INTO t VALUES (0)", "DELETE FROM t WHERE a = 0")
        await ran(house, "INSERT INTO t VALUES (4)")
        begun = house.environment.coordinator.oracle.read_ts()
        await until(lambda: writer.errors.upper is not None and writer.errors.upper > begun)
        await house.query("f", f"BEGIN; DECLARE c CURSOR FOR SUBSCRIBE {source}{options}")
        gate.set()
        if not options:
            first = await house.query("f", "FETCH 1 c WITH (TIMEOUT = '10s')")
            assert int(first.split("|")[0]) >= begun
        later = await seen(house)
        await ran(house, "INSERT INTO t VALUES (3)")
        time = 0
        while time <= later:
            time = int((await house.query("f", "FETCH 1 c WITH (TIMEOUT = '10s')")).split("|")[0])
        if followed:
            told = ""
            while not told.startswith("ERROR"):
                told = await house.query("e", "FETCH 1 c WITH (TIMEOUT = '10s')")
            assert told.startswith(DIVISION), told
        for session in "ef":
            await house.query(session, "ROLLBACK")
        await house.close()

    asyncio.run(main())


def test_a_durable_subscription_does_not_pass_over_an_error(house: House) -> None:
    async def main() -> None:
        await house.open()
        await ran(house, *SETUP, "CREATE SUBSCRIPTION s FOR m")
        first, _, last = await toggled(house, 1)
        await ran(house, f"ALTER SUBSCRIPTION s ADVANCE TO {first + 1}")
        await passed(house, last)
        assert await says(house, "SUBSCRIBE TO SUBSCRIPTION s") == [DIVISION]
        await ran(house, f"ALTER SUBSCRIPTION s ADVANCE TO {last + 1}")
        await house.query("f", "BEGIN; DECLARE c CURSOR FOR SUBSCRIBE TO SUBSCRIPTION s")
        told = await house.query("f", "FETCH 1 c WITH (TIMEOUT = '10s')")
        assert told.splitlines()[0].endswith("|1|1"), told
        await house.query("f", "ROLLBACK")
        await house.close()

    asyncio.run(main())


@pytest.mark.parametrize("comes", [True, False])
def test_an_end_between_the_errors_and_the_view_is_mended(house: House, comes: bool) -> None:
    async def main() -> None:
        await house.open()
        await ran(house, *SETUP)
        times = await toggled(house, 1)
        if not comes:
            await ran(house, "INSERT INTO t VALUES (0)")
            times.append(await seen(house))
        ended = asyncio.Event()

        def end(point: str) -> None:
            if point == "view.errors":
                ended.set()
                raise RuntimeError("the process ends here")

        before = await rows(house)
        failpoint.arm(end)
        await ran(house, "INSERT INTO t VALUES (0)" if comes else "DELETE FROM t WHERE a = 0")
        written = house.environment.coordinator.oracle.read_ts()
        async with asyncio.timeout(20):
            await ended.wait()
        failpoint.arm(None)
        assert len(await rows(house)) == len(before) + 1
        await house.reopen()
        await seen(house)
        assert len(await rows(house)) == len(before) + 1
        times += [written, *(await toggled(house, 1))[comes:]]
        await agrees(house, times)
        await house.close()

    asyncio.run(main())


def test_what_the_view_has_not_reached_and_does_not_come_again_is_taken_away(house: House) -> None:
    async def main() -> None:
        await house.open()
        await ran(house, *SETUP)
        times = await toggled(house, 1)
        before = await rows(house)
        coordinator = house.environment.coordinator
        m = id_of(house, "m")
        ahead = coordinator.oracle.read_ts() + 1_000  # which it has not come to when it ends
        await coordinator.errors.store(m, {ahead}, {ahead: "22003 never happens"})
        assert len(await rows(house)) == len(before) + 1
        await house.reopen()
        await until(lambda: house.environment.coordinator.upper(m) > ahead)
        async with asyncio.timeout(10):
            while await rows(house) != before:  # noqa: ASYNC110 - it is written in its own time
                await asyncio.sleep(0.05)
        await agrees(house, [*times, ahead, ahead + 1])
        await house.close()

    asyncio.run(main())


def test_the_history_goes_with_the_view(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        await house.open()
        await ran(house, *SETUP)
        await toggled(house, 1)
        assert await rows(house)
        await ran(house, "DROP MATERIALIZED VIEW m CASCADE")
        async with asyncio.timeout(10):
            while await rows(house):  # noqa: ASYNC110 - it goes in its own time
                await asyncio.sleep(0.02)
        await ran(house, *SETUP[2:])
        await toggled(house, 1)
        with monkeypatch.context() as patched:  # the process ends right behind the drop
            patched.setattr(view_errors.ViewErrors, "forget", lambda _self, _id: None)
            await ran(house, "DROP MATERIALIZED VIEW m CASCADE")
            await house.close()
        await house.open()
        async with asyncio.timeout(10):
            while await rows(house):  # noqa: ASYNC110 - it goes in its own time
                await asyncio.sleep(0.02)
        assert not house.environment.coordinator.errors._stored
        await house.close()

    asyncio.run(main())


def test_what_a_dataflow_tells_behind_the_drop_of_its_view_is_not_written(house: House) -> None:
    async def main() -> None:
        await house.open()
        await ran(house, *SETUP)
        await toggled(house, 1)
        coordinator = house.environment.coordinator
        view = GlobalId((await ran(house, f"SELECT object_id FROM {ERRORS}"))[0])
        await ran(house, "DROP MATERIALIZED VIEW m CASCADE")
        await coordinator.errors.store(view, [5], {5: "22012 division by zero"})
        async with asyncio.timeout(10):
            while await rows(house):  # noqa: ASYNC110 - it goes in its own time
                await asyncio.sleep(0.02)
        assert not coordinator.errors._stored
        assert view not in coordinator.errors._locks
        await house.close()

    asyncio.run(main())


def test_who_takes_over_a_view_knows_what_was_being_stored(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, may_write = GroupCommit.write, asyncio.Event()

    async def slowly(self: GroupCommit, each: Write) -> Timestamp:
        if VIEW_ERRORS.id in each.rows:
            await may_write.wait()
        return await write(self, each)

    async def main() -> None:
        await house.open()
        await ran(house, *SETUP)
        await seen(house)
        coordinator = house.environment.coordinator
        view = coordinator.state.item(id_of(house, "m"))
        monkeypatch.setattr(GroupCommit, "write", slowly)
        storing = asyncio.create_task(
            coordinator.errors.store(view.id, [5], {5: "22012 division by zero"})
        )
        await asyncio.sleep(0)
        storing.cancel()  # its dataflow ends
        taking_over = asyncio.create_task(coordinator.succession.hand_over(view))
        await asyncio.sleep(0.2)
        may_write.set()
        await taking_over
        errors = coordinator.compute._dataflows[view.id].writers[view.id].errors
        assert errors.first(5, 6) == (5, "22012 division by zero")
        await house.close()

    asyncio.run(main())


def test_the_history_follows_what_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(error_log, "COMPACTED_STEPS", 6)

    async def main() -> None:
        house = House(tmp_path, lag_ms=500)
        await house.open()
        await ran(house, *SETUP)
        written = len(await toggled(house, 20)) - 1
        async with asyncio.timeout(30):
            while len(await rows(house)) > written // 2:
                await asyncio.sleep(0.5)
                written += len(await toggled(house, 1)) - 1
        await ran(house, "INSERT INTO t VALUES (0)")
        await seen(house)
        await house.reopen()
        assert await says(house, "SELECT * FROM m") == [DIVISION]
        await house.close()

    asyncio.run(main())


@pytest.mark.parametrize("start", ["swift", "slow"])
def test_what_is_read_longer_knows_the_errors_below_it_as_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: str
) -> None:
    monkeypatch.setattr(error_log, "COMPACTED_STEPS", 6)
    resume = Environment._resume

    async def slowly(self: Environment, item: Item, read_ts: Timestamp) -> None:
        if item.name == "above" and start == "slow":
            await asyncio.sleep(3)  # in which what is below it could go on
        await resume(self, item, read_ts)

    monkeypatch.setattr(Environment, "_resume", slowly)

    async def main() -> None:
        house = House(tmp_path, lag_ms=300)
        await house.open()
        await ran(house, *SETUP)
        await ran(house, "ALTER MATERIALIZED VIEW above SET (RETAIN HISTORY FOR '1 h')")
        _, during, *_ = await toggled(house, 10)
        m, storage = id_of(house, "m"), house.environment.coordinator.storage
        await until(lambda: storage.since(m) > during)
        await toggled(house, 20)
        for _ in range(2):
            assert await says(house, f"SELECT * FROM above AS OF {during}") == [DIVISION]
            await house.reopen()
        await house.close()

    asyncio.run(main())


def test_a_full_disk_lets_the_view_wait(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "RETRY_SECONDS", 0.05)
    full = True
    refused = 0
    write = GroupCommit.write

    async def no_room(self: GroupCommit, each: Write) -> Timestamp:
        nonlocal refused
        if VIEW_ERRORS.id in each.rows and full:
            refused += 1
            raise OutOfDisk("No space left on device")
        return await write(self, each)

    async def main() -> None:
        nonlocal full
        await house.open()
        await ran(house, *SETUP)
        await seen(house)
        monkeypatch.setattr(GroupCommit, "write", no_room)
        await ran(house, "INSERT INTO t VALUES (0)")
        written = house.environment.coordinator.oracle.read_ts()
        await until(lambda: refused > 2)
        assert house.storage.upper(id_of(house, "m")) <= written
        progress = house.environment.coordinator.compute.progress(id_of(house, "m"))
        assert progress.state == "not written"
        full = False
        assert await says(house, "SELECT * FROM m") == [DIVISION]
        assert len(await rows(house)) == 1
        await house.close()

    asyncio.run(main())


def test_who_has_the_table_to_himself_keeps_no_view_back(house: House) -> None:
    """Else whoever waits for the view, having the table, would wait for ever."""

    async def main() -> None:
        await house.open()
        await ran(house, *SETUP)
        await seen(house)
        group = house.environment.coordinator.group
        group.block([VIEW_ERRORS.id], house)
        await ran(house, "INSERT INTO t VALUES (0)")
        assert await says(house, "SELECT * FROM m") == [DIVISION]
        group.unblock([VIEW_ERRORS.id])
        assert len(await rows(house)) == 1
        await house.close()

    asyncio.run(main())


def test_damage_takes_out_what_rests_on_it_and_nothing_else(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = StorageController.snapshot

    def damaged(self: StorageController, read: ReadCapability, time: Timestamp) -> Snapshot:
        if read.id == VIEW_ERRORS.id:
            self.corruptions.found(read.id, DataCorrupted("a batch is missing"))
            self.corruptions.check(read.id)
        return snapshot(self, read, time)

    async def main() -> None:
        await house.open()
        sure = "CREATE MATERIALIZED VIEW sure AS SELECT a, count(*) AS n FROM t GROUP BY a"
        await ran(house, *SETUP, sure)
        times = await toggled(house, 1)
        wanted = {time: await says(house, f"SELECT * FROM sure AS OF {time}") for time in times}
        await passed(house, times[-1])
        await house.close()
        with monkeypatch.context() as patched:
            patched.setattr(StorageController, "snapshot", damaged)
            await house.open()
            refused = f"ERROR XX001: table {ERRORS} is damaged: a batch is missing"
            for sql in (
                *(f"SELECT * FROM m AS OF {time}" for time in times),
                f"SELECT * FROM above AS OF {times[0]}",
                f"SELECT * FROM CHANGES(m, {times[0]}, {times[2]})",
                f"SUBSCRIBE m AS OF {times[0]} UP TO {times[2]}",
            ):
                told = await says(house, sql)
                assert told[0] == refused, (sql, told)
            for time, rows_then in wanted.items():
                assert await says(house, f"SELECT * FROM sure AS OF {time}") == rows_then
            assert await says(house, "SELECT * FROM m") == ["1", "10", "5", "SELECT 3"]
            later = await toggled(house, 1)
            await agrees(house, later)
            await ran(house, "DROP MATERIALIZED VIEW above")
            await house.close()

    asyncio.run(main())


def test_a_directory_of_before_gets_the_table(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(*_: object) -> None:
        """Do as a server that has no such table."""

    async def main() -> None:
        with monkeypatch.context() as patched:
            for module in (state, environment):
                patched.setattr(module, "SYSTEM_TABLES", (LAG_HISTORY,))
            patched.setattr(view_errors.ViewErrors, "open", nothing)
            patched.setattr(view_errors.ViewErrors, "store", nothing)
            await house.open()
            await ran(house, *SETUP, "INSERT INTO t VALUES (0)")
            await seen(house)
            await house.close()
            assert not house.storage.exists(VIEW_ERRORS.id)
        await house.open()
        assert await says(house, "SELECT * FROM m") == [DIVISION]
        now = await seen(house)
        assert len(await rows(house)) == 1
        await ran(house, "DELETE FROM t WHERE a = 0")
        later = await seen(house)
        await passed(house, later)
        await agrees(house, [now, later])
        await house.close()

    asyncio.run(main())


def test_a_restored_backup_has_them(house: House, tmp_path: Path) -> None:
    async def main() -> None:
        place, restored = tmp_path / "backup", tmp_path / "restored"
        house.data_dir = tmp_path / "data"
        await house.open()
        await ran(house, *SETUP)
        times = await toggled(house)
        await passed(house, times[-1])
        await asyncio.to_thread(backup.back_up, house.data_dir, place)
        await toggled(house, 1)  # of which it knows nothing
        await house.close()
        await asyncio.to_thread(backup.restore, place, restored)
        copy = House(restored, lag_ms=house.lag_ms)
        await copy.open()
        await agrees(copy, times)
        assert len(await rows(copy)) == 4
        await copy.close()

    asyncio.run(main())


def test_its_id_is_the_same_in_every_database() -> None:
    assert VIEW_ERRORS.id == "s3"
    assert len({each.oid for each in SYSTEM_TABLES}) == len(SYSTEM_TABLES)
