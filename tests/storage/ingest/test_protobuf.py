"""Messages of Protobuf with all kinds of fields become rows; one that cannot is an error alone."""

import json
from typing import Any

from google.protobuf import json_format

from foreshore.storage.ingest.formats.decoder import Decoded
from foreshore.storage.ingest.formats.protobuf import (
    ProtobufDecoder,
    _message_class,
    columns_of,
    compiled,
)
from foreshore.types import BOOL, INT4, INT8, JSONB, TEXT, TIMESTAMPTZ, SqlType

IMPORTS = "".join(
    f'import "google/protobuf/{name}.proto";'
    for name in ("any", "duration", "struct", "timestamp", "wrappers")
)
SCHEMA = f"""syntax = "proto3"; package p; {IMPORTS}
message M {{
  message In {{ int32 x = 1; }}
  google.protobuf.Timestamp at = 1;
  google.protobuf.Int64Value maybe = 2;
  google.protobuf.StringValue text = 3;
  google.protobuf.BoolValue is = 4;
  google.protobuf.Duration took = 5;
  google.protobuf.Struct doc = 6;
  google.protobuf.Any any = 7;
  map<string, int64> counts = 8;
  map<bool, In> ins = 9;
  repeated In many = 10;
  oneof which {{ string s = 11; int64 n = 12; }}
  map<int32, double> doubles = 13;
  message After {{ int32 y = 1; }}
  enum Kind {{ NO = 0; YES = 1; }}
  message Maps {{
    map<string, float> floats = 1;
    map<string, Kind> kinds = 2;
    map<string, bytes> bytes = 3;
    map<int64, bool> flags = 4;
    map<string, uint64> numbers = 5;
  }}
}}
message Other {{ int32 q = 1; }}"""
TYPES: dict[str, SqlType] = {
    "timestamptz": TIMESTAMPTZ,
    "int8": INT8,
    "int4": INT4,
    "text": TEXT,
    "bool": BOOL,
}


def decoded(*values: bytes, message: str | None = None, framed: bool = False) -> Decoded:
    schema = compiled({"schema.proto": SCHEMA}, message)
    types = [TYPES.get(each.type, JSONB) for each in columns_of(schema)]
    return ProtobufDecoder(schema, types, framed=framed).decode(values)


def row(found: Decoded, at: int = 0) -> list[Any]:
    return [
        each[at].cast("int64").as_py() if i == 0 else each[at].as_py()
        for i, each in enumerate(found.columns)
    ]


def message() -> Any:
    return _message_class(compiled({"schema.proto": SCHEMA}, None))()


def test_well_known_types_and_parts_are_values() -> None:
    sent = message()
    sent.at.FromJsonString("2024-01-02T03:04:05.123456789Z")
    sent.maybe.value, sent.text.value = 9, ""
    sent.took.FromJsonString("3.5s")
    sent.doc.update({"k": [1, "x"]})
    sent.any.Pack(sent.at)
    sent.counts["z"] = 2**60
    sent.ins[True].x = 1
    sent.many.add(x=2)
    sent.n = 7
    sent.doubles[1] = float("-inf")
    found = decoded(sent.SerializeToString(), b"")
    assert not found.errors
    at, maybe, text, is_, took, doc, any_, counts, ins, many, s, n, doubles = row(found)
    assert (at, maybe, text, is_, s, n) == (1_704_164_645_123_456, 9, "", None, None, 7)
    parts = [json.loads(each) for each in (took, doc, any_, counts, ins, many, doubles)]
    assert parts[:2] == ["3.500s", {"k": [1.0, "x"]}]
    assert parts[2]["value"] == "2024-01-02T03:04:05.123456789Z"
    assert parts[3:] == [{"z": str(2**60)}, {"true": {"x": 1}}, [{"x": 2}], {"1": "-Infinity"}]
    empty = row(found, 1)
    assert empty[:7] == [None] * 7
    assert empty[7:] == ["{}", "{}", "[]", None, None, "{}"]


def test_message_with_an_unknown_part_is_an_error_alone() -> None:
    good, bad = message(), message()
    good.n = 1
    bad.any.type_url, bad.any.value = "type.googleapis.com/un.Known", b"x"
    values = [good.SerializeToString(), bad.SerializeToString(), good.SerializeToString()]
    found = decoded(*values)
    assert list(found.errors) == [1]
    assert 'field "any": ' in found.errors[1]
    assert [row(found, at)[11] for at in (0, 2)] == [1, 1]


def test_another_message_of_the_schema_is_an_error() -> None:
    begins = b"\0" + (5).to_bytes(4, "big")
    other = b"\x08\x05"  # q = 5, which M would read as a wrong field
    found = decoded(begins + b"\x02\x02" + other, begins + b"\0", framed=True)
    assert list(found.errors) == [0]
    assert "it is message [1] of its schema, and not [0], p.M" in found.errors[0]
    nested = begins + b"\x04\0\0" + b"\x08\x02"  # the first message of the first one
    found = decoded(nested, message="p.M.In", framed=True)
    assert not found.errors


def test_entries_of_maps_need_not_be_counted_among_messages() -> None:
    begins = b"\0" + (5).to_bytes(4, "big")
    for place in (b"\x02", b"\x08"):  # after In, and after the entries of three maps
        found = decoded(begins + b"\x04\0" + place + b"\x08\x02", message="p.M.After", framed=True)
        assert not found.errors, place
        assert row(found) == [2]


def test_values_that_sql_cannot_have_are_errors_alone() -> None:
    late, turned, zero = message(), message(), message()
    late.at.seconds = 9_223_372_036_854  # fits 64 bits of microseconds, but is no time
    turned.at.nanos = -1
    zero.doc.update({"k": "a\0b"})
    found = decoded(*(each.SerializeToString() for each in (late, turned, zero, message())))
    assert list(found.errors) == [0, 1, 2]
    assert "are no time" in found.errors[0]
    assert 'field "doc": unsupported Unicode escape sequence' in found.errors[2]


def test_maps_are_as_json_of_protobuf_has_them() -> None:
    sent = _message_class(compiled({"schema.proto": SCHEMA}, "p.M.Maps"))()
    sent.floats.update({"a": 0.1, "b": float("nan"), "c": 16_777_216.0})
    sent.kinds.update({"known": 1, "unknown": 7})
    sent.bytes["b"] = b"\0\xff"
    sent.flags[-1] = True
    sent.numbers["n"] = 2**64 - 1
    found = decoded(sent.SerializeToString(), message="p.M.Maps")
    expected = json_format.MessageToDict(sent)
    assert [json.loads(each[0].as_py()) for each in found.columns] == list(expected.values())
