"""Bind CREATE DOMAIN."""

from foreshore.domain import Domain, DomainCheck
from foreshore.errors import DuplicateObject, SyntaxError_
from foreshore.expr.ir import Literal, Scalar
from foreshore.sql import ast
from foreshore.sql.bind.binder import Clause
from foreshore.sql.bind.definitions.column import bind_default, qualified_default
from foreshore.sql.bind.expression import ExpressionBinder
from foreshore.sql.bind.planning import Planning, located
from foreshore.sql.bind.positions import at_of
from foreshore.sql.bind.scope import Scope, Slot, Table
from foreshore.sql.bind.subquery import check_no_subquery
from foreshore.sql.bind.type_names import domain_of_name, qualified_types, type_of_name
from foreshore.sql.parse.collations import check_collatable
from foreshore.sql.parse.keywords import quote_identifier
from foreshore.sql.plan import CreateDomain
from foreshore.sql.rewrite.column_names import without_qualifiers
from foreshore.sql.rewrite.constant_text import constant_text, expression_text
from foreshore.sql.rewrite.full_names import dotted
from foreshore.sql.rewrite.parentheses import without_enclosing
from foreshore.types import ColumnType, SqlType, written_type

_VALUE = "value"


def bind_create_domain(planning: Planning, statement: ast.CreateDomainStatement) -> CreateDomain:
    """Return the plan of CREATE DOMAIN."""
    with located(statement.name.at):
        name = planning.catalog.resolve_new(statement.name.name)
    planning.in_view = True  # without parameters
    value = statement.value
    if value.nullable and value.not_null:
        raise SyntaxError_("conflicting NULL/NOT NULL constraints")
    base = type_of_name(value.type, planning)
    if value.collated_at is not None:
        check_collatable(base, value.collated_at)
    parent = domain_of_name(value.type, planning)
    sql = f"CREATE DOMAIN {dotted(name.parts)} AS "
    sql += written_type(base) if parent is None else dotted(parent.parts)
    default: Scalar | None = None if parent is None else parent.default
    shown = None if parent is None else parent.default_text
    if value.default is not None:
        default = bind_default(planning, value.default, name.item, base)
        written = qualified_default(planning, value)
        shown = _shown(default, written)
        sql += f" DEFAULT {written}"
    if value.not_null:
        sql += " NOT NULL"
    inherited = () if parent is None else parent.checks
    checks: list[DomainCheck] = []
    for each in statement.constraints:
        check = _check(planning, each, _free_name(name.item, each, checks), base)
        checks.append(check)
        sql += f" CONSTRAINT {quote_identifier(check.name)} CHECK ({check.text})"
    domain = Domain(
        name.parts,
        base,
        value.not_null or (parent is not None and parent.not_null),
        (*inherited, *checks),
        default,
        shown,
    )
    return CreateDomain(name, domain, frozenset(planning.depends_on), sql)


def _shown(default: Scalar, written: str) -> str | None:
    """Return the text of a default; `written` is how its author wrote it."""
    if not isinstance(default, Literal):
        return expression_text(written)
    return None if default.value is None else constant_text(default, written)


def _free_name(domain: str, each: ast.ConstraintDefinition, taken: list[DomainCheck]) -> str:
    names = {check.name for check in taken}
    if each.name is not None:
        if each.name in names:
            raise DuplicateObject(f'constraint "{each.name}" for domain {domain} already exists')
        return each.name
    number = 0
    while (found := f"{domain}_check{number or ''}") in names:
        number += 1
    return found


def _check(
    planning: Planning, each: ast.ConstraintDefinition, name: str, base: SqlType
) -> DomainCheck:
    assert each.condition is not None, each
    slots = (Slot(_VALUE, 0),)
    scope = Scope([ColumnType(base)], [Table("", None, slots)], list(slots))
    binder = ExpressionBinder(planning, scope, Clause("check constraints"))
    condition = binder.boolean(each.condition, "CHECK")
    check_no_subquery(condition, "check constraint", at_of(each.condition))
    types = qualified_types(planning, each.text, each.text_at)
    text = without_qualifiers(each.text, each.text_at, each.condition, types)
    return DomainCheck(name, condition, without_enclosing(text))
