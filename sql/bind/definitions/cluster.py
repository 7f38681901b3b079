"""Bind CREATE and ALTER CLUSTER, CREATE CLUSTER REPLICA, SWAP WITH and SET CLUSTER."""

import re
from collections.abc import Mapping
from typing import Any, Literal

from foreshore.burst import DEFAULT_LINGER_MS, Burst
from foreshore.digits import is_digits
from foreshore.errors import InvalidParameterValue
from foreshore.hydrate_mode import checked_mode
from foreshore.interval_text import parse_interval
from foreshore.sql import ast
from foreshore.sql.bind.definitions.objects import name_of, require_cluster
from foreshore.sql.bind.planning import Planning, located
from foreshore.sql.parse.clusters import AUTO_SCALING
from foreshore.sql.plan import (
    AlterCluster,
    ClusterWait,
    CreateCluster,
    CreateClusterReplica,
    SetCluster,
    Swap,
)

DEFAULT_SIZE = "embedded"
MAX_REPLICAS = 64  # per cluster
MAX_THREADS = 1024
MAX_WORKERS = 64  # of a replica
MAX_PARTITIONS = 100_000  # of a shuffle

# Options of engines, by their names in SQL.
ENGINE_OPTIONS = {
    "tick interval": "tick_interval_ms",
    "threads": "threads",
    "memory limit": "memory_limit",
    "workers": "workers",
    "master": "master",
    "driver memory": "driver_memory",
    "executor memory": "executor_memory",
    "shuffle partitions": "shuffle_partitions",
    "hydrate": "hydrate",
    "workload class": "workload_class",  # a name for metrics, which engines do not read
}
_MEMORY = re.compile(r"\A\s*([0-9]{1,9})\s*(MB|GB|TB|MiB|GiB|TiB)\s*\Z", re.IGNORECASE)


def bind_create_cluster(statement: ast.CreateClusterStatement) -> CreateCluster:
    """Return the plan of CREATE CLUSTER."""
    options = dict(statement.options)
    if statement.replicas is not None:
        replicas = []
        _check_replicas(str(len(statement.replicas)), statement.at)
        for name, each in statement.replicas:
            size = each.get("size", DEFAULT_SIZE)
            _check_known(each, ("size",))
            replicas.append((name, size))
        return CreateCluster(
            statement.name,
            replicas[0][1] if replicas else DEFAULT_SIZE,
            len(replicas),
            {},
            tuple(replicas),
            statement.if_not_exists,
        )
    burst = _take_burst(options, statement.at)
    _check_known(options, ("size", "replication factor", "managed", *ENGINE_OPTIONS))
    size = options.pop("size", DEFAULT_SIZE)
    factor = _replication_factor(options.pop("replication factor", "1"), statement.at)
    if not _truth(options.pop("managed", "true"), statement.at):
        raise InvalidParameterValue(
            "the replicas of an unmanaged cluster must be listed",
            position=statement.at + 1,
            hint="Use CREATE CLUSTER name REPLICAS (replica (SIZE ...), ...).",
        )
    kept = _engine_options(options, statement.at)
    return CreateCluster(statement.name, size, factor, kept, None, statement.if_not_exists, burst)


def bind_create_replica(
    planning: Planning, statement: ast.CreateReplicaStatement
) -> CreateClusterReplica:
    """Return the plan of CREATE CLUSTER REPLICA."""
    with located(statement.at):
        require_cluster(planning, statement.cluster)
    options = dict(statement.options)
    size = options.pop("size", None)
    _check_known(options, ("address",))
    return CreateClusterReplica(statement.cluster, statement.name, size, options)


def bind_alter_cluster(planning: Planning, statement: ast.AlterClusterStatement) -> AlterCluster:
    """Return the plan of ALTER CLUSTER ... SET and RESET."""
    given, at = dict(statement.options), statement.at
    burst: Burst | None | Literal["keep"] = "keep"
    if AUTO_SCALING in given:
        burst = None
        if given[AUTO_SCALING] is not None:
            burst = _take_burst(given, at)
        given.pop(AUTO_SCALING, None)
    _check_known(given, ("size", "replication factor", "managed", *ENGINE_OPTIONS))
    size, factor, managed = None, None, None
    if "size" in given:
        size = given.pop("size") or DEFAULT_SIZE
    if "replication factor" in given:
        factor = _replication_factor(given.pop("replication factor") or "1", at)
    if "managed" in given:
        managed = _truth(given.pop("managed") or "true", at)
    options: dict[str, str | None] = {ENGINE_OPTIONS[n]: None for n, v in given.items() if not v}
    options.update(_engine_options({n: v for n, v in given.items() if v}, at))
    name = name_of(planning, "cluster", statement.name)
    wait = None if statement.wait is None else _wait(statement.wait)
    return AlterCluster(name, size, factor, managed, options, wait, statement.if_exists, burst)


