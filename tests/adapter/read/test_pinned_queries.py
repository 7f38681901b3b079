"""SET cluster_replica, on each way to an answer: a query waits for a replica that sends nothing.

The replicas run in this process. What keeps the answer of one back is that nobody reads it.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from foreshore.compute.controller.cluster import Replica
from tests.adapter.harness import TestEnvironment

QUERIES = (
    "SELECT n FROM v WHERE k = 1",  # rows under one key of an index
    "SELECT n FROM v WHERE k = 1 AND n > 0",
    "SELECT n FROM v WHERE k IN (1, 2) ORDER BY n",  # under several
    "SELECT k, n FROM v ORDER BY k",  # the whole index
    "SELECT n FROM v WHERE k > 1",  # a range of it
    "SELECT sum(n) FROM v WHERE k = 1",  # look-ups in indexes, computed here
    "SELECT a.n FROM v AS a JOIN w AS b ON b.k = a.n WHERE a.k = 2",
    "SELECT count(*) FROM t",  # few stored rows
    "SELECT count(*) FROM t, v WHERE t.k = v.k",  # by the engine
    "SELECT k, row_number() OVER (ORDER BY k) FROM t ORDER BY k",
    "BEGIN; SELECT n FROM v WHERE k = 1; COMMIT",
    "SELECT n FROM v WHERE k = 1; SELECT n FROM v WHERE k = 1",
    "COPY (SELECT n FROM v WHERE k = 1) TO STDOUT",
    "BEGIN; DECLARE c CURSOR FOR SELECT n FROM v WHERE k = 1; FETCH ALL c; COMMIT",
    "PREPARE p AS SELECT n FROM v WHERE k = $1; EXECUTE p (1)",
)


async def make(env: TestEnvironment) -> None:
    """Make a cluster `two` of the replicas r1 and r2, with indexes, and session `all` in it."""
    await env.ran(
        "all",
        "CREATE CLUSTER two (SIZE = 'embedded', REPLICATION FACTOR = 2)",
        "SET cluster = two",
        "CREATE TABLE t (k int)",
        "INSERT INTO t VALUES (1), (1), (2)",
        "CREATE VIEW v AS SELECT k, count(*) AS n FROM t GROUP BY k",
        "CREATE INDEX i IN CLUSTER two ON v (k)",
        "CREATE VIEW w AS SELECT k, max(n) AS m FROM v GROUP BY k",
        "CREATE INDEX j IN CLUSTER two ON w (k)",
    )


def replica_of(env: TestEnvironment, name: str) -> Replica:
    coordinator = env.environment.coordinator
    cluster = coordinator.state.cluster("two")
    assert cluster is not None
    replica = coordinator.state.replica(cluster.id, name)
    assert replica is not None
    return coordinator.compute.clusters[cluster.id].replicas[replica.id]


@contextmanager
def unread(replica: Replica) -> Iterator[None]:
    """Read nothing from a replica meanwhile."""
    assert replica.connection is not None
    replica.connection.listen(on=False)
    try:
        yield
    finally:
        replica.connection.listen(on=True)


async def test_pinned_query_waits_for_its_replica_on_each_way(own_env: TestEnvironment) -> None:
    env = own_env
    await make(env)
    mirrors = env.environment.coordinator.compute.mirrors
    mirrors.bounds = replace(mirrors.bounds, reads=1, patience_s=60.0)
    while not list(mirrors.sizes()):  # a replica tells the size of its index every second
        await env.ran("all", QUERIES[0])
    answers = [await env.ran("all", "DEALLOCATE ALL", query) for query in QUERIES]
    for here in ("r1", "r2"):
        for number in range(len(QUERIES)):
            name = f"{here} {number}"
            await env.ran(name, "SET cluster = two", f"SET cluster_replica = {here}")
        with unread(replica_of(env, here)):
            asking = [
                asyncio.create_task(env.query(f"{here} {number}", query, alone=False))
                for number, query in enumerate(QUERIES)
            ]
            for query, answer in zip(QUERIES, answers, strict=True):
                assert await env.ran("all", "DEALLOCATE ALL", query) == answer, query
            done = [q for q, each in zip(QUERIES, asking, strict=True) if each.done()]
            assert not done, done
        found = await asyncio.gather(*asking)
        assert found == answers
