"""Write the statement of an item as SHOW CREATE shows it: with another name, cluster and options.

The planner writes the beginning of a definition in one form, so a regular expression finds it.
"""

import re
from collections.abc import Iterable, Mapping

from foreshore.burst import Burst
from foreshore.refresh import Refresh
from foreshore.sizes import shown
from foreshore.sql.parse.keywords import quote_identifier, quote_string
from foreshore.text import format_text
from foreshore.types import INTERVAL, TIMESTAMPTZ

_NAME = r'(?:"(?:[^"]|"")*"|[^\s".,()]+)'
_FULL_NAME = rf"{_NAME}(?:\.{_NAME}){{2}}"
_HEAD = re.compile(rf"\A(?P<create>CREATE (?P<kind>TABLE|VIEW|SEQUENCE|SUBSCRIPTION)) {_FULL_NAME}")
_MATERIALIZED_HEAD = re.compile(
    rf"\A(?P<create>CREATE MATERIALIZED VIEW) {_FULL_NAME}"
    rf"(?P<columns>(?: \({_NAME}(?:, {_NAME})*\))?)(?: IN CLUSTER {_NAME})?"
    r"(?: WITH \(EMIT ON WINDOW CLOSE\))? AS "
)
_VIEW_HEAD = re.compile(rf"\ACREATE VIEW {_FULL_NAME}(?: \({_NAME}(?:, {_NAME})*\))?(?= AS )")
_INDEX_HEAD = re.compile(
    rf"\A(?P<create>CREATE (?:DEFAULT )?INDEX)(?: (?!ON |IN ){_NAME})?(?: IN CLUSTER {_NAME})? ON "
)


def with_name(sql: str, name: str) -> str:
    """Return the definition of a table, view, sequence or subscription called `name`."""
    return _HEAD.sub(lambda m: f"{m['create']} {name}", sql, count=1)


def with_temporary_name(sql: str, name: str) -> str:
    """Return the definition as that of a temporary item called `name`."""
    return _HEAD.sub(lambda m: f"CREATE TEMPORARY {m['kind']} {name}", sql, count=1)


def with_security_invoker(sql: str) -> str:
    """Return the definition of a view with the option that its reader needs the rights."""
    return _VIEW_HEAD.sub(lambda m: f"{m[0]} WITH (security_invoker = true)", sql, count=1)


def index_in_cluster(sql: str, name: str, cluster: str) -> str:
    """Return the definition of an index called `name` in `cluster`."""
    head = f"{name} IN CLUSTER {quote_identifier(cluster)} ON "
    return _INDEX_HEAD.sub(lambda m: f"{m['create']} {head}", sql, count=1)


def materialized_view_in_cluster(sql: str, name: str, cluster: str, options: str) -> str:
    """Return the definition of a materialized view called `name` in `cluster`, with `options`."""
    tail = f" IN CLUSTER {quote_identifier(cluster)}{options} AS "
    return _MATERIALIZED_HEAD.sub(
        lambda m: f"{m['create']} {name}{m['columns']}{tail}", sql, count=1
    )


EMIT = "EMIT ON WINDOW CLOSE"  # an option of a materialized view
APPEND_ONLY = " WITH (APPEND ONLY)"  # at the end of a table's definition


def maintained_options(
    retain_ms: int | None,
    memory_limit: int | None = None,
    *,
    append_only: bool = False,
    hydrate: str | None = None,
) -> str:
    """Return the options of how long history is kept, and how many bytes may be taken."""
    options = ["APPEND ONLY"] if append_only else []
    if retain_ms:
        kept = format_text((0, 0, retain_ms * 1000), INTERVAL)
        options.append(f"RETAIN HISTORY FOR '{kept}'")
    if memory_limit:
        options.append(f"MEMORY LIMIT = '{shown(memory_limit)}'")
    if hydrate:
        options.append(f"HYDRATE = '{hydrate}'")
    return f" WITH ({', '.join(options)})" if options else ""


