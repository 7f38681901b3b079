"""Rows of files, in batches: Parquet as it is, CSV and JSON as text.

A wrong line is an error that tells the file and the row; nothing is skipped.
"""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pyarrow.parquet as pq

from foreshore.errors import BadCopyFileFormat, FeatureNotSupported, UndefinedFile
from foreshore.expr.evaluate import evaluate
from foreshore.expr.functions.registry import resolve
from foreshore.expr.ir import Call, Column
from foreshore.expr.ir import Literal as Constant
from foreshore.storage.lake.columns import cast
from foreshore.storage.lake.places import PATTERN, Location
from foreshore.storage.lake.tables import TABLES, TableFormat
from foreshore.types import JSONB, TEXT, SqlType

Format = Literal["csv", "parquet", "json", "delta", "iceberg"]
ROWS_AT_ONCE = 1 << 16
BLOCK_BYTES = 8 << 20
JSON_MEMORY = "256MB"


class WrongColumns(BadCopyFileFormat):
    """A file lacks a column, or has it several times."""


@dataclass(frozen=True, slots=True)
class CsvForm:
    """How a CSV file is written."""

    delimiter: str = ","
    null: str = ""
    header: bool = False
    quote: str = '"'
    escape: str = '"'
    match_header: bool = False


@dataclass(frozen=True, slots=True)
class FileRows:
    """Rows of a file; `first` is the number of the first one, from 1."""

    file: str
    first: int
    rows: pa.RecordBatch
    bytes: int = 0  # of the file, with its last batch


def rows_of(
    location: Location,
    files: Sequence[str],
    format: Format,
    form: CsvForm,
    names: Sequence[str],
    types: Sequence[SqlType],
    version: int | None = None,
) -> Iterator[FileRows]:
    """Yield the rows of files with columns `names` for values of `types`, in the files' order.

    Raises UndefinedFile for a missing file, BadCopyFileFormat for one that is not readable.
    """
    table = TABLES.get(format)
    if table is not None:
        if location.root is None:
            raise FeatureNotSupported(f"{format.capitalize()} tables in buckets")
        yield from _table(table, location, names, version)
        return
    with tempfile.TemporaryDirectory(prefix="foreshore-copy-") as scratch:
        for key in files:
            path = location.local(key, Path(scratch))
            if path is None:
                raise UndefinedFile(f'could not open file "{key}": it does not exist')
            first = 1
            for rows in _read(path, key, format, form, names, types):
                yield FileRows(key, first, rows)
                first += rows.num_rows
            yield FileRows(key, first, pa.RecordBatch.from_pylist([]), path.stat().st_size)
            if location.root is None:
                path.unlink()


def _read(
    path: Path,
    key: str,
    format: Format,
    form: CsvForm,
    names: Sequence[str],
    types: Sequence[SqlType],
) -> Iterator[pa.RecordBatch]:
    try:
        match format:
            case "parquet":
                yield from _parquet(path, key, names)
            case "csv":
                yield from _csv(path, form, names)
            case "json":
                yield from _json(path, names, types)
    except (pa.ArrowInvalid, duckdb.Error) as error:
        said = str(error).partition("\n")[0]
        raise BadCopyFileFormat(f'file "{key}": {said}'.replace(str(path), key)) from None


def _table(
    table: TableFormat, location: Location, names: Sequence[str], version: int | None
) -> Iterator[FileRows]:
    """Yield the rows of a version of a Delta or Iceberg table."""
    location.check_links()
    first = 1
    for batch in table.rows_of(location.path, version, names):
        yield FileRows(location.key, first, batch)
        first += batch.num_rows


def _parquet(path: Path, key: str, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    with pq.ParquetFile(path) as file:
        found = file.schema_arrow.names
        for name in names:
            if found.count(name) != 1:
                how = "several columns" if name in found else "no column"
                raise WrongColumns(
                    f'file "{key}": it has {how} "{name}"', hint=f"It has {', '.join(found)[:300]}."
                )
        for batch in file.iter_batches(ROWS_AT_ONCE, columns=list(names), use_threads=False):
            yield batch.select(list(names))


def _csv(path: Path, form: CsvForm, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    if path.stat().st_size == 0:
        return
    reader = csv.open_csv(
        path,
        csv.ReadOptions(
            use_threads=False,
            block_size=BLOCK_BYTES,
            column_names=list(names),
            skip_rows=0,
        ),
        csv.ParseOptions(
            delimiter=form.delimiter,
            quote_char=form.quote,
            double_quote=form.escape == form.quote,
            escape_char=False if form.escape == form.quote else form.escape,
            newlines_in_values=True,
            ignore_empty_lines=len(names) > 1,
        ),
        csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            null_values=[form.null],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    with closing(reader):
        is_first = True
        for batch in reader:
            if is_first and form.header and batch.num_rows:
                found = [column[0].as_py() for column in batch.columns]
                if form.match_header and found != list(names):
                    raise pa.ArrowInvalid(f"its header names columns {', '.join(map(str, found))}")
                batch = batch.slice(1)
            is_first = is_first and not batch.num_rows
            yield batch


def _json(path: Path, names: Sequence[str], types: Sequence[SqlType]) -> Iterator[pa.RecordBatch]:
    """Yield members of objects, one object a line, as text; null and what is missing is NULL.

    DuckDB reads a number as a double, so what must be exact is taken from the text of the object.
    """
    for name, type in zip(names, types, strict=True):
        if type.element is not None:
            raise FeatureNotSupported(f'column "{name}": arrays from JSON')
    exact = [type.name in ("numeric", "number", "money", "json", "jsonb") for type in types]
    members = [
        "NULL" if is_exact else f"json_extract_string(json, {_quoted(_pointer(name))})"
        for name, is_exact in zip(names, exact, strict=True)
    ]
    with closing(duckdb.connect(":memory:", config={"threads": "1"})) as connection:
        connection.execute(f"SET memory_limit = '{JSON_MEMORY}'")
        connection.execute("SET autoload_known_extensions = false")
        query = (
            f"SELECT CAST(json AS VARCHAR), {', '.join(members)}"
            f" FROM read_json_objects({_quoted(_literal(path))}, format = 'newline_delimited')"
        )
        for batch in connection.query(query).to_arrow_reader(ROWS_AT_ONCE):
            arrays = batch.columns[1:]
            if any(exact):
                objects = cast(batch.column(0), TEXT, JSONB)
                for place, type in enumerate(types):
                    if exact[place]:
                        arrays[place] = _member(objects, names[place], type)
            yield pa.RecordBatch.from_arrays(arrays, list(names))


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
