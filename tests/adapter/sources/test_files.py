"""CREATE SOURCE ... FROM FILES: each file once, also over kills, and what is wrong as errors."""

import asyncio
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.adapter.harness import TestEnvironment

ERRORS = 'SELECT part, "offset", error FROM s_errors ORDER BY read_at, part'


async def reaches(env: TestEnvironment, query: str, *expected: str) -> None:
    """Wait until a query has these rows."""
    while True:
        found = (await env.query("a", query)).splitlines()[:-1]
        if found == list(expected):
            return
        await asyncio.sleep(0.02)


def allowed(env: TestEnvironment, directory: Path) -> Path:
    """Return a new directory that COPY and sources may read."""
    place = directory / "incoming"
    place.mkdir()
    env.environment.let_copy([str(place)], directory / "data")
    return place


def put(place: Path, name: str, table: pa.Table | str) -> None:
    """Write a file under another name, and give it its name when it is complete."""
    hidden = place / f".{name}"
    if isinstance(table, str):
        hidden.write_text(table)
    else:
        pq.write_table(table, hidden)
    hidden.rename(place / name)


async def test_new_files_are_read_once_each(own_env: TestEnvironment, tmp_path: Path) -> None:
    env, place = own_env, allowed(own_env, tmp_path)
    put(place, "a.parquet", pa.table({"id": [1, 2], "tags": [["x"], None]}))
    source = f"FROM FILES '{place}/*.parquet' (FORMAT parquet, POLL INTERVAL '10 ms')"
    await env.ran("a", f"CREATE SOURCE s {source}")
    await reaches(env, "SELECT id, tags FROM s ORDER BY id", "1|{x}", "2|NULL")
    for number in range(5):
        env.ingest.last.kill()
        put(place, f"b{number}.parquet", pa.table({"id": [number + 10], "tags": [["y"]]}))
        await reaches(
            env, "SELECT count(*), count(DISTINCT id) FROM s", f"{number + 3}|{number + 3}"
        )
    shown = (await env.query("a", "SHOW CREATE SOURCE s")).splitlines()[0].split("|")[1]
    await env.ran("a", "DROP SOURCE s", shown)
    await reaches(env, "SELECT count(*) FROM s", "7")
    await env.reopen()
    env.environment.let_copy([str(place)], tmp_path / "data")
    await env.environment.equip_sources()
    put(place, "c.parquet", pa.table({"id": [99], "tags": [["z"]]}))
    await reaches(env, "SELECT count(*), max(id) FROM s", "8|99")


async def test_what_is_wrong_is_an_error_and_the_source_goes_on(
    own_env: TestEnvironment, tmp_path: Path
) -> None:
    env, place = own_env, allowed(own_env, tmp_path)
    put(place, "a.csv", "n,at\n1,2024-02-29\nx,2024-03-01\n,\n3,2024-02-30\n4,2024-03-02\n")
    source = f"FROM FILES '{place}' (FORMAT csv, HEADER, POLL INTERVAL '10 ms')"
    await env.ran("a", f"CREATE SOURCE s (n int NOT NULL, at date) {source}")
    await reaches(env, "SELECT * FROM s ORDER BY 1", "1|2024-02-29", "4|2024-03-02")
    found = (await env.query("a", ERRORS)).splitlines()
    assert [each.split("|")[1] for each in found[:-1]] == ["3", "4", "5"], found
    assert 'invalid input syntax for type integer: "x"' in found[0]
    put(place, "b.csv", "n,at\n5,2024-02-29,more\n")
    put(place, "c.csv", "n,at\n6,2024-02-29\n")
    await reaches(env, "SELECT n FROM s ORDER BY 1", "1", "4", "6")
    wrong = "SELECT part, error FROM s_errors WHERE part <> 'a.csv' OR error LIKE 'file%'"
    await reaches(env, f"SELECT part FROM ({wrong}) e", "b.csv")
    os.utime(place / "c.csv", ns=(1, 1))
    (place / "a.csv").unlink()
    said = "SELECT error FROM s_errors WHERE error LIKE '%since%' OR error LIKE '%gone%' ORDER BY 1"
    await reaches(
        env, said, 'file "a.csv": it is gone', 'file "c.csv": it has changed since it was read'
    )
    await reaches(env, "SELECT n FROM s ORDER BY 1", "1", "4", "6")


