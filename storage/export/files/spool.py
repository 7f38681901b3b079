"""The rows of an interval in a scratch file, until all of them have come."""

from collections.abc import AsyncIterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from foreshore import blocking
from foreshore.storage.export.messages import Export
from foreshore.storage.lake.columns import file_type, for_file
from foreshore.update import DIFF, TIME

_TIMES = pa.schema([(TIME, pa.int64()), (DIFF, pa.int64())])


def schema_of(export: Export) -> pa.Schema:
    """Return the columns of the relation as files have them, without time and multiplicity."""
    desc = export.desc
    types = [file_type(column.type) for column in desc.columns]
    return pa.schema(list(zip(desc.names, types, strict=True)))


def as_in_files(export: Export, part: pa.Table) -> pa.Table:
    """Return updates with the values of files, then `__time` and `__diff`.

    Raises NumericValueOutOfRange if a value does not fit.
    """
    desc, arrays = export.desc, []
    for place, (name, column) in enumerate(zip(desc.names, desc.columns, strict=True)):
        array = part.column(place).combine_chunks()
        arrays.append(for_file(name, array, column.type))
    schema = pa.unify_schemas([schema_of(export), _TIMES])
    return pa.Table.from_arrays([*arrays, part.column(TIME), part.column(DIFF)], schema=schema)


async def spooled(export: Export, parts: AsyncIterator[pa.Table], file: Path) -> int:
    """Write all updates of an interval to a Parquet file; return how many there are.

    If that is cancelled, a thread may still be writing. The writer then closes with the last
    reference to it, as a file that is closed while it is written ends the process.
    """
    rows = 0
    schema = pa.unify_schemas([schema_of(export), _TIMES])
    writer = pq.ParquetWriter(file, schema, compression="lz4")
    async for part in parts:
        rows += part.num_rows
        await blocking.run(None, _write, writer, export, part)
    await blocking.run(None, writer.close)
    return rows


def _write(writer: pq.ParquetWriter, export: Export, part: pa.Table) -> None:
    writer.write(as_in_files(export, part))
