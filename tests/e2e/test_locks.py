"""Locks as drivers ask for them, with arguments, tried on Foreshore and on PostgreSQL alike."""

import contextlib
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import nullcontext
from typing import Any

import psycopg
import pytest
from psycopg import errors

Connection = psycopg.Connection[Any]


@pytest.fixture
def both(url: str) -> Iterator[tuple[Connection, Connection]]:
    """Two connections that are outside of transactions, and a table of jobs."""
    with psycopg.connect(url, autocommit=True) as one, psycopg.connect(url, autocommit=True) as two:
        one.execute("DROP TABLE IF EXISTS jobs")
        one.execute("CREATE TABLE jobs (id int PRIMARY KEY, state text NOT NULL)")
        one.execute("INSERT INTO jobs SELECT i, 'new' FROM generate_series(1, 20) AS i")
        yield one, two


def test_a_row_is_locked_for_who_reads_it(both: tuple[Connection, Connection]) -> None:
    one, two = both
    by_id = "SELECT state FROM jobs WHERE id = %s FOR UPDATE"
    with one.transaction():
        assert one.execute(by_id, (3,)).fetchall() == [("new",)]
        with pytest.raises(errors.LockNotAvailable) as taken:
            two.execute(by_id + " NOWAIT", (3,))
        message = 'could not obtain lock on row in relation "jobs"'
        assert taken.value.diag.message_primary == message
        assert two.execute(by_id + " SKIP LOCKED", (3,)).fetchall() == []
        assert two.execute(by_id + " NOWAIT", (4,)).fetchall() == [("new",)]
        one.execute("UPDATE jobs SET state = 'done' WHERE id = %s", (3,))
    assert two.execute(by_id, (3,)).fetchall() == [("done",)]


def test_a_queue_is_shared(url: str, both: tuple[Connection, Connection]) -> None:
    take = "SELECT id FROM jobs WHERE state = %s ORDER BY id LIMIT %s FOR NO KEY UPDATE SKIP LOCKED"

    def work(_: int) -> list[int]:
        done: list[int] = []
        with psycopg.connect(url, autocommit=True) as connection:
            while True:
                with connection.transaction():
                    ids = [id for (id,) in connection.execute(take, ("new", 2)).fetchall()]
                    for id in ids:
                        connection.execute("UPDATE jobs SET state = 'done' WHERE id = %s", (id,))
                done += ids
                if not ids:
                    return done

    with ThreadPoolExecutor(3) as executor:
        done = [id for ids in executor.map(work, range(3)) for id in ids]
    assert len(set(done)) == len(done)
    left = both[0].execute("SELECT id FROM jobs WHERE state = 'new'").fetchall()
    assert sorted(done + [id for (id,) in left]) == list(range(1, 21))


DELETE_IN = (
    "DELETE FROM jobs WHERE id IN "
    "(SELECT id FROM jobs WHERE state = %s ORDER BY id FOR UPDATE SKIP LOCKED LIMIT %s) "
    "RETURNING id"
)
UPDATE_ONE = (
    "UPDATE jobs SET state = 'running' WHERE id = "
    "(SELECT id FROM jobs WHERE state = %s ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED) "
    "RETURNING id"
)
UPDATE_FROM = (
    "WITH next AS "
    "(SELECT id FROM jobs WHERE state = %s ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED) "
    "UPDATE jobs AS j SET state = 'running' FROM next WHERE j.id = next.id RETURNING j.id"
)
TAKES = pytest.mark.parametrize("take", [DELETE_IN, UPDATE_ONE, UPDATE_FROM])


@TAKES
@pytest.mark.parametrize("block", [False, True], ids=["alone", "in a block"])
def test_a_queue_is_shared_by_one_statement(
    url: str, both: tuple[Connection, Connection], take: str, *, block: bool
) -> None:
    both[0].execute("INSERT INTO jobs SELECT i, 'new' FROM generate_series(21, 200) AS i")
    most = 10 if take is UPDATE_FROM else 1

    def work(_: int) -> list[int]:
        done: list[int] = []
        with psycopg.connect(url, autocommit=True) as connection:
            while True:
                with connection.transaction() if block else nullcontext():
                    ids = [id for (id,) in connection.execute(take, ("new", most)).fetchall()]
                done += ids
                if not ids:
                    return done

    with ThreadPoolExecutor(8) as executor:
        done = [id for ids in executor.map(work, range(8)) for id in ids]
    assert sorted(done) == list(range(1, 201))


