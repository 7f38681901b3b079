"""Row-level security: the rows of a table that a statement sees, and those that it may write.

    SELECT * FROM orders    ->    Filter(Get(orders), seller = current_user)

A table that a statement names is replaced by the rows that its policies show to the role whose
rights count there: a view's owner within a view, else the current role. The filter is a barrier:
the optimizer moves nothing that may fail below it, and errors are part of plans, so no engine can
evaluate what may fail for a hidden row. Which policies count for what follows PostgreSQL
(`get_row_security_policies`).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from foreshore.errors import DatabaseError, InvalidObjectDefinition
from foreshore.expr.columns import columns_of
from foreshore.expr.ir import (
    Call,
    Column,
    Environment,
    Filter,
    Get,
    Literal,
    Or,
    Project,
    Relation,
    Scalar,
)
from foreshore.expr.share import put_in
from foreshore.expr.traversal import walk_relations
from foreshore.item_view import ItemView
from foreshore.policy import PolicyCommand, PolicyTexts, PolicyView
from foreshore.sql import ast
from foreshore.sql.bind.binder import Clause
from foreshore.sql.bind.bound_query import filtered
from foreshore.sql.bind.expression import ExpressionBinder
from foreshore.sql.bind.planning import Planning
from foreshore.sql.bind.scope import Scope, Slot, Table
from foreshore.sql.lower.outer_columns import has_subquery
from foreshore.sql.optimize.pipeline import BARRIER
from foreshore.sql.rewrite.scalars import map_scalar
from foreshore.types import BOOL, Datum

# --- rows that are seen -----------------------------------------------------------------------


def policies_of(planning: Planning, view: ItemView) -> tuple[PolicyView, ...] | None:
    """Return the policies of a table that count here; None if none restrict the role."""
    if view.policies is None or planning.defining:
        return None
    return view.policies(None if planning.needs.depth else planning.as_role)


def visible(
    planning: Planning,
    view: ItemView,
    relation: Relation,
    commands: Sequence[PolicyCommand] = ("select",),
) -> Relation:
    """Return the rows of `relation`, which reads a table, that policies show to all `commands`."""
    policies = policies_of(planning, view)
    if policies is None:
        return relation
    planning.securing.restricts = True
    table = table_of(view, relation)
    with securing(planning, view):
        conditions = dict.fromkeys(
            condition
            for command in commands
            for condition in _conditions(planning, view, policies, command)
        )
    shown = _filtered(table, tuple(conditions))
    return shown if relation is table else put_in(relation, {view.id: shown})


def _filtered(relation: Relation, conditions: Sequence[Scalar]) -> Relation:
    for condition in conditions:
        relation = filtered(relation, condition)
    first = next(iter(columns_of(relation)), None)
    if first is not None and any(map(has_subquery, conditions)):
        # A subquery becomes a join, and joins are merged with others: this keeps them apart.
        relation = Filter(
            relation, (Call(BARRIER, (Column(0, first.type, first.nullable),), BOOL),)
        )
    return relation


def _conditions(
    planning: Planning,
    view: ItemView,
    policies: Sequence[PolicyView],
    command: PolicyCommand,
) -> list[Scalar]:
    """Return the conditions of USING for a command, all of which a row must satisfy."""
    permissive, restrictive = chosen(policies, command)
    usings = [(each, each.texts.using) for each in permissive if each.texts.using is not None]
    if not usings:
        return [Literal(False, BOOL)]
    found = [
        policy_condition(planning, view, each, each.texts.using)
        for each in restrictive
        if each.texts.using is not None
    ]
    return [*found, any_of([policy_condition(planning, view, *pair) for pair in usings])]


def chosen(
    policies: Sequence[PolicyView], command: PolicyCommand
) -> tuple[list[PolicyView], list[PolicyView]]:
    """Return the permissive and the restrictive policies for a command, the latter by name."""
    found = [each for each in policies if each.command in ("all", command)]
    restrictive = sorted((p for p in found if not p.permissive), key=lambda p: p.name)
    return [each for each in found if each.permissive], restrictive


def any_of(conditions: Sequence[Scalar]) -> Scalar:
    """Return the disjunction of conditions."""
    return conditions[0] if len(conditions) == 1 else Or(tuple(conditions))


# --- expressions ------------------------------------------------------------------------------


def policy_condition(planning: Planning, view: ItemView, policy: PolicyView, text: str) -> Scalar:
    """Return an expression of a policy over the row of its table."""
    with _within(planning, policy, text):
        found = bind_text(planning, planning.catalog.item(view.id), policy.texts, text)
    values = planning.securing.values
    return found if values is None else map_scalar(found, partial(_with_value, values))


_FIXED = ("current_user", "session_user", "current_database", "current_setting")


def _with_value(values: Callable[[str], Datum], node: Scalar, depth: int) -> Scalar | None:
    """Return the value that a session has for an Environment scalar now."""
    if isinstance(node, Environment) and node.name.startswith(_FIXED):
        return Literal(values(node.name), node.type)
    return None


def bind_text(planning: Planning, view: ItemView, texts: PolicyTexts, text: str) -> Scalar:
    """Return an expression over the row of a table, called as in `texts`."""
    from foreshore.sql.bind.user_functions import syntax_of

    syntax = syntax_of(text, True)
    assert not isinstance(syntax, ast.Query), text
    binder = ExpressionBinder(planning, _row(view, texts), Clause("policy expressions"))
    return binder.boolean(syntax, "POLICY")


def _row(view: ItemView, texts: PolicyTexts) -> Scope:
    """Return the scope of a table's row, with the columns' names as the policy knows them."""
    places: Sequence[int] = range(len(view.desc.names))
    if isinstance(view.definition, Project):  # the table was altered since it was written
        places = view.definition.outputs
    columns = list(table_of(view, view.definition).columns)
    slots = tuple(
        Slot(name, place)
        for name, place in zip(view.desc.names, places, strict=True)
        if place < len(columns)  # else the column was dropped
    )
    return Scope(columns, [Table(texts.table, texts.schema, slots)], list(slots))


@contextmanager
def _within(planning: Planning, policy: PolicyView, text: str) -> Iterator[None]:
    """Bind with the names of a policy's statement."""
    before = (planning.catalog, planning.text, planning.common_tables, planning.in_function)
    kept = (planning.init_plans, planning.changes, len(planning.qualified))
    depends_on = planning.depends_on
    planning.depends_on = planning.securing.used
    planning.catalog = planning.catalog.within(policy.id)
    planning.text, planning.common_tables, planning.in_function = text, [], policy.name
    planning.init_plans = planning.changes = None
    try:
        yield
    except DatabaseError as error:
        error.position = None
        if planning.maintained and error.detail is None:
            error.detail = f'Policy "{policy.name}" needs it.'
        raise
    finally:
        planning.catalog, planning.text, planning.common_tables, planning.in_function = before
        planning.init_plans, planning.changes, qualified = kept
        del planning.qualified[qualified:]
        planning.depends_on = depends_on


@contextmanager
def securing(planning: Planning, view: ItemView) -> Iterator[None]:
    """Refuse policies that read their own table."""
    tables = planning.securing.tables
    if view.id in tables:
        raise InvalidObjectDefinition(
            f'infinite recursion detected in policy for relation "{view.name.item}"'
        )
    tables.add(view.id)
    try:
        yield
    finally:
        tables.discard(view.id)


def table_of(view: ItemView, relation: Relation | None) -> Get:
    """Return the table's own Get in a relation over it."""
    if relation is None:
        desc = view.desc
        return Get(view.id, desc.columns, desc.keys, desc.append_only, desc.watermark)
    found = (each for each in walk_relations(relation) if isinstance(each, Get))
    return next(each for each in found if each.id == view.id)
