"""CREATE SOURCE ... FROM FILES: compressed files, dialects, bad lines, partitions, and order."""

import gzip
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import zstandard

from foreshore.sources.files import FileFormat, FilesSource
from foreshore.sources.outputs import ERRORS, OWN_ROWS
from foreshore.storage.ingest.files import connector
from foreshore.storage.ingest.files.connector import FilesConnector, _stamps
from foreshore.storage.lake import json_files, reading
from foreshore.storage.lake.places import CopyPlaces
from foreshore.types import INT4, TEXT, ColumnType, RelationDesc
from tests.adapter.harness import TestEnvironment
from tests.adapter.sources.test_files import allowed, put, reaches

STATUS = "SELECT status FROM mz_internal.mz_source_statuses"


def packed(place: Path, name: str, data: bytes) -> None:
    """Write a compressed file, by its suffix."""
    pack = gzip.compress if name.endswith(".gz") else zstandard.compress
    (place / f".{name}").write_bytes(pack(data))
    (place / f".{name}").rename(place / name)


async def test_bad_lines_of_compressed_files_are_dead_letters(
    own_env: TestEnvironment, tmp_path: Path
) -> None:
    env, place = own_env, allowed(own_env, tmp_path)
    packed(place, "a.csv.gz", b"k;v\n1;'a;b'\n2\n3;~\n4;x;y\n")
    packed(place, "b.csv.zst", b"more;v;k\n9;'c';5\n")
    form = "FORMAT csv, HEADER, DELIMITER ';', QUOTE '''', NULL '~', FOLLOW = false"
    await env.ran("a", f"CREATE SOURCE s FROM FILES '{place}' ({form})")
    await reaches(env, "SELECT k, v FROM s ORDER BY 1", "1|a;b", "3|NULL", "5|c")
    letters = "SELECT part, \"offset\", error, convert_from(data, 'UTF8') FROM s_errors ORDER BY 2"
    said = "the line has {} columns instead of 2"
    await reaches(
        env, letters, f"a.csv.gz|3|{said.format(1)}|2", f"a.csv.gz|5|{said.format(3)}|4;x;y"
    )
    shown = (await env.query("a", "SHOW CREATE SOURCE s")).splitlines()[0].split("|")[1]
    await env.ran("a", "DROP SOURCE s", shown)
    await reaches(env, "SELECT count(*) FROM s", "3")
    lines = '{{"k": 1}}\n{{"k": \n[2]\n{}\n{{"k": 12345678901234567890}}\n'.format('"x')
    packed(place, "c.json.gz", lines.encode() + b'\xff\n{"k": 3}\n')
    source = f"FROM FILES '{place}/*.json.gz' (FORMAT json, FOLLOW = false)"
    await env.ran("a", f"CREATE SOURCE j (k numeric) {source}")
    await reaches(env, "SELECT k FROM j ORDER BY 1", "1", "3", "12345678901234567890")
    await reaches(
        env, 'SELECT "offset", error FROM j_errors ORDER BY 1',
        *(f"{n}|the line is no JSON object" for n in (2, 3, 4)), "6|the line is no UTF-8",
    )  # fmt: skip


async def test_rows_with_wrong_values_are_dead_letters_with_their_lines(
    own_env: TestEnvironment, tmp_path: Path
) -> None:
    env, place = own_env, allowed(own_env, tmp_path)
    put(place, "a.csv", 'v,k\n"a,""b",x\nonly\n,1\n"",y\n1,2,3\n~,z\n')
    put(place, "a.json", '{"k": 1}\n[]\n{"k": "x",  "o": [1]}\n"\n{"k": 2.5}\n')
    put(place, "a.parquet", pa.table({"k": ["1", "x"], "v": ["a", "b"]}))
    wrong = 'column "k": invalid input syntax for type integer: "{}"'
    lines = {
        "csv, HEADER, NULL '~'": ('2|x|x,"a,""b"', "5|y|y,", "7|z|z,~"),
        "json": ('3|x|{"k": "x",  "o": [1]}', '5|2.5|{"k": 2.5}'),
        "parquet": ("2|x|NULL",),
    }
    for form, expected in lines.items():
        name = form.partition(",")[0]
        source = f"FROM FILES '{place}/*.{name}' (FORMAT {form}, FOLLOW = false)"
        await env.ran("a", f"CREATE SOURCE {name}s (k int4, v text) {source}")
        letters = (
            "SELECT \"offset\", error, convert_from(data, 'UTF8')"
            f" FROM {name}s_errors WHERE error LIKE 'column%' ORDER BY 1"
        )
        rows = (each.split("|", 2) for each in expected)
        await reaches(env, letters, *(f"{n}|{wrong.format(bad)}|{row}" for n, bad, row in rows))
    counts = 'SELECT string_agg("offset"::text, \' \' ORDER BY "offset") FROM {}_errors'
    await reaches(env, counts.format("csvs"), "2 3 5 6 7")
    await reaches(env, counts.format("jsons"), "2 3 4 5")


