"""Bind what is expected of the rows of a view.

    FAIL       a row that violates it is an error of the view, while it is there
    DROP ROW   such rows are left out
    WARN       such rows stay
    ASSERT NOT NULL   a NULL is an error of the view

A row violates an expectation unless its condition is TRUE. They apply in their order: what an
earlier one drops is not looked at by a later one. `violations` is the query of the materialized
view that counts the violations of each.
"""

from collections.abc import Callable
from dataclasses import replace

from foreshore.errors import DuplicateObject, UndefinedColumn
from foreshore.expr.columns import columns_of
from foreshore.expr.ir import TRUE, Call, Case, Column, Filter, Literal, Relation, Scalar
from foreshore.item_view import Name
from foreshore.kept_definition import SKIP_ERRORS
from foreshore.sql import ast
from foreshore.sql.bind.binder import Clause
from foreshore.sql.bind.bound_query import BoundQuery, plain_relation
from foreshore.sql.bind.coerce import coerce
from foreshore.sql.bind.expression import ExpressionBinder
from foreshore.sql.bind.planning import Planning
from foreshore.sql.bind.scope import Scope, Slot, Table
from foreshore.sql.bind.subquery import check_no_subquery
from foreshore.sql.parse.keywords import quote_identifier, quote_string
from foreshore.sql.rewrite.full_names import dotted
from foreshore.types import BOOL, TEXT


def checked(
    planning: Planning,
    statement: ast.CreateViewStatement,
    bound: BoundQuery,
    names: tuple[str, ...],
) -> BoundQuery:
    """Return the query of a view with its checks."""
    checks = statement.checks
    if not (checks.expectations or checks.not_null):
        return bound
    relation = plain_relation(bound)
    columns = columns_of(relation)
    slots = [Slot(name, i) for i, name in enumerate(names)]
    view = statement.name.name[-1]
    scope = Scope(list(columns), [Table(view, None, tuple(slots))], slots)
    binder = ExpressionBinder(planning, scope, Clause("EXPECT"))
    for name, at in checks.not_null:
        if name not in names:
            raise UndefinedColumn(f'column "{name}" does not exist', position=at + 1)
        type = columns[names.index(name)].type
        there = Call("is_not_null", (Column(names.index(name), type),), BOOL)
        relation = _required(binder, relation, there, "23502", f'column "{name}" must not be null')
    seen: set[str] = set()
    for each in checks.expectations:
        if each.name in seen:
            raise DuplicateObject(
                f'expectation "{each.name}" specified more than once', position=each.at + 1
            )
        seen.add(each.name)
        condition = binder.condition(each.condition)
        check_no_subquery(condition, "EXPECT", each.start)
        text = f'a row of "{view}" violates expectation "{each.name}"'
        if each.action == "drop row":
            relation = Filter(relation, (condition,))
        elif each.action == "fail":
            relation = _required(binder, relation, condition, "23514", text)
    project = tuple(range(len(columns)))
    return replace(bound, relation=relation, project=project, order_by=(), limit=None, offset=None)


def _required(
    binder: ExpressionBinder, relation: Relation, condition: Scalar, state: str, text: str
) -> Relation:
    """Return a relation that has an error for each row for which `condition` is not TRUE."""
    raised = binder.call("_raised", (Literal(state, TEXT), Literal(text, TEXT)), 0)
    failed = coerce(binder.planning, raised, BOOL, "explicit", 0)
    assert failed is not None
    return Filter(relation, (Case(((condition, TRUE),), failed, BOOL),))


def kept_checks(statement: ast.CreateViewStatement, text: Callable[[int, int], str]) -> str:
    """Return the checks as they are kept after the query.

    `text` returns a part of the statement with full names.
    """
    kept = " CONSTRAINT ASSERTION" if statement.checks.assertion else ""
    if statement.checks.not_null:
        names = ", ".join(quote_identifier(name) for name, _ in statement.checks.not_null)
        kept += f" CONSTRAINT ASSERT NOT NULL ({names})"
    for each in statement.checks.expectations:
        kept += (
            f" CONSTRAINT {quote_identifier(each.name)} EXPECT ({_condition(each, text)})"
            f" ON VIOLATION {each.action.upper()}"
        )
    return kept + (SKIP_ERRORS if statement.checks.skip_errors else "")


def _condition(each: ast.Expectation, text: Callable[[int, int], str]) -> str:
    """Return the text of a condition, which has full names if it is that of an option."""
    return each.text or text(each.start, each.end)


def violations(
    statement: ast.CreateViewStatement, query: str, text: Callable[[int, int], str]
) -> str | None:
    """Return the query that counts the violations of each expectation of a view over `query`.

    `text` is as in `kept_checks`.
    """
    counts, rows, before = [], [], ""
    for place, each in enumerate(statement.checks.expectations):
        condition = f"({_condition(each, text)})"
        counts.append(f"count(*) FILTER (WHERE {before}{condition} IS NOT TRUE) AS n{place}")
        rows.append(f"({quote_string(each.name)}, {quote_string(each.action.upper())}, n{place})")
        if each.action == "drop row":
            before += f"{condition} IS TRUE AND "
    if not rows:
        return None
    alias = quote_identifier(statement.name.name[-1])
    if statement.columns:
        alias += f" ({', '.join(map(quote_identifier, statement.columns))})"
    return (
        f"SELECT v.* FROM (SELECT {', '.join(counts)} FROM ({query}) AS {alias}) AS c, "
        f"LATERAL (VALUES {', '.join(rows)}) AS v (expectation, action, violations)"
    )


def counting_view(name: Name, cluster: str | None, query: str, *, skip_errors: bool) -> str:
    """Return the statement of the materialized view that counts the violations of view `name`.

    With `skip_errors` it leaves out the rows with errors, as the view does.
    """
    *path, last = name.parts
    called = dotted((*path, f"{last}_violations"))
    within = "" if cluster is None else f" IN CLUSTER {quote_identifier(cluster)}"
    kept = SKIP_ERRORS if skip_errors else ""
    return f"CREATE MATERIALIZED VIEW {called}{within} AS {query}{kept}"
