"""Files out: rows dealt to several writers, all files visible at once at the end.

    target/part-00000-<id>.parquet ...     rows; a writer begins another file at the size limit
    target/_SUCCESS                        JSON: the files with their rows and bytes, written last

A directory is written beside its place, under a hidden name, and renamed when it is complete. In a
bucket, which cannot rename, `_SUCCESS` says that the files are complete; what was stored before a
failure is deleted. A URL that ends in a file's name gives one file. What a kill leaves, the next
start removes (`unfinished.py`).
"""

import json
import os
import shutil
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from foreshore.errors import DuplicateFile, FeatureNotSupported
from foreshore.processes import file_modes
from foreshore.storage.blob import sync_directory, sync_file
from foreshore.storage.lake.columns import (
    batch_for_file,
    check_delta,
    check_distinct,
    file_type,
    json_texts,
    texts,
)
from foreshore.storage.lake.places import Location
from foreshore.storage.lake.reading import CsvForm, Format
from foreshore.storage.lake.tables import TABLES
from foreshore.storage.lake.unfinished import Note
from foreshore.types import SqlType, arrow_type

SUCCESS = "_SUCCESS"
SUFFIXES: dict[str, tuple[str, ...]] = {
    "csv": (".csv",),
    "parquet": (".parquet",),
    "json": (".json", ".jsonl", ".ndjson"),
    "delta": (".parquet",),
    "iceberg": (".parquet",),
}
ROW_GROUP_ROWS = 1 << 17


@dataclass(frozen=True, slots=True)
class Written:
    """A file that is complete."""

    name: str
    rows: int
    bytes: int


class File(Protocol):
    """A file being written."""

    def write(self, batch: pa.RecordBatch) -> int:
        """Write rows; return the bytes so far."""

    def close(self) -> None:
        """Complete the file."""


@dataclass(slots=True)
class _Parquet:
    path: Path
    names: Sequence[str]
    types: Sequence[SqlType]
    _writer: pq.ParquetWriter | None = None
    _waiting: list[pa.RecordBatch] = field(default_factory=list)
    _rows: int = 0

    def write(self, batch: pa.RecordBatch) -> int:
        self._waiting.append(batch_for_file(batch, self.names, self.types))
        self._rows += batch.num_rows
        if self._rows >= ROW_GROUP_ROWS:
            self._flush()
        waiting: int = sum(each.nbytes for each in self._waiting)
        written: int = self.path.stat().st_size if self._writer is not None else 0
        return waiting + written

    def _flush(self) -> None:
        if self._writer is None:
            empty = [pa.nulls(0, arrow_type(type)) for type in self.types]
            schema = batch_for_file(
                pa.RecordBatch.from_arrays(empty, list(self.names)), self.names, self.types
            ).schema
            self._writer = pq.ParquetWriter(self.path, schema, compression="zstd", version="2.6")
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting))
        self._waiting, self._rows = [], 0

    def close(self) -> None:
        self._flush()
        assert self._writer is not None
        self._writer.close()


@dataclass(slots=True)
class _Lines:
    """CSV, or JSON of which each row is one text."""

    path: Path
    names: Sequence[str]
    types: Sequence[SqlType]
    form: CsvForm | None  # None: JSON
    _bytes: int = 0
    _opened: bool = False

    def write(self, batch: pa.RecordBatch) -> int:
        given = list(zip(batch.columns, self.types, strict=True))
        if self.form is not None:
            columns = [_csv(texts(*each), self.form) for each in given]
            self._append(_lines(columns, self.form.delimiter))
        else:
            keys = [json.dumps(name, ensure_ascii=False) for name in self.names]
            pieces: list[Any] = []
            for place, each in enumerate(given):
                pieces += [f"{',' if place else '{'}{keys[place]}:", json_texts(*each)]
            rows = pc.binary_join_element_wise(*pieces, "}" if pieces else "{}", "")
            self._append(_lines([rows], ""))
        return self._bytes

    def _append(self, data: pa.Buffer | bytes) -> None:
        with self.path.open("ab") as file:
            if not self._opened and self.form is not None and self.form.header:
                names = [_csv(pa.array([name]), self.form) for name in self.names]
                self._bytes += file.write(_lines(names, self.form.delimiter))
            self._opened = True
            self._bytes += file.write(data)

    def close(self) -> None:
        self._append(b"")


