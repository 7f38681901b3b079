"""Random blocks of changes to rows and to tables: statement by statement as on PostgreSQL.

A seed makes a script: INSERT, UPDATE, DELETE, MERGE, ON CONFLICT, TRUNCATE, and
ALTER TABLE in all its forms, unique indexes, renamed tables, in blocks with savepoints that are
rolled back to. Each statement gives the same rows, or fails with the same SQLSTATE; a plain, an
indexed and a materialized view follow. In the end nothing is there a negative number of times.
Other scripts are about sequences, COPY, temporary tables and cursors (`random_objects.py`), and
about foreign keys (`random_references.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from foreshore.storage.inspection import inspect
from tests.effort import examples
from tests.harness import serving
from tests.sqllogic.random_objects import Copies, Cursors, Numbers, Temporary
from tests.sqllogic.random_references import References
from tests.sqllogic.random_script import (
    EXHAUSTED,
    OUR_LIMITS,
    THEIR_LIMITS,
    Script,
    agree,
    connected,
    outcome,
    prepare,
)
from tests.sqllogic.runner import Database

pytestmark = pytest.mark.full  # random input

SEEDS = {Script: examples(10), Numbers: 1, Copies: 1, Temporary: 1, Cursors: 1, References: 2}
MORE_SEEDS = 500
STATEMENTS = 120


def compare(script: Script, ours: Database, theirs: Database) -> None:
    """Run a script on both and assert that they agree in each statement."""
    for database in (ours, theirs):
        prepare(database)
        for sql in script.begins:
            database.run(sql)
    said = []
    for _ in range(STATEMENTS):
        sql = script.next(theirs.status)
        said.append(sql)
        given = outcome(ours, sql)
        wanted = outcome(theirs, sql)
        if (given[0] in OUR_LIMITS and given != wanted) or wanted[0] in THEIR_LIMITS:
            break
        story = "\n".join([f"seed {script.seed}", *(f"{each};" for each in said)])
        assert agree(given, wanted), f"{story}\n{given} instead of {wanted}"
        if wanted[0] == EXHAUSTED:
            break


def run(data_dir: Path, postgres_url: str, scripts: Iterable[Script]) -> None:
    with serving(data_dir) as server:
        for script in scripts:
            ours = connected(server.url, is_foreshore=True)
            theirs = connected(postgres_url, is_foreshore=False)
            try:
                compare(script, ours, theirs)
            finally:
                ours.close()
                theirs.close()
    assert not inspect(data_dir, verify=True).corruptions


@pytest.mark.scaled
def test_random_blocks_are_postgresqls(data_dir: Path, postgres_url: str) -> None:
    scripts = [kind(seed) for kind, seeds in SEEDS.items() for seed in range(seeds)]
    run(data_dir, postgres_url, scripts)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", SEEDS)
def test_many_random_blocks_are_postgresqls(
    kind: type[Script], data_dir: Path, postgres_url: str
) -> None:
    run(data_dir, postgres_url, map(kind, range(1000, 1000 + MORE_SEEDS)))
