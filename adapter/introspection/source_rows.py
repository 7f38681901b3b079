"""The states of sources, and the amounts that they have written."""

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from foreshore.adapter.external.details import left_out_of
from foreshore.adapter.services.names import Names
from foreshore.adapter.services.sources import Received
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.statement.planner import Planner
from foreshore.catalog.builtin.mz_rows import source_type
from foreshore.catalog.builtin.relation import Row
from foreshore.catalog.groups import parts_of
from foreshore.catalog.item import Item, Role
from foreshore.catalog.rights import holds
from foreshore.ids import GlobalId
from foreshore.json_text import canonical_json
from foreshore.sources.outputs import ERRORS, LATE, is_auxiliary
from foreshore.sources.postgres import PostgresSource
from foreshore.storage.external.states import Status
from foreshore.storage.ingest.statuses import OutputStatus, SourceStatus


def source_statuses(context: StatementContext) -> Iterator[Row]:
    """Yield the state of each source and of each table of one, and its error if it has one.

    A table has the state of its source, unless it has ceased, or its rows are read while the others
    go on: then the details say how many of them were read.
    """
    state = context.names.state
    for id, status in context.feeds.ingestion.controller.statuses().items():
        source = state.get(id)
        spec = source.feed.spec if isinstance(source, Item) and source.feed else None
        for item in (source, *state.items_of(parts_of(id))):
            if not isinstance(item, Item) or not item.feed:
                continue
            if item.id != id and is_auxiliary(item.feed.reference):
                continue
            output = status.outputs.get(item.id)
            is_apart = output is not None and (
                output.state == "ceased" or "running" == status.state != output.state
            )
            shown = output if output is not None and is_apart else status
            yield {
                "id": item.id,
                "name": item.name,
                "type": source_type(item.feed),
                "last_status_change_at": shown.since * 1000,
                "status": shown.state,
                "error": shown.error,
                "details": _details(
                    left_out_of(spec, item.feed), shown, status if item.id == id else None
                ),
                "next_try_at": None if shown.next_try is None else shown.next_try * 1000,
            }
    for item, received in context.feeds.webhooks.received():
        yield {
            "id": item.id,
            "name": item.name,
            "type": "webhook",
            "last_status_change_at": received.since * 1000,
            "status": "running" if received.error is None else "stalled",
            "error": received.error,
            "details": _requests_of(received, _sees(context.planner, context.role, item)),
        }


def postgres_sources(context: StatementContext) -> Iterator[Row]:
    """Yield the sources that read PostgreSQL, with the slots that they have in this database."""
    controller = context.feeds.ingestion.controller
    for id in controller.statuses():
        running = controller.description(id)
        if running is not None and isinstance(running.spec, PostgresSource):
            yield {"id": id, "replication_slot": running.spec.slot}


def _details(
    left_out: Sequence[str], status: Status, source: SourceStatus | None = None
) -> str | None:
    """Return what is to be said of a table, or of a source, as JSON.

    How many rows were read of a table that joins the others later, and columns that were left out.
    The slot of a source, what threatens it, and why all rows were read again.
    """
    found: dict[str, object] = {}
    if isinstance(status, OutputStatus) and status.counts.waits is not None:
        counts = status.counts
        found = {"rows_read": counts.snapshot_staged or 0, "rows": counts.snapshot_known}
    if left_out:
        found["columns_left_out"] = left_out
    if source is not None and source.again is not None:
        found["rows_read_again_because"] = source.again
    if source is not None and (slot := source.slot) is not None:
        found["replication_slot"] = {
            "name": slot.name,
            "bytes_behind": slot.behind,
            "bytes_retained": slot.retained,
            "bytes_until_lost": slot.safe,
            "wal_status": slot.status,
        }
        if slot.warning is not None:
            found["warning"] = slot.warning
    return canonical_json(json.dumps(found)) if found else None


