"""The work of one call: statements in its session, with bounded results.

The session is read-only, and a statement is refused that changes anything by a function, also what
no transaction holds back, such as the end of another session.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from typing import Literal as OneOf

import msgspec
import numpy as np
import pyarrow.compute as pc

from foreshore.adapter.client import Reading, ReadRelation, Rows, Session
from foreshore.errors import DatabaseError, FeatureNotSupported, InsufficientPrivilege
from foreshore.server.http.exchange import Exchange
from foreshore.server.http.params import check_values
from foreshore.server.http.requests import ExtendedQuery
from foreshore.server.http.statements import begin, bind
from foreshore.server.http.values import Piece, RowsAsJson
from foreshore.types import RelationDesc, format_type

Audience = OneOf["agent", "developer"]
MOST_ROWS = 1000  # of the statements of our own
MOST_BYTES = 1 << 20  # of the rows of a result


@dataclass
class Gathered:
    """Rows as JSON, up to a number and to MOST_BYTES."""

    most_rows: int
    rows: int = 0
    size: int = 0
    is_cut: bool = False

    def __post_init__(self) -> None:
        self._parts: list[bytes] = []

    def add(self, piece: Piece) -> None:
        """Add rows as far as they fit; `is_cut` afterwards if some did not."""
        texts = piece.texts.slice(0, self.most_rows - self.rows)
        sizes = np.cumsum(pc.binary_length(texts).to_numpy(zero_copy_only=False) + 1)
        fitting = int(np.searchsorted(sizes, MOST_BYTES - self.size, side="right"))
        self.is_cut |= fitting < piece.rows
        if fitting:
            self._parts.append(Piece(texts.slice(0, fitting)).joined())
            self.rows += fitting
            self.size += int(sizes[fitting - 1])

    def json(self) -> msgspec.Raw:
        """Return the array of all rows."""
        return msgspec.Raw(b"[" + b",".join(self._parts) + b"]")


@dataclass(frozen=True, slots=True)
class Work:
    """What a tool works with: a session, and for whom it is."""

    exchange: Exchange
    session: Session
    audience: Audience

    async def dicts(self, sql: str, *params: str | None) -> list[dict[str, Any]]:
        """Return the rows of a statement of our own, at most MOST_ROWS, by names of columns."""
        execution = await begin(self.session, ExtendedQuery(sql, params), last=False)
        assert isinstance(execution, Rows), execution
        found: list[dict[str, Any]] = []
        encoder = RowsAsJson(execution.desc, self.session.output_style)
        async for batch in execution.batches:
            async for piece in encoder.parts(batch):
                rows = msgspec.json.decode(b"[" + piece.joined() + b"]")
                found += (dict(zip(execution.desc.names, row, strict=True)) for row in rows)
        await self.session.extended.close_portal("")
        return found

    async def table(self, query: ExtendedQuery, most_rows: int) -> Mapping[str, Any]:
        """Return the first rows of a client's statement, and whether there are more."""
        check_values((query.query, *query.params))
        statement = await self.session.extended.parse("", query.query, ())
        if statement.desc is None:
            raise FeatureNotSupported("the statement returns no rows", hint="Send one query.")
        self.check(self.session.extended.reading(""))
        await bind(self.session, statement, query.params)
        execution = await self.session.extended.execute("", most_rows + 1)
        assert isinstance(execution, Rows), execution
        if execution.streaming:
            raise FeatureNotSupported(
                "SUBSCRIBE is not supported here", hint='Use the tool "subscribe".'
            )
        gathered, encoder = (
            Gathered(most_rows),
            RowsAsJson(execution.desc, self.session.output_style),
        )
        async for batch in execution.batches:
            async for piece in encoder.parts(batch):
                if not gathered.is_cut:
                    gathered.add(piece)
        check_fits(gathered)
        return {
            "columns": columns_of(execution.desc),
            "rows": gathered.json(),
            "row_count": gathered.rows,
            "truncated": gathered.is_cut,
        }

    def check(self, reading: Reading) -> None:
        """Raise if a client's statement may not run here."""
        if reading.acts:
            called = reading.acts[0].partition("(")[0]
            raise FeatureNotSupported(
                f"{called}() changes something, so it cannot be called here",
                hint="Call it over the PostgreSQL port or POST /api/sql.",
            )
        if self.audience == "agent":
            _check_offered(reading)


def _check_offered(reading: Reading) -> None:
    """Raise InsufficientPrivilege if agents may not run a statement."""
    if not reading.is_query:
        raise InsufficientPrivilege("agents may run queries only", hint="Begin with SELECT.")
    if reading.reads_system:
        raise InsufficientPrivilege(
            "agents may not read system relations",
            hint='Use the tools "list_objects" and "describe_object".',
        )
    for each in reading.relations:
        if not is_offered(each):
            raise InsufficientPrivilege(
                f"view {each.name} is not offered to agents",
                detail="Agents read tables, materialized views and views with an index.",
                hint="Read what list_objects returns.",
            )


def is_offered(relation: ReadRelation) -> bool:
    """Return whether agents may read a relation: whether its rows are there before a query."""
    return relation.kind != "view" or relation.is_indexed


def check_fits(gathered: Gathered) -> None:
    """Raise if not even the first row fits."""
    if gathered.is_cut and not gathered.rows:
        raise DatabaseError(
            f"a row has more than {MOST_BYTES} bytes",
            sqlstate="54000",
            hint="Select fewer columns, or parts of the values.",
        )


def columns_of(desc: RelationDesc) -> Sequence[Mapping[str, str]]:
    """Return the names and types of a result's columns."""
    return [
        {"name": name, "type": format_type(column.type)}
        for name, column in zip(desc.names, desc.columns, strict=True)
    ]