@pytest.mark.parametrize("how", ["lacks", "type"])
async def test_a_file_with_other_columns_stalls_the_source_until_it_is_replaced(
    own_env: TestEnvironment, tmp_path: Path, how: str
) -> None:
    env, place = own_env, allowed(own_env, tmp_path)
    put(place, "a.parquet", pa.table({"id": [1], "d": pa.array([0], pa.date32())}))
    source = f"FROM FILES '{place}/*.parquet' (FORMAT parquet, POLL INTERVAL '10 ms')"
    await env.ran("a", f"CREATE SOURCE s {source}")
    await reaches(env, "SELECT id FROM s", "1")
    other = {"id": [2], "e": ["x"]} if how == "lacks" else {"id": [2], "d": [b"x"]}
    put(place, "b.parquet", pa.table(other))
    said = 'it has no column "d" (It has id, e.' if how == "lacks" else "cannot cast type bytea"
    status = f"SELECT status, error LIKE '%file \"b.parquet\": {said}%Replace or remove%'"
    await reaches(env, f"{status} FROM mz_internal.mz_source_statuses", "stalled|t")
    put(place, "c.parquet", pa.table({"id": [3], "d": pa.array([None], pa.date32())}))
    await reaches(env, "SELECT id FROM s ORDER BY 1", "1", "3")  # others are read
    put(place, "b.parquet", pa.table({"id": [2], "d": pa.array([1], pa.date32())}))
    await reaches(env, "SELECT id FROM s ORDER BY 1", "1", "2", "3")
    await reaches(env, "SELECT status FROM mz_internal.mz_source_statuses", "running")
    assert await env.query("a", "SELECT count(*) FROM s_errors") == "0\nSELECT 1"


async def test_a_source_ends_when_the_file_that_did_not_fit_is_replaced(
    own_env: TestEnvironment, tmp_path: Path
) -> None:
    env, place = own_env, allowed(own_env, tmp_path)
    put(place, "a.parquet", pa.table({"id": [1]}))
    put(place, "b.parquet", pa.table({"other": [2]}))
    source = f"FROM FILES '{place}/*.parquet' (FORMAT parquet, FOLLOW = false)"
    await env.ran("a", f"CREATE SOURCE s {source}")
    status = "SELECT status FROM mz_internal.mz_source_statuses"
    await reaches(env, status, "stalled")
    put(place, "b.parquet", pa.table({"id": [2]}))
    await reaches(env, status, "finished")
    await reaches(env, "SELECT id FROM s ORDER BY 1", "1", "2")


async def test_a_source_without_follow_ends(own_env: TestEnvironment, tmp_path: Path) -> None:
    env, place = own_env, allowed(own_env, tmp_path)
    put(place, "a.json", '{"a": 1, "b": {"c": [2]}}\n{"a": 3}\n')
    with_columns = f"(a int8, b jsonb) FROM FILES '{place}/a.json' (FORMAT json, FOLLOW = false)"
    await env.ran("a", f"CREATE SOURCE s {with_columns}")
    await reaches(env, "SELECT * FROM s ORDER BY 1", '1|{"c": [2]}', "3|NULL")
    await reaches(env, "SELECT status FROM mz_internal.mz_source_statuses", "finished")


async def test_versions_of_a_delta_table_come_in_order(
    own_env: TestEnvironment, tmp_path: Path
) -> None:
    deltalake = pytest.importorskip("deltalake")
    env, place = own_env, allowed(own_env, tmp_path)
    table = str(place / "t")
    deltalake.write_deltalake(
        table, pa.table({"id": [1, 2, 3], "p": ["a", "a", "b"]}), partition_by=["p"]
    )
    source = f"FROM FILES '{table}' (FORMAT delta, POLL INTERVAL '10 ms')"
    await env.ran("a", f"CREATE SOURCE s {source}")
    await reaches(env, "SELECT * FROM s ORDER BY 1", "1|a", "2|a", "3|b")
    deltalake.write_deltalake(table, pa.table({"id": [4], "p": ["b"]}), mode="append")
    deltalake.DeltaTable(table).delete("id = 2")
    await reaches(env, "SELECT * FROM s ORDER BY 1", "1|a", "3|b", "4|b")
    env.ingest.last.kill()
    deltalake.DeltaTable(table).update(updates={"id": "30"}, predicate="id = 3")
    await reaches(env, "SELECT * FROM s ORDER BY 1", "1|a", "4|b", "30|b")
    assert (
        await env.query("a", "SELECT * FROM s_progress WHERE part = 'version'")
        == "version|4\nSELECT 1"
    )


async def test_places_that_are_not_allowed_are_refused(
    own_env: TestEnvironment, tmp_path: Path
) -> None:
    env, place = own_env, allowed(own_env, tmp_path)
    for source, error in (
        (f"'{tmp_path}' (FORMAT csv)", "42501"),
        (f"'{place}/../data' (FORMAT csv)", "42501"),
        ("'relative' (FORMAT csv)", "42602"),
        (f"'{place}' (FORMAT csv)", "58P01"),
        (f"'{place}' (FORMAT json)", "22023"),
        (f"'{place}' (FORMAT iceberg)", "58P01"),
        (f"'{place}' (FORMAT xml)", "22023"),
        (f"'{place}'", "22023"),
    ):
        assert f"ERROR {error}" in await env.query("a", f"CREATE SOURCE s FROM FILES {source}"), (
            source
        )
    await env.ran("a", "CREATE ROLE r", "GRANT CREATE ON SCHEMA public TO r", "SET ROLE r")
    answer = await env.query("a", f"CREATE SOURCE s (a text) FROM FILES '{place}' (FORMAT csv)")
    assert "ERROR 42501" in answer
