"""Interrupts and cancellations at each step of a transaction leave it whole or undone."""

import asyncio
import contextlib
import dis
import signal
import sys
from collections.abc import Coroutine, Generator, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import foreshore
from foreshore.embedded import database, transaction
from foreshore.embedded.database import Database
from foreshore.embedded.database_async import AsyncDatabase, inside
from foreshore.errors import DatabaseError

CALL = dis.opmap["CALL"]

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("interruptible")]


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    with foreshore.open(tmp_path_factory.mktemp("interrupts") / "data") as opened:
        opened.execute("CREATE TABLE t (step int, n int)")
        yield opened


def two_rows(db: Database, step: int) -> None:
    with db.transaction():
        db.execute(f"INSERT INTO t VALUES ({step}, 1)")
        with db.transaction():
            db.execute(f"INSERT INTO t VALUES ({step}, 2)")


class InterruptAt:
    """Raises SIGINT where the interpreter looks for signals: as functions begin, and after calls.

    That is in this file, in transaction.py, and in what that calls of database.py.
    """

    FILES = (__file__, transaction.__file__)

    def __init__(self, step: int) -> None:
        self.left = step
        self.last: dict[FrameType, int] = {}  # the instructions before

    def __call__(self, frame: FrameType, event: str, _: object) -> Any:
        if not self.is_traced(frame):
            return None
        frame.f_trace_opcodes = True
        if event == "call" or (event == "opcode" and self.last.get(frame) == CALL):
            self.left -= 1
            if self.left == 0:
                signal.raise_signal(signal.SIGINT)
        self.last[frame] = frame.f_code.co_code[frame.f_lasti]
        return self

    def is_traced(self, frame: FrameType) -> bool:
        by = frame.f_back
        return frame.f_code.co_filename in self.FILES or (
            frame.f_code.co_filename == database.__file__
            and by is not None
            and by.f_code.co_filename == transaction.__file__
        )


def is_interrupted(db: Database, step: int) -> bool:
    tracing = sys.gettrace()
    sys.settrace(InterruptAt(step))
    try:
        two_rows(db, step)
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(tracing)
    return False


def check(database: AsyncDatabase) -> None:
    assert not database._lock.locked()
    assert not database._statement.locked()
    assert inside.get() is None


WHOLE = "SELECT step, count(*) FROM t GROUP BY step HAVING count(*) <> 2"


def test_interrupt_at_any_step_leaves_a_transaction_whole_or_undone(db: Database) -> None:
    step = 1
    with db.session() as beside:
        while is_interrupted(db, step):
            check(db._database)
            assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
            assert db.sql("SELECT count(*) FROM t WHERE step = $1", [step]).scalar() in (0, 2)
            assert beside.sql(WHOLE).fetchall() == [], step
            step += 1
        rows = "SELECT count(*) FROM t WHERE step = $1"
        assert beside.sql(rows, [step]).scalar() == 2
        assert beside.sql(rows, [1]).scalar() == 0
    assert step > 50
    with db.transaction():  # the session is in none
        pass


class CancelledAt:
    """Runs a coroutine, and cancels its task at some of its awaits."""

    def __init__(self, work: Coroutine[Any, Any, None], steps: range) -> None:
        self.work, self.steps, self.step = work, steps, 0

    def __await__(self) -> Generator[Any, Any, None]:
        task = asyncio.current_task()
        assert task is not None
        send, given = self.work.send, None
        while True:
            try:
                waits = send(given)
            except StopIteration:
                return
            self.step += 1
            if self.step in self.steps:
                task.cancel()
            try:
                yield waits
                send, given = self.work.send, None
            except BaseException as error:
                send, given = self.work.throw, error


@pytest.mark.parametrize("times", [1, 2])
def test_cancellation_at_any_await_leaves_a_transaction_whole_or_undone(
    db: Database, times: int, tmp_path: Path
) -> None:
    async def two(database: AsyncDatabase, step: int) -> None:
        async with database.transaction():
            await database.execute(f"INSERT INTO t VALUES ({step}, 1)")
            async with database.transaction():
                await database.execute(f"INSERT INTO t VALUES ({step}, 2)")

    async def run() -> int:
        step = 1
        async with foreshore.connect_async(db._database.where) as database:

            async def cancelled() -> None:
                await CancelledAt(two(database, -step), range(step, step + times))

            while True:
                try:
                    await asyncio.create_task(cancelled())
                except asyncio.CancelledError:
                    check(database)
                    assert (await database.sql(WHOLE)).fetchall() == [], step
                    await database.execute("BEGIN; COMMIT")
                    step += 1
                else:
                    return step

    before = db.sql("SELECT count(*) FROM t").scalar()
    assert asyncio.run(run()) > 5
    assert db.sql("SELECT count(*) FROM t").scalar() > before
    db.execute("TRUNCATE t")


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("times", [1, 2, 3])
def test_cancelled_savepoint_leaves_no_rows_to_its_transaction(
    db: Database, times: int, fails: bool
) -> None:
    async def inner(database: AsyncDatabase) -> None:
        with contextlib.suppress(ValueError):
            async with database.transaction():
                await database.execute("INSERT INTO t VALUES (-9, 2)")
                if fails:
                    raise ValueError

    async def cancelled(database: AsyncDatabase, step: int) -> None:
        await CancelledAt(inner(database), range(step, step + times))

    async def outer(database: AsyncDatabase, step: int) -> bool:
        """Return whether the savepoint was cancelled; the transaction goes on in any case."""
        is_cancelled = False
        with contextlib.suppress(DatabaseError):  # the transaction may have failed as a whole
            async with database.transaction():
                await database.execute("INSERT INTO t VALUES (-9, 1)")
                try:
                    await asyncio.create_task(cancelled(database, step))
                except asyncio.CancelledError:
                    is_cancelled = True
        return is_cancelled

    async def run() -> int:
        step = 1
        async with foreshore.connect_async(db._database.where) as database:
            while await outer(database, step):
                check(database)
                rows = "DELETE FROM t WHERE step = -9 RETURNING n"
                assert (2,) not in (await database.sql(rows)).fetchall(), step
                step += 1
        return step

    assert asyncio.run(run()) > 3  # awaits of one savepoint
    db.execute("TRUNCATE t")


def test_cancellations_while_a_statement_runs_leave_no_transaction(db: Database) -> None:
    async def run() -> Any:
        async with foreshore.connect_async(db._database.where) as database:
            opened = await database.begin()
            token = inside.set(opened.token)
            await database.execute("INSERT INTO t VALUES (0, 1)")
            async with database._statement:  # as a statement of another task does
                ending = asyncio.create_task(database.end(opened, commit=True))
                while not ending.done():
                    await asyncio.sleep(0)
                    ending.cancel()
            inside.reset(token)
            check(database)
            return (await database.sql("SELECT count(*) FROM t WHERE step = 0")).scalar()

    assert asyncio.run(run()) == 0


def test_transaction_says_what_it_cannot_begin(db: Database) -> None:
    with pytest.raises(DatabaseError, match="isolation is serializable, "), db.transaction("best"):
        pass
    db.execute("BEGIN")
    with pytest.raises(DatabaseError, match="transaction in progress"), db.transaction():
        pass
    db.execute("ROLLBACK")
    once = db.transaction("serializable")
    with once:
        assert db.sql("SHOW transaction_isolation").scalar() == "serializable"
    with pytest.raises(RuntimeError, match="once"), once:
        pass
