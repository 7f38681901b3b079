"""Which statements are logged as they end, by the settings of their session.

`log_statement` chooses kinds of statements, `log_min_duration_statement` those that take so long,
and `log_min_error_statement` those that fail. A statement has one record at most.
"""

import logging
from collections.abc import Mapping

from foreshore.errors import DatabaseError
from foreshore.latencies import kind_of
from foreshore.redaction import redacted, redacted_message
from foreshore.setting_kinds import DEBUG_TO_ERROR, milliseconds
from foreshore.statement_history import Who

_DDL = frozenset(("definition",))
_KINDS = {
    "ddl": _DDL,
    "mod": _DDL | {"insert", "update", "delete", "merge", "copy"},
}


def message_of(
    variables: Mapping[str, str], seconds: float, result: str | int | None, error: object
) -> str | None:
    """Return the message of a statement's record, None if it is not logged.

    `result` is its command tag, or how many rows it has returned.
    """
    if error is not None and variables["log_min_error_statement"] in DEBUG_TO_ERROR:
        return "statement failed"
    least = variables["log_min_duration_statement"]
    if least != "-1" and 1000 * seconds >= (milliseconds(least) or 0):
        return "slow statement"
    chosen = variables["log_statement"]
    if chosen == "none" or (chosen != "all" and (error is not None or not _is(chosen, result))):
        return None
    return "statement"


def _is(chosen: str, result: str | int | None) -> bool:
    """Return whether `ddl` or `mod` includes what has ended with a tag."""
    is_truncate = isinstance(result, str) and result.startswith("TRUNCATE")
    return kind_of(result) in _KINDS[chosen] or (is_truncate and chosen == "mod")


def log(
    logger: logging.Logger,
    message: str,
    who: Who,
    query: str,
    seconds: float,
    error: DatabaseError | None,
) -> None:
    """Log a statement with a message; values of its parameters are not logged."""
    values: dict[str, object] = {
        "duration_ms": round(1000 * seconds, 3),
        "statement": redacted(query, None if error is None else error.sqlstate),
        "session": who.pid,
        "role": who.name,
        "database": who.database,
        "application": who.application,
    }
    if error is not None:
        values |= {
            "sqlstate": error.sqlstate,
            "error": redacted_message(error.message, query, error.sqlstate),
        }
    logger.info(message, extra=values)
