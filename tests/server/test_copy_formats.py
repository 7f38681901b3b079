"""COPY's formats against PostgreSQL 15's recorded answers.

`copy_in.json`: columns, options, what was sent, and the rows or the error that came of it.
`copy_out.json`: columns with three values each, and for some options what came out of them.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from foreshore.adapter.client import CopyIn, CopyOptions
from foreshore.datum import from_array, to_array
from foreshore.errors import DatabaseError
from foreshore.output_style import OutputStyle
from foreshore.server import bulk_rows
from foreshore.server.copy_in import CopyParser
from foreshore.server.copy_out import CopyFormatter
from foreshore.text import format_text, parse_text
from foreshore.types import INT4, TEXT, RelationDesc, SqlType, array_of, numeric
from tests.server.fake import FakeClient, FakeTarget, desc_of

HERE = Path(__file__).parent
IN = json.loads((HERE / "copy_in.json").read_text())
OUT = json.loads((HERE / "copy_out.json").read_text())
NAMES = {"int": "int4"}


def type_named(name: str) -> SqlType:
    if name.endswith("[]"):
        return array_of(type_named(name[:-2]))
    if (sized := re.match(r"(\w+)\((\d+)(?:,(\d+))?\)", name)) is not None:
        if sized[1] == "numeric":
            return numeric(int(sized[2]), int(sized[3]))
        return SqlType(sized[1], int(sized[2]))
    return SqlType(NAMES.get(name, name))


def options_of(given: dict[str, Any]) -> CopyOptions:
    defaults = {"delimiter": ",", "null": ""} if given.get("format") == "csv" else {}
    force = given.get("force_quote", ())
    return CopyOptions(
        **(defaults | given | {"force_quote": tuple(force) if isinstance(force, list) else force})
    )


def read(
    desc: RelationDesc, options: CopyOptions, data: bytes, step: int, *, bulk: bool
) -> list[Any]:
    """Return the rows as texts, or the error's fields; `data` arrives `step` bytes at a time."""
    parser = CopyParser(CopyIn("t", desc, options, FakeTarget(FakeClient())), "UTC")
    if not bulk:
        parser.read_in_bulk = lambda piece: None  # type: ignore[method-assign]
    rows: list[Any] = []

    def take(batch: pa.RecordBatch | None) -> None:
        if batch is not None:
            texts = [
                [None if v is None else format_text(v, c.type) for v in from_array(column, c.type)]
                for column, c in zip(batch.columns, desc.columns, strict=True)
            ]
            rows.extend(map(list, zip(*texts, strict=True)))

    try:
        for at in range(0, len(data), step):
            parser.feed(data[at : at + step])
            if step < len(data):
                take(parser.take(final=False))
        take(parser.take(final=True))
    except DatabaseError as error:
        return ["!", error.sqlstate, error.message, error.hint, error.where]
    return rows


@pytest.mark.parametrize("bulk", [True, False])
@pytest.mark.parametrize("step", [1, 7, 1000])
def test_copy_in_reads_as_postgresql(step: int, bulk: bool) -> None:
    for columns, options, sent, wanted in IN:
        parsed = re.findall(r"(\w+) (\w+(?:\(\d+(?:,\d+)?\))?(?:\[\])?)", columns)
        desc = desc_of(**{name: type_named(type) for name, type in parsed})
        got = read(desc, options_of(options), sent.encode("latin1"), step, bulk=bulk)
        assert got == wanted, (columns, options, sent)


def messages(data: bytes) -> list[bytes]:
    found = []
    while data:
        assert data[:1] == b"d"
        end = 1 + int.from_bytes(data[1:5], "big")
        found.append(data[5:end])
        data = data[end:]
    return found


@pytest.fixture(scope="module", autouse=True)
def kernel() -> Iterator[None]:
    bulk_rows.KERNEL.load()
    yield
    bulk_rows.KERNEL.write = None


