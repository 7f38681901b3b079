"""Limits of CREATE CLUSTER."""

from tests.adapter.harness import TestEnvironment


async def test_cluster_with_too_many_replicas_is_refused(own_env: TestEnvironment) -> None:
    for factor in ("65", "4000000", "9" * 5000):
        answer = await own_env.query(
            "s", f"CREATE CLUSTER c SIZE 'embedded', REPLICATION FACTOR {factor}"
        )
        assert answer == "ERROR 22023: a cluster can have at most 64 replicas"
    answer = await own_env.query("s", "CREATE CLUSTER c SIZE 'x', REPLICATION FACTOR 3")
    assert answer.startswith("ERROR 22023: unknown cluster replica size x")
