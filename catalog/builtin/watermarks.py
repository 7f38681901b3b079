"""Watermarks in the relations of pg_catalog: as constraints of their tables, which they are.

    "t_at_watermark" WATERMARK FOR at AS at - INTERVAL '00:00:05'

psql shows this below a table. pg_dump writes it into CREATE TABLE, and it leaves out the relations
of the clock's marks, which are made with their tables (`extension.py`).
"""

from collections.abc import Iterator

from foreshore.catalog.builtin.relation import IntrospectionSnapshot, Row
from foreshore.catalog.item import Item
from foreshore.expr.functions.text import quote_ident as quoted
from foreshore.text import format_text
from foreshore.types import INTERVAL, Watermark


def has_watermark(snapshot: IntrospectionSnapshot, item: Item) -> bool:
    """Whether a relation has a watermark."""
    return item.type == "table" and snapshot.desc_of(item.id).watermark is not None


def watermark_constraints(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the rows of pg_constraint."""
    for item, watermark, column in _found(snapshot):
        yield {
            "oid": _oid(item),
            "conname": f"{item.name}_{column}_watermark",
            "connamespace": snapshot.oid(item.schema),
            "contype": "c",
            "convalidated": True,
            "conrelid": item.oid,
            "conislocal": True,
            "connoinherit": True,
            "conkey": (watermark.column + 1,),
            "conbin": _text(watermark, column),
        }


def watermark_definitions(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the results of pg_get_constraintdef."""
    for item, watermark, column in _found(snapshot):
        text = _text(watermark, column)
        for kind in ("constraint", "pretty constraint"):
            yield {"oid": _oid(item), "kind": kind, "definition": text, "create_sql": text}


def _found(snapshot: IntrospectionSnapshot) -> Iterator[tuple[Item, Watermark, str]]:
    for item in snapshot.items:
        if has_watermark(snapshot, item):
            desc = snapshot.desc_of(item.id)
            assert desc.watermark is not None
            yield item, desc.watermark, desc.names[desc.watermark.column]


def _oid(item: Item) -> int:
    """Return an oid that nothing else has: that of a default of a column beyond the last one."""
    return 1_000_000_000 + item.oid * 2_000 + 1_999


def _text(watermark: Watermark, column: str) -> str:
    name = quoted(column)
    text = f"WATERMARK FOR {name} AS {name}"
    for words, micros in (
        ("- INTERVAL", watermark.delay),
        ("IDLE TIMEOUT INTERVAL", watermark.idle),
    ):
        if micros:
            text += f" {words} '{format_text((0, 0, micros), INTERVAL)}'"
    return text
