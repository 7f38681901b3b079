"""Avro messages of a few bytes, and schemas, that would end or fill the process of their reader."""

import asyncio
import json
from typing import Any

import pytest

from foreshore.errors import InvalidParameterValue
from foreshore.sources.formats import AvroFormat
from foreshore.storage.external.schema_registry import Schema as Registered
from foreshore.storage.ingest.formats.avro import AvroDecoder, columns_of
from foreshore.storage.ingest.formats.avro_bounds import parsed
from foreshore.storage.ingest.formats.frames import confluent
from foreshore.storage.ingest.formats.schemas import Asked, resolved
from foreshore.types import SqlType

LIST = {
    "type": "record",
    "name": "L",
    "fields": [{"name": "n", "type": "int"}, {"name": "next", "type": ["null", "L"]}],
}


def record(name: str, *types: Any) -> dict[str, Any]:
    fields = [{"name": f"f{i}", "type": each} for i, each in enumerate(types)]
    return {"type": "record", "name": name, "fields": fields}


def decoder(schema: Any, **more: Any) -> AvroDecoder:
    given: dict[str, Any] = {"is_single": True, "is_change": False, "frame": None, "writer": None}
    return AvroDecoder(json.dumps(schema), ["data"], [SqlType("jsonb")], **{**given, **more})


def test_messages_that_are_nested_too_deeply_are_errors_of_these_only() -> None:
    deep = b"\2\2" * 100_000 + b"\2\0"  # ends a process whose reader has no bound
    short = b"\2\2\4\0"
    found = decoder(LIST).decode([deep, short])
    assert list(found.errors) == [0]
    assert "recursion depth" in found.errors[0]
    assert found.columns[0].to_pylist() == [None, '{"n": 1, "next": {"n": 2, "next": null}}']


def test_schema_of_a_producer_has_the_same_bounds() -> None:
    chain = [record("R0", "int"), *(record(f"R{i}", f"R{i - 1}") for i in range(1, 300))]
    schemas = {1: chain, 2: {"type": "array", "items": "null"}, 3: LIST}
    reads = decoder(LIST, frame=confluent, writer=schemas.__getitem__)
    last = b"\xd6\4\2"  # the last of the chain
    many = b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f\0"
    found = reads.decode([b"\0\0\0\0\1" + last, b"\0\0\0\0\2" + many, b"\0\0\0\0\3\2\0"])
    assert "nested too deeply" in found.errors[0]
    assert "items without bytes" in found.errors[1]
    assert found.columns[0].to_pylist()[2] == '{"n": 1, "next": null}'


def test_schemas_beyond_the_bounds_are_refused() -> None:
    doubled = [record("R0", "null"), *(record(f"R{i}", *[f"R{i - 1}"] * 2) for i in range(1, 40))]
    nested: Any = "int"
    for _ in range(2_000):
        nested = {"type": "array", "items": nested}
    empty = [record("E", "null", record("F")), {"type": "array", "items": "E"}]
    wide = [record(f"R{i}", "int") for i in range(1_001)]
    for schema, error in (
        (wide, "1000 names"),
        (doubled, "more than 100000 parts"),
        (nested, "nested too deeply"),
        (empty, "items without bytes"),
        ({"type": "no"}, "is wrong"),
    ):
        with pytest.raises(InvalidParameterValue, match=error):
            columns_of(schema, "data", is_change=False)


def test_texts_that_are_nested_too_deeply_are_refused() -> None:
    text = '{"type": "array", "items": ' * 100_000 + '"int"' + "}" * 100_000
    with pytest.raises(InvalidParameterValue, match="nested too deeply"):
        Registered(text).document()
    with pytest.raises(InvalidParameterValue, match="is no JSON"):
        asyncio.run(resolved(AvroFormat(None, text), Asked("t", "value", "data"), {}))


def test_only_recursive_schemas_are_read_slowly() -> None:
    tree = record("T", "int", {"type": "array", "items": "T"})
    assert parsed(tree).is_recursive
    envelope = record("E", ["null", record("V", "int", {"type": "map", "values": "null"})], "V")
    assert not parsed(envelope).is_recursive
