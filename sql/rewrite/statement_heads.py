"""Write the statement of an item as SHOW CREATE shows it: with another name, cluster and options.

The planner writes the beginning of a definition in one form, so a regular expression finds it.
"""

import re
from collections.abc import Iterable, Mapping

from foreshore.burst import Burst
from foreshore.sql.parse.keywords import quote_identifier, quote_string

_NAME = r'(?:"(?:[^"]|"")*"|[^\s".,()]+)'
_FULL_NAME = rf"{_NAME}(?:\.{_NAME}){{2}}"
_HEAD = re.compile(rf"\A(?P<create>CREATE (?P<kind>TABLE|VIEW|SEQUENCE|SUBSCRIPTION)) {_FULL_NAME}")
_MATERIALIZED_HEAD = re.compile(
    rf"\A(?P<create>CREATE MATERIALIZED VIEW) {_FULL_NAME}"
    rf"(?P<columns>(?: \({_NAME}(?:, {_NAME})*\))?)(?: IN CLUSTER {_NAME})?"
    r"(?: WITH \(EMIT ON WINDOW CLOSE\))? AS "
)
_VIEW_HEAD = re.compile(rf"\ACREATE VIEW {_FULL_NAME}(?: \({_NAME}(?:, {_NAME})*\))?(?= AS )")
_POLICY_HEAD = re.compile(rf"\ACREATE POLICY {_NAME} ON {_FULL_NAME}(?= )")
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


def with_policy(sql: str, command: str, roles: Iterable[str], *, permissive: bool) -> str:
    """Return the definition of a policy with the commands and roles for which it counts."""
    said = "" if permissive else " AS RESTRICTIVE"
    said += f" FOR {command.upper()}" if command != "all" else ""
    named = ", ".join(map(quote_identifier, roles))
    said += f" TO {named}" if named else ""
    return _POLICY_HEAD.sub(lambda m: m[0] + said, sql, count=1)


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


APPEND_ONLY = " WITH (APPEND ONLY)"  # at the end of a table's definition


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
    if (workload := options.get("workload_class")) is not None:
        more += f", WORKLOAD CLASS = {quote_string(workload)}"
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
