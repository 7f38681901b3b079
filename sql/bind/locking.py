"""Bind SELECT ... FOR UPDATE and similar clauses, and LOCK TABLE.

A clause locks rows of the relations in FROM, or of those it names: of tables, and of the tables
below views and subqueries there, but not of queries of WITH. With SKIP LOCKED, rows are identified
by a key of the table, whose columns follow the query's own, and LIMIT counts locked rows.

A subquery with such a clause becomes a separate query, an init plan, whose rows the statement reads
as a statement-local collection.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal as OneOf

from msgspec.structs import replace as with_fields

from foreshore.errors import (
    DatabaseError,
    FeatureNotSupported,
    SyntaxError_,
    UndefinedTable,
    WrongObjectType,
)
from foreshore.expr.ir import Get
from foreshore.ids import GlobalId
from foreshore.item_view import ItemView
from foreshore.privileges import Privilege
from foreshore.sql import ast
from foreshore.sql.bind.bound_query import BoundQuery, Wanted, plain_relation
from foreshore.sql.bind.planning import Planning, Reference, located
from foreshore.sql.bind.result import finished_query
from foreshore.sql.bind.scope import Scope
from foreshore.sql.plan import InitPlan, Locking, LockTable, Query, Select, Wait
from foreshore.sql.rewrite.scalars import has_own_lets, is_closed

_WAITS: tuple[Wait, ...] = ("block", "skip", "error")  # in order of priority, if several are given
# Modes that do not conflict with readers and writers of rows.
_WEAK = ("access share", "row share", "row exclusive")


@dataclass(frozen=True, slots=True)
class Source:
    """An item of FROM: a relation, a query, or an item without lockable rows."""

    name: str | None
    of: ItemView | ast.Query | OneOf["function", "join", "WITH query"]
    nullable: bool  # whether it is on the nullable side of an outer join
    columns: tuple[str, ...] = ()  # names that FROM gives to the first columns of a relation
    at: int = -1  # the offset of a relation's name


def bind_locking_query(
    planning: Planning, query: ast.Query, parent: Scope | None = None, wanted: Wanted = None
) -> tuple[Query, Locking | None]:
    """Return a query that may have FOR UPDATE, and its row locks."""
    if not query.locks:
        return finished_query(planning.binding.query(planning, query, parent, wanted)), None
    before = planning.locking
    with suppress(DatabaseError):  # it is reported where it is met
        planning.locking = frozenset(_references(planning, query))
    try:
        return _bind_locking(planning, query, parent, wanted)
    finally:
        planning.locking = before


def _bind_locking(
    planning: Planning, query: ast.Query, parent: Scope | None, wanted: Wanted
) -> tuple[Query, Locking | None]:
    """Return a query with FOR UPDATE, and its row locks."""
    wait = max((each.wait for each in query.locks), key=_WAITS.index)
    strength = query.locks[0].strength
    planning.locked = query
    bound = planning.binding.query(
        planning, query, parent, wanted
    )  # reports errors of the query as written
    whole = plain_relation(bound)
    if not (is_closed(whole) and has_own_lets(whole)):
        raise FeatureNotSupported(
            f"{strength} in a subquery that depends on outer rows or queries is not supported",
            position=query.locks[0].at + 1,
        )
    tables = _tables(planning, query)
    skipping = _with_key(planning, query) if wait == "skip" else None
    if skipping is None:
        if wait == "skip" and len(tables) > 1:
            raise FeatureNotSupported(
                "SKIP LOCKED over more than one table is not supported",
                position=query.locks[0].at + 1,
            )
        return finished_query(bound), Locking(tables, strength, wait)
    planning.locked, key = skipping
    bound = planning.binding.query(planning, planning.locked, parent, wanted)
    finished = finished_query(replace(bound, limit=None, offset=None))
    if finished.row_outputs:
        raise FeatureNotSupported(
            "functions with side effects are not supported with SKIP LOCKED",
            position=query.locks[0].at + 1,
        )
    return finished, Locking(tables, strength, wait, key, bound.limit, bound.offset)


def bind_init_plan(
    planning: Planning, query: ast.Query, parent: Scope | None, wanted: Wanted
) -> BoundQuery:
    """Return the rows of a subquery with FOR UPDATE, computed before the statement reads.

    Raises FeatureNotSupported if such a subquery is not allowed here, or if it depends on outer
    rows or queries.
    """
    plans = planning.init_plans
    if plans is None:
        raise locking_not_allowed(query)
    if id(query) not in plans:
        kept = planning.locked, planning.changes
        planning.init_plans = planning.changes = None
        found, locking = bind_locking_query(planning, query, parent, wanted)
        planning.locked, planning.changes = kept
        planning.init_plans = plans
        plans[id(query)] = InitPlan(GlobalId(f"i{len(plans) + 1}"), Select(found, locking=locking))
    plan = plans[id(query)]
    assert isinstance(plan.plan, Select)
    desc = plan.plan.desc
    return BoundQuery(Get(plan.id, desc.columns), tuple(range(len(desc.columns))), desc.names)


def locking_not_allowed(query: ast.Query) -> FeatureNotSupported:
    """Return the error for FOR UPDATE where no rows can be locked."""
    clause = query.locks[0]
    return FeatureNotSupported(
        f"{clause.strength} in a subquery is not supported here",
        hint="Run SELECT ... FOR UPDATE first, in the same transaction block.",
        position=clause.at + 1,
    )


def _with_key(planning: Planning, query: ast.Query) -> tuple[ast.Query, tuple[int, ...]] | None:
    """Return the query with key columns of its one table appended, and the key.

    Returns None if it is not over one table that has a key.
    """
    body = query.body
    if not isinstance(body, ast.Select) or len(body.from_) != 1:
        return None
    ref = body.from_[0]
    if not isinstance(ref, ast.TableRef):
        return None
    (source,) = sources_in(planning, (ref,), names_of(query), nullable=False)
    if not isinstance(source.of, ItemView):
        return None
    if source.of.kind != "table" or not source.of.desc.keys:
        return None
    key = source.of.desc.keys[0]
    names = [*ref.columns, *source.of.desc.names[len(ref.columns) :]]
    assert source.name is not None
    targets = tuple(
        ast.Target(ast.ColumnRef((source.name, names[i]), body.at), None, body.at) for i in key
    )
    wide = with_fields(body, targets=body.targets + targets)
    return with_fields(query, body=wide), key


# --- relations to lock -----------------------------------------------------------------------


def _tables(planning: Planning, query: ast.Query) -> tuple[GlobalId, ...]:
    """Return the tables and views whose rows a query's clauses lock."""
    return tuple(dict.fromkeys(id for id, _ in _references(planning, query)))


