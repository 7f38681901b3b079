"""The process that looks for a corrupt chunk of a Parquet file, which may end it.

python -m foreshore.storage.corrupt_chunk FILE     prints the offset of the first, or nothing
"""

import sys

import pyarrow as pa
import pyarrow.parquet as pq


def corrupt_chunk(path: str) -> int | None:
    """Return the offset of the first chunk of columns that cannot be read; None if all can."""
    with pq.ParquetFile(path, page_checksum_verification=True) as opened:
        for i in range(opened.metadata.num_row_groups):
            group = opened.metadata.row_group(i)
            for chunk in map(group.column, range(group.num_columns)):
                try:
                    opened.read_row_group(i, columns=[chunk.path_in_schema])
                except (OSError, pa.ArrowException):
                    return int(chunk.dictionary_page_offset or chunk.data_page_offset)
    return None


if __name__ == "__main__":
    found = corrupt_chunk(sys.argv[1])
    print("" if found is None else found)
