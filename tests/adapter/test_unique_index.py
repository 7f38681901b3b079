"""A unique index stays what it is over a restart."""

import asyncio
from pathlib import Path

from tests.adapter.harness import House


def test_a_unique_index_is_there_after_a_restart(runner: asyncio.Runner, tmp_path: Path) -> None:
    async def main() -> None:
        house = House(tmp_path)
        await house.open()
        await house.query("s", 'CREATE TABLE t (a int, "B" text)')
        await house.query("s", "INSERT INTO t VALUES (1, NULL), (2, 'x')")
        index = 'CREATE UNIQUE INDEX "of B" ON t ("B") NULLS NOT DISTINCT'
        assert await house.query("s", index) == "CREATE INDEX"
        await house.close()
        house = House(tmp_path)
        await house.open()
        try:
            assert await house.query("s", "INSERT INTO t VALUES (3, NULL)") == (
                'ERROR 23505: duplicate key value violates unique constraint "of B"\n'
                'DETAIL: Key ("B")=(null) already exists.'
            )
            shown = await house.query("s", "SHOW CREATE TABLE t")
            assert 'UNIQUE INDEX "of B" NULLS NOT DISTINCT ("B"))' in shown
            assert await house.query("s", 'DROP INDEX "of B"') == "DROP INDEX"
            assert await house.query("s", "INSERT INTO t VALUES (3, NULL)") == "INSERT 0 1"
        finally:
            await house.close()

    runner.run(main())
