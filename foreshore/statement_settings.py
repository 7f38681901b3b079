"""The settings of a session that each of its statements asks for, parsed once for all of them."""

from collections.abc import Mapping

from msgspec import Struct

from foreshore.isolation import Isolation, isolation_of
from foreshore.output_style import OutputStyle
from foreshore.result_limits import ResultLimits, memory_limit, result_limits
from foreshore.setting_kinds import BOUNDED_STALENESS, milliseconds
from foreshore.sizes import bytes_of


class StatementSettings(Struct, frozen=True):
    """What some of the values of a session's variables say, of this `version` of theirs."""

    version: int
    isolation: Isolation
    style: OutputStyle  # without the names of objects
    limits: ResultLimits
    timeout_s: float | None
    is_logged: bool  # whether statements may be logged that have not failed
    history_rate: str  # the share of statements that are kept in the history
    tells_time: bool  # whether a notice tells the time of each read
    waits_for_sources: bool  # whether a read waits for what external systems have
    is_read_only: bool  # whether the transaction may write to temporary tables alone
    lock_timeout_ms: int  # how long to wait for a lock; 0 is without end
    most_memory: int | None  # bytes that a query may take; None: any number
    most_written: int  # bytes of what a transaction writes that it may keep in memory; 0: any


def statement_settings(values: Mapping[str, str], version: int) -> StatementSettings:
    """Return the settings that `values` have."""
    timeouts = [values["statement_timeout"], values["max_statement_time"]]
    limits_ms = [milliseconds(each) or 0 for each in timeouts if each != "0"]
    isolation, written = values["transaction_isolation"], values["max_transaction_size"]
    logs = values["log_min_duration_statement"], values["log_statement"]
    return StatementSettings(
        version,
        isolation_of(isolation),
        OutputStyle(
            values["timezone"],
            int(values["extra_float_digits"]),
            intervals=values["intervalstyle"],
            dates=values["datestyle"].partition(",")[0],
            bytes=values["bytea_output"],
        ),
        result_limits(values),
        min(limits_ms) / 1000 if limits_ms else None,
        logs != ("-1", "none"),
        values["statement_logging_sample_rate"],
        values["emit_timestamp_notice"] == "on",
        values["real_time_recency"] == "on",
        values["transaction_read_only"] == "on" or isolation.startswith(BOUNDED_STALENESS),
        milliseconds(values["lock_timeout"]) or 0,
        memory_limit(values),
        0 if written == "0" else bytes_of(written),
    )
