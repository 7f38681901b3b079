"""Transactions that change the catalog, and what others have committed meanwhile."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.adapter.harness import TestEnvironment

CONFLICT = "ERROR 40001: could not serialize access due to "
TABLES = (
    "CREATE TABLE t (id int PRIMARY KEY, v int)",
    "CREATE TABLE u (id int PRIMARY KEY, v int)",
)


def _commit(runner: asyncio.Runner, place: Path, script: Sequence[tuple[str, str]]) -> str:
    """Run a script of sessions and what they say; return the last answer."""

    async def main() -> str:
        env = TestEnvironment(place)
        await env.open()
        try:
            for sql in TABLES:
                await env.query("s", sql)
            for session, sql in script:
                answer = await env.query(session, sql, alone=False)
                assert sql == script[-1][1] or not answer.startswith("ERROR"), answer
            return answer
        finally:
            await env.close()

    return runner.run(main())


@pytest.mark.parametrize(
    ("own", "others"),
    [
        ("CREATE UNIQUE INDEX k ON t (v)", "ALTER TABLE u ADD CONSTRAINT k UNIQUE (v)"),
        ("CREATE UNIQUE INDEX k ON t (v)", "CREATE VIEW k AS SELECT 1"),
        ("CREATE VIEW k AS SELECT 1", "CREATE UNIQUE INDEX k ON t (v)"),
        ("ALTER TABLE t RENAME TO k", "ALTER TABLE u ADD CONSTRAINT k UNIQUE (v)"),
    ],
)
def test_a_name_is_given_once_by_two_transactions(
    runner: asyncio.Runner, tmp_path: Path, own: str, others: str
) -> None:
    answer = _commit(
        runner, tmp_path, [("s", "BEGIN"), ("s", own), ("other", others), ("s", "COMMIT")]
    )
    assert answer == f"{CONFLICT}a concurrent change of the catalog"


@pytest.mark.parametrize(
    ("own", "others"),
    [
        ("DROP SCHEMA s", "CREATE TABLE s.y (i int)"),
        ("CREATE TABLE s.y (i int)", "DROP SCHEMA s"),
        ("DROP DATABASE d", "CREATE SCHEMA d.s"),
        ("CREATE SCHEMA d.s", "DROP DATABASE d"),
        ("DROP CLUSTER c", "CREATE MATERIALIZED VIEW m IN CLUSTER c AS TABLE t"),
        ("CREATE MATERIALIZED VIEW m IN CLUSTER c AS TABLE t", "DROP CLUSTER c"),
        ("CREATE INDEX i IN CLUSTER c ON t (v)", "DROP CLUSTER c"),
        ("CREATE CLUSTER REPLICA c.r7", "DROP CLUSTER c"),
        ("DROP TABLE t", "CREATE SEQUENCE q OWNED BY t.v"),
        ("CREATE SEQUENCE q OWNED BY t.v", "DROP TABLE t"),
        ("ALTER SEQUENCE n OWNED BY t.v", "DROP TABLE t"),
    ],
)
def test_nothing_is_made_in_what_is_dropped(
    runner: asyncio.Runner, tmp_path: Path, own: str, others: str
) -> None:
    made = "CREATE SCHEMA s; CREATE DATABASE d; CREATE CLUSTER c; CREATE SEQUENCE n"
    script = [("s", made), ("s", "BEGIN"), ("s", own), ("other", others), ("s", "COMMIT")]
    answer = _commit(runner, tmp_path, script)
    assert answer.startswith("ERROR 40001: could not serialize access")

    async def again() -> None:
        env = TestEnvironment(tmp_path)
        await env.open()
        await env.close()

    runner.run(again())


@pytest.mark.parametrize("columns_first", [False, True])
@pytest.mark.parametrize(
    "columns",
    [
        "ALTER TABLE t RENAME v TO w",
        "ALTER TABLE t DROP v",
        "ALTER TABLE t DROP v, ADD v int",
    ],
)
@pytest.mark.parametrize(
    "sequences", ["ALTER SEQUENCE n OWNED BY t.v", "CREATE SEQUENCE m OWNED BY t.v"]
)
def test_a_sequence_goes_with_no_column_that_has_changed(
    runner: asyncio.Runner, tmp_path: Path, sequences: str, columns: str, columns_first: bool
) -> None:
    own, others = (columns, sequences) if columns_first else (sequences, columns)
    script = [
        ("s", "CREATE SEQUENCE n"),
        ("s", "BEGIN"),
        ("s", own),
        ("other", others),
        ("s", "COMMIT"),
    ]
    assert _commit(runner, tmp_path, script) == f"{CONFLICT}a concurrent change of the catalog"


def test_a_sequence_that_has_its_column_is_not_concerned_by_others(
    runner: asyncio.Runner, tmp_path: Path
) -> None:
    script = [
        ("s", "CREATE SEQUENCE n OWNED BY t.v"),
        ("s", "BEGIN"),
        ("s", "ALTER SEQUENCE n RESTART 7"),
        ("other", "ALTER TABLE t ADD UNIQUE (v)"),
        ("s", "COMMIT"),
    ]
    assert _commit(runner, tmp_path, script) == "COMMIT"


@pytest.mark.parametrize(
    ("reads", "answer"),
    [
        ("SELECT count(*) FROM t", f"{CONFLICT}concurrent update"),
        ("SELECT v FROM t WHERE id = 1", f"{CONFLICT}concurrent update"),
        ("SELECT v FROM t WHERE id = 2", "COMMIT"),
        ("SELECT v FROM u", "COMMIT"),
    ],
)
def test_a_change_of_the_catalog_alone_rests_on_what_was_read(
    runner: asyncio.Runner, tmp_path: Path, reads: str, answer: str
) -> None:
    script = [
        ("s", "BEGIN"),
        ("s", reads),
        ("s", "ALTER TABLE u ADD COLUMN w int DEFAULT 0"),
        ("other", "INSERT INTO t VALUES (1, 1)"),
        ("s", "COMMIT"),
    ]
    assert _commit(runner, tmp_path, script) == answer
