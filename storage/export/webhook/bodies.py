"""The bodies of requests: some of the changes of an interval as JSON.

{"sink": "...", "lower": 5, "upper": 9, "part": 0, "last": true,
"changes": [{"time": 5, "diff": 1, "row": {"id": 1, ...}}, ...]}
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from foreshore.storage.export.messages import Export
from foreshore.storage.lake.columns import json_texts
from foreshore.update import Timestamp

MOST_BYTES = 1 << 20  # of the changes of a body, unless one change has more


def changes_of(export: Export, part: pa.Table) -> Iterator[bytes]:
    """Yield each update as JSON in UTF-8."""
    desc = export.desc
    width = len(desc.names)
    for batch in part.combine_chunks().to_batches():
        pieces: list[pa.Array | str] = ['{"time":', batch.column(width).cast(pa.string())]
        pieces += [',"diff":', batch.column(width + 1).cast(pa.string()), ',"row":{']
        for place, (name, column) in enumerate(zip(desc.names, desc.columns, strict=True)):
            key = json.dumps(name, ensure_ascii=False)
            pieces += [
                f"{',' if place else ''}{key}:",
                json_texts(batch.column(place), column.type),
            ]
        texts = pc.binary_join_element_wise(*pieces, "}}", "")
        yield from texts.cast(pa.binary()).to_pylist()


@dataclass(frozen=True, slots=True)
class Body:
    """A body, and its number among those of an interval."""

    part: int
    data: bytes


class Bodies:
    """Makes bodies of an interval's changes."""

    def __init__(self, export: Export, lower: Timestamp, upper: Timestamp, rows: int) -> None:
        self._export = export
        self._head = {"sink": export.name, "lower": lower, "upper": upper}
        self._most = rows
        self._changes: list[bytes] = []
        self._bytes = 0
        self._part = 0

    def add(self, part: pa.Table) -> list[Body]:
        """Take updates; return the bodies that are full, of which none is the last."""
        full = []
        for change in changes_of(self._export, part):
            is_full = len(self._changes) >= self._most or self._bytes + len(change) > MOST_BYTES
            if is_full and self._changes:
                full.append(self._made(last=False))
            self._changes.append(change)
            self._bytes += len(change)
        return full

    def last(self) -> Body | None:
        """Return the last body; None if there were no changes."""
        return self._made(last=True) if self._changes else None

    def _made(self, *, last: bool) -> Body:
        head = json.dumps({**self._head, "part": self._part, "last": last}, separators=(",", ":"))
        changes = b",".join(self._changes)
        body = Body(self._part, b"".join((head[:-1].encode(), b',"changes":[', changes, b"]}")))
        self._part, self._changes, self._bytes = self._part + 1, [], 0
        return body
