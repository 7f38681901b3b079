"""Rows of files, in batches: Parquet as it is, CSV and JSON as text.

A wrong line is an error that tells the file and the row, unless the caller takes bad lines.
"""

import io
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol

import duckdb
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq

from foreshore.arrow_errors import describe_file_error
from foreshore.csv_quotes import QuoteCounter, before_the_last
from foreshore.csv_rows import csv_rows
from foreshore.errors import BadCopyFileFormat, FeatureNotSupported, UndefinedFile
from foreshore.storage.lake.bad_lines import BLOCK_BYTES, BadLines
from foreshore.storage.lake.json_files import good_json_rows, json_rows
from foreshore.storage.lake.places import Location
from foreshore.storage.lake.tables import TABLES, TableFormat
from foreshore.types import SqlType

Format = Literal["csv", "parquet", "json", "delta", "iceberg"]
ROWS_AT_ONCE = 1 << 16
PACKED = (".gz", ".bz2", ".zst", ".lz4")
HEADER_BYTES = 1 << 20  # of the first line of a CSV file


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


class Apart(Protocol):
    """Evaluates a function of a module, perhaps in another process."""

    def __call__(
        self, read: Callable[..., Iterator[pa.RecordBatch]], *arguments: Any
    ) -> Iterator[pa.RecordBatch]:
        """Yield what `read(*arguments)` yields; raises OutOfMemory beyond the limit."""
        ...


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
    bad: BadLines | None = None,
    apart: "Apart | None" = None,
) -> Iterator[FileRows]:
    """Yield the rows of files with columns `names` for values of `types`, in the files' order.

    `bad` gets the lines that are no rows; without it the first is an error. Files of which a few
    bytes may be many rows are read by `apart`, in a process that has a limit, if it is given.

    Raises UndefinedFile for a missing file, BadCopyFileFormat for one that is not readable.
    """
    table = TABLES.get(format)
    if table is not None:
        if location.root is None:
            raise FeatureNotSupported(f"{format.capitalize()} tables in buckets")
        yield from _table(table, location, names, version, apart or _here)
        return
    with ExitStack() as stack:
        scratch = Path()  # of local files nothing is fetched
        if location.root is None:
            directory = tempfile.TemporaryDirectory(prefix="foreshore-copy-")
            scratch = Path(stack.enter_context(directory))
        for key in files:
            path = location.local(key, scratch)
            if path is None:
                raise UndefinedFile(f'could not open file "{key}": it does not exist')
            first = 1
            for rows in _read(path, key, format, form, names, types, bad, apart or _here):
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
    bad: BadLines | None,
    apart: Apart,
) -> Iterator[pa.RecordBatch]:
    try:
        match format:
            case "parquet":
                yield from apart(parquet_rows, path, key, names)
            case "csv":
                yield from _csv(path, key, form, names, bad)
            case "json":
                if bad is None:
                    yield from json_rows(path, names, types)
                else:
                    yield from good_json_rows(path, names, types, bad)
    except (pa.ArrowInvalid, duckdb.Error, OSError) as error:
        raise _failure(error, key) from None


def _here(
    read: Callable[..., Iterator[pa.RecordBatch]], *arguments: Any
) -> Iterator[pa.RecordBatch]:
    return read(*arguments)


def _failure(error: Exception, key: str) -> Exception:
    """Return the error for a file that is not readable; the disk's own errors stay as they are."""
    if isinstance(error, OSError) and error.errno is not None:
        return error  # those of compressed files have no number
    return BadCopyFileFormat(f'file "{key}": {describe_file_error(error)}')


def _table(
    table: TableFormat, location: Location, names: Sequence[str], version: int | None, apart: Apart
) -> Iterator[FileRows]:
    """Yield the rows of a version of a Delta or Iceberg table."""
    location.check_links()
    first = 1
    for batch in apart(table.rows_of, location.path, version, names):
        yield FileRows(location.key, first, batch)
        first += batch.num_rows


def parquet_rows(path: Path, key: str, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a Parquet file, which is called `key` in errors."""
    try:
        yield from _parquet(path, key, names)
    except (pa.ArrowInvalid, OSError) as error:
        raise _failure(error, key) from None


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


def _csv(
    path: Path, key: str, form: CsvForm, names: Sequence[str], bad: BadLines | None
) -> Iterator[pa.RecordBatch]:
    """Yield rows as text. With `bad`, which gets lines with other columns, headers tell columns.

    Raises BadCopyFileFormat for a quote that is not closed, before rows that are in its value.
    """
    there, is_first = list(names), form.header
    if bad is not None and form.header:
        there = _columns_in_header(path, key, form, names)
    size = path.stat().st_size
    if not there or size == 0:
        return
    is_packed = path.suffix in PACKED
    stream = QuoteCounter(pa.input_stream(path, compression="detect"), form.quote, form.escape)
    reader = csv.open_csv(
        stream,
        csv.ReadOptions(
            use_threads=False,
            block_size=BLOCK_BYTES if is_packed else min(BLOCK_BYTES, size + 1),
            column_names=there,
        ),
        csv.ParseOptions(
            delimiter=form.delimiter,
            quote_char=form.quote,
            double_quote=form.escape == form.quote,
            escape_char=False if form.escape == form.quote else form.escape,
            newlines_in_values=True,
            ignore_empty_lines=len(there) > 1,
            invalid_row_handler=None if bad is None else bad.handler,
        ),
        csv.ConvertOptions(
            column_types=dict.fromkeys(there, pa.string()),
            null_values=[form.null],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            include_columns=list(names),
        ),
    )
    with closing(reader):
        for batch in before_the_last(reader, partial(stream.check, key)):
            if is_first and batch.num_rows:
                found = [column[0].as_py() for column in batch.columns]
                if form.match_header and found != list(names):
                    raise pa.ArrowInvalid(f"its header names columns {', '.join(map(str, found))}")
                batch = batch.slice(1)
                is_first = False
            if bad is not None:
                bad.check()
            yield batch


def _columns_in_header(path: Path, key: str, form: CsvForm, names: Sequence[str]) -> list[str]:
    """Return the names of the columns of a file, as far as its header knows those of the relation.

    A header that has as many columns and knows none of them has other names for all. Raises
    WrongColumns if it lacks some.
    """
    found = header_of(path, form)
    known = set(found) & set(names)
    if not known and len(found) == len(names):
        return list(names)
    for name in names if found else ():
        if found.count(name) != 1:
            how = "several columns" if name in found else "no column"
            raise WrongColumns(
                f'file "{key}": it has {how} "{name}"', hint=f"It has {', '.join(found)[:300]}."
            )
    apart = {name: place for place, name in enumerate(found)}
    return [name if apart[name] == place else f"{name}:{place}" for place, name in enumerate(found)]


def header_of(path: Path, form: CsvForm) -> list[str]:
    """Return the values of the first line of a CSV file."""
    with pa.input_stream(path, compression="detect") as stream:
        text = stream.read(HEADER_BYTES).decode("utf-8-sig", "replace")
    is_doubled = form.escape == form.quote
    reader = csv_rows(
        io.StringIO(text, newline=""),
        delimiter=form.delimiter,
        quotechar=form.quote,
        doublequote=is_doubled,
        escapechar=None if is_doubled else form.escape,
    )
    return next(reader, [])