@pytest.mark.parametrize("by_kernel", [False, True])
@pytest.mark.parametrize(("options", "wanted"), OUT["answers"], ids=str)
def test_copy_out_sends_as_postgresql(
    options: dict[str, Any], wanted: list[str], by_kernel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if by_kernel:
        monkeypatch.setattr(bulk_rows, "FEWEST", 1)
    desc = desc_of(**{name: type_named(type) for name, (type, _) in OUT["columns"].items()})
    columns = [
        to_array([None if v is None else parse_text(v, c.type) for v in values], c.type)
        for (_, values), c in zip(OUT["columns"].values(), desc.columns, strict=True)
    ]
    batch = pa.RecordBatch.from_arrays(columns, schema=desc.arrow_schema())
    formatter = CopyFormatter(desc, options_of(options), OutputStyle())
    sent = messages(formatter.start() + bytes(formatter.rows(batch)) + formatter.end())
    if formatter.binary:
        sent, wanted = [b"".join(sent)], ["".join(wanted)]
    assert [line.decode("latin1") for line in sent] == wanted


texts = st.none() | st.text("ab\\N\t\n\r,\"'.;\x0b é", max_size=6)
rows = st.lists(st.tuples(st.none() | st.integers(-9, 9), texts), max_size=8)


@given(rows, st.sampled_from(["text", "csv"]), st.integers(1, 40))
def test_copy_out_then_copy_in_round_trips(
    values: list[tuple[int | None, str | None]], format: str, step: int
) -> None:
    desc = desc_of(a=INT4, b=TEXT)
    options = options_of({"format": format})
    columns = [
        to_array([a for a, _ in values], INT4),
        to_array([b for _, b in values], TEXT),
    ]
    batch = pa.RecordBatch.from_arrays(columns, schema=desc.arrow_schema())
    formatter = CopyFormatter(desc, options, OutputStyle())
    data = b"".join(messages(bytes(formatter.rows(batch))))
    if values:
        assert data == b"".join(messages(bytes(formatter._rows_by_kernel(batch))))
    wanted = [[None if a is None else str(a), b] for a, b in values]
    assert read(desc, options, data, step, bulk=True) == wanted
    assert read(desc, options, data, step, bulk=False) == wanted


@example('"",', "csv", 1, 2)
@example("\\.\r1\n\t", "text", 2, 2)
@example('"\n"\n\n', "csv", 1, 1)
@given(
    st.text('a1,"\\\n\r\t.', max_size=14),
    st.sampled_from(["text", "csv", "csv with an escape"]),
    st.integers(1, 15),
    st.integers(1, 2),
)
def test_bulk_reader_and_exact_reader_agree(
    sent: str, format: str, step: int, columns: int
) -> None:
    desc = desc_of(**dict.fromkeys("ab"[:columns], TEXT))
    escape = {"escape": "\\"} if format == "csv with an escape" else {}
    options = options_of({"format": format[:4].strip(), **escape})
    data = sent.encode()
    in_bulk = read(desc, options, data, 1000, bulk=True)
    assert in_bulk == read(desc, options, data, 1000, bulk=False)
    in_pieces = read(desc, options, data, step, bulk=True)
    assert in_pieces == in_bulk or {*in_pieces[:1], *in_bulk[:1]} == {"!"}


@pytest.mark.parametrize("newline", [b"\n", b"\r", b"\r\n"])
@pytest.mark.parametrize("options", [{}, {"format": "csv"}, {"format": "csv", "escape": "\\"}])
def test_rows_are_taken_before_the_data_ends(options: dict[str, Any], newline: bytes) -> None:
    copy = CopyIn("t", desc_of(a=TEXT), options_of(options), FakeTarget(FakeClient()))
    parser = CopyParser(copy, "UTC")
    row = (b'"a\\"b"' if options.get("escape") else b"a\\\\b") + newline
    parser.feed(row * 3 + b"a")
    batch = parser.take(final=False)
    assert batch is not None
    assert batch.num_rows >= 2
    assert parser.unparsed_bytes <= len(row) + 1
