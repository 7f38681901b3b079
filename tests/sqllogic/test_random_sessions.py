"""Two sessions that change rows, tables and constraints at once: as if one after the other.

A seed says which session speaks next, what it says and how long it is waited for. What has
committed, and in which order, is compared with PostgreSQL (`history.py`); so are the rows and
columns that there are in the end, in views too.
"""

from __future__ import annotations

import random
import select
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from psycopg import pq

from foreshore.storage.inspection import inspect
from tests.harness import serving
from tests.sqllogic.history import Order, Statement, Transaction
from tests.sqllogic.random_script import SCHEMA, Script, connected, prepare
from tests.sqllogic.runner import Database, Failed, rows_of

pytestmark = pytest.mark.full  # random input

SEEDS = 3  # in make test
MORE_SEEDS = 500
STATEMENTS = 80
ANSWERED_S = 30.0
TIMES_S = (0.0, 0.0, 0.002, 0.02, 0.1)

IN_THE_END = (
    *(f"SELECT * FROM {name}" for name in ("t", "u", "other", "by_v", "kept")),
    "SELECT table_name, column_name, is_nullable, column_default FROM information_schema.columns"
    " WHERE table_schema = current_schema() AND table_name IN ('t', 'u', 'other')",
)


class Busy(Script):
    """Statements for a session that is not alone."""

    def next(self, status: pq.TransactionStatus) -> str:
        """Return another statement: blocks are short, and some lock what they will change."""
        chance = self.choose.random()
        if status == pq.TransactionStatus.INTRANS and chance < 0.2:
            return "COMMIT"
        if status != pq.TransactionStatus.INERROR and chance > 0.95:
            return self.choose.choice(
                (
                    f"SELECT * FROM {self._table()} WHERE id = {self._key()} FOR UPDATE",
                    f"SELECT * FROM {self._table()} FOR UPDATE",
                    f"LOCK TABLE {self._table()}",
                )
            )
        return super().next(status)

    def kinds(self) -> list[Callable[[], str]]:
        """Return what makes a statement."""
        return [*super().kinds(), *[self.sequence] * 3]

    def sequence(self) -> str:
        """Return a statement about a sequence; which numbers it gives is not as in any order."""
        return self.choose.choice(
            (
                f"ALTER SEQUENCE q RESTART WITH {self._key()}",
                "SELECT nextval('q') > 0",
                f"SELECT setval('q', {self._key()}) > 0",
            )
        )


class Speaker:
    """A session that speaks without waiting for the answer."""

    def __init__(self, number: int, url: str, clock: Clock) -> None:
        self.number, self._clock = number, clock
        self.database = connected(url, is_foreshore=True)
        self.waits_for: tuple[str, int] | None = None
        self.committed: list[Transaction] = []
        self._block: list[Statement] = []

    def say(self, sql: str) -> None:
        assert self.waits_for is None
        self.waits_for = sql, self._clock.next()
        self.database.connection.send_query(sql.encode())

    def hear(self) -> None:
        """Take the answer, if all of it is there."""
        connection = self.database.connection
        connection.consume_input()
        if self.waits_for is None or connection.is_busy():
            return
        result = connection.get_result()
        assert result is not None, connection.error_message
        assert connection.get_result() is None
        try:
            outcome = "", sorted(rows_of(result))
        except Failed as failed:
            outcome = failed.sqlstate, []
        sql, sent = self.waits_for
        assert outcome[0] not in ("XX000", "57014"), f"{self._clock.story()}\n{sql}: {outcome}"
        self.waits_for = None
        tag = (result.command_status or b"").decode()
        self._keep(Statement(sql, outcome, tag, sent, self._clock.next()))

    def _keep(self, statement: Statement) -> None:
        self._clock.said.append(
            f"{self.number} {statement.sent}-{statement.told} {statement.sql}: {statement.outcome}"
        )
        self._block.append(statement)
        if self.database.status != pq.TransactionStatus.IDLE:
            return
        alone = len(self._block) == 1
        ends = statement.sql.startswith(("COMMIT", "ROLLBACK", "RELEASE", "SAVEPOINT", "LOCK"))
        if not ends if alone else statement.tag == "COMMIT" and not statement.outcome[0]:
            self.committed.append(Transaction(self.number, tuple(self._block)))
        self._block = []


