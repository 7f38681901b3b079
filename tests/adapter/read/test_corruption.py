"""A corrupted file fails only the statements that need it."""

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from unittest.mock import patch

import pytest

from foreshore.adapter.plans import access_path
from foreshore.catalog.durable import CATALOG_SHARD
from foreshore.catalog.item import Replica
from foreshore.compute.controller.peeks import PeekRequest
from foreshore.errors import CollectionCorrupted
from foreshore.expr.ir import Get
from foreshore.ids import GlobalId
from foreshore.processes.child_process import ProcessLauncher
from foreshore.processes.launch import Launcher
from tests.adapter.harness import TestEnvironment, until
from tests.storage.test_corrupt_shard import DAMAGES

pytestmark = pytest.mark.full  # each case opens an environment several times

SETUP = """
CREATE TABLE t (k int PRIMARY KEY, v text);
CREATE TABLE plain (a int);
CREATE TABLE other (k int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'b');
INSERT INTO plain VALUES (10), (20);
INSERT INTO other VALUES (1, 'x'), (2, 'y');
CREATE VIEW v AS SELECT v, count(*) AS n FROM t GROUP BY v;
CREATE INDEX vi ON v (v);
CREATE MATERIALIZED VIEW m AS SELECT v, count(*) AS n FROM t GROUP BY v;
CREATE MATERIALIZED VIEW mm AS SELECT sum(n) AS n FROM m;
CREATE MATERIALIZED VIEW mo AS SELECT count(*) AS n FROM other;
CREATE INDEX moi ON mo (n);
CREATE INDEX mmi ON mm (n);
"""

# What everything says, by statement.
ANSWERS = {
    "SELECT * FROM t ORDER BY k": "1|a\n2|b\n3|b",
    "SELECT * FROM t WHERE k = 2": "2|b",
    "SELECT v FROM t WHERE v = 'a'": "a",
    "SELECT * FROM plain ORDER BY a": "10\n20",
    "SELECT * FROM other ORDER BY k": "1|x\n2|y",
    "SELECT v FROM other WHERE k = 2": "y",
    "SELECT other.v, t.v FROM t JOIN other USING (k) ORDER BY 1": "x|a\ny|b",
    "SELECT * FROM v ORDER BY v": "a|1\nb|2",
    "SELECT n FROM v WHERE v = 'b'": "2",
    "SELECT * FROM m ORDER BY v": "a|1\nb|2",
    "SELECT * FROM mm": "3",
    "SELECT * FROM mo": "2",
    "SELECT 1": "1",
}
# By which words a statement is known that cannot be answered without a collection's file.
READERS = {
    "t": ("FROM t ", "JOIN", "FROM v ", "FROM m ", "FROM mm "),
    "plain": ("FROM plain ",),
    "other": ("FROM other ", "JOIN", "FROM mo "),
    "m": ("FROM m ", "FROM mm "),
    "mm": ("FROM mm ",),
    "mo": ("FROM mo ",),
}


class Ruin(TestEnvironment):
    """An environment some of whose files are to suffer."""

    async def says(self, sql: str, seconds: float = 20) -> str:
        """Return what a statement says, which has to be soon."""
        async with asyncio.timeout(seconds):
            return await self.query("main", sql)

    def id(self, name: str) -> GlobalId:
        """Return a collection's id."""
        state = self.environment.coordinator.state
        (item,) = [each for each in state.items() if each.name == name]
        return item.id

    @property
    def cluster(self) -> str:
        """The one cluster that has a replica."""
        state = self.environment.coordinator.state
        (cluster,) = {replica.cluster for replica in state.all(Replica)}
        return cluster

    async def has_begun(self) -> None:
        """Wait until every replica maintains all that there is to maintain."""
        replicas = self.environment.coordinator.compute.clusters[self.cluster].replicas.values()
        ids = {self.id(name) for name in ("vi", "m", "mm", "mo", "moi", "mmi")}
        await until(lambda: all(ids <= each.uppers.keys() for each in replicas))

    async def check(self, readers: Iterable[str] = (), fail: str = "") -> None:
        """Assert the answers to all statements; those with one of the words `fail` as it says."""
        for sql, answer in ANSWERS.items():
            said = await self.says(sql)
            if any(word in f"{sql} " for word in readers):
                assert re.match(fail, said), (sql, said)
            else:
                assert said == f"{answer}\nSELECT {len(answer.splitlines())}", (sql, said)

    async def refuses(self, fail: str, *statements: str) -> None:
        """Assert that each of the statements fails as `fail` says."""
        for sql in statements:
            assert re.match(fail, said := await self.says(sql)), (sql, said)

    async def does(self, *statements: str) -> None:
        """Assert that no statement fails."""
        for sql in statements:
            assert "ERROR" not in (said := await self.says(sql)), (sql, said)


HOW = {
    "missing": "is missing",
    "cut": "has .* bytes instead of .*",
    "flipped": "has a wrong checksum",
}