def _wait(wait: ast.ClusterWait) -> ClusterWait:
    with located(wait.at):
        milliseconds = _milliseconds(wait.duration, "TIMEOUT" if wait.until_ready else "WAIT FOR")
    return ClusterWait(wait.until_ready, milliseconds, wait.on_timeout == "rollback")


def bind_swap(planning: Planning, statement: ast.SwapStatement) -> Swap:
    """Return the plan of ALTER ... SWAP WITH."""
    kind = statement.kind
    names = (name_of(planning, kind, each) for each in (statement.name, statement.other))
    return Swap(kind, *names)


def bind_set_cluster(planning: Planning, statement: ast.SetClusterStatement) -> SetCluster:
    """Return the plan of ALTER MATERIALIZED VIEW ... SET CLUSTER."""
    require_cluster(planning, statement.cluster)
    name = name_of(planning, "materialized view", statement.name)
    return SetCluster(name, statement.cluster, statement.if_exists)


def _take_burst(options: dict[str, Any], at: int) -> Burst | None:
    """Take the options of auto scaling from `options`; return the burst, or None without them."""
    if options.pop(AUTO_SCALING, None) is None:
        return None
    given = {
        name.removeprefix("burst "): options.pop(name)
        for name in list(options)
        if name.startswith("burst ")
    }
    _check_known(given, ("hydration size", "linger duration"))
    with located(at):
        lasts = given.get("linger duration")
        linger = DEFAULT_LINGER_MS if lasts is None else _milliseconds(lasts, "LINGER DURATION")
    return Burst(given.get("hydration size", DEFAULT_SIZE), linger)


# --- options -------------------------------------------------------------------------------


def _check_known(options: Mapping[str, str | None], known: tuple[str, ...]) -> None:
    for name in options:
        if name not in known:
            raise InvalidParameterValue(f"unrecognized option {name.upper()}")


def _replication_factor(text: str, at: int) -> int:
    if not is_digits(text):
        raise InvalidParameterValue(
            f'invalid value for REPLICATION FACTOR: "{text}"', position=at + 1
        )
    _check_replicas(text, at)
    return int(text[-9:])


def _check_replicas(count: str, at: int) -> None:
    """Raise InvalidParameterValue if a number, of any length, exceeds the maximum of replicas."""
    digits = count.lstrip("0")
    if len(digits) > 9 or int(digits or "0") > MAX_REPLICAS:
        raise InvalidParameterValue(
            f"a cluster can have at most {MAX_REPLICAS} replicas", position=at + 1
        )


def _truth(text: str, at: int) -> bool:
    if text.lower() not in ("true", "false", "on", "off"):
        raise InvalidParameterValue(f'invalid value for MANAGED: "{text}"', position=at + 1)
    return text.lower() in ("true", "on")


def _engine_options(given: Mapping[str, str], at: int) -> dict[str, str]:
    """Return options of engines as these read them; raises InvalidParameterValue."""
    found = {}
    with located(at):
        for name, text in given.items():
            match name:
                case "tick interval":
                    value = str(_milliseconds(text, "TICK INTERVAL"))
                case "threads":
                    value = _count(text, "THREADS", MAX_THREADS)
                case "workers":
                    value = _count(text, "WORKERS", MAX_WORKERS)
                case "shuffle partitions":
                    value = _count(text, "SHUFFLE PARTITIONS", MAX_PARTITIONS)
                case "master" | "workload class":
                    value = text
                case "hydrate":
                    value = checked_mode(text)
                case _:
                    value = _size(text, name.upper())
            found[ENGINE_OPTIONS[name]] = value
    return found


def _size(text: str, option: str) -> str:
    matched = _MEMORY.match(text)
    if matched is None or not int(matched[1]):
        raise InvalidParameterValue(
            f'invalid value for {option}: "{text}"', hint="Give a size such as '500MB' or '4GB'."
        )
    return matched[1] + matched[2]


def _count(text: str, option: str, most: int) -> str:
    """Return a number from 1 to `most`; raises InvalidParameterValue."""
    if not (is_digits(text) and len(text) < 9):
        raise InvalidParameterValue(f'invalid value for {option}: "{text}"')
    if not 1 <= int(text) <= most:
        raise InvalidParameterValue(f"{option} must be between 1 and {most}")
    return str(int(text))


def _milliseconds(text: str, option: str) -> int:
    """Return an interval without days in milliseconds."""
    months, days, microseconds = parse_interval(text)
    if months or days or microseconds < 0 or microseconds % 1000:
        raise InvalidParameterValue(
            f'invalid value for {option}: "{text}"',
            hint="Give hours, minutes, seconds or milliseconds.",
        )
    return microseconds // 1000
