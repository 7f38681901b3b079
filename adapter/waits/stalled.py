"""Statements that wait for sources or sinks: those that stall are told, and tried at once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.statement.news import Notices
from foreshore.catalog.state import State
from foreshore.errors import ObjectNotInPrerequisiteState
from foreshore.ids import GlobalId
from foreshore.storage.export.controller import ExportController, SinkStatus
from foreshore.storage.external.states import Status
from foreshore.storage.ingest.controller import IngestController

LOOK_SECONDS = 1.0  # between two tries of what is waited for
_HINT_OF_LOST = (
    "The sink cannot go on. Drop it, empty the target, and create the sink anew; if another"
    " database writes to the target, end one of the two first."
)
SOON_SECONDS = 0.3  # where the next try decides whether to wait on


@asynccontextmanager
async def attended(
    context: StatementContext, controller: IngestController | ExportController, id: GlobalId
) -> AsyncIterator[None]:
    """While a statement waits for a source or sink, have it tried often if it stalls.

    The client gets a notice of the error at once, and only one. Else a source or sink that stalls
    for long would be tried after its whole pause, even if its system is back.

    Raises ObjectNotInPrerequisiteState for a sink that does not get on before somebody acts.
    """
    try:
        async with asyncio.TaskGroup() as tasks:
            attending = tasks.create_task(_attend(context, controller, id))
            yield
            attending.cancel()
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None


async def _attend(
    context: StatementContext, controller: IngestController | ExportController, id: GlobalId
) -> None:
    seen: Status | None = None
    is_told, tries, pause = False, 0, LOOK_SECONDS
    while True:
        status = controller.statuses().get(id)  # None: it starts, or was dropped
        if isinstance(status, SinkStatus):
            if status is not seen:  # it has begun anew, so all its tries are later than this
                tries = status.tries if seen is None else 0
            _refuse_lasting(context.names.state, id, status, tries)
        seen = status or seen
        if status is not None and status.state in ("stalled", "paused"):
            may_end = isinstance(status, SinkStatus) and status.is_lasting
            pause = SOON_SECONDS if may_end else LOOK_SECONDS
            if not is_told and not may_end:
                _tell(context.notice, context.names.state, controller, id, status)
                is_told = True
            controller.try_now(id)
        await asyncio.sleep(pause)


def _refuse_lasting(state: State, id: GlobalId, status: SinkStatus, tries: int) -> None:
    """Raise if a sink needs somebody, as one of its tries after the first `tries` has shown."""
    if status.state not in ("stalled", "paused"):
        return
    if status.is_blocked or (status.is_lasting and status.failed_try > tries):
        hint = "The sink goes on once the cause is removed; then run WAIT again."
        if status.state == "paused":
            hint = "Resume the sink or drop it; then run WAIT again."
        elif status.is_lost:
            hint = _HINT_OF_LOST
        raise ObjectNotInPrerequisiteState(
            f'sink "{_name(state, id)}" is {status.state}: {status.error}',
            hint=hint,
        )


def _tell(
    notice: Notices,
    state: State,
    controller: IngestController | ExportController,
    id: GlobalId,
    status: Status,
) -> None:
    kind = "source" if isinstance(controller, IngestController) else "sink"
    notice(
        f'{kind} "{_name(state, id)}" is {status.state}: {status.error}',
        now=True,
        hint=f"The statement waits until the {kind} gets on, or is canceled.",
    )


def _name(state: State, id: GlobalId) -> str:
    item = state.get(id)
    return id if item is None else item.name