def said_of(name: str, kind: str) -> str:
    """Return what an error says because a collection is damaged, as a regular expression."""
    type = "materialized view" if name.startswith("m") else "table"
    return rf'ERROR XX001: {type} foreshore\.public\.{name} is damaged: batch ".*" {HOW[kind]}\n'


async def built(directory: Path) -> dict[str, Path]:
    """Leave an environment in batches; return the file of each collection."""
    env = Ruin(directory)
    await env.open()
    await env.does(*filter(str.strip, SETUP.split(";")))
    await env.check()
    await env.storage.settle()
    files = {}
    for name in ("t", "plain", "other", "m", "mm", "mo"):
        (batch,) = env.storage._shards[env.id(name)].batches[:1]
        files[name] = directory / "blob" / batch.key
    catalog = env.storage._shards[CATALOG_SHARD].batches
    files["catalog"] = directory / "blob" / catalog[0].key
    await env.close()
    return files


@asynccontextmanager
async def opened(directory: Path, launcher: Launcher | None = None) -> AsyncIterator[Ruin]:
    env = Ruin(directory, launcher=launcher)
    await env.open()
    with patch.object(access_path, "FEW", 0):  # small tables are read from their files, too
        yield env
    await env.close()


@pytest.mark.parametrize("kind", DAMAGES)
@pytest.mark.parametrize("name", READERS)
def test_corrupted_file_fails_only_reads_that_need_it(tmp_path: Path, name: str, kind: str) -> None:
    async def main() -> None:
        path = (await built(tmp_path))[name]
        whole = path.read_bytes()
        DAMAGES[kind](path)
        fail = said_of(name, kind)
        async with opened(tmp_path) as env:
            await env.check(READERS[name], fail)
            await env.does("CREATE TABLE fresh (a int)", "INSERT INTO fresh VALUES (1)")
            await env.check(READERS[name], fail)
            replicas = env.environment.coordinator.compute.clusters.status()
            assert [each["starts"] for each in replicas] == [1]
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(whole)
        async with opened(tmp_path) as env:
            await env.check()
            assert await env.says("SELECT * FROM fresh") == "1\nSELECT 1"

    asyncio.run(main())


@pytest.mark.parametrize("kind", DAMAGES)
def test_corrupted_table_can_only_be_dropped(tmp_path: Path, kind: str) -> None:
    async def main() -> None:
        files = await built(tmp_path)
        for name in ("t", "plain"):
            DAMAGES[kind](files[name])
        async with opened(tmp_path) as env:
            await env.refuses(
                said_of("t", kind),
                "INSERT INTO t VALUES (4, 'd')",
                "INSERT INTO t SELECT * FROM other ON CONFLICT DO NOTHING",
                "UPDATE t SET v = 'q' WHERE k = 1",
                "DELETE FROM t",
                "TRUNCATE t",
                "INSERT INTO other SELECT k + 7, v FROM t",
                "SELECT * FROM CHANGES(t)",
                "CREATE TABLE copied AS SELECT * FROM t",
                "CREATE INDEX ON t (v)",
                "CREATE INDEX ON v (n)",
                "CREATE MATERIALIZED VIEW x AS SELECT * FROM v",
                "CREATE MATERIALIZED VIEW x AS SELECT * FROM m",
                "ALTER TABLE t ADD COLUMN c int",
                "SUBSCRIBE t",
                "SUBSCRIBE (SELECT count(*) FROM t)",
                "SUBSCRIBE m",
                "SUBSCRIBE mm",
                "SELECT * FROM m AS OF AT LEAST 0",
            )
            await env.does("SET transaction_isolation = serializable")
            await env.refuses(said_of("t", kind), "SELECT * FROM m", "SELECT * FROM mm")
            await env.does("SET transaction_isolation = DEFAULT")
            await env.refuses(said_of("plain", kind), "SELECT * FROM plain")
            await env.refuses(
                said_of("plain", kind), "INSERT INTO plain VALUES (30)", "DELETE FROM plain"
            )
            await env.does("BEGIN", "INSERT INTO other VALUES (7, 'z')")
            await env.refuses(said_of("plain", kind), "INSERT INTO plain VALUES (30)")
            await env.does("ROLLBACK")
            told = await env.says("EXPLAIN FRESHNESS FOR SELECT * FROM mm")
            states = {line.split("|")[0]: line.split("|")[3] for line in told.splitlines()[:-1]}
            assert states["foreshore.public.t"] == states["foreshore.public.m"] == "damaged"
            await env.does("ALTER TABLE t RENAME TO old")
            await env.refuses(said_of("old", kind), "SELECT * FROM old WHERE k = 1")
            await env.does("ALTER TABLE old RENAME TO t")
            await env.does("DROP TABLE t CASCADE", "DROP TABLE plain")
            await until(lambda: not files["t"].exists() and not files["plain"].exists())
        for _ in range(2):
            async with opened(tmp_path) as env:
                assert not env.storage.corruptions.messages
                assert await env.says("SELECT count(*) FROM other") == "2\nSELECT 1"
                assert await env.says("SELECT * FROM mo") == "2\nSELECT 1"
                await env.does("CREATE TABLE t (k int PRIMARY KEY, v text)", "DROP TABLE t")

    asyncio.run(main())


