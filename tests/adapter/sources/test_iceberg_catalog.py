"""CREATE SOURCE ... FROM ICEBERG CATALOG CONNECTION: the snapshots of a table, in order."""

import random
from pathlib import Path

import pyarrow as pa
import pytest

from foreshore.errors import FeatureNotSupported, InsufficientPrivilege
from foreshore.storage.external.access import Access
from foreshore.storage.external.iceberg import opened
from tests.adapter.harness import TestEnvironment
from tests.adapter.lakes import connected, connection, equipped, into, reading
from tests.adapter.sources.test_files import reaches
from tests.harness import object_store
from tests.iceberg_catalog import CLIENT, SECRET, IcebergCatalog, serving
from tests.iceberg_deletes import by_position, by_value

pytest.importorskip("pyiceberg")

IDS = "SELECT id, p FROM s ORDER BY 1, 2"


def made(catalog: IcebergCatalog, name: str, rows: pa.Table) -> None:
    """Make a table of these rows."""
    catalog.tables.create_table(f"n.{name}", rows.schema).append(rows)


async def test_snapshots_come_in_order_over_kills_and_restarts(
    own_env: TestEnvironment, catalog: IcebergCatalog, tmp_path: Path
) -> None:
    env = await connected(own_env, catalog, tmp_path)
    made(catalog, "t", pa.table({"id": [1, 2, 3], "p": ["a", "a", "b"]}))
    await env.ran("a", f"CREATE SOURCE s {reading('t')}")
    await reaches(env, IDS, "1|a", "2|a", "3|b")
    catalog.tables.load_table("n.t").append(pa.table({"id": [4], "p": ["b"]}))
    catalog.tables.load_table("n.t").delete("id = 2")
    await reaches(env, IDS, "1|a", "3|b", "4|b")
    env.ingest.last.kill()
    catalog.tables.load_table("n.t").overwrite(pa.table({"id": [9], "p": ["c"]}))
    await reaches(env, IDS, "9|c")
    await env.reopen()
    await equipped(env, tmp_path)
    catalog.tables.load_table("n.t").append(pa.table({"id": [10], "p": ["d"]}))
    await reaches(env, IDS, "9|c", "10|d")
    shown = (await env.query("a", "SHOW CREATE SOURCE s")).splitlines()[0].split("|")[1]
    await env.ran("a", "DROP SOURCE s", shown)
    await reaches(env, IDS, "9|c", "10|d")


async def test_a_table_of_a_sink_is_followed(
    own_env: TestEnvironment, catalog: IcebergCatalog, tmp_path: Path
) -> None:
    env = await connected(own_env, catalog, tmp_path)
    await env.ran("a", "CREATE TABLE t (id int PRIMARY KEY, p text)")
    await env.ran("a", f"CREATE SINK out FROM t {into('t')}")
    await env.ran("a", f"CREATE SOURCE s {reading('t')}")
    await env.ran("a", "INSERT INTO t VALUES (1, 'a'), (2, NULL)")
    await reaches(env, IDS, "1|a", "2|NULL")
    await env.ran("a", "UPDATE t SET p = 'b' WHERE id = 1", "DELETE FROM t WHERE id = 2")
    await reaches(env, IDS, "1|b")


async def test_what_is_wrong_is_said_and_mends_itself(
    own_env: TestEnvironment, catalog: IcebergCatalog, tmp_path: Path
) -> None:
    env = await connected(own_env, catalog, tmp_path)
    await env.ran("a", "CREATE SECRET no AS 'me:wrong'", connection("wrong", catalog, "no"))
    made(catalog, "t", pa.table({"id": [1], "p": ["a"]}))
    for statement, error in (
        (reading("t", name="wrong"), "ERROR 28000: the Iceberg catalog refuses the credential"),
        (reading("none"), "ERROR 42P01: the Iceberg catalog has no such table"),
        (reading("t", options=""), "ERROR 42501: the files of the Iceberg table are local"),
    ):
        assert error in await env.query("a", f"CREATE SOURCE s {statement}")
    catalog.away = True
    assert "ERROR 08006" in await env.query("a", f"CREATE SOURCE s {reading('t')}")
    catalog.away = False
    await env.ran("a", f"CREATE SOURCE s {reading('t')}")
    await reaches(env, IDS, "1|a")
    catalog.away = True
    status = (
        "SELECT status, error LIKE 'the Iceberg catalog or%' FROM mz_internal.mz_source_statuses"
    )
    await reaches(env, f"{status} WHERE name = 's'", "stalled|t")
    catalog.away = False
    catalog.tables.rename_table("n.t", "n.old")
    status = "SELECT status, error LIKE '%no such table%' FROM mz_internal.mz_source_statuses"
    await reaches(env, f"{status} WHERE name = 's'", "stalled|t")
    made(catalog, "t", pa.table({"id": [1, 2], "p": ["a", "b"]}))
    await reaches(env, IDS, "1|a", "2|b")
    assert await env.query("a", "SELECT count(*) FROM s_errors") == "0\nSELECT 1"


