"""Signals to sessions: pg_cancel_backend and pg_terminate_backend.

A session that is asked to end does so where it is: in the midst of a statement, of an idle block,
of rows that its client does not take. Only a commit on its way to the disk is let through first.
What it has not committed is rolled back.
"""

import asyncio
from collections.abc import Sequence

from foreshore.adapter.session.context import StatementContext
from foreshore.errors import AdminShutdown, NumericValueOutOfRange, QueryCanceled
from foreshore.types import Datum


async def value(context: StatementContext, function: str, args: Sequence[Datum]) -> bool | None:
    """Return whether the session that the first argument names was told; None for NULL."""
    if None in args:
        return None
    pid, *rest = (int(str(arg)) for arg in args)
    timeout_ms = rest[0] if rest else 0
    if timeout_ms < 0:
        raise NumericValueOutOfRange('"timeout" must not be negative')
    target = context.sessions.get(pid)
    if target is None:
        _warn(context, f"PID {pid} is not a PostgreSQL backend process")
        return False
    if function.startswith("pg_cancel_backend"):
        if pid == context.pid:
            raise QueryCanceled
        target.interrupt(QueryCanceled())
        return True
    target.terminate(AdminShutdown())
    if pid == context.pid:
        await asyncio.sleep(0)  # which is where it ends
    if timeout_ms:
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await target.closed.wait()
        except TimeoutError:
            unit = "millisecond" if timeout_ms == 1 else "milliseconds"
            _warn(context, f"backend with PID {pid} did not terminate within {timeout_ms} {unit}")
            return False
    return True


def _warn(context: StatementContext, message: str) -> None:
    context.notice(message, severity="WARNING", sqlstate="01000")
