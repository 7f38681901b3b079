"""Equal unique constraints, and ones that are renamed, in a block and outside."""

import asyncio
from pathlib import Path

from tests.adapter.harness import TestEnvironment

DUPLICATE = "ERROR 23505: duplicate key value violates unique constraint"


async def _answers(env: TestEnvironment, conversation: list[tuple[str, str]]) -> None:
    for sql, expected in conversation:
        found = (await env.query("s", sql)).removesuffix("\nT")  # in a block
        if expected.startswith(DUPLICATE):
            found = found.splitlines()[0]
        assert found == expected, sql


TWICE = [
    ("CREATE TABLE t (id int PRIMARY KEY, v int)", "CREATE TABLE"),
    ("CREATE UNIQUE INDEX again ON t (id)", "CREATE INDEX"),
    ("ALTER TABLE t ADD CHECK (v > 0)", "ALTER TABLE"),
    ("INSERT INTO t SELECT g, g FROM generate_series(1, 20) g", "INSERT 0 20"),
    ("SELECT * FROM t WHERE id IN (2, 3) ORDER BY 1", "2|2\n3|3\nSELECT 2"),
    ("DELETE FROM t WHERE id IN (2, 3)", "DELETE 2"),
    ("UPDATE t SET v = 100 WHERE id IN (4, 5)", "UPDATE 2"),
    ("INSERT INTO t VALUES (2, 2)", "INSERT 0 1"),
    ("SELECT count(*), sum(v) FROM t", "19|398\nSELECT 1"),
    ("ALTER TABLE t DROP CONSTRAINT t_pkey", "ALTER TABLE"),
    ("INSERT INTO t VALUES (2, 2)", f'{DUPLICATE} "again"'),
]

RENAMED = [
    ("CREATE TABLE t (id int PRIMARY KEY, v int)", "CREATE TABLE"),
    ("INSERT INTO t VALUES (1, 1), (2, 2)", "INSERT 0 2"),
    ("BEGIN", "BEGIN"),
    ("SELECT v FROM t WHERE id = 2", "2\nSELECT 1"),
    ("ALTER TABLE t ADD CONSTRAINT u UNIQUE (v)", "ALTER TABLE"),
    ("ALTER TABLE t RENAME CONSTRAINT u TO w", "ALTER TABLE"),
    ("SAVEPOINT s", "SAVEPOINT"),
    ("INSERT INTO t VALUES (3, 1)", f'{DUPLICATE} "w"'),
    ("ROLLBACK TO s", "ROLLBACK"),
    ("ALTER TABLE t RENAME CONSTRAINT t_pkey TO p", "ALTER TABLE"),
    (
        "INSERT INTO t VALUES (2, 9) ON CONFLICT (id) DO UPDATE SET v = 70 RETURNING *",
        "2|70\nINSERT 0 1",
    ),
    ("DELETE FROM t WHERE id IN (2, 3) RETURNING *", "2|70\nDELETE 1"),
    ("COMMIT", "COMMIT"),
    ("INSERT INTO t VALUES (3, 1)", f'{DUPLICATE} "w"'),
    ("INSERT INTO t VALUES (1, 3)", f'{DUPLICATE} "p"'),
    ("SELECT * FROM t WHERE v = 1", "1|1\nSELECT 1"),
]

MEANS_ANOTHER = [
    ("CREATE TABLE t (a int CONSTRAINT u UNIQUE, b int CONSTRAINT w UNIQUE)", "CREATE TABLE"),
    ("INSERT INTO t VALUES (1, 10), (2, 20)", "INSERT 0 2"),
    ("BEGIN", "BEGIN"),
    ("INSERT INTO t VALUES (3, 30)", "INSERT 0 1"),
    ("SAVEPOINT s", "SAVEPOINT"),
    ("ALTER TABLE t DROP CONSTRAINT u", "ALTER TABLE"),
    ("ALTER TABLE t ADD CONSTRAINT u UNIQUE (b)", "ALTER TABLE"),
    ("INSERT INTO t VALUES (1, 40)", "INSERT 0 1"),
    ("INSERT INTO t VALUES (7, 30) ON CONFLICT ON CONSTRAINT u DO NOTHING", "INSERT 0 0"),
    ("SELECT a FROM t WHERE b = 20", "2\nSELECT 1"),
    ("ROLLBACK TO s", "ROLLBACK"),
    ("INSERT INTO t VALUES (3, 40) ON CONFLICT (a) DO NOTHING", "INSERT 0 0"),
    ("COMMIT", "COMMIT"),
    ("INSERT INTO t VALUES (3, 50)", f'{DUPLICATE} "u"'),
    ("SELECT * FROM t WHERE a IN (1, 3) ORDER BY 1", "1|10\n3|30\nSELECT 2"),
]


def _holds(runner: asyncio.Runner, place: Path, conversation: list[tuple[str, str]]) -> None:
    async def main() -> None:
        env = TestEnvironment(place)
        await env.open()
        try:
            await _answers(env, conversation)
        finally:
            await env.close()

    runner.run(main())


def test_two_keys_over_same_columns_accept_each_row_once(
    runner: asyncio.Runner, tmp_path: Path
) -> None:
    _holds(runner, tmp_path, TWICE)


def test_key_renamed_in_block_still_applies(runner: asyncio.Runner, tmp_path: Path) -> None:
    _holds(runner, tmp_path, RENAMED)


def test_reused_constraint_name_in_block_refers_to_new_key(
    runner: asyncio.Runner, tmp_path: Path
) -> None:
    _holds(runner, tmp_path, MEANS_ANOTHER)


async def test_key_reads_conflict_after_key_rename(tmp_path: Path) -> None:
    env = TestEnvironment(tmp_path)
    await env.open()
    try:
        await env.query("s", "CREATE TABLE t (id int PRIMARY KEY, v int)")
        await env.query("s", "INSERT INTO t VALUES (1, 1)")
        await env.query("s", "CREATE TABLE seen (v int)")
        await env.query("s", "BEGIN")
        assert await env.query("s", "SELECT v FROM t WHERE id = 1") == "1\nSELECT 1\nT"
        await env.query("other", "UPDATE t SET v = 2 WHERE id = 1", alone=False)
        await env.query("s", "ALTER TABLE t RENAME CONSTRAINT t_pkey TO p")
        await env.query("s", "INSERT INTO seen VALUES (1)")
        refused = await env.query("s", "COMMIT")
        assert refused.startswith("ERROR 40001: could not serialize access"), refused
    finally:
        await env.close()