def file_writer(
    path: Path, format: Format, form: CsvForm, names: Sequence[str], types: Sequence[SqlType]
) -> File:
    """Return a new file of a format; `form` is that of CSV files."""
    if format == "parquet" or format in TABLES:
        return _Parquet(path, names, types)
    return _Lines(path, names, types, form if format == "csv" else None)


def _csv(column: pa.Array, form: CsvForm) -> pa.Array:
    """Return the values of a column as they stand between delimiters."""
    special = "".join(f"\\x{ord(c):02x}" for c in f"{form.delimiter}{form.quote}{form.escape}\r\n")
    need = pc.or_(pc.match_substring_regex(column, f"[{special}]"), pc.equal(column, form.null))
    need = pc.or_(need, pc.equal(column, "\\."))
    if pc.any(need).as_py():
        inner = column
        if form.escape != form.quote:
            inner = pc.replace_substring(inner, form.escape, form.escape * 2)
        inner = pc.replace_substring(inner, form.quote, form.escape + form.quote)
        quoted = pc.binary_join_element_wise(form.quote, inner, form.quote, "")
        column = pc.if_else(need, quoted, column)
    return pc.fill_null(column, form.null)


def _lines(columns: Sequence[pa.Array], delimiter: str) -> pa.Buffer | bytes:
    """Return the rows as lines of bytes."""
    last = pc.binary_join_element_wise(columns[-1], "", "\n")
    joined = pc.binary_join_element_wise(*columns[:-1], last, delimiter) if columns[:-1] else last
    if not len(joined):
        return b""
    _, offsets, data = joined.cast(pa.large_string()).buffers()
    places = memoryview(offsets).cast("q")
    first, end = places[joined.offset], places[joined.offset + len(joined)]
    return data.slice(first, end - first)


