"""CREATE METRIC, in the catalog: a view with labels and a value, and what else a metric has."""

from collections.abc import Iterable

from msgspec.structs import replace

from foreshore.adapter.client import Completed
from foreshore.adapter.ddl.objects import add_item, is_taken, schema_of
from foreshore.adapter.statement.context import StatementContext
from foreshore.catalog.groups import METRICS
from foreshore.catalog.item import Item
from foreshore.catalog.state import State
from foreshore.errors import DatabaseError, DuplicateObject, WrongObjectType
from foreshore.metric_spec import MetricSpec, exposed_names
from foreshore.sql.parse.parse import parse
from foreshore.sql.plan import CreateMetric, CreateView
from foreshore.sql.planner import plan_statement

MOST_METRICS = 100


def create_metric(context: StatementContext, plan: CreateMetric) -> Completed:
    """Run CREATE METRIC; its series are gathered when the transaction has committed."""
    if is_taken(context, plan.name, if_not_exists=plan.if_not_exists):
        return Completed("CREATE METRIC")
    change = context.catalog_change()
    check_readable(change.state, change.state.item(plan.relation))
    others = change.state.items_of(METRICS)
    check_names_free(plan.name.item, plan.spec, others)
    if len(others) >= MOST_METRICS:
        raise DatabaseError(f"there are {MOST_METRICS} metrics already", sqlstate="54000")
    (syntax,) = parse(plan.view)
    view = plan_statement(syntax, context.planner.reader())
    assert isinstance(view, CreateView), view
    schema = schema_of(context, plan.name)
    item = add_item(context, view, schema, plan.name.item, view.depends_on)
    change.put(replace(item, metric=plan.spec))
    return Completed("CREATE METRIC")


def check_names_free(name: str, spec: MetricSpec, others: Iterable[Item]) -> None:
    """Raise DuplicateObject if one of the other metrics takes a name that a metric needs."""
    needed = exposed_names(name, spec.kind)
    for each in others:
        assert each.metric, each
        if each.name == name:
            raise DuplicateObject(
                f'metric "{name}" already exists in another schema',
                detail="The names of metrics have no schemas at /metrics.",
            )
        shared = needed & exposed_names(each.name, each.metric.kind)
        if shared:
            raise DuplicateObject(
                f'metric "{each.name}" is shown as "{min(shared)}" already',
                detail='A counter "x" takes the names "x" and "x_total" at /metrics.',
            )


def check_readable(state: State, relation: Item) -> None:
    """Raise WrongObjectType if following a relation would compute it once more."""
    if relation.type == "view" and index_of(state, relation) is None:
        raise WrongObjectType(
            f'view "{relation.name}" has no index',
            hint="Create an index on it, or a materialized view: its rows must be maintained.",
        )


def index_of(state: State, relation: Item) -> Item | None:
    """Return an index on a relation, if there is one."""
    return next((each for each in state.indexes_on(relation.id) if each.cluster is not None), None)
