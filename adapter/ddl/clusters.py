"""CREATE and ALTER CLUSTER, CREATE CLUSTER REPLICA, SWAP WITH and SET CLUSTER.

The replicas of a managed cluster are r1, r2, ... up to its replication factor, all of its size and
with its options. An ALTER CLUSTER ... SET of these replaces, adds and drops replicas accordingly.
Replicas may be added and dropped one by one as well; they are kept until the next such change.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from foreshore.adapter.client import Completed
from foreshore.adapter.ddl.drop import drop_objects
from foreshore.adapter.ddl.objects import find_if_exists, skip_existing
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.statement.planner import Planner
from foreshore.burst import Burst
from foreshore.catalog.item import Cluster, Item, Replica
from foreshore.catalog.state import State
from foreshore.compute.controller.cluster import check_size, engine_of
from foreshore.errors import (
    ActiveSqlTransaction,
    ObjectNotInPrerequisiteState,
    QueryCanceled,
    UndefinedObject,
)
from foreshore.extras import require_spark
from foreshore.processes.launch import replica_secret
from foreshore.sql.plan import AlterCluster, CreateCluster, CreateClusterReplica, SetCluster, Swap


def create_cluster(context: StatementContext, plan: CreateCluster) -> Completed:
    """Run CREATE CLUSTER."""
    replicas = plan.replicas
    if replicas is None:
        replicas = tuple((name, plan.size) for name in replica_names(plan.replication_factor))
    for size in {plan.size, *(size for _, size in replicas)}:
        _check_runnable(size, plan.options)
    check_burst(plan.burst)
    change, managed = context.catalog_change(), plan.replicas is None
    with skip_existing(context, plan.if_not_exists):
        change.create_cluster(
            plan.name,
            context.role.id,
            plan.size,
            dict(plan.options),
            replicas,
            managed=managed,
            burst=plan.burst,
        )
    return Completed("CREATE CLUSTER")


def _check_runnable(size: str, options: Mapping[str, str | None]) -> None:
    """Raise for a size that is unknown, cannot have the options, or needs what is not installed."""
    check_size(size, options)
    if engine_of(size)[0] == "spark":
        require_spark(f"SIZE = '{size}'")
    if options.get("hydrate") == "spark":
        require_spark("HYDRATE = 'spark'")


def check_burst(burst: Burst | None) -> None:
    """Raise InvalidParameterValue for an unknown size of a burst."""
    if burst is not None:
        _check_runnable(burst.size, {})


def create_cluster_replica(context: StatementContext, plan: CreateClusterReplica) -> Completed:
    """Run CREATE CLUSTER REPLICA."""
    cluster = cluster_called(context.planner, context.cluster, plan.cluster)
    size = plan.size or cluster.size
    options = {**cluster.options, **plan.options}
    _check_runnable(size, options)
    if "address" in options:
        replica_secret()
    context.catalog_change().create_replica(cluster, plan.name, context.role.id, size, options)
    return Completed("CREATE CLUSTER REPLICA")


def cluster_called(planner: Planner, cluster: str, name: str | None) -> Cluster:
    """Return the cluster called `name`, or the session's; raises UndefinedObject."""
    name = name if name is not None else cluster
    found = planner.reader().state.cluster(name)
    if found is None:
        raise UndefinedObject(f'unknown cluster "{name}"')
    return found


def replica_names(count: int) -> list[str]:
    """Return the names of a managed cluster's replicas."""
    return [f"r{i + 1}" for i in range(count)]


# --- ALTER CLUSTER -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Target:
    """The definition that ALTER CLUSTER gives a cluster, and the replicas to drop and create."""

    cluster: Cluster
    dropped: list[Replica]
    created: list[str]  # names


def _target(state: State, cluster: Cluster, plan: AlterCluster) -> _Target:
    """Return what ALTER CLUSTER makes of a cluster; raises for what it cannot become."""
    present = state.replicas_of(cluster.id)
    managed = cluster.managed if plan.managed is None else plan.managed
    settings = plan.size is not None or plan.replication_factor is not None or bool(plan.options)
    settings = settings or plan.burst != "keep"
    if not managed:
        if settings:
            raise ObjectNotInPrerequisiteState(
                f'cannot change SIZE, REPLICATION FACTOR or options of unmanaged cluster "'
                f'{cluster.name}"',
                hint="Create and drop its replicas, or SET (MANAGED) first.",
            )
        return _Target(replace(_with(cluster, managed=False), burst=None), [], [])
    size, factor = plan.size or cluster.size, plan.replication_factor
    if not cluster.managed:  # it is what it has, unless the statement says otherwise
        sizes = {each.size for each in present}
        if plan.size is None and len(sizes) > 1:
            raise ObjectNotInPrerequisiteState(
                f'the replicas of cluster "{cluster.name}" have several sizes',
                hint="Give the SIZE that all of them are to have.",
            )
        size = plan.size or next(iter(sizes), cluster.size)
        factor = len(present) if factor is None else factor
    factor = cluster.replication_factor if factor is None else factor
    options = {**cluster.options, **plan.options}
    _check_runnable(size, options)
    kept = {name: value for name, value in options.items() if value is not None}
    new = _with(cluster, size=size, factor=factor, options=kept, managed=True)
    if plan.burst != "keep":
        check_burst(plan.burst)
        new = replace(new, burst=plan.burst)
    names = replica_names(factor)
    fitting = {
        each.name
        for each in present
        if (each.size, _of_engine(each.options)) == (size, _of_engine(kept))
    } & set(names)
    dropped = [each for each in present if each.name not in fitting]
    return _Target(new, dropped, [name for name in names if name not in fitting])


