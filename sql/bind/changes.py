"""Bind CHANGES(relation [, after [, through]]): the updates of a relation as rows.

The columns are `mz_timestamp`, `mz_diff` and the relation's own, for times with after <
mz_timestamp <= through. The relation must have its own history: a table or a materialized view. The
result depends on when the query runs, so only one-off queries may use it.
"""

from foreshore.errors import FeatureNotSupported, UndefinedFunction, WrongObjectType
from foreshore.expr.ir import Get, Relation
from foreshore.ids import GlobalId
from foreshore.sql import ast
from foreshore.sql.bind.planning import Planning, located
from foreshore.sql.bind.row_security import policies_of
from foreshore.sql.bind.time import bind_time
from foreshore.sql.plan import Changes
from foreshore.types import INT8, MZ_TIMESTAMP, ColumnType

NAME = "changes"


def bind_changes(planning: Planning, call: ast.FunctionCall) -> tuple[Relation, tuple[str, ...]]:
    """Return the relation of the changes, which the plan's query then lists, and its names."""
    if planning.in_view:
        raise FeatureNotSupported(
            "CHANGES cannot be used in a view",
            detail="Its bounds would depend on the time at which the view is read.",
            position=call.at + 1,
        )
    if planning.changes is None:
        raise FeatureNotSupported("CHANGES can be used in SELECT only", position=call.at + 1)
    if not 1 <= len(call.args) <= 3 or call.star or call.distinct or call.order_by:
        raise UndefinedFunction(
            "CHANGES takes a relation and up to two times",
            hint="Write CHANGES(relation, after, through).",
            position=call.at + 1,
        )
    name, *times = call.args
    if not isinstance(name, ast.ColumnRef):
        raise UndefinedFunction(
            "the first argument of CHANGES must be the name of a relation", position=call.at + 1
        )
    with located(name.at):
        view = planning.catalog.resolve_item(name.parts)
        if view.kind not in ("table", "materialized view"):
            raise WrongObjectType(
                f'"{view.name.item}" is not a table or materialized view',
                detail="Nothing else keeps the history of its changes.",
            )
    if policies_of(planning, view) is not None:
        raise FeatureNotSupported(
            f'CHANGES of table "{view.name.item}" is not supported with row-level security',
            hint="Use SUBSCRIBE instead.",
            position=name.at + 1,
        )
    planning.depends_on.add(view.id)
    planning.needs.entry(view).read_all()
    after, through, *_ = [*(bind_time(planning, each, "CHANGES") for each in times), None, None]
    id = GlobalId(f"h{len(planning.changes) + 1}")
    columns = (ColumnType(MZ_TIMESTAMP, False), ColumnType(INT8, False), *view.desc.columns)
    planning.changes.append(Changes(id, view.id, view.name.item, columns, after, through))
    return Get(id, columns), ("mz_timestamp", "mz_diff", *view.desc.names)
