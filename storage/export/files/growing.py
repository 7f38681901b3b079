"""Files that grow: the rows of later intervals are added to a sink's newest file while it is small.

So a directory has at most one small file of a sink. The file is replaced by one that begins with
the same bytes, but for the footer of Parquet: a reader sees the one or the other, what is open
stays as it was, and one that opens the file twice finds the rows where the first footer says that
they are. Rows keep their places, so who follows a file reads on from the row where it stopped.
"""

import io
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from foreshore.sinks.places import SinkFormat

SMALL_BYTES = 1 << 20  # of a file to which rows are added
MAGIC = b"PAR1"  # at both ends of a Parquet file
FOOTER_END_BYTES = 8  # the length of the footer, and MAGIC


def is_full(path: Path) -> bool:
    """Return whether a file gets no more rows."""
    return path.stat().st_size >= SMALL_BYTES


def append_rows(begin: Path, more: Path, format: SinkFormat) -> None:
    """Add the rows of `begin` to the file `more`, before its own; a CSV file has no header."""
    if format == "parquet":
        both = more.with_suffix(".both")
        _append_row_groups(begin, more, both)
        both.replace(more)
        return
    with begin.open("ab") as file, more.open("rb") as rows:
        shutil.copyfileobj(rows, file)
    begin.replace(more)


def _append_row_groups(begin: Path, more: Path, both: Path) -> None:
    """Write a Parquet file with the row groups of one, byte by byte, and then those of another.

    The writer takes the first ones for its own bytes, and so knows where the others are. It writes
    a footer of the others alone, in place of which comes one of all.
    """
    all_groups, new = pq.read_metadata(begin), pq.ParquetFile(more)
    written: list[pq.FileMetaData] = []
    with (
        pa.OSFile(str(both), "wb") as sink,
        pq.ParquetWriter(
            sink, new.schema_arrow, compression="zstd", version="2.6", metadata_collector=written
        ) as file,
    ):
        sink.write(_without_footer(begin)[len(MAGIC) :])
        for number in range(new.num_row_groups):
            file.write_table(new.read_row_group(number))
        end = sink.tell()
    all_groups.append_row_groups(*written)
    footer = io.BytesIO()
    all_groups.write_metadata_file(footer)
    with both.open("r+b") as stream:
        stream.truncate(end)
        stream.seek(end)
        stream.write(footer.getvalue()[len(MAGIC) :])


def _without_footer(path: Path) -> bytes:
    """Return a Parquet file up to its footer, after which come the footer's length and MAGIC."""
    data = path.read_bytes()
    length = int.from_bytes(data[-FOOTER_END_BYTES : -len(MAGIC)], "little")
    return data[: -FOOTER_END_BYTES - length]
