"""The states of sinks, and the amounts that they have written."""

from collections.abc import Iterator

from foreshore.adapter.statement.context import StatementContext
from foreshore.catalog.builtin.mz_rows import span
from foreshore.catalog.builtin.relation import Row
from foreshore.catalog.item import Item
from foreshore.sinks.spec import kind_of


def sink_statuses(context: StatementContext) -> Iterator[Row]:
    """Yield the state of each sink, and its error if it stalls."""
    state = context.names.state
    for id, status in context.feeds.exports.controller.statuses().items():
        item = state.get(id)
        if isinstance(item, Item) and item.sink:
            yield {
                "id": id,
                "name": item.name,
                "type": kind_of(item.sink.target),
                "last_status_change_at": status.since * 1000,
                "status": status.state,
                "error": status.error,
                "next_try_at": None if status.next_try is None else status.next_try * 1000,
            }


def sink_status_history(context: StatementContext) -> Iterator[Row]:
    """Yield the last states of sinks since the server started, also of dropped ones."""
    for change in tuple(context.feeds.exports.controller.states.history):
        yield {
            "occurred_at": change.at * 1000,
            "sink_id": change.id,
            "status": change.state,
            "error": change.error,
        }


def sink_statistics(context: StatementContext) -> Iterator[Row]:
    """Yield how much each sink has written since the server started, and how far it is."""
    for id, status in context.feeds.exports.controller.statuses().items():
        frontier = context.feeds.exports.frontier(id)
        yield {
            "id": id,
            "messages_staged": status.updates,
            "messages_committed": status.committed_updates,
            "bytes_staged": status.bytes,
            "bytes_committed": status.committed_bytes,
            "frontier": frontier,
            "lag": None if frontier is None else span(max(context.times.clock.now() - frontier, 0)),
        }
