"""Columns come, go and get other names; what was made over the table before goes on as it was."""

import asyncio
from pathlib import Path

from tests.adapter.harness import House


async def _answers(house: House, conversation: list[tuple[str, str]]) -> None:
    for sql, expected in conversation:
        assert await house.query("s", sql) == expected, sql


RENAMED = [
    ("SELECT * FROM v ORDER BY a", "1|x\n2|y\nSELECT 2"),
    ("SELECT a, c FROM star WHERE b = 'y'", "2|3\nSELECT 1"),
    ("SELECT n, top FROM m", "2|2\nSELECT 1"),
    ("SELECT top FROM above", "2\nSELECT 1"),
    ("SELECT x.id FROM t AS x WHERE x.id = 2 AND \"The b\" = 'y'", "2\nSELECT 1"),
    (
        "INSERT INTO t VALUES (9, '')",
        'ERROR 23514: new row for relation "t" violates check constraint "t_check"\n'
        "DETAIL: Failing row contains (9, , 3).",
    ),
    (
        "INSERT INTO t VALUES (1, 'z')",
        'ERROR 23505: duplicate key value violates unique constraint "t_pkey"\n'
        "DETAIL: Key (id)=(1) already exists.",
    ),
    (
        "SHOW CREATE VIEW v",
        "foreshore.public.v|CREATE VIEW foreshore.public.v AS SELECT a, x.b FROM "
        '(SELECT id AS a, "The b" AS b, c FROM foreshore.public.t) AS x WHERE a > 0\nSHOW 1',
    ),
    (
        "SELECT pg_get_viewdef('star'::regclass)",
        ' SELECT * FROM (SELECT id AS a, "The b" AS b, c FROM foreshore.public.t) AS t;\nSELECT 1',
    ),
    (
        "SHOW CREATE INDEX t_upper",
        "foreshore.public.t_upper|CREATE INDEX t_upper IN CLUSTER quickstart ON foreshore.public.t"
        ' (upper("The b"))\nSHOW 1',
    ),
    ("SELECT * FROM t ORDER BY 1", "1|x|3\n2|y|3\nSELECT 2"),
]


def test_what_knows_a_renamed_column_goes_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        house = House(tmp_path)
        await house.open()
        await house.query(
            "s",
            "CREATE TABLE t (a int PRIMARY KEY, b text, c int DEFAULT 3, CHECK (t.a < 9 OR b <> ''));"
            " CREATE VIEW v AS SELECT a, x.b FROM t AS x WHERE a > 0;"
            " CREATE VIEW star AS SELECT * FROM t;"
            " CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n, max(a) AS top FROM t;"
            " CREATE VIEW above AS SELECT top FROM m; CREATE INDEX t_upper ON t (upper(b));"
            " INSERT INTO t VALUES (1, 'x')",
        )
        await house.query("s", "BEGIN; INSERT INTO t VALUES (2, 'y')")
        await house.query("s", "ALTER TABLE t RENAME a TO id")
        assert await house.query("s", "SELECT id FROM t ORDER BY id") == "1\n2\nSELECT 2\nT"
        assert await house.query("s", "COMMIT") == "COMMIT"
        assert await house.query("s", 'ALTER TABLE t RENAME COLUMN b TO "The b"') == "ALTER TABLE"
        await _answers(house, RENAMED)
        await house.close()
        await house.open()
        await _answers(house, RENAMED)
        await house.close()

    asyncio.run(scenario())
