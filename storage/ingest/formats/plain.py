"""TEXT, BYTES and CSV."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from foreshore.csv_rows import CsvError, csv_rows
from foreshore.errors import InvalidTextRepresentation
from foreshore.parse_columns import parse_column
from foreshore.sources.formats import CsvFormat
from foreshore.storage.ingest.formats.decoder import Decoded, Values, without_wrong
from foreshore.types import SqlType

_ZERO = "\0"


class BytesDecoder:
    """One bytea column."""

    def decode(self, values: Values) -> Decoded:
        """Return the messages as they are."""
        return Decoded((pa.array(values, pa.binary()),), {})


class TextDecoder:
    """One text column."""

    def decode(self, values: Values) -> Decoded:
        """Return the messages, which must be UTF-8 without zero bytes."""
        errors: dict[int, str] = {}
        return Decoded((without_wrong(values, texts_of, errors),), errors)


def texts_of(values: Values) -> pa.Array:
    """Return UTF-8 as texts; raises InvalidTextRepresentation."""
    try:
        texts = pa.array(values, pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        raise InvalidTextRepresentation('invalid byte sequence for encoding "UTF8"') from None
    if pc.any(pc.match_substring(texts, _ZERO)).as_py():
        raise InvalidTextRepresentation('invalid byte sequence for encoding "UTF8": 0x00')
    return texts


class CsvDecoder:
    """A row of comma-separated values in each message."""

    def __init__(self, format: CsvFormat, types: Sequence[SqlType]) -> None:
        self._format, self._types = format, tuple(types)

    def decode(self, values: Values) -> Decoded:
        """Return the values of each row; an empty one that is not quoted is NULL but for text."""
        errors: dict[int, str] = {}
        texts = without_wrong(values, texts_of, errors).to_pylist()
        rows = self._rows(texts, errors)
        columns = []
        for number, type in enumerate(self._types):
            found = [None if row is None else row[number] for row in rows]
            if type.name != "text":
                found = [each or None for each in found]
            columns.append(parsed(found, type, errors))
        return Decoded(tuple(columns), errors)

    def _rows(self, texts: list[str | None], errors: dict[int, str]) -> list[list[str] | None]:
        """Return the values of each message, None where there is none or a wrong number."""
        delimiter, width = self._format.delimiter, len(self._types)
        given = [each for each in texts if each is not None]
        try:
            rows = list(csv_rows(given, delimiter=delimiter, strict=True))
        except CsvError:
            rows = []
        if len(rows) == len(texts) and all(len(row) == width for row in rows):
            return list(rows)
        found: list[list[str] | None] = []
        for number, text in enumerate(texts):
            row = None
            if text is not None:
                try:
                    lines = list(csv_rows(text.splitlines(True), delimiter=delimiter, strict=True))
                    row = lines[0] if len(lines) == 1 else [""] if not lines else None
                    if row is None or len(row) != width:
                        seen = f"{len(lines)} rows" if row is None else f"{len(row)}"
                        errors[number] = f"a row of {width} columns is expected, and has {seen}"
                        row = None
                except CsvError as error:
                    errors[number] = f"invalid CSV: {error}"
            found.append(row)
        return found


def parsed(texts: Sequence[str | None], type: SqlType, errors: dict[int, str]) -> pa.Array:
    """Return texts as values of `type`; `errors` gets those that are none."""
    return without_wrong(
        texts, lambda some: parse_column(pa.array(some, pa.string()), type, "UTC"), errors
    )
