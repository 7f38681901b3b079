"""Live queries: a subscription to the changes of a query, and tokens by which it is resumed."""

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from foreshore.adapter.client import Rows, Session
from foreshore.errors import DatabaseError, InvalidParameterValue, ProtocolViolation
from foreshore.server.http.requests import ExtendedQuery
from foreshore.server.http.statements import begin

HEAD = 2  # columns before the number of copies: the time, and whether all before it was sent
_NEWEST = 2**63 - 1
_TOKEN = re.compile(r"([0-9]{1,19})(?:-([0-9a-f]{1,64}))?")


class Token(NamedTuple):
    """How far a client has come: the time of its copy, and what the query meant then.

    Without a meaning the client answers for it that it is the same.
    """

    time: int
    meaning: str | None


def token_of(text: str) -> Token:
    """Return the token in a text; raises InvalidParameterValue."""
    found = _TOKEN.fullmatch(text)
    if found is None or int(found[1]) > _NEWEST:
        raise InvalidParameterValue(f'invalid resume token "{text[:40]}"')
    return Token(int(found[1]), found[2])


async def subscription(
    session: Session, query: ExtendedQuery, after: int | None, *, snapshot: bool = True
) -> Rows:
    """Subscribe to a query: to its rows and changes, or to the changes after a time alone.

    The columns of the result are HEAD ones, the number of copies, and those of the query. Raises
    HistoryGone, and DatabaseError with positions in the text of the query.
    """
    options = "PROGRESS" if after is None and snapshot else "PROGRESS, SNAPSHOT = false"
    as_of = "" if after is None else f" AS OF {after}"
    sql = f"SUBSCRIBE ({query.query}\n) WITH ({options}){as_of}"
    try:
        execution = await begin(session, ExtendedQuery(sql, query.params), last=False)
    except DatabaseError as error:
        if error.position is not None:  # as the client has written the text
            error.position = max(1, error.position - len("SUBSCRIBE ("))
        raise
    if not isinstance(execution, Rows):
        raise ProtocolViolation("the query returns no rows")
    return execution


def by_time(batch: pa.RecordBatch) -> Iterator[tuple[int, bool, pa.RecordBatch]]:
    """Yield the rows of each time, in order, with the time and whether they are of progress."""
    if not batch.num_rows:
        return
    times = batch.column(0).to_numpy(zero_copy_only=False)
    progressed = batch.column(1).to_numpy(zero_copy_only=False)
    changes = (times[1:] != times[:-1]) | (progressed[1:] != progressed[:-1])
    bounds = [0, *(np.flatnonzero(changes) + 1).tolist(), batch.num_rows]
    body = batch.select(range(HEAD, batch.num_columns))
    for first, end in pairwise(bounds):
        part = body.slice(first, end - first)
        yield int(times[first]), bool(progressed[first]), part
