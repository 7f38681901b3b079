"""Rows of a CSV text, whose values may be as long as those of a table."""

import csv
import sys
from collections.abc import Iterable, Iterator
from typing import Any

# Python's limit of 131,072 characters is one of the process, so no reader alone can raise it.
csv.field_size_limit(min(sys.maxsize, 2**31 - 1))

CsvError = csv.Error


def csv_rows(lines: Iterable[str], **form: Any) -> Iterator[list[str]]:
    """Return the values of each row; `form` is what `csv.reader` takes. Raises CsvError."""
    return csv.reader(lines, **form)
