"""Rows of SOURCE_errors for rows of files that have a wrong value."""

from collections.abc import Sequence

import pyarrow as pa

from foreshore.sources.files import FilesSource
from foreshore.storage.ingest.files.columns import Letter, csv_form
from foreshore.storage.lake.bad_lines import MOST_BYTES, BadLines
from foreshore.storage.lake.json_files import DOCUMENT
from foreshore.storage.lake.reading import CsvForm


def letters_of(spec: FilesSource, names: Sequence[str], bad: BadLines) -> Letter:
    """Return what gives the offset and the data of a row of a file with columns `names`.

    The offset is the number of the line, as of `bad` ones; the data are a line of CSV or JSON. A
    row of a Parquet file has its number, and no data.
    """
    form = csv_form(spec)

    def letter(number: int, row: pa.RecordBatch) -> tuple[int, bytes | None]:
        if spec.format == "json":
            text = row.column(DOCUMENT)[0].as_py()
        elif spec.format == "csv":
            values = (row.column(name)[0].as_py() for name in names)
            text = form.delimiter.join(_field(value, form) for value in values)
        else:
            return number, None
        return bad.line_of(number), text.encode()[:MOST_BYTES]

    return letter


def _field(value: str | None, form: CsvForm) -> str:
    """Return a field of a line of CSV, in quotes if it needs them."""
    if value is None:
        return form.null
    special = (form.delimiter, form.quote, "\r", "\n")
    if value != form.null and not any(each in value for each in special):
        return value
    for each in dict.fromkeys((form.escape, form.quote)):
        value = value.replace(each, form.escape + each)
    return f"{form.quote}{value}{form.quote}"
