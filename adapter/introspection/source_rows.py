"""The states of sources, and the amounts that they have written."""

from collections.abc import Iterator

from foreshore.adapter.session.context import StatementContext
from foreshore.catalog.builtin.mz_rows import source_type
from foreshore.catalog.builtin.relation import Row
from foreshore.catalog.item import Item


def source_statuses(context: StatementContext) -> Iterator[Row]:
    """Yield the state of each source, and its error if it stalls."""
    state = context.coordinator.state
    for id, status in context.coordinator.ingestion.controller.statuses().items():
        item = state.get(id)
        if isinstance(item, Item) and item.feed:
            yield {
                "id": id,
                "name": item.name,
                "type": source_type(item.feed),
                "last_status_change_at": status.since * 1000,
                "status": status.state,
                "error": status.error,
            }


def source_status_history(context: StatementContext) -> Iterator[Row]:
    """Yield the last states of sources since the server started, also of dropped ones."""
    for change in tuple(context.coordinator.ingestion.controller.states.history):
        yield {
            "occurred_at": change.at * 1000,
            "source_id": change.id,
            "status": change.state,
            "error": change.error,
        }


def source_statistics(context: StatementContext) -> Iterator[Row]:
    """Yield how much each source has written since the server started."""
    for id, status in context.coordinator.ingestion.controller.statuses().items():
        yield {
            "id": id,
            "messages_received": status.batches,
            "bytes_received": status.bytes,
            "updates_staged": status.updates,
            "updates_committed": status.updates,
            "records_indexed": 0,
            "bytes_indexed": 0,
            "snapshot_committed": True,
        }
