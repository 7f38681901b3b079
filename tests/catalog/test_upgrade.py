"""Rows of the catalog that older versions wrote, as `tests/catalog/older` has them, can be read.

A file there is the value of a row. Whoever moves a field of a stored struct adds one, from a data
directory of the version before, and an entry in `catalog/upgrade.py`.
"""

from pathlib import Path

import pyarrow as pa

from foreshore.catalog.bootstrap import first_state
from foreshore.catalog.durable import ROW_SCHEMA, difference, load
from foreshore.catalog.item import Item
from foreshore.catalog.transaction import Transaction
from foreshore.ids import GlobalId
from foreshore.sources.formats import JsonFormat, TextFormat
from foreshore.sources.kafka import KafkaSource, Messages
from foreshore.sources.outputs import Column
from foreshore.sources.spec import Feed
from foreshore.update import DIFF, TIME, update_schema

OLDER = Path(__file__).with_name("older")


def item_row(value: str, time: int = 0) -> pa.Table:
    id = "u4"
    columns = {"collection": ["item"], "id": [id], "value": [value], TIME: [time], DIFF: [1]}
    return pa.table(columns, schema=update_schema(ROW_SCHEMA))


def test_topic_from_before_tables_had_formats_keeps_its_own() -> None:
    first = difference(None, first_state(), 0)
    older = item_row((OLDER / "kafka_source.json").read_text().rstrip())
    loaded = load([first, older])
    assert loaded is not None
    item = loaded.objects[GlobalId("u4")]
    assert isinstance(item, Item)
    assert isinstance(item.feed, Feed)
    assert item.feed.spec == KafkaSource(
        "l1",
        "t",
        Messages(
            JsonFormat(),
            key=TextFormat(),
            columns=(Column("n", "bigint"),),
            shows_key=True,
            envelope="upsert",
            errors_column="error",
        ),
    )
    # The row in the shard is still the older one: a change takes that one away.
    transaction = Transaction(loaded)
    transaction.comment(item, "new")
    again = load([first, older, difference(loaded, transaction.state, 1)])
    assert again is not None
    assert again.objects == transaction.state.objects