def _requests_of(received: Received, sees: bool) -> str:
    """Return what a webhook has received, as JSON; a refusal may have values of a request."""

    def moment(ms: int | None) -> str | None:
        return None if ms is None else datetime.fromtimestamp(ms / 1000, UTC).isoformat()

    found = {
        "received": received.requests,
        "last_received_at": moment(received.last_at),
        "refused": received.refused,
        "last_refused_at": moment(received.refused_at),
        "last_refusal": received.refusal if sees else None,
    }
    return canonical_json(json.dumps(found))


def _sees(planner: Planner, role: Role, item: Item) -> bool:
    """Whether the session's role may read a source."""
    return holds(planner.state, role, item, "SELECT")


def source_status_history(context: StatementContext) -> Iterator[Row]:
    """Yield the last states of sources since the server started, also of dropped ones."""
    for change in tuple(context.feeds.ingestion.controller.states.history):
        yield {
            "occurred_at": change.at * 1000,
            "source_id": change.id,
            "status": change.state,
            "error": change.error,
        }


def source_statistics(context: StatementContext) -> Iterator[Row]:
    """Yield what each source and each table of one has received and written.

    Counts begin with the server, offsets are those of now. The row of a source has the sums.
    """
    state = context.names.state
    for id, status in context.feeds.ingestion.controller.statuses().items():
        items = [each for each in (state.get(id), *state.items_of(parts_of(id)))]
        tables = [
            each
            for each in items
            if isinstance(each, Item) and each.feed and not is_auxiliary(each.feed.reference)
        ]
        found = {each.id: status.outputs.get(each.id, OutputStatus()) for each in tables}
        yield _statistics(id, status, list(found.values()))
        for table, output in found.items():
            if table != id:
                yield _statistics(table, status, [output])
    for item, received in context.feeds.webhooks.received():
        yield {
            "id": item.id,
            "messages_received": received.requests,
            "bytes_received": received.bytes,
            "updates_staged": received.rows,
            "updates_committed": received.rows,
            "records_indexed": 0,
            "bytes_indexed": 0,
            "snapshot_committed": True,
        }


def dead_letters(context: StatementContext) -> Iterator[Row]:
    """Yield each relation of what sources could not use, and how many rows it has."""
    for id in context.feeds.ingestion.controller.statuses():
        for item in letters_of(context.names, id):
            assert item.feed
            yield {
                "source_id": id,
                "object_id": item.id,
                "kind": "error" if item.feed.reference == ERRORS else "late",
                "letters": context.tables.storage.count_updates(item.id),
            }


def letters_of(names: Names, source: GlobalId) -> Iterator[Item]:
    """Yield the relations of what a source could not decode, and of rows that came too late."""
    for item in names.state.items_of(parts_of(source)):
        if item.feed and (item.feed.reference == ERRORS or item.feed.reference.startswith(LATE)):
            yield item


def _statistics(id: GlobalId, status: SourceStatus, outputs: Sequence[OutputStatus]) -> Row:
    counts = [each.counts for each in outputs]
    known = [each.snapshot_known for each in counts if each.snapshot_known is not None]
    staged = [each.snapshot_staged for each in counts if each.snapshot_staged is not None]
    offset_known, offset_committed = status.offset_known, status.offset_committed
    lag = None
    if offset_known is not None and offset_committed is not None:
        lag = max(0, offset_known - offset_committed)
    return {
        "id": id,
        "messages_received": sum(each.messages for each in outputs),
        "bytes_received": sum(each.received_bytes for each in outputs),
        "updates_staged": sum(each.received for each in outputs),
        "updates_committed": sum(each.updates for each in outputs),
        "records_indexed": 0,
        "bytes_indexed": 0,
        "snapshot_records_known": sum(known) if known else None,
        "snapshot_records_staged": sum(staged) if staged else None,
        "snapshot_committed": bool(status.position),
        "offset_known": offset_known,
        "offset_committed": offset_committed,
        "offset_lag": lag,
    }
