"""DataFrames and files on their way into tables: columns as SQL types, rows as Arrow."""

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as dataset

from foreshore.embedded.csv_files import csv_batches
from foreshore.embedded.frame_errors import (
    dataset_of_parquet,
    readable,
    rounded_value,
    schema_of_csv,
    wrong_file,
    wrong_frame,
)
from foreshore.embedded.literals import quoted_name
from foreshore.errors import FeatureNotSupported, UndefinedFile
from foreshore.exact_numeric import UNSCALED

ROWS_AT_ONCE = 65_536
PART_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Frame:
    """Rows to be sent: their columns, and batches that are made when they are asked for."""

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]

    def definition(self) -> str:
        """Return the columns as CREATE TABLE has them; raises FeatureNotSupported."""
        return ", ".join(
            f"{quoted_name(field.name)} {sql_type(field.name, field.type)}" for field in self.schema
        )


def frame_of(data: Any) -> Frame:
    """Return the rows of a DataFrame of pandas or polars, or of anything that Arrow reads.

    Raises DatatypeMismatch for a column of values of several types.
    """
    try:
        return _frame_of(data)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        raise wrong_frame(data) from None


def _frame_of(data: Any) -> Frame:
    module = type(data).__module__.partition(".")[0]
    if module in ("pandas", "polars") and type(data).__name__ == "Series":
        data = data.to_frame()
    if module == "polars" and type(data).__name__ == "LazyFrame":
        data = data.collect()
    if module == "pandas":
        data = _of_pandas(data)
    elif isinstance(data, dataset.Dataset | dataset.Scanner):
        reader = data.scanner() if isinstance(data, dataset.Dataset) else data
        return Frame(reader.projected_schema, _sliced(reader.to_batches()))
    elif isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    elif isinstance(data, pa.RecordBatchReader):
        return Frame(data.schema, _sliced(data))
    elif isinstance(data, list) and data and all(isinstance(row, dict) for row in data):
        # Arrow takes the names of the first one only.
        names = list(dict.fromkeys(name for row in data for name in row))
        data = pa.table({name: [row.get(name) for row in data] for name in names})
    elif hasattr(data, "__arrow_c_stream__") and not isinstance(data, pa.Table):
        reader = pa.RecordBatchReader.from_stream(data)
        return Frame(reader.schema, _sliced(reader))
    elif isinstance(data, dict):
        data = pa.table(data)
    if not isinstance(data, pa.Table):
        raise FeatureNotSupported(
            f"rows of type {type(data).__name__}",
            hint="Pass a DataFrame of pandas or polars, a table of Arrow, or a list of dicts.",
        )
    return Frame(data.schema, iter(data.to_batches(ROWS_AT_ONCE)))


def _of_pandas(data: Any) -> pa.Table:
    """Return a DataFrame as a table, with the levels of its index that have names first."""
    levels = [level for level, name in enumerate(data.index.names) if name is not None]
    if levels:
        data = data.reset_index(level=levels)
    data = data.set_axis([str(name) for name in data.columns], axis="columns")
    return pa.Table.from_pandas(data, preserve_index=False)


def unrounded(frame: Frame, table: pa.Schema) -> Frame:
    """Return rows for a table that exists; numbers that its columns would round are errors.

    SQL rounds 1.5 to an integer where it assigns it, and digits behind a numeric's scale. The
    types of a DataFrame are inferred, so nobody has asked for that. The batches raise
    DatatypeMismatch.
    """
    types = {
        place: table.field(field.name).type
        for place, field in enumerate(frame.schema)
        if field.name in table.names and _rounds(field.type, table.field(field.name).type)
    }

    def checked(batch: pa.RecordBatch) -> pa.RecordBatch:
        for place, type in types.items():
            try:
                batch.column(place).cast(type)
            except pa.ArrowInvalid:
                raise rounded_value(batch, place, type) from None
        return batch

    return Frame(frame.schema, map(checked, frame.batches))


def _rounds(type: pa.DataType, target: pa.DataType) -> bool:
    if pa.types.is_integer(target):
        return bool(pa.types.is_floating(type) or pa.types.is_decimal(type))
    both = pa.types.is_decimal(type) and pa.types.is_decimal(target) and target != UNSCALED
    return both and bool(type.scale > target.scale)


