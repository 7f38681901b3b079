"""Signals to sessions: pg_cancel_backend(pid), pg_terminate_backend(pid)."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from foreshore.adapter.statement.news import Notices
from foreshore.adapter.statement.sessions import Peer
from foreshore.catalog.rights import may_act_as, owns
from foreshore.errors import (
    AdminShutdown,
    InsufficientPrivilege,
    NumericValueOutOfRange,
    QueryCanceled,
)
from foreshore.types import Datum

if TYPE_CHECKING:
    from foreshore.adapter.statement.context import StatementContext


async def signal(context: "StatementContext", function: str, args: Sequence[Datum]) -> bool | None:
    """Return whether the session of the first argument was signalled; None for NULL."""
    if None in args:
        return None
    pid, *rest = (int(str(arg)) for arg in args)
    timeout_ms = rest[0] if rest else 0
    if timeout_ms < 0:
        raise NumericValueOutOfRange('"timeout" must not be negative')
    target = context.sessions.get(pid)
    if target is None:
        _warn(context.notice, f"PID {pid} is not a PostgreSQL backend process")
        return False
    verb = "cancel query" if function.startswith("pg_cancel_backend") else "terminate process"
    _require_signal(context, target, verb)
    if function.startswith("pg_cancel_backend"):
        if pid == context.pid:
            raise QueryCanceled
        target.interrupts.request(QueryCanceled())
        return True
    target.interrupts.terminate(AdminShutdown())
    if pid == context.pid:
        await asyncio.sleep(0)  # the session ends here
    if timeout_ms:
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await target.interrupts.ended.wait()
        except TimeoutError:
            unit = "millisecond" if timeout_ms == 1 else "milliseconds"
            _warn(
                context.notice,
                f"backend with PID {pid} did not terminate within {timeout_ms} {unit}",
            )
            return False
    return True


def _require_signal(context: "StatementContext", target: Peer, verb: str) -> None:
    """Raise InsufficientPrivilege unless the role has the rights of the session's role."""
    role, other = context.role, target.roles.session
    if other.superuser and not role.superuser:
        noun = verb.replace("cancel query", "query").replace("terminate process", "process")
        raise InsufficientPrivilege(f"must be a superuser to {verb.split()[0]} superuser {noun}")
    state = context.planner.state
    if not (owns(state, role, other.id) or may_act_as(state, role, "pg_signal_backend")):
        what = "whose query is being canceled" if verb.startswith("c") else "whose process is being"
        what += "" if verb.startswith("c") else " terminated"
        raise InsufficientPrivilege(
            f"must be a member of the role {what} or member of pg_signal_backend"
        )


def _warn(notice: Notices, message: str) -> None:
    notice(message, severity="WARNING", sqlstate="01000")
