"""The states of sources, and the amounts that they have written."""

from collections.abc import Iterator

from foreshore.adapter.session.context import StatementContext
from foreshore.catalog.builtin.mz_rows import source_type
from foreshore.catalog.builtin.relation import Row
from foreshore.catalog.groups import parts_of
from foreshore.catalog.item import Item
from foreshore.sources.outputs import ERRORS, PROGRESS


def source_statuses(context: StatementContext) -> Iterator[Row]:
    """Yield the state of each source and of each table of one, and its error if it has one.

    A table has the state of its source, unless it has ceased while the others go on.
    """
    state = context.coordinator.state
    for id, status in context.coordinator.ingestion.controller.statuses().items():
        for item in (state.get(id), *state.items_of(parts_of(id))):
            if not isinstance(item, Item) or not item.feed:
                continue
            if item.id != id and item.feed.reference in (PROGRESS, ERRORS):
                continue
            output = status.outputs.get(item.id)
            shown = output if output is not None and output.state == "ceased" else status
            yield {
                "id": item.id,
                "name": item.name,
                "type": source_type(item.feed),
                "last_status_change_at": shown.since * 1000,
                "status": shown.state,
                "error": shown.error,
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
