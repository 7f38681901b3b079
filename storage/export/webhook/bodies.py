"""The bodies of requests: some of the changes of an interval as JSON.

{"sink": "...", "lower": 5, "upper": 9, "part": 0, "last": true,
"changes": [{"time": 5, "diff": 1, "row": {"id": 1, ...}}, ...]}

A target may also want a body for each change, which a column of the relation has.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from foreshore.sinks.webhook import WebhookTarget
from foreshore.storage.export.messages import Export
from foreshore.storage.lake.columns import json_texts
from foreshore.types import RelationDesc
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


class BodyMaker(Protocol):
    """Makes bodies of an interval's changes."""

    def add(self, part: pa.Table) -> list[Body]:
        """Take updates; return the bodies that are full, of which none is the last."""
        ...

    def last(self) -> Body | None:
        """Return the last body; None if there is no further one."""
        ...


def bodies_of(export: Export, lower: Timestamp, upper: Timestamp) -> BodyMaker:
    """Return what makes the bodies that the target wants."""
    target = export.spec.target
    assert isinstance(target, WebhookTarget), target
    if target.body or target.removed_body:
        return Documents(export.desc, target)
    return Bodies(export, lower, upper, target.most_rows)


class Documents:
    """Makes a body for each change, of the document that a column has; none where it is NULL.

    Changes come by time, and of one time those first that remove.
    """

    def __init__(self, desc: RelationDesc, target: WebhookTarget) -> None:
        self._added, self._removed = (
            desc.names.index(name) if name else None for name in (target.body, target.removed_body)
        )
        self._width = len(desc.names)
        self._part = 0

    def add(self, part: pa.Table) -> list[Body]:
        """Take updates; return a body for each that has one."""
        diffs = part.column(self._width + 1)
        none = pa.chunked_array([pa.nulls(len(part), pa.string())])
        added, removed = (
            none if place is None else part.column(place).cast(pa.string())
            for place in (self._added, self._removed)
        )
        found = pa.table(
            {
                "time": part.column(self._width),
                "sign": pc.sign(diffs),
                "text": pc.if_else(pc.greater(diffs, 0), added, removed),
            }
        )
        found = found.filter(pc.is_valid(found["text"]))
        found = found.sort_by([("time", "ascending"), ("sign", "ascending")])
        bodies = []
        for text in found["text"].cast(pa.binary()).to_pylist():
            bodies.append(Body(self._part, text))
            self._part += 1
        return bodies

    def last(self) -> Body | None:
        """Return None: each body is whole."""
        return None


class Bodies:
    """Makes bodies of many changes each."""

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
