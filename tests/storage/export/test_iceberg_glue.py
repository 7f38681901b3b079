"""Tables of AWS Glue: a sink's exporter and a source's steps, against moto."""

import asyncio
from collections.abc import AsyncIterator

import pyarrow as pa
import pytest

from foreshore.iceberg_tables import CatalogTable
from foreshore.sinks.places import IcebergTarget
from foreshore.sinks.spec import SinkSpec
from foreshore.storage.export.files.iceberg_kind import KIND
from foreshore.storage.export.messages import Export
from foreshore.storage.external.access import Access
from foreshore.storage.external.iceberg import catalog_of, validate
from foreshore.types import INT4, TEXT, ColumnType, RelationDesc
from tests.harness import ObjectStore, object_store

pytest.importorskip("pyiceberg")
pytestmark = pytest.mark.full


async def parts(*rows: tuple[int, str, int, int]) -> AsyncIterator[pa.Table]:
    """Yield changes: id, p, time and multiplicity."""
    ids, texts, times, diffs = zip(*rows, strict=True)
    yield pa.table(
        {
            "id": pa.array(ids, pa.int32()),
            "p": list(texts),
            "__time": pa.array(times, pa.int64()),
            "__diff": pa.array(diffs, pa.int64()),
        }
    )


def test_a_table_of_glue_is_written_exactly_once() -> None:
    with object_store() as store:
        asyncio.run(_written(store))


async def _written(store: ObjectStore) -> None:
    keys = {"access key id": "test", "secret access key": "test", "region": "us-east-1"}
    place = {"url": store.endpoint, "endpoint": store.endpoint}
    access = Access("iceberg catalog", {"catalog type": "glue", **keys, **place})
    await validate(access)
    accesses, table = {"c": access}, CatalogTable("c", "n", "t")
    catalog = await asyncio.to_thread(catalog_of, table, accesses)
    await asyncio.to_thread(catalog.create_namespace, "n", {"location": f"s3://{store.bucket}/w"})
    desc = RelationDesc(("id", "p"), (ColumnType(INT4), ColumnType(TEXT)))
    export = Export("sink", SinkSpec(IcebergTarget(table), "upsert", ("id",)), desc, accesses)
    await KIND.check(export)
    first, second = KIND.exporter(export), KIND.exporter(export)
    assert await first.resume() is None
    await first.write(parts((1, "a", 3, 1), (2, "b", 3, 1)), 0, 5)
    assert await second.resume() == 5
    await second.write(parts((1, "a", 6, -1), (1, "c", 6, 1), (2, "b", 7, -1)), 5, 9)
    with pytest.raises(Exception, match="another exporter"):
        await first.write(parts((3, "x", 8, 1)), 5, 9 + 1)
    found = await asyncio.to_thread(lambda: catalog.load_table("n.t").scan().to_arrow())
    assert found.to_pylist() == [{"id": 1, "p": "c"}]
    assert await KIND.exporter(export).resume() == 9
