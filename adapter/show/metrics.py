"""SHOW CREATE METRIC, and the states of metrics."""

from collections.abc import Iterator, Mapping

from foreshore.adapter.statement.context import StatementContext
from foreshore.catalog.builtin.relation import Row
from foreshore.catalog.item import Item
from foreshore.catalog.planned import Planned
from foreshore.catalog.state import State
from foreshore.expr.ir import Project
from foreshore.ids import GlobalId
from foreshore.metric_spec import MetricSpec
from foreshore.sql.parse.keywords import quote_identifier, quote_string
from foreshore.sql.rewrite.full_names import dotted


def metric_text(
    state: State, planned: Mapping[GlobalId, Planned], item: Item, spec: MetricSpec
) -> str:
    """Return the statement that creates a metric, with the present names of all objects."""
    relation, view = relation_of(state, item), planned[item.id]
    names, definition = planned[relation.id].desc.names, view.definition
    places = definition.outputs if isinstance(definition, Project) else range(len(names))
    *columns, value = [quote_identifier(names[place]) for place in places]
    labels = [
        f"{column} AS {quote_identifier(label)}"
        for column, label in zip(columns, view.desc.names, strict=False)
    ]
    labelled = f" LABELS ({', '.join(labels)})" if labels else ""
    helped = f" HELP {quote_string(spec.help)}" if spec.help else ""
    return (
        f"CREATE METRIC {dotted(state.full_name(item))} FROM {dotted(state.full_name(relation))} "
        f"VALUE {value}{labelled} "
        f"TYPE {spec.kind.upper()}{helped} MAX SERIES {spec.most_series}"
    )


def metric_statuses(context: StatementContext) -> Iterator[Row]:
    """Yield the state of each metric, and its error if it stalls."""
    state = context.names.state
    for id, (status, series) in context.feeds.published.statuses().items():
        item = state.get(id)
        if isinstance(item, Item):
            yield {
                "id": id,
                "name": item.name,
                "status": status.state,
                "error": status.error,
                "series": series,
                "last_status_change_at": status.since * 1000,
            }


def relation_of(state: State, metric: Item) -> Item:
    """Return the relation that a metric follows."""
    used = (state.item(id) for id in metric.depends_on)
    return next(each for each in used if each.type in ("table", "view", "materialized view"))
