"""The query that running a plan reads, or whose changes it returns."""

from foreshore.expr.columns import columns_of
from foreshore.expr.ir import Finishing, Relation
from foreshore.sql.plan import (
    CopyTo,
    CopyToFiles,
    CreateTableAs,
    Declare,
    Delete,
    Explain,
    ExplainAnalyze,
    ExplainChange,
    ExplainFreshness,
    InitPlan,
    Insert,
    Merge,
    Plan,
    Query,
    Select,
    Subscribe,
    Update,
    WithChanges,
)
from foreshore.types import RelationDesc


def query_read_by(plan: Plan) -> Query | None:
    """Return the query that running `plan` reads, if it reads one."""
    match plan:
        case Select(query=query) | Explain(query=query) | ExplainFreshness(of=Query() as query):
            return query
        case ExplainAnalyze(select=Select(query=query)):
            return query
        case CopyTo(source=Select(query=query)) | Declare(query=Select(query=query)):
            return query
        case CopyToFiles(source=Select(query=query)):
            return query
        case CreateTableAs(source=relation, with_data=True):
            return all_rows_of(relation)
        case ExplainChange(change=change) | WithChanges(main=change):
            return query_read_by(change)
        case Insert(source=relation):
            return all_rows_of(relation, plan.init_plans)
        case Update(selection=relation) | Delete(selection=relation) | Merge(selection=relation):
            return all_rows_of(relation, plan.init_plans)
        case _:
            return None


def query_subscribed_by(plan: Plan) -> Query | None:
    """Return the query whose changes running `plan` returns, if it subscribes to one."""
    match plan:
        case CopyTo(source=Subscribe(query=query)) | Declare(query=Subscribe(query=query)):
            return query
        case Subscribe(query=query):
            return query
        case _:
            return None


def all_rows_of(relation: Relation, init_plans: tuple[InitPlan, ...] = ()) -> Query:
    """Return the query for all rows of `relation`, in any order."""
    columns = columns_of(relation)
    names = tuple(f"c{i}" for i in range(len(columns)))
    finishing = Finishing((), None, 0, tuple(range(len(columns))))
    return Query(relation, finishing, RelationDesc(names, columns), init_plans=init_plans)