def test_a_queue_without_a_key_is_shared_too(url: str, both: tuple[Connection, Connection]) -> None:
    both[0].execute("ALTER TABLE jobs DROP CONSTRAINT jobs_pkey")
    end = time.monotonic() + 30

    def work(_: int) -> list[int]:
        done: list[int] = []
        with psycopg.connect(url, autocommit=True) as connection:
            while connection.execute("SELECT count(*) FROM jobs").fetchone() != (0,):
                assert time.monotonic() < end, done
                done += [id for (id,) in connection.execute(DELETE_IN, ("new", 1)).fetchall()]
        return done

    with ThreadPoolExecutor(4) as executor:
        done = [id for ids in executor.map(work, range(4)) for id in ids]
    assert sorted(done) == list(range(1, 21))


@TAKES
def test_a_job_is_taken_until_its_transaction_ends(
    both: tuple[Connection, Connection], take: str
) -> None:
    one, two = both

    def taken(by: Connection) -> list[tuple[int]]:
        return by.execute(take, ("new", 1)).fetchall()

    one.execute("BEGIN")
    assert taken(one) == [(1,)]
    assert taken(one) == [(2,)]
    assert taken(two) == [(3,)]
    two.execute("BEGIN")
    assert taken(two) == [(4,)]
    two.execute("ROLLBACK")
    two.execute("BEGIN")
    assert taken(two) == [(4,)]
    one.execute("ROLLBACK")
    assert taken(two) == [(1,)]
    assert taken(one) == [(2,)], "what another has committed is seen, and nobody waits"
    two.execute("COMMIT")
    assert taken(one) == [(5,)]
    left = one.execute("SELECT id FROM jobs WHERE state = 'new' ORDER BY id").fetchall()
    assert left == [(id,) for id in range(6, 21)]
    one.execute("UPDATE jobs SET state = 'done'")
    assert taken(one) == taken(two) == []


def test_what_fails_gives_up_its_jobs(both: tuple[Connection, Connection]) -> None:
    one, two = both
    fails = (
        "UPDATE jobs SET state = (1 / (id - 1))::text "
        "WHERE id = (SELECT id FROM jobs ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED)"
    )
    with pytest.raises(errors.DivisionByZero):
        one.execute(fails)
    assert two.execute("SELECT id FROM jobs WHERE id = 1 FOR UPDATE NOWAIT").fetchall() == [(1,)]
    one.execute("BEGIN")
    with pytest.raises(errors.DivisionByZero):
        one.execute(fails)
    one.execute("ROLLBACK")
    assert two.execute(DELETE_IN, ("new", 1)).fetchall() == [(1,)]


def test_a_subquery_waits_or_says_so(both: tuple[Connection, Connection]) -> None:
    one, two = both
    one.execute("BEGIN")
    one.execute("UPDATE jobs SET state = 'old' WHERE id = 1")
    with pytest.raises(errors.LockNotAvailable) as taken:
        two.execute(
            "DELETE FROM jobs WHERE id IN (SELECT id FROM jobs WHERE id = 1 FOR UPDATE NOWAIT)"
        )
    message = 'could not obtain lock on row in relation "jobs"'
    assert taken.value.diag.message_primary == message
    waits = "DELETE FROM jobs WHERE id = (SELECT id FROM jobs WHERE id = 1 FOR UPDATE) RETURNING *"
    with ThreadPoolExecutor(1) as executor:
        second = executor.submit(two.execute, waits)
        assert not wait([second], timeout=0.3).done
        one.execute("COMMIT")
        assert second.result(30).fetchall() == [(1, "old")]


def test_a_table_is_locked(both: tuple[Connection, Connection]) -> None:
    one, two = both
    with one.transaction():
        one.execute("LOCK TABLE jobs IN SHARE ROW EXCLUSIVE MODE")
        assert two.execute("SELECT count(*) FROM jobs").fetchone() == (20,)
        with (
            pytest.raises(errors.LockNotAvailable) as taken,
            two.transaction(),
        ):
            two.execute("LOCK jobs IN ROW EXCLUSIVE MODE NOWAIT")
        assert taken.value.diag.message_primary == 'could not obtain lock on relation "jobs"'
        two.execute("SET lock_timeout = '50ms'")
        with pytest.raises(errors.LockNotAvailable):
            two.execute("UPDATE jobs SET state = 'x' WHERE id = %s", (1,))