class Clock:
    """Counts what happens, and remembers what was said."""

    def __init__(self) -> None:
        self._now = 0
        self.said: list[str] = []

    def next(self) -> int:
        """Return a later time."""
        self._now += 1
        return self._now

    def story(self) -> str:
        """Return all that was said and answered."""
        return "\n".join(self.said)


def free(*speakers: Speaker) -> Callable[[], bool]:
    """Return whether all of them have their answer."""
    return lambda: not any(each.waits_for for each in speakers)


def hear(speakers: list[Speaker], enough: Callable[[], bool], within_s: float) -> None:
    """Take answers until it is enough, or for a time."""
    deadline = time.monotonic() + within_s
    while not enough() and (left_s := deadline - time.monotonic()) > 0:
        sockets = {each.database.connection.socket: each for each in speakers if each.waits_for}
        for ready in select.select(list(sockets), [], [], left_s)[0]:
            sockets[ready].hear()


def converse(seed: int, url: str) -> tuple[Clock, tuple[list[Transaction], ...]]:
    """Have two sessions speak on Foreshore; returns all, and what each has committed."""
    choose, clock = random.Random(seed), Clock()
    speakers = [Speaker(i, url, clock) for i in range(2)]
    scripts = [Busy(2 * seed + i) for i in range(2)]
    try:
        prepare(speakers[0].database)
        for each in speakers:
            each.database.run(f"SET lock_timeout = '{choose.choice((0, 0, 50))}ms'")
            each.database.run(f"SET statement_timeout = '{ANSWERED_S / 2:g}s'")
        for _ in range(STATEMENTS):
            speaker = choose.choice([each for each in speakers if not each.waits_for])
            speaker.say(scripts[speaker.number].next(speaker.database.status))
            hear(speakers, free(speaker), choose.choice(TIMES_S))
            hear(speakers, lambda: not all(each.waits_for for each in speakers), ANSWERED_S)
            assert not all(each.waits_for for each in speakers), f"all wait:\n{clock.story()}"
        for sql in ("COMMIT", *IN_THE_END):
            for each in sorted(speakers, key=lambda each: bool(each.waits_for)):
                hear(speakers, free(each), ANSWERED_S)
                each.say(sql)
        hear(speakers, free(*speakers), ANSWERED_S)
        assert not any(each.waits_for for each in speakers), f"it waits:\n{clock.story()}"
    finally:
        for each in speakers:
            each.database.close()
    return clock, tuple(each.committed for each in speakers)


def compare(seed: int, url: str, postgres: Database) -> int:
    """Assert that a seed's history is one of PostgreSQL's; returns how many have committed."""
    clock, sessions = converse(seed, url)
    postgres.run("BEGIN")
    prepare(postgres)
    order = Order(postgres, sessions)
    found = order.found()
    postgres.run("ROLLBACK")
    assert found, "\n".join((f"seed {seed}", *clock.said, *order.differences))
    return len(order.order)


def run_seeds(data_dir: Path, postgres_url: str, seeds: range) -> None:
    postgres = connected(postgres_url, is_foreshore=False)
    try:
        with serving(data_dir) as server:
            committed = [compare(seed, server.url, postgres) for seed in seeds]
            server.stop()
            with server.start().connect() as after:
                after.execute(f"SELECT nextval('{SCHEMA}.q')")
    finally:
        postgres.close()
    assert sum(committed) > STATEMENTS / 4 * len(seeds)
    assert not inspect(data_dir, verify=True).corruptions


def test_two_sessions_are_as_one_after_the_other(data_dir: Path, postgres_url: str) -> None:
    run_seeds(data_dir, postgres_url, range(SEEDS))


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_many_times_two_sessions_are_as_one_after_the_other(
    data_dir: Path, postgres_url: str
) -> None:
    run_seeds(data_dir, postgres_url, range(1000, 1000 + MORE_SEEDS))