def frame_of_files(paths: str | Path | Sequence[str | Path], format: str) -> Frame:
    """Return the rows of Parquet or CSV files, a directory's or a pattern's included.

    Raises UndefinedFile if there is none. Files are read as their rows are sent.
    """
    found: list[str] = []
    for each in [paths] if isinstance(paths, str | Path) else paths:
        found += _matching(Path(each), format)
    if not found:
        raise UndefinedFile("no file is given")
    if format == "csv":
        schema = schema_of_csv(found)
        rows = csv_batches(found, schema, partial(wrong_file, format="csv"))
        return Frame(schema, _sliced(rows))
    data = dataset_of_parquet(found)
    batches = data.to_batches(batch_size=ROWS_AT_ONCE, batch_readahead=2, fragment_readahead=1)
    with_rows = (batch for batch in batches if batch.num_rows)
    return Frame(data.schema, readable(with_rows, found))


def _matching(path: Path, format: str) -> list[str]:
    if path.is_file():
        return [str(path)]
    if path.is_dir():
        found = path.rglob(f"*.{format}")
    else:
        root = next(parent for parent in path.parents if parent.is_dir())
        found = root.glob(str(path.relative_to(root)))
    files = sorted(str(each) for each in found if each.is_file())
    if not files:
        raise UndefinedFile(
            f'could not open file "{path}" for reading: No such file or directory',
            hint=f"Give a file, a pattern such as data/*.{format}, or a directory.",
        )
    return files


def _sliced(reader: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in reader:
        for begin in range(0, batch.num_rows, ROWS_AT_ONCE):
            yield batch.slice(begin, ROWS_AT_ONCE)


async def stream_of(frame: Frame, run: Any) -> AsyncIterator[bytes]:
    """Yield rows as an Arrow stream. `run` calls what blocks, on a thread."""
    sink = _Sink()
    writer = await run(pa.ipc.new_stream, pa.PythonFile(sink, "w"), frame.schema)

    def write_next() -> bool:
        batch = next(frame.batches, None)
        if batch is None:
            writer.close()
            return False
        writer.write_batch(batch)
        return True

    more = True
    while more:
        more = await run(write_next)
        for part in sink.take():
            yield part


class _Sink:
    """A file that keeps what is written until it is taken."""

    closed = False

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: Any) -> int:
        self._parts.append(bytes(data))
        return len(data)

    def take(self) -> Iterator[bytes]:
        data, self._parts = b"".join(self._parts), []
        for begin in range(0, len(data), PART_BYTES):
            yield data[begin : begin + PART_BYTES]

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False


def sql_type(name: str, type: pa.DataType) -> str:
    """Return the SQL type of a column; raises FeatureNotSupported if there is none."""
    if pa.types.is_dictionary(type):
        return sql_type(name, type.value_type)
    if pa.types.is_list(type) or pa.types.is_large_list(type) or pa.types.is_fixed_size_list(type):
        return f"{sql_type(name, type.value_type)}[]"
    if pa.types.is_decimal(type):
        if type.precision > 38 or type.scale < 0:
            raise FeatureNotSupported(
                f'column "{name}" is of type {type}, and numeric has at most 38 digits'
            )
        return f"numeric({type.precision}, {type.scale})"
    if pa.types.is_timestamp(type):
        return "timestamp" if type.tz is None else "timestamptz"
    for check, found in _CHECKS:
        if check(type):
            return found
    if pa.types.is_nested(type):
        raise FeatureNotSupported(
            f'column "{name}" is of type {type}',
            hint="Make it text by json.dumps, and read that as jsonb: column::jsonb.",
        )
    raise FeatureNotSupported(
        f'column "{name}" is of type {type}',
        hint="Leave it out, or cast it to a type of the table in docs/embedded.md.",
    )


_CHECKS = (
    (pa.types.is_boolean, "boolean"),
    (lambda t: t in (pa.int8(), pa.uint8(), pa.int16()), "smallint"),
    (lambda t: t in (pa.uint16(), pa.int32()), "integer"),
    (lambda t: t in (pa.uint32(), pa.int64()), "bigint"),
    (lambda t: t == pa.uint64(), "numeric(20, 0)"),
    (lambda t: t in (pa.float16(), pa.float32()), "real"),
    (pa.types.is_float64, "double precision"),
    (pa.types.is_date, "date"),
    (pa.types.is_time, "time"),
    (pa.types.is_duration, "interval"),
    (lambda t: t == pa.month_day_nano_interval(), "interval"),
    (lambda t: isinstance(t, pa.JsonType), "jsonb"),
    (lambda t: t == pa.uuid(), "uuid"),
    (pa.types.is_string, "text"),
    (pa.types.is_large_string, "text"),
    (lambda t: t == pa.string_view(), "text"),
    (pa.types.is_null, "text"),
    (pa.types.is_binary, "bytea"),
    (pa.types.is_large_binary, "bytea"),
    (lambda t: t == pa.binary_view(), "bytea"),
    (pa.types.is_fixed_size_binary, "bytea"),
)
