"""The functions of advisory locks: pg_advisory_lock and its kin."""

from collections.abc import Sequence

from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.transaction.advisory_locks import LOCK_TYPES, Had, Key, Mode
from foreshore.types import Datum


async def value(
    context: StatementContext, function: str, args: Sequence[Datum]
) -> bool | str | None:
    """Return the result of a call of one of the functions."""
    if None in args:
        return None
    locks, pid = context.tables.advisory, context.pid
    key, had = _asked(context.database, function, args)
    mode = had.mode
    if "unlock" not in function:
        locks.check_number(pid)
    if "unlock" in function:
        given = locks.give_back(pid, key, mode)
        if not given:
            message = f"you don't own a lock of type {LOCK_TYPES[mode]}"
            context.notice(message, severity="WARNING", sqlstate="01000")
        return given
    if function.startswith("pg_try_"):
        return locks.try_take(pid, key, had)
    await locks.take(pid, key, had, context.lock_timeout_ms)
    return ""


def ends(function: str) -> bool:
    """Return whether a function takes transaction locks."""
    return "_xact_" in function


def _asked(database: str, function: str, args: Sequence[Datum]) -> tuple[Key, Had]:
    """Return the lock of a call, and how it is held."""
    mode: Mode = "shared" if "_shared(" in function else "exclusive"
    key = _key(database, [int(str(arg)) for arg in args])
    return key, Had(mode, "transaction" if ends(function) else "session")


def _key(database: str, numbers: Sequence[int]) -> Key:
    if len(numbers) == 1:
        (number,) = numbers
        return Key(database, (number >> 32) & 0xFFFFFFFF, number & 0xFFFFFFFF, 1)
    first, second = numbers
    return Key(database, first & 0xFFFFFFFF, second & 0xFFFFFFFF, 2)