def test_migrations_exclude_each_other(both: tuple[Connection, Connection]) -> None:
    one, two = both
    number = 3_141_592_653_589
    one.execute("SELECT pg_advisory_lock(%s)", (number,))
    assert two.execute("SELECT pg_try_advisory_lock(%s)", (number,)).fetchone() == (False,)
    assert two.execute("SELECT pg_try_advisory_lock(%s, %s)", (3, 14)).fetchone() == (True,)
    with ThreadPoolExecutor(1) as executor:
        second = executor.submit(two.execute, "SELECT pg_advisory_xact_lock(%s)", (number,))
        assert one.execute("SELECT pg_advisory_unlock(%s)", (number,)).fetchone() == (True,)
        assert second.result(30).fetchone() == ("",)
    assert one.execute("SELECT pg_try_advisory_lock(%s)", (number,)).fetchone() == (True,)
    notices: list[str | None] = []
    two.add_notice_handler(lambda each: notices.append(each.message_primary))
    assert two.execute("SELECT pg_advisory_unlock(%s)", (number,)).fetchone() == (False,)
    assert notices == ["you don't own a lock of type ExclusiveLock"]


CHANGES = [
    "DROP TABLE jobs",
    "DROP SCHEMA work CASCADE",
    "ALTER TABLE jobs RENAME TO done",
    "ALTER TABLE jobs ADD COLUMN n int",
]
LOCK_ROW = "SELECT id FROM jobs WHERE id = 1 FOR UPDATE"


@pytest.fixture
def at_work(both: tuple[Connection, Connection]) -> tuple[Connection, Connection]:
    """The two, with the tables jobs, of one job, and other in a schema that can be dropped."""
    for each in both:
        each.execute("SET search_path = work")
    both[0].execute(
        "DROP SCHEMA IF EXISTS work CASCADE; DROP SCHEMA IF EXISTS rest CASCADE;"
        "CREATE SCHEMA work; CREATE SCHEMA rest; CREATE TABLE rest.other (id int);"
        "CREATE TABLE jobs (id int PRIMARY KEY, state text NOT NULL);"
        "INSERT INTO jobs VALUES (1, 'new')"
    )
    return both


@pytest.mark.parametrize("change", CHANGES)
def test_a_table_stays_what_it_is_while_others_have_locks(
    at_work: tuple[Connection, Connection], change: str
) -> None:
    one, two = at_work
    with one.transaction(), ThreadPoolExecutor(1) as executor:
        one.execute(LOCK_ROW)
        two.execute("SET lock_timeout = '50ms'")
        with pytest.raises(errors.LockNotAvailable):
            two.execute(change)
        two.execute("SET lock_timeout = 0")
        changed = executor.submit(two.execute, change)
        time.sleep(0.3)
        two.cancel()
        with pytest.raises(errors.QueryCanceled):
            changed.result(30)
    one.execute("BEGIN; " + LOCK_ROW)
    two.execute("BEGIN; LOCK TABLE rest.other")
    with ThreadPoolExecutor(2) as executor:
        asked = (
            executor.submit(one.execute, "LOCK TABLE rest.other"),
            executor.submit(two.execute, change),
        )
        said = [type(each.exception(30)) for each in asked]
    assert set(said) == {errors.DeadlockDetected, type(None)}
    for each in at_work:
        each.execute("ROLLBACK")
    one.execute("BEGIN; " + LOCK_ROW)
    with ThreadPoolExecutor(1) as executor:
        changed = executor.submit(two.execute, change)
        time.sleep(0.1)
        assert not changed.done()
        one.execute("COMMIT")
        changed.result(30)


@contextlib.contextmanager
def waiting(connection: Connection, sql: str, other: Connection) -> Iterator[Future[Any]]:
    """Run a statement on a thread; if it is waited for in vain, tell what the server has of it."""
    with ThreadPoolExecutor(1) as executor:
        said = executor.submit(connection.execute, sql)
        try:
            yield said
        except TimeoutError as error:
            for relation in ("pg_stat_activity", "pg_locks"):
                error.add_note(f"{relation}: {other.execute(f'TABLE {relation}').fetchall()}")
            raise
        finally:
            if not said.done():
                connection.cancel()


