"""Random blocks of changes, and SIGKILL in between and during: what PostgreSQL has then is there.

To PostgreSQL a kill is the end of the session: the block it is in is rolled back. A statement that
is killed before it has answered, outside of a block or as its COMMIT, has taken place whole or not
at all. After each start both hold the same tables, of the same columns with the same defaults, the
same keys, the same rows, and what stands on them; then the script goes on.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from psycopg import pq

from foreshore.storage.inspection import inspect
from tests.harness import Server, until
from tests.sqllogic.random_script import (
    OUR_LIMITS,
    SCHEMA,
    THEIR_LIMITS,
    Outcome,
    Script,
    agree,
    connected,
    outcome,
    prepare,
)
from tests.sqllogic.runner import Failed, rows_of

SEEDS = 1  # in make test
MORE_SEEDS = 100
STATEMENTS = 120
KILLS = 0.05  # of statements
MOMENTS = (0.0, 0.003, 0.01, 0.03, 0.1)  # seconds, at most, from the statement to its kill

RELATIONS = (
    "SELECT relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
    f" WHERE nspname = '{SCHEMA}' AND relkind IN ('r', 'i') AND relname NOT LIKE 'by_v%'"
)
COLUMNS = (
    "SELECT table_name, column_name, column_default, is_nullable"  # in the order of SELECT *
    " FROM information_schema.columns JOIN information_schema.tables"
    " USING (table_catalog, table_schema, table_name)"
    f" WHERE table_schema = '{SCHEMA}' AND table_type = 'BASE TABLE'"
)
CONSTRAINTS = (
    "SELECT conname, contype FROM pg_constraint c JOIN pg_namespace n ON n.oid = c.connamespace"
    f" WHERE nspname = '{SCHEMA}' AND contype <> 'n'"
)


def contents(url: str, *, is_foreshore: bool) -> list[Outcome]:
    """Return all that is committed, as a new session sees it."""
    database = connected(url, is_foreshore=is_foreshore)
    try:
        tables = ("t", "u", "other", "by_v", "kept")
        rows = (f"SELECT * FROM {each}" for each in tables)
        return [outcome(database, each) for each in (RELATIONS, COLUMNS, CONSTRAINTS, *rows)]
    finally:
        database.close()


@dataclass
class Pair:
    """A script's two sessions: of a server that gets killed, and of PostgreSQL."""

    script: Script
    server: Server
    postgres_url: str
    said: list[str] = field(default_factory=list)
    kills: int = 0
    before: list[Outcome] = field(default_factory=list)  # what there was when the block began

    def __post_init__(self) -> None:
        self.choose = random.Random(self.script.seed)
        self._connect()

    def _connect(self) -> None:
        self.ours = connected(self.server.url, is_foreshore=True)
        self.theirs = connected(self.postgres_url, is_foreshore=False)

    def close(self) -> None:
        """End both sessions."""
        self.ours.close()
        self.theirs.close()

    def story(self) -> str:
        """Return what has been said."""
        return "\n".join([f"seed {self.script.seed}", *(f"{each};" for each in self.said)])

    def step(self) -> bool:
        """Say one statement more; whether that went on as PostgreSQL does."""
        sql = self.script.next(self.theirs.status)
        self.said.append(sql)
        if sql == "BEGIN" and self.theirs.status == pq.TransactionStatus.IDLE:
            self.before = contents(self.postgres_url, is_foreshore=False)
        if self.choose.random() < KILLS:
            return self._killed(sql)
        return self._compared(outcome(self.ours, sql), sql)

    def _compared(self, given: Outcome, sql: str) -> bool:
        wanted = outcome(self.theirs, sql)
        if (given[0] in OUR_LIMITS and given != wanted) or wanted[0] in THEIR_LIMITS:
            return False
        assert agree(given, wanted), f"{given} instead of {wanted}\n{self.story()}"
        return True

    def _killed(self, sql: str) -> bool:
        """Kill the server while it is at `sql`, or just after it."""
        self.kills += 1
        given = self._answer_of_the_killed(sql)
        self.said.append("-- SIGKILL" + ("" if given is None else " after the answer"))
        goes_on = given is None or self._compared(given, sql)
        until(lambda: not self.server.processes(), "the replicas end", 10)
        self.server.start()
        if goes_on:
            goes_on = self._is_same(sql if given is None else None)
        self.close()
        self._connect()
        return goes_on

    def _answer_of_the_killed(self, sql: str) -> Outcome | None:
        """Return what `sql` gave in time; None: nothing."""
        connection = self.ours.connection
        connection.send_query(sql.encode())
        time.sleep(self.choose.random() * self.choose.choice(MOMENTS))
        self.server.kill()
        result = connection.get_result()
        is_lost = result is None or (
            result.status == pq.ExecStatus.FATAL_ERROR
            and not result.error_field(pq.DiagnosticField.SQLSTATE)
        )
        if result is None or is_lost:
            return None
        try:
            return "", sorted(rows_of(result))
        except Failed as failed:
            return failed.sqlstate, []

    def _is_same(self, in_doubt: str | None) -> bool:
        """Assert that what is there is PostgreSQL's; `in_doubt` may have taken place.

        Returns whether PostgreSQL's is still that.
        """
        found = self._found()
        status, possible = self.theirs.status, []
        if status == pq.TransactionStatus.INTRANS and in_doubt == "COMMIT":
            possible.append(self.before)
            outcome(self.theirs, in_doubt)
        elif status == pq.TransactionStatus.IDLE and in_doubt is not None:
            possible.append(contents(self.postgres_url, is_foreshore=False))
            if found != possible[0]:
                outcome(self.theirs, in_doubt)
        else:
            self.theirs.close()  # which rolls its block back
        now = contents(self.postgres_url, is_foreshore=False)
        assert found in (*possible, now), self._difference(found, now)
        return found == now

    def _difference(self, found: list[Outcome], now: list[Outcome]) -> str:
        """Return what is not as it should be, whether it lasts, and what the server said."""
        differ = [f"{a} instead of {b}" for a, b in zip(found, now, strict=True) if a != b]
        return "\n".join([*differ, f"again: {self._found()}", self._log(), self.story()])

    def _found(self) -> list[Outcome]:
        try:
            return contents(self.server.url, is_foreshore=True)
        except ConnectionError as error:
            assert self.server.process is not None
            status = self.server.process.poll()
            raise AssertionError(f"{error}, status {status}\n{self._log()}") from error

    def _log(self) -> str:
        return self.server.log.read_text()[-4000:]


def run(data_dir: Path, postgres_url: str, seeds: range) -> None:
    server = Server(data_dir).start()
    kills = 0
    try:
        for seed in seeds:
            pair = Pair(Script(seed), server, postgres_url)
            prepare(pair.ours)
            prepare(pair.theirs)
            try:
                for _ in range(STATEMENTS):
                    if not pair.step():
                        break
            finally:
                pair.close()
            kills += pair.kills
    finally:
        server.stop()
    assert kills >= len(seeds)
    assert not inspect(data_dir, verify=True).corruptions


@pytest.mark.timeout(300)
@pytest.mark.full
def test_what_is_killed_is_what_postgresql_has(data_dir: Path, postgres_url: str) -> None:
    run(data_dir, postgres_url, range(SEEDS))


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_what_is_killed_many_times_is_what_postgresql_has(
    data_dir: Path, postgres_url: str
) -> None:
    run(data_dir, postgres_url, range(1000, 1000 + MORE_SEEDS))
