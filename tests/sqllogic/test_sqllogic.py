"""Each script gives its answers on PostgreSQL, and on Foreshore's engines the same ones.

Those of `extensions/` have what PostgreSQL has not; `GOLDEN=rewrite` writes their answers anew from
the embedded engine, to be reviewed.
"""

import os
from pathlib import Path

import pytest

from tests.harness import Server
from tests.sqllogic.runner import Database, answers, read

SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.slt"))
EXTENSIONS = sorted((Path(__file__).parent / "extensions").glob("*.slt"))
# Queries that call many functions by their kernels take Spark minutes; `session_zone_coercion` has
# a few of them. `windows` keeps twenty views through three changes, a job for each, and scripts of
# `extensions` several views; `time_queries` has queries like theirs, and the plans of
# tests/compute ask Spark for windows.
TOO_LONG_FOR_SPARK = (
    "session_zone", "windows", "time_windows", "asof_joins", "expectations", "on_error",
)  # fmt: skip
# What queries are, quickly. The others, about what statements do, and about functions of which
# tests/functions asks Spark as well, take up to two minutes each there: they are in the slow target.
QUICK_ON_SPARK = (
    "errors",
    "long_values",
    "queries_in_parentheses",
    "time_zones",
)


def check(path: Path, database: Database, schema: str, prepare: str = "") -> None:
    database.run(f"CREATE SCHEMA {schema}")
    database.set(f"SET search_path = {schema}")
    if prepare:
        database.set(prepare)
    steps = read(path)
    for step, given in zip(steps, answers(database, steps), strict=True):
        assert given.text() == step.text(), f"{path.name}, at:\n{step.sql}"
    # Its views are not kept up while the next scripts run.
    database.run(f"DROP SCHEMA {schema} CASCADE")


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_the_script_is_postgresqls(path: Path, postgres_url: str) -> None:
    database = Database(postgres_url, is_foreshore=False)
    try:
        if os.environ.get("GOLDEN") == "rewrite":
            database.run(f"CREATE SCHEMA anew_{path.stem}")
            database.set(f"SET search_path = anew_{path.stem}")
            path.write_text("".join(step.text() for step in answers(database, read(path))))
        check(path, database, path.stem)
    finally:
        database.close()


@pytest.mark.parametrize("path", [*SCRIPTS, *EXTENSIONS], ids=lambda path: path.stem)
def test_the_embedded_engine_answers_as_postgresql(path: Path, server: Server) -> None:
    database = Database(server.url, is_foreshore=True)
    try:
        if os.environ.get("GOLDEN") == "rewrite" and path in EXTENSIONS:
            database.run(f"CREATE SCHEMA anew_{path.stem}")
            database.set(f"SET search_path = anew_{path.stem}")
            path.write_text("".join(step.text() for step in answers(database, read(path))))
            database.run(f"DROP SCHEMA anew_{path.stem} CASCADE")
        check(path, database, f"embedded_{path.stem}")
    finally:
        database.close()


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(
            path,
            id=path.stem,
            marks=() if path.stem in QUICK_ON_SPARK else pytest.mark.slow,
        )
        for path in [*SCRIPTS, *EXTENSIONS]
        if path.stem not in TOO_LONG_FOR_SPARK
    ],
)
def test_spark_answers_as_postgresql(path: Path, spark_server: Server) -> None:
    database = Database(spark_server.url, is_foreshore=True)
    try:
        check(path, database, f"spark_{path.stem}", "SET cluster = spark")
    finally:
        database.close()