async def test_files_outside_of_the_allowed_places_are_not_read(
    own_env: TestEnvironment, catalog: IcebergCatalog, tmp_path: Path
) -> None:
    env = await connected(own_env, catalog, tmp_path)
    rows = pa.table({"id": [1], "p": ["a"]})
    outside = f"file://{tmp_path}/elsewhere"
    catalog.tables.create_table("n.t", rows.schema, location=outside).append(rows)
    assert "ERROR 42501" in await env.query("a", f"CREATE SOURCE s {reading('t')}")


@pytest.mark.full
@pytest.mark.parametrize("reached", ["vended", "connection", "aws"])
async def test_tables_in_a_bucket_are_read_and_written_by_keys_that_are_given(
    own_env: TestEnvironment, tmp_path: Path, reached: str
) -> None:
    (tmp_path / "lake").mkdir()
    keys = {"s3.access-key-id": "test", "s3.secret-access-key": "test", "s3.region": "us-east-1"}
    with object_store() as store, serving(tmp_path / "lake", f"s3://{store.bucket}/w") as catalog:
        catalog.tables.properties |= {**keys, "s3.endpoint": store.endpoint}
        env = await connected(own_env, catalog, tmp_path)
        await env.ran("a", "CREATE SECRET aws_key AS 'test'")
        given = f"ENDPOINT = '{store.endpoint}', REGION = 'us-east-1', ACCESS KEY ID = 'test'"
        given += ", SECRET ACCESS KEY = SECRET aws_key"
        uses = ""
        if reached == "vended":
            catalog.config = {**keys, "s3.endpoint": store.endpoint}
        elif reached == "connection":
            await env.ran("a", f"ALTER CONNECTION c SET ({given})")
        else:
            await env.ran("a", f"CREATE CONNECTION aws TO AWS ({given})")
            uses = " USING AWS CONNECTION aws"
        made(catalog, "t", pa.table({"id": [1], "p": ["a"]}))
        create = f"CREATE SOURCE s {reading('t', options='')}{uses}"
        await env.ran("a", create)
        await reaches(env, IDS, "1|a")
        target = f"(NAMESPACE 'n', TABLE 'out'){uses} KEY (id) NOT ENFORCED"
        await env.ran("a", f"CREATE SINK k FROM s INTO ICEBERG CATALOG CONNECTION c {target}")
        catalog.tables.load_table("n.t").append(pa.table({"id": [2], "p": ["b"]}))
        await reaches(env, IDS, "1|a", "2|b")
        await env.ran("a", "WAIT FOR SINKS k")
        assert catalog.rows("n.out") == [(1, "a"), (2, "b")]
        await env.ran("a", "DROP SINK k", "DROP SOURCE s")


def test_what_a_catalog_says_neither_uses_the_servers_keys_nor_imports_code(
    catalog: IcebergCatalog,
) -> None:
    catalog.config = {
        "py-io-impl": "os.path",
        "s3.role-arn": "arn:aws:iam::1:role/server",
        "client.role-arn": "arn:aws:iam::1:role/server",
        "s3.endpoint": "http://127.0.0.1:1",
    }
    catalog.overrides = {"py-io-impl": "os.path", "rest.sigv4-enabled": "true", "auth": "x"}
    made(catalog, "t", pa.table({"id": [1]}))
    options = {"catalog type": "rest", "url": catalog.url, "credential": f"{CLIENT}:{SECRET}"}
    files = opened(Access("iceberg catalog", options), None, None).load_table("n.t").io
    assert files.properties["s3.anonymous"] == "true"
    assert not {name for name in files.properties if "role" in name or name.startswith("py-")}
    with pytest.raises(InsufficientPrivilege):
        files.new_input(f"file://{catalog.url}")
    with pytest.raises(FeatureNotSupported):
        files.new_input("hdfs://host/file")


LETTERS = "SELECT string_agg(p, '' ORDER BY id) FROM"


