"""CSV files with headers, as Arrow reads them: the first rows of the first file tell the types.

Columns of further files are found by their names. What cannot be read is an error that says where.
"""

import codecs
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.csv as csv

from foreshore.csv_quotes import QuoteCounter, before_the_last, ends_in_quotes, open_quote
from foreshore.errors import BadCopyFileFormat, DatabaseError, DataError

_PART = 1 << 20  # bytes that are looked at together


def csv_schema(file: str) -> pa.Schema:
    """Return the columns of a file, of the types that its first rows have.

    Raises BadCopyFileFormat, DataError for bytes that are no UTF8, and what Arrow raises.
    """
    with _stream(file) as stream, csv.open_csv(stream, _ONE_BY_ONE, _PARSING) as reader:
        schema = reader.schema
    try:
        names = Counter(schema.names)
    except UnicodeDecodeError:
        check_utf8(file)
        raise
    if any(pa.types.is_binary(type) for type in schema.types):
        check_utf8(file)
    twice = [name for name, count in names.items() if count > 1]
    if twice:
        raise BadCopyFileFormat(f'file "{file}" has several columns "{twice[0]}"')
    return schema


def csv_batches(
    files: Sequence[str], schema: pa.Schema, wrong_file: Callable[[str, Exception], DatabaseError]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of files; `wrong_file` returns the error for what Arrow raises."""
    for file in files:
        try:
            yield from _rows(file, schema)
        except (pa.ArrowException, OSError, ValueError) as error:
            if "UTF8" in str(error):
                check_utf8(file)
            raise wrong_file(file, _with_row(file, schema, error)) from None


_PARSING = csv.ParseOptions(newlines_in_values=True)
_ONE_BY_ONE = csv.ReadOptions(use_threads=False)  # errors have the number of the row
_BY_THREADS = csv.ReadOptions()


def _rows(
    file: str, schema: pa.Schema, reading: csv.ReadOptions = _BY_THREADS
) -> Iterator[pa.RecordBatch]:
    stream = QuoteCounter(_stream(file), '"', '"')
    converting = csv.ConvertOptions(
        column_types=schema, include_columns=schema.names, include_missing_columns=True
    )
    with closing(csv.open_csv(stream, reading, _PARSING, converting)) as reader:
        yield from before_the_last(reader, partial(_check_quotes, stream, file))


def _check_quotes(counter: QuoteCounter, file: str) -> None:
    if counter.is_odd:
        with _stream(file) as stream:
            if ends_in_quotes(stream):
                raise open_quote(file)


def _with_row(file: str, schema: pa.Schema, error: Exception) -> Exception:
    """Return an error of Arrow with the number of the row, which only one thread knows."""
    try:
        for _ in _rows(file, schema, _ONE_BY_ONE):
            pass
    except (pa.ArrowException, OSError, ValueError) as again:
        return again
    return error


def check_utf8(file: str) -> None:
    """Raise DataError for the first byte of a file that is no UTF8."""
    decode = codecs.getincrementaldecoder("utf-8")().decode
    line, before = 1, 0
    with _stream(file) as stream:
        while True:
            data = stream.read(_PART)
            try:
                decode(data, final=not data)
            except UnicodeDecodeError as wrong:
                # what was kept of the part before is at its beginning
                kept = len(wrong.object) - len(data)
                line += wrong.object.count(b"\n", 0, wrong.start)
                raise _no_utf8(
                    file, wrong.object[wrong.start], line, before - kept + wrong.start
                ) from None
            if not data:
                return
            line, before = line + data.count(b"\n"), before + len(data)


def _no_utf8(file: str, byte: int, line: int, offset: int) -> DataError:
    return DataError(
        f'file "{file}": invalid byte sequence for encoding "UTF8": 0x{byte:02x}',
        sqlstate="22021",
        detail=f"It is in line {line}, behind {offset} bytes of the text.",
        hint="Convert the file, for example by iconv -f LATIN1 -t UTF8.",
    )


def _stream(file: str) -> Any:
    return pa.input_stream(file, compression="detect")
