"""Bind VERIFY MATERIALIZED VIEW: the rows of a view that its query does not give.

It is a query: the rows of the view's query and those of the view are counted apart, for each
distinct row, and where the counts differ they are returned. So it reads both as of one time, needs
the right to read the view, and can be cancelled, as any query. The view is maintained by its
cluster's engine from changes, the query is computed from scratch by the engine that runs queries,
or by the one that the statement names.
"""

from typing import Literal as OneOf

from foreshore.errors import FeatureNotSupported, WrongObjectType
from foreshore.expr.columns import columns_of
from foreshore.expr.functions.registry import resolve
from foreshore.expr.ir import (
    Aggregate,
    Call,
    Column,
    Filter,
    Finishing,
    Get,
    Literal,
    Map,
    Reduce,
    Relation,
    Union,
)
from foreshore.sql import ast
from foreshore.sql.bind.item_relations import renumbered
from foreshore.sql.bind.planning import Planning, located
from foreshore.sql.bind.result import lower_and_optimize_block
from foreshore.sql.bind.time import bind_as_of
from foreshore.sql.plan import Query, Select
from foreshore.types import BOOL, INT8, ColumnType, RelationDesc

COUNTS = ("expected", "found")


def bind_verify(planning: Planning, statement: ast.VerifyViewStatement) -> Select:
    """Return the plan of VERIFY MATERIALIZED VIEW."""
    with located(statement.view.at):
        view = planning.catalog.resolve_item(statement.view.name)
        if view.kind != "materialized view":
            raise WrongObjectType(f'"{view.name.item}" is not a materialized view')
    engine: OneOf["duckdb", "spark"] | None
    match statement.engine:
        case None | "duckdb" | "spark" as engine:
            pass
        case other:
            raise FeatureNotSupported(f"VERIFY ON {other}", hint="Engines are: duckdb, spark.")
    planning.needs.entry(view).read_all()
    as_of = None if statement.as_of is None else bind_as_of(planning, statement.as_of)
    definition = renumbered(planning, planning.catalog.definition_of(view.id))
    block = lower_and_optimize_block(_differences(definition, view.id, view.desc))
    columns = (*view.desc.columns, *(ColumnType(INT8, False) for _ in COUNTS))
    finishing = Finishing((), None, 0, tuple(range(len(columns))))
    desc = RelationDesc((*view.desc.names, *COUNTS), columns)
    if engine == "spark" and block.recursions:
        raise FeatureNotSupported("VERIFY ON spark for a view with a recursion")
    query = Query(block.relation, finishing, desc, recursions=block.recursions, engine=engine)
    return Select(query, as_of)


def _differences(definition: Relation, id: object, desc: RelationDesc) -> Relation:
    """Return each row that the definition and the view have unequally often, with both counts."""
    stored = Get(id, desc.columns)  # type: ignore[arg-type]
    yes, no = Literal(True, BOOL), Literal(False, BOOL)
    both = Union((Map(definition, (yes, no)), Map(stored, (no, yes))))
    columns = columns_of(both)
    width = len(columns) - len(COUNTS)
    row = tuple(Column(i, each.type, each.nullable) for i, each in enumerate(columns[:width]))
    counts = tuple(
        Aggregate("count", (), INT8, filter=Column(width + side, BOOL, False))
        for side in range(len(COUNTS))
    )
    unequal = resolve("<>", (INT8, INT8))
    test = Call(
        unequal.key, (Column(width, INT8, False), Column(width + 1, INT8, False)), unequal.result
    )
    return Filter(Reduce(both, row, counts), (test,))
