"""INSERT ... SELECT of few rows under keys: tuples, which are locked."""

import asyncio

from tests.adapter.harness import TestEnvironment, until

TABLES = (
    "CREATE TABLE a (k int PRIMARY KEY, v text, r int, g int GENERATED ALWAYS AS (k + 1) STORED)",
    "CREATE INDEX ON a (r)",
    "INSERT INTO a SELECT i, 'x' || i, i % 10 FROM generate_series(1, 50) i",
    "CREATE TABLE b (k int PRIMARY KEY, v text CHECK (v <> 'x9'), n int NOT NULL DEFAULT 7)",
)
ANSWERS = {
    "INSERT INTO b SELECT k, v FROM a WHERE k = 3 RETURNING *": "3|x3|7\nINSERT 0 1",
    "INSERT INTO b (k, v) SELECT k + 1, upper(v) FROM a WHERE k IN (2, 4)"
    " ON CONFLICT (k) DO UPDATE SET n = b.n + 1, v = excluded.v RETURNING *": (
        "3|X2|8\n5|X4|7\nINSERT 0 2"
    ),
    "INSERT INTO b (k) SELECT k FROM a WHERE k = 77": "INSERT 0 0",
    "INSERT INTO b SELECT k, v FROM a WHERE k = 9": 'ERROR 23514: new row for relation "b"'
    ' violates check constraint "b_v_check"\nDETAIL: Failing row contains (9, x9, 7).',
    "INSERT INTO b SELECT k, v, NULL FROM a WHERE k = 8": 'ERROR 23502: null value in column "n"'
    ' of relation "b" violates not-null constraint\nDETAIL: Failing row contains (8, x8, null).',
    "INSERT INTO b SELECT k, v, 1 / (k - 8) FROM a WHERE k = 8": "ERROR 22012: division by zero",
    "INSERT INTO a SELECT k, v FROM a WHERE k = 5": "ERROR 23505: duplicate key value violates"
    ' unique constraint "a_pkey"\nDETAIL: Key (k)=(5) already exists.',
    "INSERT INTO b SELECT k + 200, v FROM a WHERE r = 4 AND k > 30": "INSERT 0 2",
    "INSERT INTO a SELECT k + 100, v FROM a WHERE k IN (1, 2) RETURNING k, g": (
        "101|102\n102|103\nINSERT 0 2"
    ),
}


async def test_rows_under_keys_are_inserted_as_tuples(own_env: TestEnvironment) -> None:
    await own_env.ran("s", *TABLES)
    session = await own_env.session("s")
    for sql, expected in ANSWERS.items():
        prepared = await session.extended.parse("", sql, ())
        await session.extended.sync()
        assert prepared.made.programs.locked_read is not None, sql
        assert await own_env.query("s", sql) == expected, sql


async def test_insert_waits_for_row_that_another_changes(own_env: TestEnvironment) -> None:
    await own_env.ran("s", *TABLES)
    await own_env.ran("a", "BEGIN; UPDATE a SET v = 'new' WHERE k = 3")
    inserting = asyncio.ensure_future(
        own_env.query("b", "INSERT INTO b SELECT k, v FROM a WHERE k = 3", alone=False)
    )
    locks = own_env.environment.coordinator.locks
    await until(lambda: len(locks._waiting) == 1)
    await own_env.ran("a", "COMMIT")
    assert await inserting == "INSERT 0 1"
    assert await own_env.query("s", "SELECT v FROM b") == "new\nSELECT 1"