def _references(planning: Planning, query: ast.Query) -> tuple[Reference, ...]:
    """Return what a query's clauses lock; of two aliases of a table it may be one."""
    found: dict[Reference, None] = {}
    sources = list(_sources_of(planning, query))
    for clause in query.locks:
        named = sources
        if clause.of:
            named = [_named(sources, clause, name, at) for name, at in clause.of]
        for source in named:
            found.update(dict.fromkeys(_ids(planning, source, clause.strength)))
    return tuple(found)


def _named(
    sources: list[Source], clause: ast.LockingClause, name: tuple[str, ...], at: int
) -> Source:
    if len(name) > 1:
        raise SyntaxError_(
            f"{clause.strength} must specify unqualified relation names", position=at + 1
        )
    for source in sources:
        if source.name == name[0]:
            if isinstance(source.of, str):
                raise FeatureNotSupported(
                    f"{clause.strength} cannot be applied to a {source.of}",
                    position=at + 1,
                )
            return source
    raise UndefinedTable(
        f'relation "{name[0]}" in {clause.strength} clause not found in FROM clause',
        position=at + 1,
    )


def _ids(planning: Planning, source: Source, strength: str) -> Iterator[Reference]:
    if source.nullable and not isinstance(source.of, str):
        raise FeatureNotSupported(
            f"{strength} cannot be applied to the nullable side of an outer join"
        )
    match source.of:
        case ItemView(kind="materialized view", name=name):
            raise WrongObjectType(f'cannot lock rows in materialized view "{name.item}"')
        case ItemView(kind="table" | "view", id=id):
            planning.needs.add(id, "UPDATE", any_column=True)
            yield id, source.at
        case ast.Query() as query:
            for each in _sources_of(planning, query):
                yield from _ids(planning, each, strength)