def view_options(
    retain_ms: int | None,
    memory_limit: int | None,
    refresh: Refresh | None,
    hydrate: str | None = None,
    *,
    emits: bool = False,
) -> str:
    """Return the options of a materialized view, nothing if all are the default ones."""
    options = [EMIT] if emits else []
    if retain_ms:
        options.append(f"RETAIN HISTORY FOR '{_interval(retain_ms)}'")
    if memory_limit:
        options.append(f"MEMORY LIMIT = '{shown(memory_limit)}'")
    if hydrate:
        options.append(f"HYDRATE = '{hydrate}'")
    if refresh is not None:
        if refresh.is_downstream:
            options.append("TARGET LAG = DOWNSTREAM")
        elif refresh.is_lag and refresh.every_ms is not None:
            options.append(f"TARGET LAG = '{_interval(refresh.every_ms)}'")
        elif refresh.every_ms is not None:
            aligned = _time(refresh.aligned_to)
            options.append(f"REFRESH EVERY '{_interval(refresh.every_ms)}' ALIGNED TO {aligned}")
        options += [f"REFRESH AT {_time(at)}" for at in refresh.at]
        if refresh.every_ms is None and not refresh.at and not refresh.is_lag:
            options.append("REFRESH AT CREATION")
        options.append(f"REFRESH POLICY = {refresh.policy.upper()}")
    return f" WITH ({', '.join(options)})" if options else ""


def _interval(milliseconds: int) -> str:
    return format_text((0, 0, milliseconds * 1000), INTERVAL)


def _time(milliseconds: int) -> str:
    return f"'{format_text(milliseconds * 1000, TIMESTAMPTZ)}'"


def create_cluster(
    name: str, size: str, replicas: int, options: Mapping[str, str], burst: Burst | None = None
) -> str:
    """Return the CREATE CLUSTER of a managed cluster; `options` are named as engines name them."""
    more = ""
    if (interval := options.get("tick_interval_ms")) is not None:
        more += f", TICK INTERVAL = '{interval}ms'"
    if (threads := options.get("threads")) is not None:
        more += f", THREADS = {threads}"
    if (limit := options.get("memory_limit")) is not None:
        more += f", MEMORY LIMIT = '{limit}'"
    if (workers := options.get("workers")) is not None:
        more += f", WORKERS = {workers}"
    if (master := options.get("master")) is not None:
        more += f", MASTER = {quote_string(master)}"
    if (memory := options.get("driver_memory")) is not None:
        more += f", DRIVER MEMORY = '{memory}'"
    if (memory := options.get("executor_memory")) is not None:
        more += f", EXECUTOR MEMORY = '{memory}'"
    if (partitions := options.get("shuffle_partitions")) is not None:
        more += f", SHUFFLE PARTITIONS = {partitions}"
    if (hydrate := options.get("hydrate")) is not None:
        more += f", HYDRATE = '{hydrate}'"
    if burst is not None:
        more += (
            f", AUTO SCALING STRATEGY = (ON HYDRATION (HYDRATION SIZE = '{burst.size}', "
            f"LINGER DURATION = '{burst.linger_ms}ms'))"
        )
    return (
        f"CREATE CLUSTER {quote_identifier(name)} (SIZE = '{size}', "
        f"REPLICATION FACTOR = {replicas}{more})"
    )


def create_unmanaged_cluster(name: str, replicas: Iterable[tuple[str, str]]) -> str:
    """Return the CREATE CLUSTER of an unmanaged cluster with replicas (name, size)."""
    listed = (f"{quote_identifier(each)} (SIZE = '{size}')" for each, size in replicas)
    return f"CREATE CLUSTER {quote_identifier(name)} REPLICAS ({', '.join(listed)})"


def create_replica(cluster: str, name: str, size: str, address: str | None) -> str:
    """Return a CREATE CLUSTER REPLICA."""
    at = f", ADDRESS = '{address}'" if address else ""
    return (
        f"CREATE CLUSTER REPLICA {quote_identifier(cluster)}.{quote_identifier(name)} "
        f"(SIZE = '{size}'{at})"
    )