async def test_deletes_by_position_and_by_value_are_applied(
    own_env: TestEnvironment, catalog: IcebergCatalog, tmp_path: Path
) -> None:
    env = await connected(own_env, catalog, tmp_path)
    made(catalog, "t", pa.table({"id": list(range(6)), "p": list("abcdef")}))
    catalog.tables.load_table("n.t").append(pa.table({"id": [6], "p": ["g"]}))
    await env.ran("a", f"CREATE SOURCE s {reading('t')}")
    await reaches(env, "SELECT count(*) FROM s", "7")
    table = catalog.tables.load_table("n.t")
    files = {task.file.record_count: task.file.file_path for task in table.scan().plan_files()}
    by_position(table, files[6], 1, 4)
    await reaches(env, f"{LETTERS} s", "acdfg")
    by_position(catalog.tables.load_table("n.t"), files[6], 0)
    by_position(catalog.tables.load_table("n.t"), files[1], 0)
    await reaches(env, f"{LETTERS} s", "cdf")
    catalog.tables.load_table("n.t").append(pa.table({"id": [7], "p": ["h"]}))
    await reaches(env, f"{LETTERS} s", "cdfh")
    await env.ran("a", f"CREATE SOURCE whole {reading('t')}")
    await reaches(env, f"{LETTERS} whole", "cdfh")
    by_value(catalog.tables.load_table("n.t"), "id", 2, 7, 100)
    await reaches(env, f"{LETTERS} s", "df")
    catalog.tables.load_table("n.t").append(pa.table({"id": [2], "p": ["C"]}))  # is not deleted
    await reaches(env, f"{LETTERS} s", "Cdf")
    env.ingest.last.kill()
    by_value(catalog.tables.load_table("n.t"), "p", "C", None)
    await reaches(env, f"{LETTERS} s", "df")
    await env.ran("a", f"CREATE SOURCE later {reading('t')}")
    await reaches(env, f"{LETTERS} later", "df")
    assert await env.query("a", "SELECT count(*) FROM s_errors") == "0\nSELECT 1"


async def test_upserts_by_deletes_of_values_are_followed(
    own_env: TestEnvironment, catalog: IcebergCatalog, tmp_path: Path
) -> None:
    env = await connected(own_env, catalog, tmp_path)
    drawn, held = random.Random(3), dict[int | None, str]()
    empty = pa.table({"id": pa.array([], pa.int64()), "p": pa.array([], pa.string())})
    made(catalog, "t", empty)
    await env.ran("a", f"CREATE SOURCE s {reading('t')}")
    for number in range(
        12
    ):  # as Flink writes: the keys of a commit are deleted, then its rows come
        keys = [drawn.choice([None, *range(8)]) for _ in range(3)]
        by_value(catalog.tables.load_table("n.t"), "id", *keys)
        held = {key: value for key, value in held.items() if key not in keys}
        new = {key: f"v{number}" for key in keys if drawn.random() < 0.8}
        held |= new
        rows = {"id": list(new), "p": list(new.values())}
        catalog.tables.load_table("n.t").append(pa.table(rows, schema=empty.schema))
        if number % 4 == 3:
            wanted = sorted(held.items(), key=lambda row: (row[0] is None, row[0]))
            shown = (f"{'NULL' if key is None else key}|{value}" for key, value in wanted)
            await reaches(env, IDS, *shown)


async def test_deletes_by_value_apply_to_their_partition(
    own_env: TestEnvironment, catalog: IcebergCatalog, tmp_path: Path
) -> None:
    from pyiceberg.typedef import Record

    env = await connected(own_env, catalog, tmp_path)
    rows = pa.table({"id": [1, 2, 1, 2], "p": ["a", "a", "b", "b"]})
    table = catalog.tables.create_table("n.t", rows.schema)
    with table.update_spec() as update:
        update.add_identity("p")
    table.append(rows)
    await env.ran("a", f"CREATE SOURCE s {reading('t')}")
    await reaches(env, IDS, "1|a", "1|b", "2|a", "2|b")
    by_value(catalog.tables.load_table("n.t"), "id", 1, partition=Record("a"))
    await reaches(env, IDS, "1|b", "2|a", "2|b")
    with catalog.tables.load_table("n.t").update_spec() as update:
        update.remove_field("p")
    by_value(catalog.tables.load_table("n.t"), "id", 2)  # without partitions: in all of them
    await reaches(env, IDS, "1|b")


async def test_deletes_by_value_of_void_partitions_apply_to_all(
    own_env: TestEnvironment, catalog: IcebergCatalog, tmp_path: Path
) -> None:
    from pyiceberg.transforms import VoidTransform
    from pyiceberg.typedef import Record

    env = await connected(own_env, catalog, tmp_path)
    made(catalog, "t", pa.table({"id": [1, 2], "p": ["a", "b"]}))
    await env.ran("a", f"CREATE SOURCE s {reading('t')}")
    await reaches(env, IDS, "1|a", "2|b")
    with catalog.tables.load_table("n.t").update_spec() as update:  # as a removed field is kept
        update.add_field("p", VoidTransform(), "was_p")
    by_value(catalog.tables.load_table("n.t"), "id", 1, partition=Record(None))
    await reaches(env, IDS, "2|b")


