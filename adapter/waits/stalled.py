"""Statements that wait for sources or sinks: those that stall are told, and tried at once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from foreshore.adapter.session.context import StatementContext
from foreshore.ids import GlobalId
from foreshore.storage.export.controller import ExportController
from foreshore.storage.ingest.controller import IngestController

LOOK_SECONDS = 1.0  # between two tries of what is waited for


@asynccontextmanager
async def attended(
    context: StatementContext, controller: IngestController | ExportController, id: GlobalId
) -> AsyncIterator[None]:
    """While a statement waits for a source or sink, have it tried often if it stalls.

    The client gets a notice of the error at once, and only one. Else a source or sink that stalls
    for long would be tried after its whole pause, even if its system is back.
    """
    task = asyncio.get_running_loop().create_task(_attend(context, controller, id))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _attend(
    context: StatementContext, controller: IngestController | ExportController, id: GlobalId
) -> None:
    is_told = False
    while (status := controller.statuses().get(id)) is not None:
        if status.state in ("stalled", "paused"):
            if not is_told:
                _tell(context, controller, id, status.state, status.error)
                is_told = True
            if status.state == "stalled":
                controller.try_now(id)
        await asyncio.sleep(LOOK_SECONDS)


def _tell(
    context: StatementContext,
    controller: IngestController | ExportController,
    id: GlobalId,
    state: str,
    error: str | None,
) -> None:
    item = context.coordinator.state.get(id)
    kind = "source" if isinstance(controller, IngestController) else "sink"
    name = id if item is None else item.name
    context.notice(
        f'{kind} "{name}" is {state}: {error}',
        now=True,
        hint=f"The statement waits until the {kind} gets on, or is canceled.",
    )
