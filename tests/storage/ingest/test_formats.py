"""Formats: what is decoded in bulk is what is decoded message by message."""

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foreshore.errors import DataError
from foreshore.json_text import canonical_json
from foreshore.sources.formats import CsvFormat
from foreshore.sources.outputs import Column
from foreshore.storage.ingest.formats.json_documents import MembersDecoder
from foreshore.storage.ingest.formats.jsonb_documents import Documents
from foreshore.storage.ingest.formats.plain import CsvDecoder, TextDecoder
from foreshore.types import SqlType, numeric

TYPES = {
    "a": SqlType("int4"),
    "b": SqlType("text"),
    "c": numeric(6, 2),
    "d": SqlType("date"),
    "e": SqlType("jsonb"),
    "f": SqlType("float8"),
}
COLUMNS = [Column(name, "any") for name in TYPES]

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(10**12), 10**12)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=4)
    | st.sampled_from(["-0", "1.50", "2020-02-30", "2020-02-03", "{", "[", "5e3"])
)
documents = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=4,
)
objects = st.dictionaries(st.sampled_from("abcdefg%"), documents)
written = st.builds(
    lambda value, spaced: json.dumps(value, indent=spaced).encode(),
    objects | documents,
    st.sampled_from([None, 1]),
)
pieces = st.sampled_from(
    [
        b"{",
        b"}",
        b",",
        b'"',
        b"null",
        b'{"a":',
        b'{"a": 1} {}',
        b'{"a":1},{"a":2}',
        b"",
        b"\xff",
        b'{"c":1.50,"a":-0,"b":"\\u0041"}',
        b'{"a":1,"a":2}',
        b"01",
        b"[1",
        b'{"e":[[1',
        b"2]]}",
    ]
)


@given(st.lists(written | pieces, max_size=8))
def test_documents_are_those_of_jsonb(texts: list[bytes]) -> None:
    errors: dict[int, str] = {}
    good = [each for each in texts if b"\xff" not in each]
    found = Documents().column(good, errors).to_pylist()
    for row, text in enumerate(good):
        try:
            assert found[row] == canonical_json(text.decode())
            assert row not in errors
        except DataError:
            assert found[row] is None
            assert row in errors


@given(st.lists(st.none() | written | pieces, min_size=1, max_size=12))
def test_members_do_not_depend_on_other_messages(values: list[bytes | None]) -> None:
    decoder = MembersDecoder(COLUMNS, list(TYPES.values()))
    together = decoder.decode(values)
    for row, value in enumerate(values):
        alone = decoder.decode([value])
        assert (row in together.errors) == (0 in alone.errors), (value, alone.errors)
        for whole, single in zip(together.columns, alone.columns, strict=True):
            assert whole[row].as_py() == single[0].as_py()


def test_members_are_coerced_as_texts() -> None:
    decoder = MembersDecoder(COLUMNS, list(TYPES.values()))
    found = decoder.decode([b'{"a": "7", "b": 1.50, "c": 1.005, "d": "2020-02-03", "e": [1]}'])
    assert not found.errors
    row = [each[0].as_py() for each in found.columns]
    assert row[:2] == [7, "1.50"]
    assert str(row[2]) == "1.01"
    assert row[4:] == ["[1]", None]
    wrong = decoder.decode([b'{"a": 1}', b'{"a": 3000000000}', b'{"d": "2020-02-30"}', b"[]"])
    assert list(wrong.errors) == [1, 2, 3]
    assert "out of range" in wrong.errors[1]
    assert wrong.columns[0].to_pylist() == [1, None, None, None]


@pytest.mark.parametrize("delimiter", [",", ";"])
def test_csv_takes_quoted_lines(delimiter: str) -> None:
    types = [SqlType("text"), SqlType("int4")]
    decoder = CsvDecoder(CsvFormat(("a", "b"), delimiter), types)
    texts = ['"x\ny"_1', "_", "a_no", '"_1', None, "a_1\nb_2"]
    values = [None if t is None else t.replace("_", delimiter).encode() for t in texts]
    found = decoder.decode(values)
    assert found.columns[0].to_pylist()[:3] == ["x\ny", "", "a"]
    assert found.columns[1].to_pylist() == [1, None, None, None, None, None]
    assert sorted(found.errors) == [2, 3, 5]


@pytest.mark.parametrize("other", ["b,1", "b"], ids=["all right", "one wrong"])
def test_csv_takes_values_of_any_length(other: str) -> None:
    long = "x" * 200_000
    decoder = CsvDecoder(CsvFormat(("a", "b"), ","), [SqlType("text"), SqlType("int4")])
    found = decoder.decode([f'"{long}",1'.encode(), other.encode()])
    assert found.columns[0].to_pylist()[0] == long
    assert 0 not in found.errors


def test_text_is_utf8_without_zeros() -> None:
    found = TextDecoder().decode(["é".encode(), b"\xff", b"a\0", None, b""])
    assert found.columns[0].to_pylist() == ["é", None, None, None, ""]
    assert sorted(found.errors) == [1, 2]
    assert found.columns[0].type == pa.string()
