"""CREATE SOURCE ... FROM FILES of tables of a lake: each version as a whole, in order."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from foreshore.storage.s3_blob import S3Blob
from tests.adapter.harness import TestEnvironment
from tests.adapter.sources.test_files import allowed, reaches
from tests.harness import object_store
from tests.iceberg_deletes import by_vectors

pyiceberg = pytest.importorskip("pyiceberg")
deltalake = pytest.importorskip("deltalake")
IDS = "SELECT id, p FROM s ORDER BY 1"


class Published:
    """An Iceberg table whose versions have the names that readers without a catalog look for."""

    _format: int | None = None  # in the versions, if not that of the package

    def __init__(self, place: Path, rows: pa.Table, format: int | None = None) -> None:
        from pyiceberg.catalog.sql import SqlCatalog

        catalog = SqlCatalog("c", uri="sqlite:///:memory:", warehouse=f"file://{place}")
        catalog.create_namespace("n")
        self.path, self._format = place / "t", format
        self.table: Any = catalog.create_table("n.t", rows.schema, location=f"file://{self.path}")
        self.change(lambda table: table.append(rows))

    def change(self, change: Callable[[Any], object]) -> None:
        """Change the table, and publish each version that it makes."""
        change(self.table.refresh())
        for number, each in enumerate(sorted((self.path / "metadata").glob("0*.json"))):
            published = each.with_name(f"v{number}.metadata.json")
            if not published.exists():
                metadata = json.loads(each.read_text())
                if self._format is not None:  # which the package does not write
                    metadata["format-version"] = self._format
                published.with_suffix(".draft").write_text(json.dumps(metadata))
                published.with_suffix(".draft").rename(published)


async def test_snapshots_of_an_iceberg_table_come_in_order(
    own_env: TestEnvironment, tmp_path: Path
) -> None:
    env, place = own_env, allowed(own_env, tmp_path)
    made = Published(place, pa.table({"id": [1, 2, 3], "p": ["a", "a", "b"]}))
    source = f"FROM FILES '{made.path}' (FORMAT iceberg, POLL INTERVAL '10 ms')"
    await env.ran("a", f"CREATE SOURCE s {source}")
    await reaches(env, IDS, "1|a", "2|a", "3|b")
    made.change(lambda table: table.append(pa.table({"id": [4], "p": ["b"]})))
    made.change(lambda table: table.delete("id = 2"))
    await reaches(env, IDS, "1|a", "3|b", "4|b")
    assert (
        await env.query("a", "SELECT * FROM s_progress WHERE part = 'version'")
        == "version|4\nSELECT 1"
    )
    env.ingest.last.kill()
    made.change(lambda table: table.overwrite(pa.table({"id": [9], "p": ["c"]})))
    await reaches(env, IDS, "9|c")
    assert await env.query("a", "SELECT count(*) FROM s_errors") == "0\nSELECT 1"


async def test_deletion_vectors_are_applied(own_env: TestEnvironment, tmp_path: Path) -> None:
    env, place = own_env, allowed(own_env, tmp_path)
    made = Published(place, pa.table({"id": list(range(6)), "p": list("abcdef")}), format=3)
    made.change(lambda table: table.append(pa.table({"id": [6, 7], "p": ["g", "h"]})))
    source = f"FROM FILES '{made.path}' (FORMAT iceberg, POLL INTERVAL '10 ms')"
    await env.ran("a", f"CREATE SOURCE s {source}")
    letters = "SELECT string_agg(p, '' ORDER BY id) FROM"
    await reaches(env, f"{letters} s", "abcdefgh")
    files = {task.file.record_count: task.file.file_path for task in made.table.scan().plan_files()}
    made.change(lambda table: by_vectors(table, {files[6]: [1, 4]}))
    await reaches(env, f"{letters} s", "acdfgh")
    # One that replaces it, beside that of another file; the last position is of no row.
    made.change(lambda table: by_vectors(table, {files[6]: [0, 1, 4], files[2]: [1, 1 << 33]}))
    await reaches(env, f"{letters} s", "cdfg")
    made.change(lambda table: table.append(pa.table({"id": [9], "p": ["i"]})))
    await reaches(env, f"{letters} s", "cdfgi")
    await env.ran("a", f"CREATE SOURCE whole {source}", "CREATE TABLE c (id int8, p text)")
    await reaches(env, f"{letters} whole", "cdfgi")
    await env.ran("a", f"COPY c FROM '{made.path}' (FORMAT iceberg)")
    assert await env.query("a", f"{letters} c") == "cdfgi\nSELECT 1"


async def test_an_iceberg_table_that_is_rolled_back_is_followed(
    own_env: TestEnvironment, tmp_path: Path
) -> None:
    env, place = own_env, allowed(own_env, tmp_path)
    made = Published(place, pa.table({"id": [1], "p": ["a"]}))
    first = made.table.current_snapshot().snapshot_id
    made.change(lambda table: table.append(pa.table({"id": [2], "p": ["b"]})))
    source = f"FROM FILES '{made.path}' (FORMAT iceberg, POLL INTERVAL '10 ms')"
    await env.ran("a", f"CREATE SOURCE s {source}")
    await reaches(env, IDS, "1|a", "2|b")

    def roll_back(table: Any) -> None:
        with table.manage_snapshots() as changes:
            changes.set_current_snapshot(snapshot_id=first)

    made.change(roll_back)
    await reaches(env, IDS, "1|a")
    made.change(lambda table: table.append(pa.table({"id": [3], "p": ["c"]})))
    await reaches(env, IDS, "1|a", "3|c")


async def test_a_table_whose_snapshot_has_expired_is_read_by_difference(
    own_env: TestEnvironment, tmp_path: Path
) -> None:
    env, place = own_env, allowed(own_env, tmp_path)
    made = Published(place, pa.table({"id": [1], "p": ["a"]}))
    first = made.table.current_snapshot().snapshot_id
    source = f"FROM FILES '{made.path}' (FORMAT iceberg, POLL INTERVAL '1 hour')"
    await env.ran("a", f"CREATE SOURCE s {source}")
    await reaches(env, IDS, "1|a")

    def append_and_expire(table: Any) -> None:
        table.append(pa.table({"id": [2], "p": ["b"]}))
        table.maintenance.expire_snapshots().by_id(first).commit()

    made.change(append_and_expire)
    env.ingest.last.kill()
    await reaches(env, IDS, "1|a", "2|b")


async def test_a_delta_table_whose_versions_were_vacuumed_is_read_by_difference(
    own_env: TestEnvironment, tmp_path: Path
) -> None:
    deltalake = pytest.importorskip("deltalake")
    env, place = own_env, allowed(own_env, tmp_path)
    table = str(place / "t")
    deltalake.write_deltalake(table, pa.table({"id": [1, 2], "p": ["a", "b"]}))
    source = f"FROM FILES '{table}' (FORMAT delta, POLL INTERVAL '1 hour')"
    await env.ran("a", f"CREATE SOURCE s {source}")
    await reaches(env, IDS, "1|a", "2|b")
    written = deltalake.DeltaTable(table)
    written.delete("id = 1")
    written.update(updates={"p": "'c'"}, predicate="id = 2")
    written.optimize.compact()
    written.vacuum(0, dry_run=False, enforce_retention_duration=False)
    env.ingest.last.kill()
    await reaches(env, IDS, "2|c")


async def test_what_is_unreadable_of_a_table_that_is_read_anew_is_told_once(
    own_env: TestEnvironment, tmp_path: Path
) -> None:
    env, place = own_env, allowed(own_env, tmp_path)
    table = str(place / "t")
    deltalake.write_deltalake(table, pa.table({"id": ["1", "x"]}))
    source = f"FROM FILES '{table}' (FORMAT delta, POLL INTERVAL '1 hour')"
    await env.ran("a", f"CREATE SOURCE s (id int4) {source}")
    await reaches(env, "SELECT id FROM s", "1")
    written = deltalake.DeltaTable(table)
    for more in ("y", "2"):
        deltalake.write_deltalake(written, pa.table({"id": [more]}), mode="append")
    written.update_incremental()
    written.create_checkpoint()
    for number in (0, 1):  # the source has read version 0, and does not find it any more
        (place / "t" / "_delta_log" / f"{number:020}.json").unlink()
    env.ingest.last.kill()
    await reaches(env, "SELECT id FROM s ORDER BY 1", "1", "2")
    said = [f'column "id": invalid input syntax for type integer: "{each}"' for each in "xy"]
    await reaches(env, "SELECT error FROM s_errors ORDER BY 1", *said)


async def test_an_export_of_ours_is_read(own_env: TestEnvironment, tmp_path: Path) -> None:
    env, place = own_env, allowed(own_env, tmp_path)
    (tmp_path / "data").mkdir()
    await env.ran("a", "CREATE TABLE t (id int, n numeric(6, 2), at timestamptz)")
    await env.ran("a", "INSERT INTO t VALUES (1, 2.50, '2024-02-29 12:00+00'), (2, NULL, NULL)")
    await env.ran("a", f"COPY t TO '{place}/t' (FORMAT iceberg)")
    source = f"FROM FILES '{place}/t' (FORMAT iceberg, POLL INTERVAL '10 ms')"
    await env.ran("a", f"CREATE SOURCE s {source}")
    await reaches(env, "SELECT * FROM s EXCEPT SELECT * FROM t")
    await reaches(env, "SELECT count(*) FROM s", "2")
    await env.ran("a", "DELETE FROM t WHERE id = 1", f"COPY t TO '{place}/t' (FORMAT iceberg)")
    await reaches(env, "SELECT id FROM s", "2")


@pytest.mark.full
async def test_a_delta_table_in_a_bucket_is_followed(
    own_env: TestEnvironment, tmp_path: Path
) -> None:
    env = own_env
    with object_store() as store:
        env.environment.let_copy([store.url("lake")], tmp_path / "data")
        options = {"aws_endpoint": store.endpoint, "allow_http": "true", "aws_region": "us-east-1"}
        table = f"s3://{store.bucket}/lake/t"

        def write(rows: pa.Table) -> None:
            deltalake.write_deltalake(table, rows, mode="append", storage_options=options)

        write(pa.table({"id": [1], "p": ["a"]}))
        source = f"FROM FILES '{table}' (FORMAT delta, POLL INTERVAL '10 ms')"
        await env.ran("a", f"CREATE SOURCE s {source}")
        await reaches(env, IDS, "1|a")
        write(pa.table({"id": [2], "p": ["b"]}))
        await reaches(env, IDS, "1|a", "2|b")
        await env.ran("a", "DROP SOURCE s")


@pytest.mark.full
@pytest.mark.parametrize("format", ["delta", "csv"])
async def test_a_bucket_is_read_by_the_keys_of_a_connection(
    own_env: TestEnvironment, format: str
) -> None:
    env = own_env
    with object_store() as store:
        options = {
            "aws_endpoint": store.endpoint,
            "allow_http": "true",
            "aws_access_key_id": "test",
            "aws_secret_access_key": "test",
        }
        table, rows = f"s3://{store.bucket}/lake/{format}", pa.table({"id": [1], "p": ["a"]})
        if format == "delta":
            deltalake.write_deltalake(table, rows, storage_options=options)
        else:
            S3Blob(store.url("lake/csv")).put("a.csv", b"id,p\n1,a\n")
        env.environment.unlock_secrets(bytes(32))
        await env.environment.equip_sources()
        await env.ran("a", "CREATE SECRET k AS 'test'")
        place = f"ENDPOINT '{store.endpoint}', REGION 'us-east-1'"
        keys = "ACCESS KEY ID 'test', SECRET ACCESS KEY SECRET k"
        await env.ran("a", f"CREATE CONNECTION c TO AWS ({place}, {keys})")
        await env.ran("a", f"CREATE CONNECTION keyless TO AWS ({place})")
        of = f"(FORMAT {format}, {'HEADER, ' if format == 'csv' else ''}POLL INTERVAL '10 ms')"
        reads = f"FROM FILES '{table}' USING AWS CONNECTION"
        assert "ERROR 42501" in await env.query("a", f"CREATE SOURCE s FROM FILES '{table}' {of}")
        assert 'no option "ACCESS KEY ID"' in await env.query(
            "a", f"CREATE SOURCE s {reads} keyless {of}"
        )
        with pytest.MonkeyPatch.context() as patched:  # clients would send the server's token
            patched.setenv("AWS_SESSION_TOKEN", "of the server")
            answer = await env.query("a", f"CREATE SOURCE s {reads} c {of}")
        assert 'no option "SESSION TOKEN"' in answer
        await env.ran("a", "CREATE ROLE r", "GRANT CREATE ON SCHEMA public TO r")
        await env.ran("a", "GRANT CREATE ON CLUSTER quickstart TO r", "SET ROLE r")
        create = f"CREATE SOURCE s {reads} c {of}"
        assert "ERROR 42501: permission denied for connection c" in await env.query("a", create)
        await env.ran("a", "RESET ROLE", "GRANT USAGE ON CONNECTION c TO r", "SET ROLE r", create)
        await reaches(env, IDS, "1|a")
        shown = (await env.query("a", "SHOW CREATE SOURCE s")).splitlines()[0].split("|")[1]
        await env.ran("a", "DROP SOURCE s", shown)
        await reaches(env, IDS, "1|a")
        await env.ran("a", "RESET ROLE", "DROP SOURCE s")


class Upgraded(Published):
    """An Iceberg table that had snapshots before it got format version 2."""

    def __init__(self, place: Path, *parts: pa.Table) -> None:
        from pyiceberg.catalog.sql import SqlCatalog

        catalog = SqlCatalog("c", uri="sqlite:///:memory:", warehouse=f"file://{place}")
        catalog.create_namespace("n")
        self.path = place / "t"
        schema, location = parts[0].schema, f"file://{self.path}"
        old = {"format-version": "1"}
        self.table = catalog.create_table("n.t", schema, location=location, properties=old)
        for part in parts:
            self.table.append(part)
        self.change(lambda table: table.transaction().upgrade_table_version(2).commit_transaction())


async def test_a_table_that_was_upgraded_from_version_1_repeats_no_rows(
    own_env: TestEnvironment, tmp_path: Path
) -> None:
    env, place = own_env, allowed(own_env, tmp_path)
    made = Upgraded(
        place, pa.table({"id": [1], "p": ["a"]}), pa.table({"id": [2, 3], "p": ["b", "c"]})
    )
    assert {each.sequence_number for each in made.table.snapshots()} <= {0, None}
    source = f"FROM FILES '{made.path}' (FORMAT iceberg, POLL INTERVAL '10 ms')"
    await env.ran("a", f"CREATE SOURCE s {source}")
    await reaches(env, IDS, "1|a", "2|b", "3|c")
    made.change(lambda table: table.append(pa.table({"id": [4], "p": ["d"]})))
    await reaches(env, "SELECT count(*) FROM s WHERE id = 4", "1")
    assert await env.query("a", IDS) == "1|a\n2|b\n3|c\n4|d\nSELECT 4"
    made.change(lambda table: table.delete("id = 2"))
    await reaches(env, IDS, "1|a", "3|c", "4|d")


@pytest.mark.parametrize("format", ["delta", "iceberg"])
async def test_of_a_table_that_is_made_anew_the_difference_comes(
    own_env: TestEnvironment, tmp_path: Path, format: str
) -> None:
    env, place = own_env, allowed(own_env, tmp_path)

    def make(*ids: int) -> None:
        path = place / "t"
        if path.exists():
            path.rename(tmp_path / f"old-{ids[0]}")
        rows = pa.table({"id": pa.array(ids, pa.int64()), "p": ["x"] * len(ids)})
        if format == "delta":
            deltalake.write_deltalake(str(place / ".t"), rows)
            deltalake.write_deltalake(str(place / ".t"), rows.slice(0, 0), mode="append")
            (place / ".t").rename(path)
        else:
            Published(place, rows)

    make(1, 2, 3)
    source = f"FROM FILES '{place}/t' (FORMAT {format}, POLL INTERVAL '10 ms')"
    await env.ran("a", f"CREATE SOURCE s {source}")
    await reaches(env, IDS, "1|x", "2|x", "3|x")
    env.ingest.last.kill()  # it comes back to another table
    make(2, 3, 4)
    await reaches(env, IDS, "2|x", "3|x", "4|x")
    make(3, 4, 5)  # while it runs
    await reaches(env, IDS, "3|x", "4|x", "5|x")


async def test_columns_of_an_iceberg_table_are_told_apart_by_their_ids(
    own_env: TestEnvironment, tmp_path: Path
) -> None:
    from pyiceberg.types import StringType

    env, place = own_env, allowed(own_env, tmp_path)
    made = Published(place, pa.table({"id": [1, 2], "p": ["a", "b"], "q": ["k", "l"]}))
    source = f"FROM FILES '{made.path}' (FORMAT iceberg, POLL INTERVAL '10 ms')"
    await env.ran("a", f"CREATE SOURCE s {source}")
    await reaches(env, IDS, "1|a", "2|b")

    def rename(table: Any) -> None:
        with table.update_schema() as update:
            update.rename_column("p", "was_p")
        with table.update_schema() as update:
            update.add_column("p", StringType())
        table.append(pa.table({"id": [3], "was_p": ["c"], "q": ["m"], "p": ["other"]}))

    made.change(rename)
    await reaches(env, IDS, "1|a", "2|b", "3|c")
    made.change(lambda table: table.delete("id = 1"))
    await reaches(env, IDS, "2|b", "3|c")
    made.change(lambda table: table.update_schema(True).delete_column("q").commit())
    made.change(lambda table: table.append(pa.table({"id": [4], "was_p": ["d"], "p": ["o"]})))
    status = "SELECT status, error LIKE '%no column \"q\"%' FROM mz_internal.mz_source_statuses"
    await reaches(env, f"{status} WHERE name = 's'", "stalled|t")


async def test_columns_that_are_added_or_widened_do_not_disturb_an_iceberg_source(
    own_env: TestEnvironment, tmp_path: Path
) -> None:
    from pyiceberg.types import LongType, StringType

    env, place = own_env, allowed(own_env, tmp_path)
    ids = pa.array([1, 2], pa.int32())
    made = Published(place, pa.table({"id": ids, "p": ["a", "b"]}))
    source = f"FROM FILES '{made.path}' (FORMAT iceberg, POLL INTERVAL '10 ms')"
    await env.ran("a", f"CREATE SOURCE s {source}")
    await reaches(env, IDS, "1|a", "2|b")

    def widen(table: Any) -> None:
        with table.update_schema() as update:
            update.update_column("id", LongType())
            update.add_column("more", StringType())
        table.append(pa.table({"id": [3, 1 << 40], "p": ["c", "d"], "more": ["x", "y"]}))
        table.delete("id = 1")

    made.change(widen)
    await reaches(env, IDS, "2|b", "3|c")
    await reaches(env, "SELECT count(*), min(error) LIKE '%out of range%' FROM s_errors", "1|t")
    await env.ran("a", f"CREATE SOURCE anew {source}")
    await reaches(env, "SELECT * FROM anew ORDER BY 1", "2|b|NULL", "3|c|x", "1099511627776|d|y")


async def test_columns_that_are_added_do_not_disturb_a_delta_source(
    own_env: TestEnvironment, tmp_path: Path
) -> None:
    env, place = own_env, allowed(own_env, tmp_path)
    table = str(place / "t")
    deltalake.write_deltalake(table, pa.table({"id": [1], "p": ["a"]}))
    source = f"FROM FILES '{table}' (FORMAT delta, POLL INTERVAL '10 ms')"
    await env.ran("a", f"CREATE SOURCE s {source}")
    await reaches(env, IDS, "1|a")
    more = pa.table({"id": [2], "p": ["b"], "more": [True]})
    deltalake.write_deltalake(table, more, mode="append", schema_mode="merge")
    await reaches(env, IDS, "1|a", "2|b")
    less = pa.table({"id": [3], "more": [True]})
    deltalake.write_deltalake(table, less, mode="overwrite", schema_mode="overwrite")
    status = "SELECT status, error LIKE '%no column \"p\" (Drop the source%'"
    await reaches(env, f"{status} FROM mz_internal.mz_source_statuses", "stalled|t")


async def test_a_delta_table_with_column_mapping_is_refused(
    own_env: TestEnvironment, tmp_path: Path
) -> None:
    env, place = own_env, allowed(own_env, tmp_path)
    mapped = {"delta.columnMapping.mode": "name"}
    deltalake.DeltaTable.create(
        str(place / "t"), deltalake.Schema.from_arrow(pa.schema([("id", pa.int64())])),
        configuration=mapped,
    )  # fmt: skip
    answer = await env.query("a", f"CREATE SOURCE s FROM FILES '{place}/t' (FORMAT delta)")
    assert "ERROR 0A000" in answer
    assert "column mapping" in answer


@pytest.mark.parametrize("format", ["delta", "iceberg"])
async def test_a_version_that_is_large_comes_in_parts(
    own_env: TestEnvironment, tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foreshore.storage.ingest.files.tables.PART_BYTES", 1000)
    env, place = own_env, allowed(own_env, tmp_path)
    rows = pa.table({"id": list(range(10_000)), "p": ["x" * 20] * 10_000})
    if format == "delta":
        deltalake.write_deltalake(str(place / "t"), rows)
    else:
        Published(place, rows)
    source = f"FROM FILES '{place}/t' (FORMAT {format}, POLL INTERVAL '10 ms')"
    await env.ran("a", f"CREATE SOURCE s {source}")
    await reaches(env, "SELECT count(*), sum(id) FROM s", "10000|49995000")


async def test_values_that_do_not_fit_are_errors(own_env: TestEnvironment, tmp_path: Path) -> None:
    env, place = own_env, allowed(own_env, tmp_path)
    deltalake.write_deltalake(str(place / "t"), pa.table({"n": ["1", "x", "3"]}))
    source = f"FROM FILES '{place}/t' (FORMAT delta, POLL INTERVAL '10 ms')"
    await env.ran("a", f"CREATE SOURCE s (n int) {source}")
    await reaches(env, "SELECT n FROM s ORDER BY 1", "1", "3")
    await reaches(env, 'SELECT "offset", error LIKE \'%"x"%\' FROM s_errors', "2|t")
    deltalake.write_deltalake(str(place / "t"), pa.table({"n": ["7"]}), mode="overwrite")
    await reaches(env, "SELECT n FROM s", "7")
