"""Check: NOT NULL and CHECK constraints of new rows. Keys are checked when rows are staged.

`RowRules` are a table's constraints compiled for tuples, which a statement about few rows makes.
Rows in columns, and tuples that break a rule, are checked column by column: that finds the first
row with an error, in the order that PostgreSQL has.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from foreshore.adapter.session.context import StatementContext
from foreshore.adapter.write.target import Target
from foreshore.adapter.write.violations import check_fails, failing_row, null_in
from foreshore.catalog.catalog import Planned
from foreshore.constraint import Check
from foreshore.errors import DataError, InternalError
from foreshore.expr.evaluate import outcome
from foreshore.expr.ir import Scalar
from foreshore.expr.pointwise import Cell, compiled
from foreshore.rows import split_diffs
from foreshore.sql.rewrite.bind_parameters import bind_scalar, is_open_scalar, parameter_bindings
from foreshore.table_rows import Row, TableRows


@dataclass(frozen=True, slots=True)
class RowRules:
    """The NOT NULL and CHECK constraints of a table, over one row as a tuple."""

    planned: Planned
    required: tuple[int, ...]  # columns that are NOT NULL
    checks: tuple[Cell, ...]  # conditions that must not be FALSE

    def allow(self, row: Row) -> bool:
        """Whether a row fulfils the constraints; raises DataError if a condition fails."""
        for place in self.required:
            if row[place] is None:
                return False
        return all(check(row) is not False for check in self.checks)


def rules_of(planned: Planned) -> RowRules | None:
    """Return the rules of a table; None if a condition asks for the time or the session."""
    checks = _checks_of(planned)
    if any(is_open_scalar(each.condition) for each in checks):
        return None
    return RowRules(
        planned,
        tuple(i for i, each in enumerate(planned.desc.columns) if not each.nullable),
        tuple(compiled(each.condition) for each in checks),
    )


def _checks_of(planned: Planned) -> list[Check]:
    """Return the CHECK constraints of a table in the order in which they are checked."""
    checks = [each for each in planned.constraints if isinstance(each, Check)]
    return sorted(checks, key=lambda each: each.name)


def check(context: StatementContext, target: Target, rows: TableRows) -> None:
    """Raise NotNullViolation or CheckViolation for the first of new rows that breaks a constraint.

    The constraints are those for which the rows were made; `stage` refuses the rows if the table's
    definition has changed since.
    """
    rules = context.prepared.rules
    if rules is None or rules.planned is not target.planned or not rows.are_tuples:
        _check_columns(context, target, rows)
    elif not _are_allowed(rules, rows.tuples):
        _check_columns(context, target, rows)
        raise InternalError("a row was refused for no reason")


def _are_allowed(rules: RowRules, rows: Sequence[Row]) -> bool:
    try:
        return all(map(rules.allow, rows))
    except DataError:
        return False  # the first row with an error counts, and that may be another


def _check_columns(context: StatementContext, target: Target, rows: TableRows) -> None:
    desc = target.desc
    columns, _ = split_diffs(rows.table)
    broken: list[tuple[int, int, str | Check]] = []  # row, order of checks, name or CHECK
    for name, column, values in zip(desc.names, desc.columns, columns, strict=True):
        if not column.nullable and values.null_count:
            broken.append((pc.index(pc.is_null(values), True).as_py(), len(broken), name))
    for each in _checks_of(target.planned):
        failing = first_failing(context, each.condition, columns, rows.num_rows)
        if failing is not None:
            broken.append((failing, len(broken), each))
    if not broken:
        return
    row, _, constraint = min(broken, key=lambda each: each[:2])
    state = context.planner.reader().state
    table = state.item(target.id)
    detail = failing_row(columns, desc, row, context.time_zone)
    if isinstance(constraint, Check):
        raise check_fails(state, table, constraint, detail)
    raise null_in(state, table, constraint, detail)


def first_failing(
    context: StatementContext, condition: Scalar, columns: Sequence[pa.Array], rows: int
) -> int | None:
    """Return the first row for which `condition` is FALSE; raises the first row's error, if any."""
    if is_open_scalar(condition):
        now = context.coordinator.oracle.read_ts()
        condition = bind_scalar(condition, parameter_bindings((), context.environment_values(now)))
    values, errors = outcome(condition, columns, rows)
    if errors is not None and errors.null_count < len(errors):
        raise DataError.parse(errors.drop_null()[0].as_py())
    place = pc.index(values, pa.scalar(False)).as_py()
    return None if place < 0 else int(place)
