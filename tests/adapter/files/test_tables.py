"""Tables of other formats: Iceberg out and in, what is recognized, what is linked."""

from __future__ import annotations

import errno
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.adapter.files.tables import COLUMNS, SETTLED, filled, settled
from tests.adapter.harness import TestEnvironment
from tests.harness import NOT_INSTALLED

table_of = pytest.importorskip(
    "pyiceberg.table", reason=f"{NOT_INSTALLED}pyiceberg"
).StaticTable.from_metadata


async def test_an_iceberg_table_has_snapshots_that_come_in_again(
    own_env: TestEnvironment, outside: Path
) -> None:
    env = own_env
    await filled(env, outside)
    place = outside / "ice"
    names = ", ".join(column.split()[0] for column in COLUMNS.split(", "))
    assert await env.query("a", f"COPY t TO '{place}' (FORMAT iceberg)") == "COPY 3"
    table = table_of(str(place))
    assert table.scan().to_arrow().num_rows == 3
    assert table.scan().to_arrow().schema.field("n").type == pa.decimal128(38, 3)
    first = await env.ran("a", f"SELECT {names} FROM t ORDER BY k")
    await env.ran("a", "DELETE FROM t WHERE k = 2")
    assert await env.query("a", f"COPY t TO '{place}' (FORMAT iceberg)") == "COPY 2"
    assert table.scan().to_arrow().num_rows == 3  # a snapshot does not change
    table = table_of(str(place))
    old, new = (snapshot.snapshot_id for snapshot in table.metadata.snapshots)
    assert table.scan().to_arrow().num_rows == 2
    assert table.scan(snapshot_id=old).to_arrow().num_rows == 3
    await env.ran("a", "CREATE TABLE again (LIKE t)")
    copied = f"COPY again FROM '{place}' (FORMAT iceberg"
    assert await env.query("a", f"{copied}, VERSION {old})") == "COPY 3"
    await env.ran("a", "UPDATE again SET nn = nn + 0.00 WHERE k = 1")
    assert await env.ran("a", f"SELECT {names} FROM again ORDER BY k") == first
    assert await env.query("a", f"COPY again FROM '{place}'") == "COPY 2"  # it is recognized
    assert await env.query("a", f"{copied}, VERSION {new})") == "COPY 2"
    assert "58P01" in await env.query("a", f"{copied}, VERSION 7)")
    await env.ran("a", "CREATE TABLE other (x int)")
    assert "22P04" in await env.query("a", f"COPY other FROM '{place}' (FORMAT iceberg)")
    assert "58P01" in await env.query("a", f"COPY again FROM '{outside}/none' (FORMAT iceberg)")
    assert os.listdir(outside) == ["ice"]


async def test_columns_come_and_go_and_keep_what_old_snapshots_have(
    own_env: TestEnvironment, outside: Path
) -> None:
    env = own_env
    await filled(env, outside)
    place = outside / "ice"
    copied = f"TO '{place}' (FORMAT iceberg)"
    assert await env.query("a", f"COPY (SELECT k, a, t FROM t) {copied}") == "COPY 3"
    assert await env.query("a", f"COPY (SELECT d, a, k FROM t) {copied}") == "COPY 3"
    table = table_of(str(place))
    assert table.scan().to_arrow().column_names == ["d", "a", "k"]
    assert sorted(table.scan().to_arrow()["k"].to_pylist()) == [1, 2, 3]
    old = table.metadata.snapshots[0].snapshot_id
    before = table.scan(snapshot_id=old).to_arrow()
    assert Counter(map(str, before["a"].to_pylist())) == Counter(["[1, None, 3]", "None", "[]"])
    assert before.column_names == ["k", "a", "t"]
    refused = await env.query("a", f"COPY (SELECT k::text AS k FROM t) {copied}")
    assert 'ERROR 0A000: another type of column "k"' in refused
    assert table_of(str(place)).metadata.current_snapshot_id == table.metadata.current_snapshot_id


