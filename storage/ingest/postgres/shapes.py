"""What tables of a server and their publication are at present, as far as streams do not tell it.

Neither a primary key that is dropped, nor a table that is left out of the publication for a while,
nor changes that are not published have messages of their own. So all of that is asked for: in the
snapshot of the rows, whenever a table is described in the stream, and now and then. Constraints and
memberships are told by their oids, so one that was there before and is there again is not taken for
the same. All of this blocks.
"""

from collections.abc import Iterable, Mapping
from contextlib import closing
from typing import Any, NamedTuple, TypeAlias

import psycopg

from foreshore.errors import ObjectNotInPrerequisiteState, UndefinedObject
from foreshore.storage.external.access import Access
from foreshore.storage.external.libpq import open_session
from foreshore.storage.external.postgres_failures import failure
from foreshore.storage.ingest.postgres.layout import Misfit, TableLayout
from foreshore.storage.ingest.postgres.names import closest, quoted

Session: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"

MOST_NAMES = 10  # that a hint has
WITH_SCHEMAS = 150_000  # the version since which publications may have schemas and limits
_SHAPES = """
SELECT c.oid::pg_catalog.int8, n.nspname::text || '.' || c.relname::text,
    coalesce((SELECT k.oid::pg_catalog.int8 FROM pg_catalog.pg_constraint k
        WHERE k.conrelid = c.oid AND k.contype = 'p'), 0),
    coalesce((SELECT min(r.oid::pg_catalog.int8) FROM pg_catalog.pg_publication_rel r
        WHERE r.prpubid = p.oid AND (r.prrelid = c.oid
            OR r.prrelid IN (SELECT a.relid FROM pg_catalog.pg_partition_ancestors(c.oid) a))),
        {schemas}
        CASE WHEN p.puballtables THEN p.oid::pg_catalog.int8 END, 0),
    {limits}
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
CROSS JOIN pg_catalog.pg_publication p
WHERE p.pubname = %s AND c.oid = ANY (%s::pg_catalog.oid[])
"""
_OF_SCHEMAS = """
        (SELECT min(s.oid::pg_catalog.int8) FROM pg_catalog.pg_publication_namespace s
        WHERE s.pnpubid = p.oid AND (s.pnnspid = c.relnamespace OR s.pnnspid IN (
            SELECT l.relnamespace FROM pg_catalog.pg_partition_ancestors(c.oid) a
            JOIN pg_catalog.pg_class l ON l.oid = a.relid))),
"""
_LIMITS = """
    coalesce((SELECT max(CASE WHEN r.prqual IS NOT NULL THEN 'condition' ELSE 'column list' END)
        FROM pg_catalog.pg_publication_rel r
        WHERE r.prpubid = p.oid AND (r.prqual IS NOT NULL OR r.prattrs IS NOT NULL)
        AND (r.prrelid = c.oid
            OR r.prrelid IN (SELECT a.relid FROM pg_catalog.pg_partition_ancestors(c.oid) a))), '')
"""
_STAMP = """
SELECT oid::pg_catalog.int8, xmin::text::pg_catalog.int8,
    pubinsert AND pubupdate AND pubdelete AND pubtruncate
FROM pg_catalog.pg_publication WHERE pubname = %s
"""


class Shape(NamedTuple):
    """A table: its present name, its primary key (0: none), and what publishes it (0: nothing).

    `limit` is what lets the publication leave out some of it: "condition" (of rows), "column list".
    """

    reference: str
    key: int
    published: int
    limit: str = ""


def shapes(connection: Session, publication: str, oids: Iterable[int]) -> dict[int, Shape]:
    """Return what tables are at present, by their oids; those that were dropped are not there."""
    has_schemas = connection.info.server_version >= WITH_SCHEMAS
    schemas, limits = (_OF_SCHEMAS, _LIMITS) if has_schemas else ("", "''::text")
    query = _SHAPES.format(schemas=schemas, limits=limits).encode()
    rows = connection.execute(query, (publication, list(oids)))
    return {oid: Shape(*shape) for oid, *shape in rows}


