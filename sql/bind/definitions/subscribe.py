"""Bind SUBSCRIBE, CREATE SUBSCRIPTION and ALTER SUBSCRIPTION ... ADVANCE.

SUBSCRIBE reads the changes of a query, or of the query of a durable subscription, in these columns:

    each change        mz_timestamp [mz_progressed] mz_diff  columns
    ENVELOPE UPSERT    mz_timestamp [mz_progressed] mz_state key  values
    ENVELOPE DEBEZIUM  mz_timestamp [mz_progressed] mz_state key  before_values  after_values

A PROGRESS row is NULL after its second column, so with PROGRESS all other columns are nullable.
"""

from collections.abc import Sequence
from typing import assert_never

from foreshore.errors import (
    AmbiguousColumn,
    DuplicateColumn,
    FeatureNotSupported,
    InvalidColumnReference,
    SyntaxError_,
    UndefinedColumn,
    UndefinedObject,
    UndefinedTable,
    WrongObjectType,
)
from foreshore.expr.envelope import Debezium, Diffs, Envelope, Upsert
from foreshore.expr.ir import Column, OrderKey
from foreshore.item_view import ItemView
from foreshore.sql import ast
from foreshore.sql.bind.bound_query import BoundQuery
from foreshore.sql.bind.definitions import objects as ddl
from foreshore.sql.bind.planning import Planning, located
from foreshore.sql.bind.query import bind_query
from foreshore.sql.bind.result import plain_query, query_over
from foreshore.sql.bind.time import bind_as_of, bind_time
from foreshore.sql.parse.query import first_select
from foreshore.sql.plan import (
    Advance,
    CreateSubscription,
    OutputOrder,
    Subscribe,
)
from foreshore.sql.rewrite.full_names import dotted
from foreshore.types import BOOL, INT8, MZ_TIMESTAMP, TEXT, ColumnType, RelationDesc

Named = tuple[str, ColumnType]


def bind_subscribe(planning: Planning, tree: ast.SubscribeStatement) -> Subscribe:
    """Return the plan of SUBSCRIBE."""
    if tree.envelope is not None and tree.order_by is not None:
        raise SyntaxError_(
            "conflicting or redundant options",
            detail="WITHIN TIMESTAMP ORDER BY cannot be combined with ENVELOPE.",
            position=tree.envelope.at + 1,
        )
    subscription: ItemView | None = None
    order: tuple[OutputOrder, ...] = ()
    snapshot = tree.options.get("snapshot")
    if tree.durable:
        assert isinstance(tree.source, ast.TableRef), tree
        subscription = _subscription(planning, tree.source)
        assert subscription.definition is not None, subscription
        planning.needs.add(subscription.id, "SELECT", any_column=True)
        query = query_over(subscription.definition, subscription.desc.names)
    else:
        planning.securing.values = planning.catalog.session_value
        bound = bind_query(planning, query_of(tree.source), None)
        order = _output_order(bound)
        query = ddl.maintained_query(plain_query(bound), "SUBSCRIBE")
        snapshot = snapshot is not False
    envelope = _envelope(tree, query.desc)
    progress = tree.options.get("progress", False)
    columns = _columns(envelope, query.desc)
    head: list[Named] = [("mz_timestamp", ColumnType(MZ_TIMESTAMP, False))]
    if progress:
        head.append(("mz_progressed", ColumnType(BOOL, False)))
        columns = [(name, ColumnType(column.type)) for name, column in columns]
    return Subscribe(
        query,
        snapshot,
        progress,
        None if tree.as_of is None else bind_as_of(planning, tree.as_of),
        None if tree.up_to is None else bind_time(planning, tree.up_to, "UP TO"),
        envelope,
        _desc([*head, *columns]),
        subscription.id if subscription is not None else None,
        is_of_relation=subscription is None and isinstance(tree.source, ast.TableRef),
        order=order,
    )


def _output_order(bound: BoundQuery) -> tuple[OutputOrder, ...]:
    """Return the first keys of ORDER BY, up to one that is no column of the result."""
    found = []
    for key in bound.order_by:
        if not isinstance(key.expr, Column) or key.expr.index not in bound.project:
            break
        place = bound.project.index(key.expr.index)
        found.append(OutputOrder(place, key.descending, key.nulls_first))
    return tuple(found)


def query_of(source: ast.Query | ast.TableRef) -> ast.Query:
    """Return the query of all rows of a relation, or the query itself."""
    if isinstance(source, ast.Query):
        return source
    star = ast.Target(ast.Star((), source.at), None, source.at)
    select = ast.Select(None, (star,), (source,), None, (), None, source.at)
    return ast.Query(select, source.at)