@pytest.mark.parametrize("change", CHANGES[:3])
@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO jobs VALUES (2, 'new')",
        "BEGIN; INSERT INTO jobs VALUES (2, 'new')",
        "UPDATE jobs SET state = 'x' WHERE id = 1",
        "DELETE FROM jobs",
        "BEGIN; LOCK TABLE jobs IN ROW SHARE MODE",
        LOCK_ROW,
        "TRUNCATE jobs",
        "ALTER TABLE jobs ADD CHECK (id > 0)",
    ],
)
@pytest.mark.parametrize("remade", [False, True])
def test_who_has_waited_goes_by_the_name(
    at_work: tuple[Connection, Connection], change: str, statement: str, remade: bool
) -> None:
    one, two = at_work
    one.execute("BEGIN; " + change)
    if remade:
        one.execute("CREATE SCHEMA IF NOT EXISTS work")
        one.execute("CREATE TABLE jobs (id int PRIMARY KEY, state text NOT NULL)")
    with waiting(two, statement, one) as said:
        time.sleep(0.1)
        assert not said.done()
        one.execute("COMMIT")
        if remade:
            said.result(30)
            two.execute("COMMIT")
            return
        with pytest.raises(errors.UndefinedTable) as gone:
            said.result(30)
    assert gone.value.diag.message_primary == 'relation "jobs" does not exist'
    two.execute("ROLLBACK")


TAKES_ROW = "SELECT id FROM jobs WHERE id = 2 FOR UPDATE NOWAIT"
TAKES_TABLE = "BEGIN; LOCK TABLE other IN EXCLUSIVE MODE NOWAIT"
TAKES_ADVISORY = "SELECT 1 / pg_try_advisory_xact_lock(5)::int"


@pytest.mark.parametrize("end", ["ROLLBACK TO p", "SELECT 1 / 0", "RELEASE p"])
@pytest.mark.parametrize(
    ("locks", "takes"),
    [
        ("SELECT id FROM jobs WHERE id = 2 FOR UPDATE", TAKES_ROW),
        ("UPDATE jobs SET state = 'x' WHERE id = 2", TAKES_ROW),
        ("DELETE FROM jobs WHERE id = 2", TAKES_ROW),
        ("LOCK TABLE other IN EXCLUSIVE MODE", TAKES_TABLE),
        ("LOCK TABLE other IN ROW SHARE MODE", TAKES_TABLE),
        ("TRUNCATE other", TAKES_TABLE),
        ("ALTER TABLE other ADD CHECK (id > 0)", TAKES_TABLE),
        ("ALTER TABLE other RENAME TO others", TAKES_TABLE),
        ("DROP TABLE other", TAKES_TABLE),
        ("SELECT pg_advisory_xact_lock(5)", TAKES_ADVISORY),
        ("SELECT pg_advisory_xact_lock_shared(5), pg_advisory_xact_lock(5)", TAKES_ADVISORY),
    ],
)
def test_what_is_locked_after_a_savepoint_is_let_go_with_it(
    both: tuple[Connection, Connection], locks: str, takes: str, end: str
) -> None:
    one, two = both

    def taken(sql: str) -> bool:
        """Whether `sql` would have to wait for what it wants."""
        try:
            two.execute(sql)
        except (errors.LockNotAvailable, errors.DivisionByZero):
            return True
        finally:
            two.execute("ROLLBACK")
        return False

    one.execute("DROP TABLE IF EXISTS other, others; CREATE TABLE other (id int)")
    one.execute("BEGIN; SELECT id FROM jobs WHERE id = 1 FOR UPDATE")
    one.execute("SELECT pg_advisory_xact_lock(4)")
    one.execute("SAVEPOINT p")
    one.execute(locks)
    one.execute("SELECT id FROM jobs WHERE id = 1 FOR UPDATE")
    one.execute("SELECT pg_advisory_xact_lock(4), pg_advisory_lock(6)")
    assert taken(takes)
    with contextlib.suppress(errors.DivisionByZero):
        one.execute(end)
    assert taken(takes) == (end == "RELEASE p")
    assert taken(TAKES_ROW.replace("2", "1"))
    assert taken(TAKES_ADVISORY.replace("5", "4"))
    one.execute("ROLLBACK")
    assert not taken(TAKES_ROW.replace("2", "1"))
    assert not taken(TAKES_ADVISORY.replace("5", "4"))
    assert taken(TAKES_ADVISORY.replace("5", "6")), "that is the session's"


def test_who_waits_for_what_a_savepoint_lets_go_gets_it(
    both: tuple[Connection, Connection],
) -> None:
    one, two = both
    one.execute("BEGIN; SAVEPOINT p; UPDATE jobs SET state = 'x' WHERE id = 2")
    with ThreadPoolExecutor(1) as executor:
        update = executor.submit(two.execute, "UPDATE jobs SET state = 'y' WHERE id = 2")
        time.sleep(0.1)
        assert not update.done()
        one.execute("ROLLBACK TO p")
        assert update.result(30).rowcount == 1
    one.execute("COMMIT")
    rows = one.execute("SELECT id, state FROM jobs WHERE state <> 'new'").fetchall()
    assert rows == [(2, "y")]