def stamp_of(connection: Session, publication: str) -> int:
    """Return a number that changes whenever what a publication publishes is changed.

    Raises UndefinedObject if there is no such publication, ObjectNotInPrerequisiteState if it does
    not publish all kinds of changes.
    """
    row = connection.execute(_STAMP.encode(), (publication,)).fetchone()
    if row is None:
        raise _no_publication(connection, publication)
    oid, changed_by, is_whole = row
    if not is_whole:
        raise ObjectNotInPrerequisiteState(
            f'publication "{publication}" does not publish all changes',
            hint=f"Run ALTER PUBLICATION {quoted(publication)} SET"
            " (publish = 'insert, update, delete, truncate') upstream.",
        )
    return int(oid) << 31 ^ int(changed_by)


def _no_publication(connection: Session, publication: str) -> UndefinedObject:
    """Return the error for a publication that does not exist; the hint has one like it."""
    names = connection.execute("SELECT pubname::text FROM pg_catalog.pg_publication").fetchall()
    known = sorted(str(each) for each, *_ in names)
    hint = f"Create it upstream: CREATE PUBLICATION {quoted(publication)} FOR ALL TABLES."
    if like := closest(publication, known):
        hint = f'Perhaps you mean "{like}".'
    elif known:
        hint = f"{hint} There are {', '.join(known[:MOST_NAMES])}."
    (database,) = connection.execute("SELECT current_database()::text").fetchone() or ("",)
    return UndefinedObject(
        f'publication "{publication}" does not exist in database "{database}"', hint=hint
    )


def checked(table: TableLayout, found: Mapping[int, Shape]) -> Shape:
    """Return what a table is; raises Misfit unless that is what its relation relies on."""
    details, reference = table.details, table.table
    shape = found.get(details.oid)
    if shape is None:
        raise Misfit(f'table "{reference}" was dropped')
    if shape.reference != reference:
        raise Misfit(f'table "{reference}" was renamed to "{shape.reference}"')
    if details.key and shape.key != details.key:
        raise Misfit(f'the primary key of "{reference}" was dropped or changed')
    if not shape.published:
        raise Misfit(f'table "{reference}" was taken out of the publication')
    if shape.limit:
        raise Misfit(f'table "{reference}" has a {shape.limit} in the publication')
    return shape


class PublicationChanged(ObjectNotInPrerequisiteState):
    """A publication was altered, so changes may be missing in the stream."""


class Watch:
    """Looks at tables over a session of its own; for one thread."""

    def __init__(
        self, access: Access, publication: str, stamp: int, published: dict[str, int]
    ) -> None:
        """Expect a stamp, and what has tables in the publication, by their parts for that.

        For a part that is missing, what is found first is expected later.
        """
        self._access, self._publication, self._stamp = access, publication, stamp
        self.published = published
        self._session: Session | None = None

    def unfit(self, tables: Iterable[TableLayout]) -> dict[str, str]:
        """Return the references of tables that are not what relations rely on, and why.

        Raises PublicationChanged, or another DatabaseError.
        """
        tables = tuple(tables)
        try:
            if self._session is None:
                self._session = open_session(self._access)
            if stamp_of(self._session, self._publication) != self._stamp:
                raise PublicationChanged(
                    f'publication "{self._publication}" was altered: all rows are read again'
                )
            oids = [each.details.oid for each in tables]
            found = shapes(self._session, self._publication, oids)
        except psycopg.Error as error:
            raise failure(error) from error
        why: dict[str, str] = {}
        for each in tables:
            try:
                shape = checked(each, found)
            except Misfit as error:
                why[each.reference] = str(error)
                continue
            if self.published.setdefault(each.published_part, shape.published) != shape.published:
                raise PublicationChanged(
                    f'table "{each.table}" was out of the publication: all rows are read again'
                )
        return why

    def close(self) -> None:
        """End the session."""
        if self._session is not None:
            with closing(self._session):
                self._session = None
