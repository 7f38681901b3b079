"""CREATE SINK ... INTO FILES: a file for each interval, each change once."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from foreshore.adapter.sinks import reading
from foreshore.sinks.places import FilesTarget
from foreshore.sinks.spec import SinkSpec
from foreshore.sources.files import PLACES
from foreshore.storage.export.files import exporter as exporters
from foreshore.storage.export.files.exporter import FilesExporter
from foreshore.storage.export.files.kind import KIND
from foreshore.storage.export.messages import Export
from foreshore.storage.external import retries
from foreshore.storage.external.access import Access
from foreshore.storage.lake.places import CopyPlaces
from foreshore.types import INT4, ColumnType, RelationDesc
from tests.adapter.harness import TestEnvironment
from tests.adapter.sinks.waiting import until_state
from tests.harness import object_store


@pytest.fixture
def place(own_env: TestEnvironment, tmp_path: Path) -> Path:
    """Return a new directory that COPY and sinks may write."""
    place = tmp_path / "out"
    place.mkdir()
    own_env.environment.let_copy([str(place)], tmp_path / "data")
    return place


async def test_each_change_is_in_one_file_over_kills_and_restarts(
    own_env: TestEnvironment, place: Path, tmp_path: Path
) -> None:
    env = own_env
    await env.ran("a", "CREATE TABLE t (k int, v text)", "INSERT INTO t VALUES (-1, 'a')")
    into = f"INTO FILES (URL '{place}/t', FORMAT parquet) WITH (COMMIT INTERVAL '1 ms')"
    await env.ran("a", f"CREATE SINK s FROM t {into}")
    for number in range(60):
        await env.ran("a", f"INSERT INTO t VALUES ({number}, 'v')")
        if number % 10 == 5:
            await env.ran("a", "WAIT FOR SINKS s")
            env.export.last.kill()
        if number == 30:
            await env.reopen()
            env.environment.let_copy([str(place)], tmp_path / "data")
            await env.environment.equip_sources()
    await env.ran("a", "DELETE FROM t WHERE k < 10", "WAIT FOR SINKS s")
    query = f"SELECT k, mz_diff FROM '{place}/t/*.parquet'"
    found = Counter(duckdb.sql(query).fetchall())
    expected = [(k, 1) for k in range(-1, 60)] + [(k, -1) for k in range(-1, 10)]
    assert found == Counter(expected)
    names = sorted(each.name for each in (place / "t").iterdir())
    assert len(names) > 5
    bounds = [tuple(map(int, name[:-8].split("-")[1:])) for name in names if "-" in name]
    assert all(a[1] <= b[0] for a, b in pairwise(bounds))
    await env.ran("a", "DROP SINK s")
    while True:
        if not list((place / "t" / "_foreshore").iterdir()):
            break
        await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ("FORMAT csv, HEADER, DELIMITER ';'", "k;v;mz_timestamp;mz_diff\n1;a;{time};1\n"),
        ("FORMAT json", '{"k":1,"v":"a","mz_timestamp":{time},"mz_diff":1}\n'),
    ],
)
async def test_formats(own_env: TestEnvironment, place: Path, options: str, text: str) -> None:
    env = own_env
    await env.ran("a", "CREATE TABLE t (k int, v text)", "INSERT INTO t VALUES (1, 'a')")
    await env.ran("a", f"CREATE SINK s FROM t INTO FILES (URL '{place}/t', {options})")
    await env.ran("a", "WAIT FOR SINKS s")
    (file,) = (each for each in (place / "t").iterdir() if each.is_file())
    assert file.read_text() == text.replace("{time}", file.name.split("-")[1])
    shown = (await env.query("a", "SHOW CREATE SINK s")).splitlines()[0].split("|")[1]
    await env.ran("a", "DROP SINK s", shown)
    assert shown == (await env.query("a", "SHOW CREATE SINK s")).splitlines()[0].split("|")[1]


@pytest.mark.full
async def test_files_in_buckets(own_env: TestEnvironment, tmp_path: Path) -> None:
    env = own_env
    with object_store() as store:
        env.environment.let_copy([store.url("out")], tmp_path / "data")
        await env.ran("a", "CREATE TABLE t (k int)", "INSERT INTO t VALUES (1), (2)")
        into = f"INTO FILES (URL 's3://{store.bucket}/out/t', FORMAT json)"
        await env.ran("a", f"CREATE SINK s FROM t {into} WITH (COMMIT INTERVAL '1 ms')")
        for number in range(3, 9):
            env.export.last.kill()
            await env.ran("a", f"INSERT INTO t VALUES ({number})")
        await env.ran("a", "WAIT FOR SINKS s")
        location = CopyPlaces((store.url("out"),)).find(f"s3://{store.bucket}/out/t")
        keys = [key for key, _ in location.blob.list("t/foreshore")]
        lines = b"".join(location.blob.get(key) or b"" for key in keys).splitlines()
        assert sorted(json.loads(line)["k"] for line in lines) == list(range(1, 9))


# --- the exporter alone ----------------------------------------------------------------------


def export_to(directory: Path) -> Export:
    places = CopyPlaces((str(directory),)).as_options()
    spec = SinkSpec(FilesTarget(f"{directory}/t", "json"), "append")
    desc = RelationDesc(("k",), (ColumnType(INT4),))
    return Export("sink", spec, desc, {PLACES: Access("files", places)})


def exporter_to(directory: Path) -> FilesExporter:
    made = KIND.exporter(export_to(directory))
    assert isinstance(made, FilesExporter)
    return made


async def parts(*keys: int) -> AsyncIterator[pa.Table]:
    """Yield an interval with a row for each key."""
    if keys:
        times = pa.array([5] * len(keys), pa.int64())
        yield pa.table(
            {"k": pa.array(keys, pa.int32()), "__time": times, "__diff": pa.array([1] * len(keys))}
        )


def keys_in(directory: Path) -> list[int]:
    """Return the keys in all files."""
    files = (each for each in (directory / "t").iterdir() if each.is_file())
    return sorted(json.loads(line)["k"] for file in files for line in file.open())


async def test_of_two_exporters_one_writes(tmp_path: Path) -> None:
    older, newer = exporter_to(tmp_path), exporter_to(tmp_path)
    assert await older.resume() is None
    await older.write(parts(1), 5, 6)
    assert await newer.resume() == 6
    await newer.write(parts(2), 6, 9)
    with pytest.raises(Exception, match="another exporter"):
        await older.write(parts(2, 3), 6, 12)
    await newer.write(parts(), 9, 10)
    assert await exporter_to(tmp_path).resume() == 10
    assert keys_in(tmp_path) == [1, 2]


@pytest.mark.parametrize("step", ["put_file", "create", "rename"])
async def test_what_ends_in_between_is_completed_or_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    exporter = exporter_to(tmp_path)
    await exporter.resume()
    await exporter.write(parts(1), 5, 6)

    def fails(*_: object) -> None:
        raise OSError("killed")

    with monkeypatch.context() as patched:
        if step == "rename":
            patched.setattr(exporters.FilesExporter, "_complete", fails)
        else:
            patched.setattr(f"foreshore.storage.blob.FileBlob.{step}", fails)
        with pytest.raises(OSError, match="killed"):
            await exporter.write(parts(2, 3), 6, 9)
    assert keys_in(tmp_path) == [1]
    again = exporter_to(tmp_path)
    frontier = await again.resume()
    assert frontier == (9 if step == "rename" else 6)
    assert keys_in(tmp_path) == ([1, 2, 3] if step == "rename" else [1])
    await again.write(parts(4), frontier, 12)
    assert keys_in(tmp_path) == ([1, 2, 3, 4] if step == "rename" else [1, 4])
    await exporter_to(tmp_path).resume()
    hidden = [each.name for each in (tmp_path / "t" / "_foreshore" / "sink").iterdir()]
    assert all(name.isdecimal() for name in hidden)


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("INTO FILES (FORMAT json)", '22023: FILES needs the option "url"'),
        ("INTO FILES (URL '{}/t')", '22023: FILES needs the option "format"'),
        ("INTO FILES (URL '{}/t', FORMAT avro)", '22023: unrecognized format "avro"'),
        ("INTO FILES (URL '{}/t', FORMAT json, HEADER)", "22023: HEADER and DELIMITER are"),
        ("INTO FILES (URL '/etc/t', FORMAT json)", '42501: the place "/etc/t" is not allowed'),
        ("INTO FILES (URL '{}/t', FORMAT json) ENVELOPE UPSERT", "0A000: ENVELOPE UPSERT is not"),
    ],
)
async def test_what_cannot_be_done_is_refused(
    own_env: TestEnvironment, place: Path, statement: str, error: str
) -> None:
    env = own_env
    await env.ran("a", "CREATE TABLE t (k int PRIMARY KEY)")
    create = f"CREATE SINK s FROM t {statement.format(place)}"
    assert f"ERROR {error}" in await env.query("a", create)
    assert await env.query("a", "SHOW SINKS") == "SELECT 0"


@pytest.mark.parametrize("mends", ["UPDATE t SET a = 4 WHERE k = 1", "skip"])
async def test_sink_of_a_view_that_failed_begins_once_the_view_can_be_read(
    own_env: TestEnvironment, place: Path, monkeypatch: pytest.MonkeyPatch, mends: str
) -> None:
    monkeypatch.setattr(retries, "FIRST_WAIT_SECONDS", 0.01)
    monkeypatch.setattr(retries, "LONGEST_WAIT_SECONDS", 0.02)
    env = own_env
    await env.ran(
        "a",
        "CREATE TABLE t (k int, a int)",
        "INSERT INTO t VALUES (1, 0), (2, 5)",
        "CREATE MATERIALIZED VIEW m AS SELECT k, 20 / a AS q FROM t",
        f"CREATE SINK s FROM m INTO FILES (URL '{place}/t', FORMAT parquet)",
    )
    stalled = (
        "stalled|materialized view public.m cannot be read for an error in its data (22012):"
        " see mz_internal.mz_view_errors"
    )
    assert (await until_state(env, "stalled")).startswith(stalled)
    alters = "ALTER MATERIALIZED VIEW m SET (ON ERROR = SKIP)"
    await env.ran("a", alters if mends == "skip" else mends)
    await until_state(env, "running")
    await env.ran("a", "INSERT INTO t VALUES (3, 2)", "WAIT FOR SINKS s")
    query = f"SELECT k, q, mz_diff FROM '{place}/t/*.parquet' ORDER BY k"
    expected = [(1, 5, 1), (2, 4, 1), (3, 10, 1)]
    assert duckdb.sql(query).fetchall() == expected[mends == "skip" :]


async def test_sink_of_a_mended_view_passes_more_changes_than_an_interval_has(
    own_env: TestEnvironment, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "FIRST_WAIT_SECONDS", 0.01)
    monkeypatch.setattr(retries, "LONGEST_WAIT_SECONDS", 0.02)
    monkeypatch.setattr(reading, "MOST_ROWS", 2)
    env = own_env
    await env.ran(
        "a",
        "CREATE TABLE t (k int, a int)",
        "CREATE MATERIALIZED VIEW m AS SELECT k, 20 / a AS q FROM t",
        f"CREATE SINK s FROM m INTO FILES (URL '{place}/t', FORMAT parquet)",
        "WAIT FOR SINKS s",
        "INSERT INTO t VALUES (1, 0), (2, 5)",
    )
    await until_state(env, "stalled")
    for k in range(3, 7):
        await env.ran("a", f"INSERT INTO t VALUES ({k}, 5)")
    await env.ran("a", "UPDATE t SET a = 5 WHERE k = 1", "WAIT FOR SINKS s")
    query = f"SELECT count(*), sum(mz_diff) FROM '{place}/t/*.parquet'"
    assert duckdb.sql(query).fetchall() == [(6, 6)]