def test_corrupted_view_can_be_created_again(tmp_path: Path) -> None:
    async def main() -> None:
        files = await built(tmp_path)
        files["m"].unlink()
        async with opened(tmp_path) as env:
            await env.check(READERS["m"], said_of("m", "missing"))
            await env.does(
                "DROP MATERIALIZED VIEW m CASCADE",
                "CREATE MATERIALIZED VIEW m AS SELECT v, count(*) AS n FROM t GROUP BY v",
                "CREATE MATERIALIZED VIEW mm AS SELECT sum(n) AS n FROM m",
            )
            await env.check()
        async with opened(tmp_path) as env:
            await env.check()

    asyncio.run(main())


@pytest.mark.parametrize("kind", DAMAGES)
def test_view_over_corrupted_table_continues_until_restart(tmp_path: Path, kind: str) -> None:
    async def main() -> None:
        files = await built(tmp_path)
        whole = files["t"].read_bytes()
        async with opened(tmp_path, ProcessLauncher()) as env:
            await env.check()
            await env.has_begun()
            DAMAGES[kind](files["t"])
            await env.refuses(said_of("t", kind), "SELECT v FROM t WHERE v = 'a'")
            direct = ("FROM t ", "JOIN")
            await env.check(direct, said_of("t", kind))  # views and indexes have it in memory
            await env.refuses(said_of("t", kind), "INSERT INTO t VALUES (4, 'd')")
            # Who waits for what is not there yet, or follows, hears of it when nobody can go on.
            coordinator = env.environment.coordinator
            compute = coordinator.compute
            planned = coordinator.catalog.planned[env.id("mm")]
            time = coordinator.oracle.read_ts() + 600_000
            index = PeekRequest(time, Get(env.id("mm"), planned.desc.columns), index=env.id("mmi"))
            waiting = [
                asyncio.ensure_future(compute.wait_upper(env.id("mm"), time)),
                asyncio.ensure_future(compute.peek(env.cluster, index)),
            ]
            following = [
                asyncio.ensure_future(env.query(name, f"SUBSCRIBE {name}", alone=False))
                for name in ("m", "mm", "v")
            ]
            await until(lambda: len(list(coordinator.changelogs)) == len(following))
            await asyncio.sleep(0)
            assert not any(each.done() for each in (*waiting, *following))
            (replica,) = compute.clusters[env.cluster].replicas.values()
            assert replica.link.pid is not None
            os.kill(replica.link.pid, signal.SIGKILL)
            async with asyncio.timeout(30):
                for each in waiting:
                    with pytest.raises(CollectionCorrupted, match=HOW[kind]):
                        await each
                for told in following:
                    assert re.search(said_of("t", kind), await told)
            await env.check(READERS["t"], said_of("t", kind))
            starts = [each["starts"] for each in compute.clusters.status()]
            assert starts == [2]
        files["t"].parent.mkdir(exist_ok=True)
        files["t"].write_bytes(whole)
        async with opened(tmp_path, ProcessLauncher()) as env:
            await env.check()

    asyncio.run(main())


@pytest.mark.parametrize("kind", DAMAGES)
def test_corrupted_catalog_prevents_start(tmp_path: Path, kind: str) -> None:
    async def main() -> None:
        path = (await built(tmp_path))["catalog"]
        whole = path.read_bytes()
        DAMAGES[kind](path)
        env = Ruin(tmp_path)
        for _ in range(2):
            with pytest.raises(CollectionCorrupted, match=path.name):
                await env.open()
            await env.storage.close()
        path.write_bytes(whole)
        async with opened(tmp_path, ProcessLauncher()) as env:
            await env.check()

    asyncio.run(main())


def test_hydrated_replica_answers_while_other_cannot_start(tmp_path: Path) -> None:
    async def main() -> None:
        path = (await built(tmp_path))["t"]
        whole = path.read_bytes()
        async with opened(tmp_path, ProcessLauncher()) as env:
            await env.does("CREATE CLUSTER REPLICA quickstart.second SIZE = 'embedded'")
            compute = env.environment.coordinator.compute
            replicas = compute.clusters[env.cluster].replicas
            await env.has_begun()
            path.unlink()
            await env.refuses(said_of("t", "missing"), "SELECT v FROM t WHERE v = 'a'")
            _, second = replicas.values()
            assert second.link.pid is not None
            os.kill(second.link.pid, signal.SIGKILL)
            await until(lambda: second.link.starts == 2 and second.status is not None)
            await env.check(("FROM t ", "JOIN"), said_of("t", "missing"))
            await env.does("SET cluster_replica = second")
            await env.refuses(said_of("t", "missing"), "SELECT * FROM v", "SELECT * FROM t")
            await env.does("RESET cluster_replica")
            assert await env.says("SELECT * FROM v ORDER BY v") == "a|1\nb|2\nSELECT 2"
        path.write_bytes(whole)
        async with opened(tmp_path, ProcessLauncher()) as env:
            await env.check()

    asyncio.run(main())