async def test_an_iceberg_table_of_inserted_rows_links_batches_and_copies_none(
    own_env: TestEnvironment, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = own_env
    await settled(env, outside)
    place = outside / "linked"
    link, links = os.link, list[str]()

    def counted(source: str, target: str, **options: Any) -> None:
        link(source, target, **options)
        links.append(str(target))

    monkeypatch.setattr(os, "link", counted)
    assert await env.query("a", f"COPY s TO '{place}' (FORMAT iceberg)") == "COPY 1002"
    assert len([path for path in links if path.endswith(".parquet")]) == 1
    assert len(list(place.glob("*.parquet"))) == 2
    found = table_of(str(place)).scan().to_arrow()
    assert found.column_names == ["x", "y", "z"]
    rows = Counter(tuple(row.values()) for row in found.to_pylist())
    assert rows == SETTLED


async def test_files_at_another_place_are_not_read(own_env: TestEnvironment, outside: Path) -> None:
    env = own_env
    env.environment.let_copy([str(outside)], env.data_dir)
    await env.ran("a", "CREATE TABLE s (x int)", "INSERT INTO s VALUES (1)")
    await env.ran("a", f"COPY s TO '{outside}/one' (FORMAT iceberg)")
    (outside / "one").rename(outside / "two")
    assert "another place" in await env.query("a", f"COPY s FROM '{outside}/two'")
    await env.ran("a", f"COPY s TO '{outside}/one' (FORMAT iceberg)")
    (version,) = (outside / "one" / "metadata").glob("v*.json")
    told = json.loads(version.read_text())
    told["properties"]["py-io-impl"] = "tests.nothing.Files"  # which nobody imports
    version.write_text(json.dumps(told))
    assert await env.query("a", f"COPY s FROM '{outside}/one'") == "COPY 1"
    listed = told["snapshots"][0]["manifest-list"]
    for place in (
        "/etc/passwd",
        # pyiceberg opens a URL's path, so what is behind the question mark hides where that is.
        f"file://{outside}/one/../list.avro?/../../{outside.name}/one/list.avro",
    ):
        told["snapshots"][0]["manifest-list"] = place
        version.write_text(json.dumps(told))
        assert "another place" in await env.query("a", f"COPY s FROM '{outside}/one'")
    for prefix in ("file:", "file://"):
        told["snapshots"][0]["manifest-list"] = prefix + listed
        version.write_text(json.dumps(told))
        assert await env.query("a", f"COPY s FROM '{outside}/one'") == "COPY 1"


async def test_a_version_without_a_hint_keeps_its_files(
    own_env: TestEnvironment, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = own_env
    env.environment.let_copy([str(outside)], env.data_dir)
    await env.ran("a", "CREATE TABLE s (x int)", "INSERT INTO s VALUES (1)")
    exported = f"COPY s TO '{outside}/one' (FORMAT iceberg)"
    await env.ran("a", exported, "INSERT INTO s VALUES (2)")

    def replace(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr("foreshore.storage.lake.iceberg.os.replace", replace)
        with pytest.raises(OSError, match="No space"):
            await env.query("b", exported)
    assert await env.query("a", f"COPY s FROM '{outside}/one'") == "COPY 2"


async def test_a_format_is_recognized_by_the_files(own_env: TestEnvironment, outside: Path) -> None:
    env = own_env
    env.environment.let_copy([str(outside)], env.data_dir)
    await env.ran("a", "CREATE TABLE s (x int, y text)", "INSERT INTO s VALUES (1, 'a')")
    rows = 1
    for format in ("delta", "parquet", "json", "csv"):
        place = outside / format
        await env.ran("a", f"COPY s TO '{place}' (FORMAT {format})")
        assert await env.query("a", f"COPY s FROM '{place}'") == f"COPY {rows}", format
        rows *= 2
    assert await env.query("a", f"COPY s FROM '{outside}/delta' (VERSION 0)") == "COPY 1"
    assert "58P01" in await env.query("a", f"COPY s FROM '{outside}/csv' (VERSION 0)")
    (outside / "json" / "more.csv").write_text("1,a\n")
    assert "22023" in await env.query("a", f"COPY s FROM '{outside}/json'")
    assert "58P01" in await env.query("a", f"COPY s FROM '{outside}/nothing'")
    assert "42601" in await env.query("a", f"COPY s TO '{outside}/nothing'")
