"""The NOT NULL and CHECK constraints of a table, compiled for rows as tuples."""

from dataclasses import dataclass

from foreshore.catalog.planned import Planned
from foreshore.constraint import Check
from foreshore.expr.pointwise import Cell, compiled
from foreshore.sql.rewrite.bind_parameters import is_open_scalar
from foreshore.table_rows import Row


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
        return not self.checks or all(check(row) is not False for check in self.checks)


def rules_of(planned: Planned) -> RowRules | None:
    """Return the rules of a table; None if a condition asks for the time or the session."""
    checks = checks_of(planned)
    if any(is_open_scalar(each.condition) for each in checks):
        return None
    return RowRules(
        planned,
        tuple(i for i, each in enumerate(planned.desc.columns) if not each.nullable),
        tuple(compiled(each.condition) for each in checks),
    )


def checks_of(planned: Planned) -> list[Check]:
    """Return the CHECK constraints of a table in the order in which they are checked."""
    checks = [each for each in planned.constraints if isinstance(each, Check)]
    return sorted(checks, key=lambda each: each.name)
