"""The options of a table, view or index, as SHOW CREATE has them and as pg_dump keeps them.

pg_dump writes `name='value'` for each element of `pg_class.reloptions`. The value of an option that
is a sentence of its own, such as REFRESH EVERY ... ALIGNED TO ..., is the rest of this sentence.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from foreshore.refresh import Refresh
from foreshore.sizes import shown
from foreshore.sql.parse.keywords import quote_string
from foreshore.text import format_text
from foreshore.types import INTERVAL, TIMESTAMPTZ

EMIT = "EMIT ON WINDOW CLOSE"  # an option of a materialized view


@dataclass(frozen=True, slots=True)
class ObjectOption:
    """An option: its text in WITH (...), and its name and value in reloptions."""

    text: str
    name: str
    value: str = "true"

    @property
    def stored(self) -> str:
        """Return the option as an element of reloptions."""
        return f"{self.name}={self.value}"


def with_clause(options: Iterable[ObjectOption]) -> str:
    """Return ` WITH (...)`, nothing without options."""
    listed = ", ".join(each.text for each in options)
    return f" WITH ({listed})" if listed else ""


def maintained_options(
    retain_ms: int | None,
    memory_limit: int | None = None,
    *,
    append_only: bool = False,
    hydrate: str | None = None,
) -> list[ObjectOption]:
    """Return the options of a table or an index, without those that are the default ones."""
    options = [ObjectOption("APPEND ONLY", "append_only")] if append_only else []
    if retain_ms:
        kept = _interval(retain_ms)
        options.append(
            ObjectOption(f"RETAIN HISTORY FOR {quote_string(kept)}", "retain_history", kept)
        )
    if memory_limit:
        options.append(_option("memory limit", shown(memory_limit)))
    if hydrate:
        options.append(_option("hydrate", hydrate))
    return options


def view_options(
    retain_ms: int | None,
    memory_limit: int | None,
    refresh: Refresh | None,
    hydrate: str | None = None,
    *,
    emits: bool = False,
) -> list[ObjectOption]:
    """Return the options of a materialized view, without those that are the default ones."""
    options = [ObjectOption(EMIT, "emit_on_window_close")] if emits else []
    options += maintained_options(retain_ms, memory_limit, hydrate=hydrate)
    return [*options, *(() if refresh is None else _refresh(refresh))]


def _refresh(refresh: Refresh) -> Iterator[ObjectOption]:
    if refresh.is_downstream:
        yield ObjectOption("TARGET LAG = DOWNSTREAM", "target_lag", "downstream")
    elif refresh.is_lag and refresh.every_ms is not None:
        yield _option("target lag", _interval(refresh.every_ms))
    else:
        times = [f"AT {_time(at)}" for at in refresh.at]
        if refresh.every_ms is not None:
            every = quote_string(_interval(refresh.every_ms))
            times.insert(0, f"EVERY {every} ALIGNED TO {_time(refresh.aligned_to)}")
        for each in times or ["AT CREATION"]:
            yield ObjectOption(f"REFRESH {each}", "refresh", each)
    policy = refresh.policy
    yield ObjectOption(f"REFRESH POLICY = {policy.upper()}", "refresh_policy", policy)


def _option(name: str, value: str) -> ObjectOption:
    text = f"{name.upper()} = {quote_string(value)}"
    return ObjectOption(text, name.replace(" ", "_"), value)


def _interval(milliseconds: int) -> str:
    return format_text((0, 0, milliseconds * 1000), INTERVAL)


def _time(milliseconds: int) -> str:
    return quote_string(format_text(milliseconds * 1000, TIMESTAMPTZ))
