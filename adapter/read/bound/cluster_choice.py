"""The cluster that answers a session's queries, and the collections that it reads.

The setting `cluster_replica` selects one replica, even if it is slower, unreachable or failing. It
serves to examine a replica; all replicas give the same answers.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from foreshore.adapter.plans.access_path import IndexLookups, PeekPlan
from foreshore.adapter.statement.context import StatementContext
from foreshore.catalog.item import Cluster
from foreshore.compute.controller.peeks import PeekRequest
from foreshore.compute.result import Result
from foreshore.errors import (
    DatabaseError,
    ObjectNotInPrerequisiteState,
    TableAltered,
    UndefinedObject,
)
from foreshore.ids import GlobalId


def answering_cluster(context: StatementContext) -> Cluster:
    """Return the session's cluster.

    Raises UndefinedObject if there is no such cluster, ObjectNotInPrerequisiteState if it has no
    replica.
    """
    cluster = context.names.state.cluster(context.cluster)
    if cluster is None:
        raise UndefinedObject(f'unknown cluster "{context.cluster}"')
    if not context.views.has_replica(cluster.id):
        raise ObjectNotInPrerequisiteState(
            f'cluster "{cluster.name}" has no replicas available to service request',
            hint="Create one with CREATE CLUSTER REPLICA, or SET cluster to another one.",
        )
    return cluster


@contextmanager
def replanned_if_dropped(context: StatementContext, ids: Iterable[GlobalId]) -> Iterator[None]:
    """Raise TableAltered, so that the statement is planned again, if one of `ids` was dropped."""
    try:
        yield
    except DatabaseError as error:
        dropped = not set(ids) <= context.times.holds.collections.keys()
        if error.sqlstate in ("42704", "55000") and dropped:
            raise TableAltered() from error
        raise


async def asked_of_cluster(context: StatementContext, request: PeekRequest) -> Result:
    """Return the answer of the session's cluster.

    Raises TableAltered if an input was dropped meanwhile, so that the statement is planned again.
    """
    cluster = answering_cluster(context)
    with replanned_if_dropped(context, request.reads):
        return await context.views.compute.peek(cluster.id, request)


def collections_read(context: StatementContext, plan: PeekPlan) -> set[GlobalId]:
    """Return the shards and indexes that a plan reads."""
    if isinstance(plan.path, IndexLookups):
        return set(plan.path.collections)
    ids = plan.shards if plan.index is None else {plan.index.index}
    return {index_of(context, id) for id in ids} | {each.of for each in plan.query.changes}


def index_of(context: StatementContext, id: GlobalId) -> GlobalId:
    """Return the collection that is read for a source: the index of a view, else the source.

    Raises ObjectNotInPrerequisiteState if the view's index was dropped.
    """
    if (
        id in context.tables.capabilities
        or id in context.views.as_ofs
        or id not in context.names.state.objects
    ):
        return id
    ready = context.views.index_for(id, context.cluster)
    if not ready:
        raise ObjectNotInPrerequisiteState(f"the index on {id} was dropped by another session")
    return ready[0].id
