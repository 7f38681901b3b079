"""Bind the constraints of tables: keys and CHECKs, with PostgreSQL's names where they have none."""

from collections.abc import Sequence

from foreshore.constraint import Check, Constraint, Unique
from foreshore.errors import (
    DuplicateColumn,
    DuplicateObject,
    InvalidTableDefinition,
    UndefinedColumn,
)
from foreshore.expr.ir import Scalar
from foreshore.expr.split import columns_used
from foreshore.item_view import Name
from foreshore.sql import ast
from foreshore.sql.bind.binder import Clause
from foreshore.sql.bind.definitions.column import object_name
from foreshore.sql.bind.expression import ExpressionBinder
from foreshore.sql.bind.planning import Planning
from foreshore.sql.bind.positions import at_of
from foreshore.sql.bind.scope import row_scope
from foreshore.sql.bind.subquery import check_no_subquery
from foreshore.sql.bind.type_names import qualified_types
from foreshore.sql.bind.widths import check_index_columns
from foreshore.sql.parse.keywords import quote_identifier
from foreshore.sql.rewrite.column_names import without_qualifiers
from foreshore.sql.rewrite.parentheses import without_enclosing
from foreshore.types import ColumnType


def refuse_two_primary_keys(name: Name, constraints: Sequence[ast.ConstraintDefinition]) -> None:
    """Raise InvalidTableDefinition if there are several primary keys."""
    if [each.kind for each in constraints].count("primary key") > 1:
        raise InvalidTableDefinition(
            f'multiple primary keys for table "{name.item}" are not allowed'
        )


def bound_constraints(
    planning: Planning,
    table: Name,
    names: tuple[str, ...],
    columns: Sequence[ColumnType],
    definitions: Sequence[ast.ConstraintDefinition],
) -> tuple[Constraint, ...]:
    """Return the constraints, the primary key first; unnamed ones get PostgreSQL's names."""
    taken: set[str] = set()
    for each in definitions:
        if each.name is not None:
            if each.name in taken:
                raise DuplicateObject(
                    f'constraint "{each.name}" for relation "{table.item}" already exists'
                )
            taken.add(each.name)

    following: dict[tuple[str, str], int] = {}  # numbers, by what is before them in a name

    def named(each: ast.ConstraintDefinition, middle: str, label: str) -> str:
        if each.name is not None:
            return each.name
        is_index = each.kind != "check"
        first = following.get((middle, label), 0)
        for number in range(first, len(taken) + 1_000_000):
            found = object_name(table.item, middle, f"{label}{number or ''}")
            name = Name(table.database, table.schema, found)
            if found not in taken and not (is_index and planning.catalog.is_taken(name)):
                taken.add(found)
                following[middle, label] = number + 1
                return found
        raise AssertionError

    order = {"primary key": 0, "unique": 1, "check": 2}
    found: list[Constraint] = []
    for each in sorted(definitions, key=lambda each: order[each.kind]):
        if each.kind == "check":
            condition = _condition(planning, table, names, columns, each)
            used = sorted(columns_used(condition))
            middle = names[used[0]] if len(used) == 1 else ""
            types = qualified_types(planning, each.text, each.text_at)
            text = without_qualifiers(each.text, each.text_at, each.condition, types)
            text = without_enclosing(text)
            found.append(Check(named(each, middle, "check"), condition, text))
            continue
        positions = _positions(names, each, defined=planning.defined)
        primary = each.kind == "primary key"
        middle = "" if primary else "_".join(names[i] for i in positions)
        label = "pkey" if primary else "idx" if each.is_index else "key"
        name = named(each, middle, label)
        found.append(Unique(name, positions, primary, each.nulls_distinct, each.is_index))
    return tuple(found)


def _positions(
    names: tuple[str, ...], definition: ast.ConstraintDefinition, *, defined: bool
) -> tuple[int, ...]:
    check_index_columns(len(definition.columns), defined=defined)
    positions: list[int] = []
    for column, at in definition.columns:
        if column not in names:
            raise UndefinedColumn(
                f'column "{column}" named in key does not exist', position=definition.at + 1
            )
        if names.index(column) in positions:
            raise DuplicateColumn(
                f'column "{column}" appears twice in {definition.kind} constraint',
                position=at + 1 if definition.name is None else definition.at + 1,
            )
        positions.append(names.index(column))
    return tuple(positions)


def _condition(
    planning: Planning,
    table: Name,
    names: tuple[str, ...],
    columns: Sequence[ColumnType],
    definition: ast.ConstraintDefinition,
) -> Scalar:
    assert definition.condition is not None
    # A CHECK is tested on its own, so NULL must be possible even in a NOT NULL column.
    scope = row_scope(table, names, columns)
    binder = ExpressionBinder(planning, scope, Clause("check constraints"))
    condition = binder.boolean(definition.condition, "CHECK")
    check_no_subquery(condition, "check constraint", at_of(definition.condition))
    return condition


def constraint_text(names: tuple[str, ...], constraint: Constraint) -> str:
    """Return a constraint as text of CREATE TABLE; unique indexes have a similar form."""
    if isinstance(constraint, Unique) and constraint.is_index:
        rule = constraint_rule(names, constraint).removeprefix("UNIQUE ")
        return f"UNIQUE INDEX {quote_identifier(constraint.name)} {rule}"
    return f"CONSTRAINT {quote_identifier(constraint.name)} {constraint_rule(names, constraint)}"


def constraint_rule(names: tuple[str, ...], constraint: Constraint) -> str:
    """Return the definition of a constraint without its name."""
    if isinstance(constraint, Check):
        return f"CHECK ({constraint.text})"
    columns = ", ".join(quote_identifier(names[i]) for i in constraint.columns)
    if constraint.primary:
        return f"PRIMARY KEY ({columns})"
    nulls = "" if constraint.nulls_distinct else "NULLS NOT DISTINCT "
    return f"UNIQUE {nulls}({columns})"