class Export:
    """An export of rows to a location, by `writers` writers that may work at once."""

    def __init__(
        self,
        location: Location,
        format: Format,
        form: CsvForm,
        names: Sequence[str],
        types: Sequence[SqlType],
        max_bytes: int,
        scratch: Path,
    ) -> None:
        """Begin; raises DuplicateFile if there is something already.

        Raises DuplicateColumn or FeatureNotSupported for columns that the format cannot have.
        """
        if format != "csv":
            check_distinct(names)
        self._location = location
        self._format = format
        self._form = form
        self._names = names
        self._types = types
        self._max_bytes = max_bytes
        self._id = uuid.uuid4().hex[:12]
        suffix = os.path.splitext(location.key)[1].lower()
        table = TABLES.get(format)
        self.single = table is None and suffix in SUFFIXES[format]
        self._is_done = False
        if table is not None:
            table.package()
            if format == "delta":
                check_delta(names, types)
            if location.root is None:
                raise FeatureNotSupported(f"{format.capitalize()} tables in buckets")
        if location.root is not None:
            target = location.path
            self._place = target.parent / f".{target.name}.{self._id}"
            self._replaces = table is not None and table.is_table(target)
            if self._replaces:
                location.check_links()
            if not self._replaces and target.is_dir() and any(target.iterdir()):
                raise DuplicateFile(f'directory "{location.url}" is not empty')
            if self.single and target.is_dir():
                raise DuplicateFile(f'"{location.url}" is a directory')
        else:
            if not self.single and location.files():
                raise DuplicateFile(f'"{location.url}" is not empty')
            self._place = scratch / self._id
        place = location.url if location.root is None else str(self._place)
        self._note = Note(location.closed, self._id, place)
        file_modes.make_shared(self._place.parent)
        self._place.mkdir()
        self._written: list[Written] = []
        self._stored: list[str] = []
        self._number = 0
        self._lock = Lock()

    def writer(self) -> "Writer":
        """Return another writer."""
        return Writer(self)

    def begin(self) -> tuple[str, File]:
        """Return a new file with its name."""
        name = self._name()
        path = self._place / name
        return name, file_writer(path, self._format, self._form, self._names, self._types)

    def complete(self, name: str, rows: int) -> None:
        """Take a file that is complete; in a bucket it is stored, but does not count yet."""
        path = self._place / name
        self._written.append(Written(name, rows, path.stat().st_size))
        if self._location.root is not None:
            file_modes.share(path)
            sync_file(path)
        elif not self.single:
            key = f"{self._location.key}/{name}".strip("/")
            self._stored.append(key)
            self._location.blob.put_file(key, path)

    def link(self, files: Sequence[Path], rows: Sequence[int]) -> bool:
        """Take Parquet files as they are, by links; return whether the disk has allowed it.

        A link shares the mode of the file, which is private: where others may read what users ask
        for, the files are copied.
        """
        names = [self._name() for _ in files]
        try:
            for name, file in zip(names, files, strict=True):
                self._take(file, self._place / name)
        except OSError:
            for name in names:
                (self._place / name).unlink(missing_ok=True)
            return False
        for name, count in zip(names, rows, strict=True):
            size = (self._place / name).stat().st_size
            self._written.append(Written(name, count, size))
        return True

    @staticmethod
    def _take(file: Path, path: Path) -> None:
        if file_modes.can_share_links():
            os.link(file, path)
        else:
            shutil.copyfile(file, path)
            file_modes.share(path)
            sync_file(path)

    def _name(self) -> str:
        with self._lock:
            number = self._number
            self._number += 1
        return f"part-{number:05}-{self._id}{SUFFIXES[self._format][0]}"

    @property
    def size(self) -> int:
        """Return the bytes of complete files."""
        return sum(each.bytes for each in self._written)

    def finish(self) -> None:
        """Make all files visible."""
        files = sorted(self._written, key=lambda each: each.name)
        listed = [{"file": f.name, "rows": f.rows, "bytes": f.bytes} for f in files]
        success = json.dumps({"files": listed, "rows": sum(f.rows for f in files)}).encode()
        if self.single:
            self._finish_single(files[0].name)
        elif self._location.root is None:
            self._location.blob.put(f"{self._location.key}/{SUCCESS}".strip("/"), success)
        else:
            self._finish_directory(files, success)
        self._is_done = True
        self.close()

    def _finish_directory(self, files: Sequence[Written], success: bytes) -> None:
        target = self._location.path
        table = TABLES.get(self._format)
        if table is not None:
            types = map(file_type, self._types)
            schema = pa.schema(list(zip(self._names, types, strict=True)))
            if self._replaces:
                table.replace(target, self._place, files, schema, self._id)
                return
            table.create(self._place, target, files, schema, self._id)
        else:
            (self._place / SUCCESS).write_bytes(success)
            sync_file(self._place / SUCCESS)
        file_modes.share_below(self._place)
        sync_directory(self._place)
        os.rename(self._place, target)
        sync_directory(target.parent)

    def _finish_single(self, name: str) -> None:
        path = self._place / name
        if self._location.root is None:
            self._location.blob.put_file(self._location.key, path)
        else:
            os.rename(path, self._location.path)
            sync_directory(self._location.path.parent)

    def close(self) -> None:
        """Remove what is not visible."""
        shutil.rmtree(self._place, ignore_errors=True)
        if not self._is_done:
            for key in self._stored:
                with suppress(Exception):  # a rule of the bucket removes what stays
                    self._location.blob.delete(key)
            self._stored = []
        self._note.remove()


class Writer:
    """Writes files one after the other; its methods are called by one thread at a time."""

    def __init__(self, export: Export) -> None:
        self._export = export
        self._file: tuple[str, File] | None = None
        self._rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows."""
        if self._file is None:
            self._file = self._export.begin()
        self._rows += batch.num_rows
        size = self._file[1].write(batch)
        if size >= self._export._max_bytes and not self._export.single:
            self.close()

    def close(self, *, always: bool = False) -> None:
        """Complete the file in progress; `always` gives a file even if there were no rows."""
        if self._file is None and always:
            self._file = self._export.begin()
        if self._file is not None:
            name, file = self._file
            file.close()
            self._export.complete(name, self._rows)
        self._file, self._rows = None, 0
