"""The replica that a session asks."""

from foreshore.adapter.statement.context import StatementContext
from foreshore.errors import (
    UndefinedObject,
)


def pinned_replica(context: StatementContext) -> str | None:
    """Return the id of the only replica that the session asks; None if it asks all.

    Raises UndefinedObject if there is no such replica.
    """
    name = context.variables["cluster_replica"]
    if not name:
        return None
    state = context.names.state
    cluster = state.cluster(context.cluster)
    replica = None if cluster is None else state.replica(cluster.id, name)
    if replica is None:
        raise UndefinedObject(
            f'cluster replica "{context.cluster}.{name}" does not exist',
            hint="RESET cluster_replica to have any replica of the cluster answer.",
        )
    return replica.id
