"""The columns of files, and their rows as the relation has them."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from foreshore.errors import BadCopyFileFormat, DataError
from foreshore.sources.files import FilesSource
from foreshore.sources.outputs import Column
from foreshore.storage.ingest.errors import Unreadable
from foreshore.storage.lake.columns import WrongValue, from_file, type_of_file
from foreshore.storage.lake.places import Location
from foreshore.storage.lake.reading import CsvForm, header_of
from foreshore.types import RelationDesc, written_type
from foreshore.update import DIFF

NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
Letter = Callable[[int, pa.RecordBatch], tuple[int, bytes | None]]
MOST_WRONG = 100  # rows of a file with wrong values, after which the rest is not read


def columns_of(spec: FilesSource, location: Location) -> tuple[Column, ...]:
    """Return those declared, or those of the first file; none if there is no file. Blocks."""
    if spec.columns:
        return spec.columns
    with tempfile.TemporaryDirectory(prefix="foreshore-files-") as scratch:
        for key in location.files(is_deep=spec.hive):
            path = location.local(key, Path(scratch))
            if path is not None and path.stat().st_size:
                try:
                    parted = partitions_in(key) if spec.hive else {}
                    own = (each for each in _in_file(spec, path) if each.name not in parted)
                    return (*own, *(Column(name, "text") for name in parted))
                except (pa.ArrowInvalid, OSError):
                    raise BadCopyFileFormat(f'file "{key}" is not a {spec.format} file') from None
    return ()


def _in_file(spec: FilesSource, path: Path) -> tuple[Column, ...]:
    if spec.format == "parquet":
        return columns_of_schema(pq.read_schema(path))
    first = header_of(path, csv_form(spec))
    names = first if spec.header else [f"column{i + 1}" for i in range(len(first))]
    return tuple(Column(name, "text") for name in names)


def csv_form(spec: FilesSource) -> CsvForm:
    """Return the form of CSV files."""
    return CsvForm(spec.delimiter, spec.null, spec.header, spec.quote, spec.escape or spec.quote)


def partitions_in(key: str) -> dict[str, str | None]:
    """Return the columns that the directories of a file are, called column=value."""
    found: dict[str, str | None] = {}
    for each in key.split("/")[:-1]:
        name, equals, value = each.partition("=")
        if name and equals:
            found[unquote(name)] = None if value == NO_VALUE else unquote(value)
    return found


def with_partitions(rows: pa.RecordBatch, key: str, names: Sequence[str]) -> pa.RecordBatch:
    """Return rows with the columns of their partitions that are among some names."""
    for name, value in partitions_in(key).items():
        if name in names:
            values = pa.repeat(pa.scalar(value, pa.string()), rows.num_rows)
            rows = rows.append_column(pa.field(name, pa.string()), values)
    return rows


def columns_of_schema(schema: pa.Schema) -> tuple[Column, ...]:
    """Return the columns of a file or table, with their types as SQL writes them."""
    return tuple(Column(each.name, _written(each.name, each.type)) for each in schema)


def _written(name: str, type: pa.DataType) -> str:
    """Return the type of a column as SQL writes it."""
    found, _ = type_of_file(name, type)
    return written_type(found) if found.name == "shaped" else str(found)


def as_relation(
    rows: pa.RecordBatch,
    desc: RelationDesc,
    part: str,
    first: int,
    wrong: list[Unreadable],
    letter: Letter = lambda number, row: (number, None),
) -> pa.Table:
    """Return rows in the columns of a relation, without those that have a wrong value.

    These are added to `wrong`; `first` is the number of the first row. `letter` returns offset and
    data of a row by its number. Raises DatabaseError if the file has columns of other kinds, or too
    many wrong values.
    """
    schema = desc.stored_schema()
    numbers = pa.array(range(first, first + rows.num_rows), pa.int64())
    while True:
        try:
            arrays = list(_cast(rows, desc))
            break
        except WrongValue as error:
            number = numbers[error.row].as_py()
            offset, data = letter(number, rows.slice(error.row, 1))
            wrong.append(Unreadable(part, offset, error.error.message, data))
            if len(wrong) > MOST_WRONG:
                raise BadCopyFileFormat(
                    f'file "{part}" has more than {MOST_WRONG} rows with wrong values'
                ) from None
            kept = pa.array((i for i in range(rows.num_rows) if i != error.row), pa.int64())
            rows, numbers = rows.take(kept), numbers.take(kept)
    return pa.Table.from_arrays(arrays, schema=schema)


def _cast(rows: pa.RecordBatch, desc: RelationDesc) -> Iterator[pa.Array]:
    for name, column in zip(desc.names, desc.columns, strict=True):
        try:
            array = from_file(name, rows.column(name), column.type)
        except WrongValue as error:
            said = error.error.message
            if f'column "{name}"' not in said:
                said = f'column "{name}": {said}'
            raise WrongValue(error.row, DataError(said)) from None
        if not column.nullable and array.null_count:
            row = array.is_null().index(True).as_py()
            raise WrongValue(row, DataError(f'null value in column "{name}"'))
        yield array


def with_diffs(tables: Sequence[pa.Table], diff: int = 1) -> pa.Table:
    """Return all rows with a multiplicity."""
    table = pa.concat_tables(tables)
    diffs = pa.repeat(pa.scalar(diff, pa.int64()), table.num_rows)
    return table.append_column(pa.field(DIFF, pa.int64(), nullable=False), diffs)