def locked_below(planning: Planning, query: ast.Query) -> frozenset[Reference]:
    """Return the tables and views in FROM of a view's query, which FOR UPDATE of the view locks."""
    found: set[Reference] = set()
    for source in _sources_of(planning, query):
        match source.of:
            case ItemView(kind="table" | "view", id=id):
                found.add((id, source.at))
            case ast.Query() as below:
                found |= locked_below(planning, below)
    return frozenset(found)


def _sources_of(planning: Planning, query: ast.Query) -> Iterator[Source]:
    stack: list[object] = [query]
    while stack:
        match stack.pop():
            case ast.Query(body=body):
                stack.append(body)
            case ast.SetOperation(inputs=inputs):
                stack.extend(inputs)
            case ast.Select(from_=items):
                yield from sources_in(planning, items, names_of(query), nullable=False)


def names_of(query: ast.Query) -> frozenset[str]:
    """Return the names of the queries of WITH."""
    return frozenset(each.name for each in query.ctes)


def sources_in(
    planning: Planning, items: tuple[ast.FromItem, ...], ctes: frozenset[str], *, nullable: bool
) -> Iterator[Source]:
    """Yield the items of FROM, those of joins by themselves."""
    for item in items:
        match item:
            case ast.TableRef(name=name) if len(name) == 1 and name[0] in ctes:
                yield Source(item.alias or name[0], "WITH query", nullable)
            case ast.TableRef(name=name):
                with located(item.at):
                    found = planning.catalog.resolve_item(name)
                yield Source(item.alias or name[-1], found, nullable, item.columns, item.at)
            case ast.SubqueryRef(query=ast.ShowStatement()):
                yield Source(item.alias, "function", nullable)
            case ast.SubqueryRef(query=ast.Query() as query):
                yield Source(item.alias, query, nullable)
            case ast.FunctionRef():
                yield Source(item.alias, "function", nullable)
            case ast.JoinRef(kind=kind):
                left = nullable or kind in ("right", "full")
                right = nullable or kind in ("left", "full")
                if item.alias is not None:
                    yield Source(item.alias, "join", nullable)
                yield from sources_in(planning, (item.left,), ctes, nullable=left)
                yield from sources_in(planning, (item.right,), ctes, nullable=right)


# The rights of which one suffices to lock a table in a mode, and in all other modes.
_WRITERS: tuple[Privilege, ...] = ("UPDATE", "DELETE", "TRUNCATE")
_LOCKERS: Mapping[str, tuple[Privilege, ...]] = {
    "access share": ("SELECT", *_WRITERS),
    "row exclusive": ("INSERT", *_WRITERS),
}

# --- LOCK TABLE ----------------------------------------------------------------------------


def bind_lock_table(planning: Planning, statement: ast.LockTableStatement) -> LockTable:
    """Return the plan of LOCK TABLE."""
    ids: dict[GlobalId, None] = {}
    for ref in statement.tables:
        with located(ref.at):
            item = planning.catalog.resolve_item(ref.name)
        weak = statement.mode in _WEAK  # pg_dump takes ACCESS SHARE on what sources write
        if item.kind not in ("table", "view", "builtin", *(["source"] if weak else [])):
            what = {"index": "indexes"}.get(item.kind, f"{item.kind}s")
            raise WrongObjectType(
                f'cannot lock relation "{item.name.item}"',
                detail=f"This operation is not supported for {what}.",
            )
        if item.kind != "builtin":
            ids[item.id] = None
            first, *others = _LOCKERS.get(statement.mode, _WRITERS)
            planning.needs.add(item.id, first, instead=tuple(others))
    return LockTable(tuple(ids), statement.mode not in _WEAK, statement.nowait)