def _of_engine(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options for which replicas have to be made anew."""
    return {name: value for name, value in options.items() if name != "workload_class"}


def _with(
    cluster: Cluster,
    *,
    managed: bool,
    size: str | None = None,
    factor: int | None = None,
    options: dict[str, str] | None = None,
) -> Cluster:
    return replace(
        cluster,
        managed=managed,
        size=cluster.size if size is None else size,
        replication_factor=cluster.replication_factor if factor is None else factor,
        options=cluster.options if options is None else options,
    )


async def bring_up(context: StatementContext, plan: AlterCluster) -> None:
    """Start the replicas that ALTER CLUSTER ... WITH (WAIT ...) adds, and wait for them.

    The catalog is not locked meanwhile, and the old replicas serve. Raises QueryCanceled if they
    are not ready in time and ON TIMEOUT is ROLLBACK.
    """
    if plan.wait is None:
        return
    if not context.alone:
        raise ActiveSqlTransaction(
            "ALTER CLUSTER ... WITH (WAIT ...) cannot run inside a transaction block"
        )
    views, state = context.views, context.names.state
    cluster = _cluster_to_alter(context, plan)
    if cluster is None:
        return
    if views.resizes.on(cluster.id) is not None:
        raise ObjectNotInPrerequisiteState(
            f'cluster "{cluster.name}" is being changed by another session', sqlstate="55006"
        )
    target = _target(state, cluster, plan)
    numbers = context.names.catalog.transaction()
    pending = views.resizes.begin(
        context.transaction,
        cluster.id,
        {name: f"r{numbers.allot('r')}" for name in target.created},
        target.cluster.size,
        target.cluster.options,
    )
    until_ready = plan.wait.until_ready
    ready = await views.resizes.wait(pending, plan.wait.timeout_ms, until_ready=until_ready)
    if ready or not until_ready:
        return
    waited = f"{plan.wait.timeout_ms / 1000:g} seconds"
    if plan.wait.roll_back:
        raise QueryCanceled(
            f'the new replicas of cluster "{cluster.name}" were not ready after {waited}; '
            "the cluster is unchanged"
        )
    context.notice(
        f'the new replicas of cluster "{cluster.name}" are not ready after {waited}; '
        "queries may wait for them",
        severity="WARNING",
    )


def _cluster_to_alter(context: StatementContext, plan: AlterCluster) -> Cluster | None:
    found = find_if_exists(
        context.planner,
        context.notice,
        "cluster",
        plan.name,
        if_exists=plan.if_exists,
        altered=True,
    )
    assert found is None or isinstance(found, Cluster), found
    return found


def alter_cluster(context: StatementContext, plan: AlterCluster) -> Completed:
    """Run ALTER CLUSTER ... SET or RESET."""
    cluster = _cluster_to_alter(context, plan)
    if cluster is None:
        return Completed("ALTER CLUSTER")
    change = context.catalog_change()
    target = _target(change.state, cluster, plan)
    pending = context.views.resizes.of(context.transaction)
    started = {} if pending is None else pending.replicas
    if pending is not None and (target.cluster.size, target.cluster.options, set(started)) != (
        pending.size,
        pending.options,
        set(target.created),
    ):
        raise ObjectNotInPrerequisiteState(
            f'cluster "{cluster.name}" was changed by another session', sqlstate="55006"
        )
    drop_objects(context, target.dropped, cascade=False)
    change.alter_cluster(target.cluster)
    for name in target.created:
        change.create_replica(
            target.cluster,
            name,
            cluster.owner,
            target.cluster.size,
            target.cluster.options,
            id=started.get(name),
        )
    return Completed("ALTER CLUSTER")


def swap(context: StatementContext, plan: Swap) -> Completed:
    """Run ALTER CLUSTER or SCHEMA ... SWAP WITH."""
    reader = context.planner.reader()
    one, other = (
        reader.object_called(plan.kind, each.parts, altered=True)
        for each in (plan.name, plan.other)
    )
    context.catalog_change().swap(one, other)
    return Completed(f"ALTER {plan.kind.upper()}")


def set_cluster(context: StatementContext, plan: SetCluster) -> Completed:
    """Run ALTER MATERIALIZED VIEW ... SET CLUSTER."""
    cluster = cluster_called(context.planner, context.cluster, plan.cluster)
    found = find_if_exists(
        context.planner,
        context.notice,
        "materialized view",
        plan.name,
        if_exists=plan.if_exists,
        altered=True,
    )
    if found is not None:
        assert isinstance(found, Item), found
        context.catalog_change().set_cluster(found, cluster)
    return Completed("ALTER MATERIALIZED VIEW")