async def test_rows_of_partitions_are_followed(
    own_env: TestEnvironment, catalog: IcebergCatalog, tmp_path: Path
) -> None:
    env = await connected(own_env, catalog, tmp_path)
    made(catalog, "t", pa.table({"id": [1, 2], "p": ["a", "b"]}))
    table = catalog.tables.load_table("n.t")
    with table.update_spec() as update:  # from here on only
        update.add_identity("p")
    table.append(pa.table({"id": [3, 4], "p": ["a", None]}))
    await env.ran("a", f"CREATE SOURCE s {reading('t')}")
    await reaches(env, IDS, "1|a", "2|b", "3|a", "4|NULL")
    catalog.tables.load_table("n.t").delete("p = 'a'")
    catalog.tables.load_table("n.t").append(pa.table({"id": [5], "p": ["c"]}))
    await reaches(env, IDS, "2|b", "4|NULL", "5|c")


async def test_a_sink_keeps_deletes_by_position_of_other_writers(
    own_env: TestEnvironment, catalog: IcebergCatalog, tmp_path: Path
) -> None:
    env = await connected(own_env, catalog, tmp_path)
    await env.ran("a", "CREATE TABLE t (k int PRIMARY KEY)", "INSERT INTO t VALUES (1), (2), (3)")
    await env.ran("a", f"CREATE SINK s FROM t {into('t')}", "WAIT FOR SINKS s")
    table = catalog.tables.load_table("n.t")
    (task,) = table.scan().plan_files()
    place = [row["k"] for row in table.scan().to_arrow().to_pylist()].index(2)
    by_position(table, task.file.file_path, place)
    await env.ran("a", "INSERT INTO t VALUES (9)", "WAIT FOR SINKS s")
    assert catalog.rows("n.t") == [(1,), (3,), (9,)]
    await env.ran("a", "DELETE FROM t WHERE k = 1", "WAIT FOR SINKS s")  # rewrites the file
    assert catalog.rows("n.t") == [(3,), (9,)]
    await reaches(env, "SELECT status FROM mz_internal.mz_sink_statuses", "running")


async def test_a_filter_leaves_out_rows_and_files_without_any(
    own_env: TestEnvironment, catalog: IcebergCatalog, tmp_path: Path
) -> None:
    env = await connected(own_env, catalog, tmp_path)
    made(catalog, "t", pa.table({"id": [1, 2, 3], "p": ["a", "b", None]}))
    catalog.tables.load_table("n.t").append(pa.table({"id": [10, 11], "p": ["a", "a"]}))
    table = catalog.tables.load_table("n.t")
    for task in table.scan("id > 9").plan_files():  # is not read
        table.io.delete(task.file.file_path)
    filter = ", LOCAL FILES, FILTER 'id < 8 and id != 2'"
    await env.ran("a", f"CREATE SOURCE s (p text, id int) {reading('t', filter)}")
    await reaches(env, IDS, "1|a", "3|NULL")
    by_value(catalog.tables.load_table("n.t"), "id", 2, 3)
    catalog.tables.load_table("n.t").append(pa.table({"id": [7, 8], "p": ["c", "c"]}))
    await reaches(env, IDS, "1|a", "7|c")
    shown = (await env.query("a", "SHOW CREATE SOURCE s")).splitlines()[0].split("|")[1]
    assert "FILTER = 'id < 8 and id != 2'" in shown
    await env.ran("a", "DROP SOURCE s", shown)
    await reaches(env, IDS, "1|a", "7|c")
    await env.ran(
        "a", f"CREATE SOURCE n (id int) {reading('t', filter.replace('id <', 'id < 2 or id <'))}"
    )
    for wrong in ("id < ", "q = 1", "id = 'x'"):
        filter = f", LOCAL FILES, FILTER '{wrong.replace(chr(39), 2 * chr(39))}'"
        answer = await env.query("a", f"CREATE SOURCE w {reading('t', filter)}")
        assert "ERROR 22023: the filter of the Iceberg table" in answer, wrong
    answer = await env.query(
        "a", f"CREATE SOURCE w FROM FILES '{tmp_path}/lake' (FORMAT csv, FILTER 'id < 2')"
    )
    assert "ERROR 22023" in answer
