"""Who answers a session's queries: the cluster that it has set, or one replica of it.

With `cluster_replica` only that replica is asked, even if it is slower, away, or fails where others
would not. That is for looking at one replica; answers are the same everywhere.
"""

from foreshore.adapter.session.context import StatementContext
from foreshore.catalog.item import Cluster
from foreshore.errors import ObjectNotInPrerequisiteState, UndefinedObject


def answering_cluster(context: StatementContext) -> Cluster:
    """Return the session's cluster.

    Raises UndefinedObject if there is no such cluster, ObjectNotInPrerequisiteState if it has no
    replica.
    """
    state = context.coordinator.state
    cluster = state.cluster(context.cluster)
    if cluster is None:
        raise UndefinedObject(f'unknown cluster "{context.cluster}"')
    if not state.replicas_of(cluster.id):
        raise ObjectNotInPrerequisiteState(
            f'cluster "{cluster.name}" has no replicas available to service request',
            hint="Create one with CREATE CLUSTER REPLICA, or SET cluster to another one.",
        )
    return cluster


def pinned_replica(context: StatementContext) -> str | None:
    """Return the id of the one replica of its cluster that the session asks; None: it asks all.

    Raises UndefinedObject if there is no such replica.
    """
    name = context.variables["cluster_replica"]
    if not name:
        return None
    state = context.coordinator.state
    cluster = state.cluster(context.cluster)
    replica = None if cluster is None else state.replica(cluster.id, name)
    if replica is None:
        raise UndefinedObject(
            f'cluster replica "{context.cluster}.{name}" does not exist',
            hint="RESET cluster_replica to have any replica of the cluster answer.",
        )
    return replica.id
