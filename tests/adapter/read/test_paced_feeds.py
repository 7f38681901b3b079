"""Commits that nobody waits for reach replicas together; who reads a view has them at once."""

import pytest

from foreshore.compute.controller import cluster as cluster_module
from foreshore.compute.controller.cluster import Cluster
from foreshore.compute.protocol import Feed
from foreshore.processes.messages import Message
from foreshore.processes.transport import Sent
from tests.adapter.harness import TestEnvironment


async def test_reads_do_not_wait_for_the_next_feed(
    own_env: TestEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    fed: list[int] = []
    send = Cluster.send

    def noted(cluster: Cluster, message: Message, tables: list[Sent] = []) -> None:  # noqa: B006
        if isinstance(message, Feed):
            fed.append(len(tables))
        send(cluster, message, tables)

    await own_env.ran("s", "CREATE TABLE t (a int PRIMARY KEY, b int)")
    await own_env.ran("s", "CREATE MATERIALIZED VIEW v AS SELECT count(*) n, sum(b) s FROM t")
    await own_env.ran("s", "CREATE VIEW w AS SELECT b, count(*) n FROM t GROUP BY b")
    await own_env.ran("s", "CREATE INDEX ON w (b)")
    await own_env.query("s", "SELECT * FROM v, w")
    monkeypatch.setattr(Cluster, "send", noted)
    monkeypatch.setattr(cluster_module, "FEED_SECONDS", 3600.0)
    for i in range(1, 31):
        await own_env.ran("s", f"INSERT INTO t VALUES ({i}, 7)")
        if i % 10 == 0:
            found = await own_env.query("s", "SELECT n, s FROM v")
            assert found.splitlines()[0] == f"{i}|{7 * i}", found
            found = await own_env.query("s", "SELECT n FROM w WHERE b = 7")
            assert found.splitlines()[0] == str(i), found
    assert sum(fed) == 30
    assert len([each for each in fed if each]) <= 6, fed
