"""Bind CREATE, ALTER and DROP POLICY, and ALTER TABLE ... ROW LEVEL SECURITY.

The expressions of a policy are kept with full names. They are bound again in each statement that
they concern (`sql/bind/row_security.py`), for the role that counts there.
"""

from foreshore.errors import (
    DatabaseError,
    InsufficientPrivilege,
    SyntaxError_,
    UndefinedTable,
    WrongObjectType,
)
from foreshore.expr.ir import Relation
from foreshore.item_view import ItemView
from foreshore.policy import PolicyTexts
from foreshore.sql import ast
from foreshore.sql.bind.bound_query import filtered
from foreshore.sql.bind.from_clause import alias_of
from foreshore.sql.bind.planning import Planning, located
from foreshore.sql.bind.result import lower_and_optimize
from foreshore.sql.bind.row_security import bind_text, table_of
from foreshore.sql.plan import (
    AlterPolicy,
    CommentPolicy,
    CreatePolicy,
    DropPolicy,
    SetRowSecurity,
)
from foreshore.sql.rewrite.policy_texts import policy_statement
from foreshore.sql.rewrite.text_edits import apply_edits


def bind_create_policy(planning: Planning, statement: ast.CreatePolicyStatement) -> CreatePolicy:
    """Return the plan of CREATE POLICY."""
    if statement.check is not None and statement.command in ("select", "delete"):
        raise SyntaxError_("WITH CHECK cannot be applied to SELECT or DELETE")
    if statement.using is not None and statement.command == "insert":
        raise SyntaxError_("only WITH CHECK expression allowed for INSERT")
    view = _table(planning, statement.table)
    name, schema = alias_of(statement.table, view)
    planning.in_view = planning.keeps_text = planning.defining = True
    planning.depends_on.add(view.id)
    texts = PolicyTexts(name, schema, None, None)
    using, rows = _kept(planning, view, texts, statement.using)
    check, checked = _kept(planning, view, texts, statement.check)
    planning.needs.clear()  # its expressions are checked for those whose statements they concern
    parts = (view.name.database, view.name.schema, view.name.item)
    full = [part for part in parts if part is not None]
    return CreatePolicy(
        statement.name,
        view.id,
        statement.command,
        statement.permissive,
        statement.roles,
        (*rows, *checked),
        policy_statement(statement.name, full, using, check),
        frozenset(planning.depends_on),
    )


def _kept(
    planning: Planning, view: ItemView, texts: PolicyTexts, given: ast.PolicyExpression | None
) -> tuple[str | None, tuple[Relation, ...]]:
    """Return the text of an expression with full names, and the rows that satisfy it.

    Raises an error if it cannot be bound.
    """
    if given is None:
        return None, ()
    text, before = planning.text, len(planning.qualified)
    planning.text = given.text
    try:
        condition = bind_text(planning, view, texts, given.text)
        rows = lower_and_optimize(filtered(table_of(view, view.definition), condition))
        return apply_edits(given.text, set(planning.qualified[before:])), (rows,)
    except DatabaseError as error:
        if error.position is not None:
            error.position += given.at
        raise
    finally:
        planning.text = text
        del planning.qualified[before:]


def bind_alter_policy(planning: Planning, statement: ast.AlterPolicyStatement) -> AlterPolicy:
    """Return the plan of ALTER POLICY."""
    view = _table(planning, statement.table)
    for each in (statement.using, statement.check):
        planning.in_view = planning.defining = True
        _kept(planning, view, PolicyTexts(*alias_of(statement.table, view), None, None), each)
    planning.needs.clear()
    using, check = statement.using, statement.check
    return AlterPolicy(
        statement.name,
        view.id,
        statement.rename,
        statement.roles,
        None if using is None else using.text,
        None if check is None else check.text,
    )


def bind_drop_policy(planning: Planning, statement: ast.DropPolicyStatement) -> DropPolicy:
    """Return the plan of DROP POLICY."""
    view = _table_if_exists(planning, statement.table, statement.if_exists)
    id = None if view is None else view.id
    return DropPolicy(statement.name, id, ".".join(statement.table.name), statement.if_exists)


def bind_comment_policy(planning: Planning, statement: ast.CommentPolicyStatement) -> CommentPolicy:
    """Return the plan of COMMENT ON POLICY."""
    view = _table(planning, statement.table)
    return CommentPolicy(statement.name, view.id, statement.text or None)


def bind_row_security(planning: Planning, statement: ast.RowSecurityStatement) -> SetRowSecurity:
    """Return the plan of ALTER TABLE ... ROW LEVEL SECURITY."""
    try:
        view = _table_if_exists(planning, statement.table, statement.if_exists)
    except WrongObjectType as error:
        action = statement.actions[0].upper()
        raise WrongObjectType(
            f"ALTER action {action} ROW SECURITY cannot be performed on relation"
            f' "{statement.table.name[-1]}"',
            detail="This operation is not supported for views."
            if planning.catalog.resolve_item(statement.table.name).kind == "view"
            else error.detail,
        ) from None
    id = None if view is None else view.id
    return SetRowSecurity(id, ".".join(statement.table.name), statement.actions)


def _table_if_exists(planning: Planning, ref: ast.TableRef, if_exists: bool) -> ItemView | None:
    try:
        return _table(planning, ref)
    except UndefinedTable:
        if not if_exists:
            raise
        return None


def _table(planning: Planning, ref: ast.TableRef) -> ItemView:
    with located(ref.at):
        try:
            view = planning.catalog.resolve_item(ref.name)
        except UndefinedTable as error:
            error.position = None
            raise
    name = view.name.item
    if view.kind == "builtin":
        raise InsufficientPrivilege(f'permission denied: "{name}" is a system catalog')
    if view.kind != "table":
        raise WrongObjectType(f'"{name}" is not a table')
    return view