@pytest.mark.parametrize(
    ("format", "good", "bad"), [("csv", "{},x\n", "1,2,3\n"), ("json", '{{"k":{}}}\n', "[]\n")]
)
def test_rows_and_bad_lines_of_a_file_that_is_read_in_parts_come_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: FileFormat, good: str, bad: str
) -> None:
    monkeypatch.setattr(connector, "BATCH_BYTES", 1)
    for module in (reading, json_files):
        monkeypatch.setattr(module, "BLOCK_BYTES", 200)
    is_bad = [i % 7 == 0 or 60 < i < 90 for i in range(200)]  # blocks without a row are among them
    lines = (bad if wrong else good.format(i) for i, wrong in enumerate(is_bad))
    (tmp_path / "a").write_text("k,v\n" * (format == "csv") + "".join(lines))
    column = ColumnType(INT4, True)
    desc = RelationDesc(("k",), (column,))
    if format == "csv":
        desc = RelationDesc(("k", "v"), (column, ColumnType(TEXT, True)))
    spec = FilesSource(str(tmp_path), format, header=format == "csv")
    location = CopyPlaces([str(tmp_path)]).find(str(tmp_path))
    reader = FilesConnector(spec, desc, lambda: location)
    rows: list[Any] = []
    numbers: list[Any] = []
    done = parts = 0
    while done >= 0:  # it is killed after each part
        batch = next(iter(reader._file(location, "a", 5, done, False)))
        parts += 1
        rows += batch.rows[OWN_ROWS].column("k").to_pylist() if OWN_ROWS in batch.rows else []
        if ERRORS in batch.rows:
            numbers += batch.rows[ERRORS].column("offset").to_pylist()
        done = -batch.moved["a"]
    first = 2 if format == "csv" else 1
    assert rows == [i for i, wrong in enumerate(is_bad) if not wrong]
    assert sorted(numbers) == [i + first for i, wrong in enumerate(is_bad) if wrong]
    assert parts > 5


async def test_a_header_that_lacks_a_column_stalls_the_source(
    own_env: TestEnvironment, tmp_path: Path
) -> None:
    env, place = own_env, allowed(own_env, tmp_path)
    put(place, "a.csv", "k,v\n1,a\n")
    put(place, "b.csv", "v,other\nx,2\n")
    source = f"FROM FILES '{place}' (FORMAT csv, HEADER, POLL INTERVAL '10 ms')"
    await env.ran("a", f"CREATE SOURCE s {source}")
    await reaches(env, STATUS, "stalled")
    put(place, "b.csv", "v,other,k\nx,2,3\n")
    put(place, "c.csv", "\ufeffk,v\n4,y\n")  # as Excel writes files
    await reaches(env, "SELECT k, v FROM s ORDER BY 1", "1|a", "3|x", "4|y")


async def test_directories_called_column_and_value_are_columns(
    own_env: TestEnvironment, tmp_path: Path
) -> None:
    env, place = own_env, allowed(own_env, tmp_path)
    for year, city in ((2025, "a%20b"), (2026, "__HIVE_DEFAULT_PARTITION__")):
        directory = place / f"year={year}" / f"city={city}"
        directory.mkdir(parents=True)
        put(directory, "x.parquet", pa.table({"k": [year % 100]}))
    (place / "_temporary").mkdir()
    put(place / "_temporary", "x.parquet", pa.table({"k": [0]}))
    source = f"FROM FILES '{place}' (FORMAT parquet, HIVE PARTITIONING, FOLLOW = false)"
    await env.ran("a", f"CREATE SOURCE s {source}")
    await reaches(env, "SELECT k, year, city FROM s ORDER BY 1", "25|2025|a b", "26|2026|NULL")
    deep = f"FROM FILES '{place}/**/x.parquet' (FORMAT parquet, HIVE PARTITIONING, FOLLOW = false)"
    await env.ran("a", f"CREATE SOURCE d (year int4 NOT NULL, k int8) {deep}")
    await reaches(env, "SELECT * FROM d ORDER BY 1", "2025|25", "2026|26")


async def test_files_are_read_by_time_when_they_are_old_enough(
    own_env: TestEnvironment, tmp_path: Path
) -> None:
    env, place = own_env, allowed(own_env, tmp_path)
    for name, time in (("a", 300), ("b", 100), ("c", 200)):
        put(place, f"{name}.csv", f"{name}\n")
        os.utime(place / f"{name}.csv", (time, time))
    put(place, "young.csv", "young\n")
    os.utime(place / "young.csv", (4e9, 4e9))
    source = (
        f"FROM FILES '{place}' (FORMAT csv, ORDER = time, MINIMUM AGE '1 h', POLL INTERVAL '10 ms')"
    )
    await env.ran("a", f"CREATE SOURCE s (v text) {source}")
    await reaches(env, "SELECT v FROM s ORDER BY 1", "a", "b", "c")
    os.utime(place / "young.csv", (400, 400))
    await reaches(env, "SELECT v FROM s ORDER BY 1", "a", "b", "c", "young")
    shown = await env.query("a", "SHOW CREATE SOURCE s")
    assert "ORDER = time, MINIMUM AGE = '3600000 ms'" in shown
    spec = FilesSource(str(place), "csv", order="time", age_ms=1)
    found, _ = _stamps(CopyPlaces([str(place)]).find(str(place)), spec)
    assert [key[0] for key in found] == ["b", "c", "a", "y"]
    os.utime(place / "a.csv", (4e9, 4e9))
    await reaches(env, "SELECT error LIKE '%it has changed%' FROM s_errors", "t")
    refused = await env.query(
        "a", f"CREATE SOURCE r FROM FILES '{place}' (FORMAT parquet, QUOTE 'x')"
    )
    assert 'ERROR 22023: the option "quote" is for CSV files' in refused