def _subscription(planning: Planning, ref: ast.TableRef) -> ItemView:
    """Return the subscription of that name."""
    with located(ref.at):
        try:
            item = planning.catalog.resolve_item(ref.name)
        except UndefinedTable:
            name = ".".join(ref.name)
            raise UndefinedObject(f'subscription "{name}" does not exist') from None
        if item.kind != "subscription":
            raise WrongObjectType(f'"{item.name.item}" is not a subscription')
    return item


def bind_create_subscription(
    planning: Planning, tree: ast.CreateSubscriptionStatement
) -> CreateSubscription:
    """Return the plan of CREATE SUBSCRIPTION."""
    with located(tree.name.at):
        name = planning.catalog.resolve_new(tree.name.name)
    source = query_of(tree.source)
    first = first_select(source)
    if first is not None and first.into is not None:
        raise SyntaxError_("SELECT ... INTO is not allowed here", position=tree.at + 1)
    planning.in_view = planning.keeps_text = planning.maintained = True
    query = plain_query(bind_query(planning, source, None))
    query = ddl.maintained_query(query, "a subscription")
    planning.depends_on |= planning.securing.used
    if name.temporary or any(
        planning.catalog.item(each).name.temporary for each in planning.depends_on
    ):
        raise FeatureNotSupported("subscriptions must not use temporary tables or views")
    text = ddl.kept_text(planning, tree.at, tree.end)
    if isinstance(tree.source, ast.TableRef):
        text = f"SELECT * FROM {text}"
    sql = f"CREATE SUBSCRIPTION {dotted(name.parts)} FOR ({text})"
    depends_on = frozenset(planning.depends_on)
    needs = planning.needs.all()
    return CreateSubscription(name, query, tree.if_not_exists, depends_on, sql, needs)


def bind_advance(planning: Planning, tree: ast.AdvanceStatement) -> Advance:
    """Return the plan of ALTER SUBSCRIPTION ... ADVANCE TO."""
    since = None if tree.since is None else bind_time(planning, tree.since, "ADVANCE FROM")
    to = bind_time(planning, tree.to, "ADVANCE TO")
    try:
        return Advance(_subscription(planning, tree.name).id, since, to)
    except UndefinedObject as error:
        if not tree.if_exists:
            raise
        return Advance(None, since, to, (f"{error.message}, skipping",))


def _desc(columns: Sequence[Named]) -> RelationDesc:
    return RelationDesc(tuple(n for n, _ in columns), tuple(c for _, c in columns))


def _envelope(tree: ast.SubscribeStatement, desc: RelationDesc) -> Envelope:
    if tree.envelope is None:
        return Diffs(tuple(_order_key(key, desc) for key in tree.order_by or ()))
    key: list[int] = []
    for name, at in tree.envelope.key:
        place = _place(desc.names, name, at)
        if place in key:
            raise DuplicateColumn(f'column "{name}" specified more than once', position=at + 1)
        key.append(place)
    return Upsert(tuple(key)) if tree.envelope.kind == "upsert" else Debezium(tuple(key))


def _order_key(key: ast.SortKey, desc: RelationDesc) -> OrderKey:
    if not isinstance(key.expr, ast.ColumnRef) or len(key.expr.parts) != 1:
        raise InvalidColumnReference(
            "WITHIN TIMESTAMP ORDER BY takes names of columns only", position=key.at + 1
        )
    columns = (ColumnType(INT8, False), *desc.columns)
    place = _place(("mz_diff", *desc.names), key.expr.parts[0], key.at)
    nulls_first = key.descending if key.nulls_first is None else key.nulls_first
    column = Column(place, columns[place].type, columns[place].nullable)
    return OrderKey(column, key.descending, nulls_first)


def _place(names: Sequence[str], name: str, at: int) -> int:
    """Return the position of the column that is named."""
    found = [place for place, each in enumerate(names) if each == name]
    if not found:
        raise UndefinedColumn(f'column "{name}" does not exist', position=at + 1)
    if len(found) > 1:
        raise AmbiguousColumn(f'column reference "{name}" is ambiguous', position=at + 1)
    return found[0]


def _columns(envelope: Envelope, desc: RelationDesc) -> list[Named]:
    """Return the columns after the time."""
    named = list(zip(desc.names, desc.columns, strict=True))
    if isinstance(envelope, Diffs):
        return [("mz_diff", ColumnType(INT8, False)), *named]
    key = [named[place] for place in envelope.key]
    values = [each for place, each in enumerate(named) if place not in envelope.key]
    state = ("mz_state", ColumnType(TEXT, False))
    match envelope:
        case Upsert():
            return [state, *key, *((name, ColumnType(c.type)) for name, c in values)]
        case Debezium():
            both = [
                (f"{when}_{name}", ColumnType(column.type))
                for when in ("before", "after")
                for name, column in values
            ]
            return [state, *key, *both]
        case _:
            assert_never(envelope)
