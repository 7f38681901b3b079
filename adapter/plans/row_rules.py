"""The rules of a table as a program over new rows: generated columns, NOT NULL and CHECK."""

from dataclasses import dataclass

from foreshore.adapter.plans.row_read import RowRead, plan_over_rows
from foreshore.catalog.planned import Planned
from foreshore.constraint import Check
from foreshore.expr.ir import Column, Get, Map, Project, Relation, Scalar
from foreshore.expr.split import is_not_null
from foreshore.ids import GlobalId
from foreshore.types import ColumnType

NEW = GlobalId("t0")  # stands for the new rows


@dataclass(frozen=True, slots=True)
class RowRules:
    """A table's constraints as a program: `read` fails over a row that breaks one of them."""

    planned: Planned
    read: RowRead  # of the rows with the values of generated columns


def rules_of(planned: Planned) -> RowRules | None:
    """Return the rules of a table; None if columns check them."""
    columns = tuple(ColumnType(each.type) for each in planned.desc.columns)
    relation: Relation = Get(NEW, columns)
    places = [*range(len(columns))]
    if planned.computed:
        for number, (place, _) in enumerate(planned.computed):
            places[place] = len(columns) + number
        values = tuple(value for _, value in planned.computed)
        relation = Project(Map(relation, values), tuple(places))
    rules: list[Scalar] = [
        is_not_null(Column(place, column.type))
        for place, column in enumerate(planned.desc.columns)
        if not column.nullable
    ]
    rules += [each.condition for each in checks_of(planned)]
    read = plan_over_rows(NEW, relation, rules=rules)
    return None if read is None else RowRules(planned, read)


def checks_of(planned: Planned) -> list[Check]:
    """Return the CHECK constraints of a table in the order in which they are checked."""
    checks = [each for each in planned.constraints if isinstance(each, Check)]
    return sorted(checks, key=lambda each: each.name)
