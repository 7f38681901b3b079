"""Random blocks of changes to rows and to tables: statement by statement as on PostgreSQL.

A seed makes a script: INSERT, UPDATE, DELETE, MERGE, ON CONFLICT, TRUNCATE, and
ALTER TABLE in all its forms, unique indexes, renamed tables, in blocks with savepoints that are
rolled back to. Each statement gives the same rows, or fails with the same SQLSTATE; a plain, an
indexed and a materialized view follow. In the end nothing is there a negative number of times.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from foreshore.storage.inspection import inspect
from tests.harness import serving
from tests.sqllogic.random_script import OUR_LIMITS, Script, agree, outcome, prepare
from tests.sqllogic.runner import Database

SEEDS = 10  # in make test
MORE_SEEDS = 500
STATEMENTS = 120


def compare(seed: int, ours: Database, theirs: Database) -> None:
    """Run a seed's script on both and assert that they agree in each statement."""
    schema = f"blocks_{seed}"
    for database in (ours, theirs):
        prepare(database, schema)
    script, said = Script(seed), []
    for _ in range(STATEMENTS):
        sql = script.next(theirs.status)
        said.append(sql)
        given = outcome(ours, sql)
        wanted = outcome(theirs, sql)
        if given[0] in OUR_LIMITS and not wanted[0]:
            break
        story = "\n".join([f"seed {seed}", *(f"{each};" for each in said)])
        assert agree(given, wanted), f"{story}\n{given} instead of {wanted}"
    for database in (ours, theirs):
        database.run("ROLLBACK")
        database.run(f"DROP SCHEMA {schema} CASCADE")


def run_seeds(data_dir: Path, postgres_url: str, seeds: range) -> None:
    with serving(data_dir) as server:
        for seed in seeds:
            ours = Database(server.url, is_foreshore=True)
            theirs = Database(postgres_url, is_foreshore=False)
            try:
                compare(seed, ours, theirs)
            finally:
                ours.close()
                theirs.close()
    assert not inspect(data_dir, verify=True).damages


def test_random_blocks_are_postgresqls(data_dir: Path, postgres_url: str) -> None:
    run_seeds(data_dir, postgres_url, range(SEEDS))


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_many_random_blocks_are_postgresqls(data_dir: Path, postgres_url: str) -> None:
    run_seeds(data_dir, postgres_url, range(1000, 1000 + MORE_SEEDS))
