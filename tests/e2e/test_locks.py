"""Locks as drivers ask for them, with arguments, tried on Foreshore and on PostgreSQL alike."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
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
