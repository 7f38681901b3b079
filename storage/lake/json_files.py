"""Rows of files with a JSON document on each line.

Members are text as DuckDB extracts them. It reads a number as a double, so what must be exact is
taken from the text of the document.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv

from foreshore.errors import FeatureNotSupported
from foreshore.expr.evaluate import evaluate
from foreshore.expr.functions.registry import resolve
from foreshore.expr.ir import Call, Column
from foreshore.expr.ir import Literal as Constant
from foreshore.storage.lake.bad_lines import BLOCK_BYTES, BadLines
from foreshore.storage.lake.columns import cast
from foreshore.storage.lake.places import PATTERN
from foreshore.types import JSONB, TEXT, SqlType

ROWS_AT_ONCE = 1 << 16
DOCUMENT = "\0document"  # a further column of good rows: the line; no column of SQL is called so
MEMORY = "256MB"
_EXACT = ("numeric", "number", "money", "json", "jsonb")
IS_OBJECT = (
    "SELECT coalesce(CASE WHEN json_valid(line) THEN json_type(line) END = 'OBJECT', false)"
    " FROM lines"
)
_NEVER = "\x01"  # as a delimiter: it is in no JSON document


def json_rows(
    path: Path, names: Sequence[str], types: Sequence[SqlType]
) -> Iterator[pa.RecordBatch]:
    """Yield members of objects as text; null and what is missing is NULL.

    Raises duckdb.Error if a line is no document. A compressed file is known by its suffix.
    """
    members = ", ".join(_members("json", names, types))
    with closing(_connection()) as connection:
        query = (
            f"SELECT CAST(json AS VARCHAR), {members}"
            f" FROM read_json_objects({_quoted(_literal(path))}, format = 'newline_delimited')"
        )
        for batch in connection.query(query).to_arrow_reader(ROWS_AT_ONCE):
            yield _exact(batch, names, types)


def good_json_rows(
    path: Path, names: Sequence[str], types: Sequence[SqlType], bad: BadLines
) -> Iterator[pa.RecordBatch]:
    """Yield the same and each DOCUMENT, without lines that are no objects, which `bad` gets."""
    members = ", ".join(_members("line", names, types))
    query = f"SELECT line, {members} FROM lines WHERE json_valid(line)"
    number = 1
    with closing(_lines(path, bad)) as reader, closing(_connection()) as connection:
        for block in reader:
            for batch in pa.Table.from_batches([block]).to_batches(ROWS_AT_ONCE):
                lines = _texts(batch.column(0), number, bad)
                number += batch.num_rows
                connection.register("lines", pa.table({"line": lines}))
                good = connection.sql(IS_OBJECT).to_arrow_table()[0].combine_chunks()
                wrong = pc.and_(pc.invert(good), pc.is_valid(lines))
                for place in pc.indices_nonzero(wrong).to_pylist():
                    said = "the line is no JSON object"
                    bad.add(number - batch.num_rows + place, lines[place].as_py().encode(), said)
                connection.register("lines", pa.table({"line": lines.filter(good)}))
                found = connection.sql(query).to_arrow_table().combine_chunks()
                for each in found.to_batches():
                    rows = _exact(each, names, types)
                    yield rows.append_column(DOCUMENT, each.column(0))


def _lines(path: Path, bad: BadLines) -> csv.CSVStreamingReader:
    """Return the lines of a file that are not empty, as bytes."""
    return csv.open_csv(
        pa.input_stream(path, compression="detect"),
        csv.ReadOptions(use_threads=False, block_size=BLOCK_BYTES, column_names=["line"]),
        csv.ParseOptions(
            delimiter=_NEVER,
            quote_char=False,
            double_quote=False,
            escape_char=False,
            newlines_in_values=False,
            invalid_row_handler=bad.handler,
        ),
        csv.ConvertOptions(column_types={"line": pa.binary()}),
    )


def _texts(lines: pa.Array, first: int, bad: BadLines) -> pa.Array:
    """Return lines as texts; what is no UTF-8 is NULL, and `bad` gets it."""
    try:
        return lines.cast(pa.string())
    except pa.ArrowInvalid:
        found: list[str | None] = []
        for place, line in enumerate(lines.to_pylist()):
            try:
                found.append(line.decode())
            except UnicodeDecodeError:
                found.append(None)
                bad.add(first + place, line, "the line is no UTF-8")
        return pa.array(found, pa.string())


def _connection() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(":memory:", config={"threads": "1"})
    connection.execute(f"SET memory_limit = '{MEMORY}'")
    connection.execute("SET autoload_known_extensions = false")
    return connection


def _members(document: str, names: Sequence[str], types: Sequence[SqlType]) -> Iterator[str]:
    """Yield the expressions that extract members."""
    for name, type in zip(names, types, strict=True):
        if type.element is not None:
            raise FeatureNotSupported(f'column "{name}": arrays from JSON')
        is_exact = type.name in _EXACT
        yield (
            "NULL::VARCHAR"
            if is_exact
            else f"json_extract_string({document}, {_quoted(_pointer(name))})"
        )


def _exact(batch: pa.RecordBatch, names: Sequence[str], types: Sequence[SqlType]) -> pa.RecordBatch:
    """Return rows of members; `batch` has the documents in its first column."""
    arrays = batch.columns[1:]
    if any(type.name in _EXACT for type in types):
        objects = cast(batch.column(0), TEXT, JSONB)
        for place, type in enumerate(types):
            if type.name in _EXACT:
                arrays[place] = _member(objects, names[place], type)
    return pa.RecordBatch.from_arrays(arrays, list(names))


def _member(objects: pa.Array, name: str, type: SqlType) -> pa.Array:
    is_json = type.name in ("json", "jsonb")
    key = Constant(name, TEXT)
    resolved = resolve("->" if is_json else "->>", (JSONB, TEXT))
    call = Call(resolved.key, (Column(0, JSONB, True), key), resolved.result)
    found = evaluate(call, [objects], len(objects))
    return pc.if_else(pc.equal(found, "null"), None, found) if is_json else found


def _pointer(name: str) -> str:
    return "/" + name.replace("~", "~0").replace("/", "~1")


def _literal(path: Path) -> str:
    """Return a pattern of DuckDB that only this file matches."""
    return "".join(f"[{c}]" if c in PATTERN else c for c in str(path))


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
