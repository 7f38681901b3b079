"""What names mean in a transaction that has begun to read, while others define them anew."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from foreshore.adapter.transaction.group_commit import Write
from foreshore.adapter.transaction.name_reads import NameReads, Relied
from tests.adapter.harness import TestEnvironment, until

CHANGED = "ERROR 40001: could not serialize access: a relation was altered or replaced meanwhile"
BASE = (
    "CREATE TABLE x_a (k int PRIMARY KEY, v int)",
    "CREATE TABLE x_b (k int PRIMARY KEY, v int)",
    "CREATE TABLE outp (a int, b int)",
    "CREATE VIEW vv AS SELECT v AS x FROM x_a",
    "CREATE VIEW vvv AS SELECT x FROM vv",
    "CREATE MATERIALIZED VIEW mm AS SELECT v AS x FROM x_b",
    "INSERT INTO x_a VALUES (1, 1)",
    "INSERT INTO x_b VALUES (1, 2)",
)
SWAP = (
    "BEGIN; ALTER TABLE x_a RENAME TO x_c; ALTER TABLE x_b RENAME TO x_a; "
    "ALTER TABLE x_c RENAME TO x_b; COMMIT"
)
REPLACE = "CREATE OR REPLACE VIEW v1 AS SELECT v + 100 AS x FROM x_a"


class Own:
    """A database of its own in the environment, with sessions of its own."""

    def __init__(self, env: TestEnvironment) -> None:
        self._env = env
        self._name = f"own{len(env.sessions)}"
        self.environment = env.environment

    async def query(self, name: str, sql: str, *, alone: bool = True) -> str:
        name = f"{self._name}.{name}"
        if name not in self._env.sessions:
            await self._env.query(name, f"SET database = {self._name}")
        return await self._env.query(name, sql, alone=alone)

    async def open(self) -> None:
        await self._env.query(self._name, f"CREATE DATABASE {self._name}")
        for each in BASE:
            assert "ERROR" not in await self.query("s", each)


def lived(
    runner: asyncio.Runner, env: TestEnvironment, scenario: Callable[[Own], Awaitable[None]]
) -> None:
    async def main() -> None:
        own = Own(env)
        await own.open()
        await scenario(own)

    runner.run(main())


async def ddl(own: Own, sql: str) -> None:
    answer = await own.query("other", sql)
    assert "ERROR" not in answer, answer


@pytest.mark.parametrize(
    ("sql", "read"),
    [
        ("CREATE VIEW v1 AS SELECT v AS x FROM x_a; SELECT 1", "SELECT * FROM v1"),
        ("SELECT 1", "SELECT * FROM x_a"),
    ],
)
@pytest.mark.parametrize("mode", ["", " READ ONLY"])
def test_a_block_reads_what_its_names_meant_first(
    runner: asyncio.Runner, env: TestEnvironment, sql: str, read: str, mode: str
) -> None:
    change = REPLACE if "v1" in read else SWAP

    async def main(own: Own) -> None:
        await own.query("s", sql)
        await own.query("s", f"BEGIN{mode}")
        first = await own.query("s", read)
        assert "SELECT 1" in first
        await ddl(own, change)
        assert (await own.query("s", read)).startswith(CHANGED)
        await own.query("s", "ROLLBACK")
        assert (await own.query("s", read)) != first.removesuffix("\nT")  # on its own

    lived(runner, env, main)


@pytest.mark.parametrize(
    ("change", "read"),
    [
        (SWAP, "SELECT * FROM x_b"),
        (SWAP, "SELECT v FROM x_b WHERE k = 1"),
        (SWAP, "UPDATE x_b SET v = v WHERE k = 1"),
        (SWAP, "INSERT INTO outp SELECT * FROM x_b"),
        (SWAP, "COPY (SELECT * FROM x_b) TO STDOUT"),
        (SWAP, "DECLARE c CURSOR FOR SELECT * FROM x_b"),
        (SWAP, "EXECUTE b"),
        (SWAP, "EXPLAIN SELECT * FROM x_b"),
        (SWAP, "SUBSCRIBE x_b"),
        (SWAP, "INSERT INTO x_b VALUES (9, 9)"),
        (SWAP, "DROP TABLE x_b CASCADE"),
        (SWAP, "ALTER TABLE x_b RENAME TO x_d"),
        (SWAP, "CREATE VIEW w AS SELECT * FROM x_b"),
        ("DROP VIEW vvv", "SELECT * FROM vvv"),
        ("DROP VIEW vvv; CREATE VIEW vvv AS SELECT 7 AS x", "SELECT * FROM vvv"),
        ("CREATE VIEW later AS SELECT * FROM x_a", "SELECT * FROM later"),
        ("DROP TABLE outp; CREATE TABLE outp (a int, b int)", "SELECT * FROM outp"),
        ("ALTER TABLE outp ADD COLUMN c int", "SELECT * FROM outp"),
        ("ALTER TABLE outp RENAME a TO c", "SELECT * FROM outp"),
        ("ALTER VIEW vvv RENAME TO uuu", "SELECT * FROM uuu"),
        ("ALTER MATERIALIZED VIEW mm RENAME TO nn", "SELECT * FROM mm"),
        ("ALTER SCHEMA public RENAME TO pub", "SELECT * FROM public.x_b"),
        ("CREATE SCHEMA foreshore; CREATE VIEW foreshore.x_b AS SELECT 7", "SELECT * FROM x_b"),
        ("CREATE VIEW first.vv AS SELECT 7 AS x", "SELECT * FROM vv"),
        ("CREATE TABLE first.x_b (v int)", "SELECT * FROM x_b"),
    ],
)
def test_what_was_not_yet_named_means_what_it_did_when_the_time_was_chosen(
    runner: asyncio.Runner, env: TestEnvironment, change: str, read: str
) -> None:
    async def main(own: Own) -> None:
        await own.query("s", "CREATE SCHEMA first")
        await own.query("s", 'SET search_path = "$user", first, public')
        await own.query("s", "PREPARE b AS SELECT * FROM x_b")
        await own.query("s", "BEGIN")
        await own.query("s", "SELECT v FROM x_a")
        for each in [change] if change is SWAP else change.split("; "):
            await ddl(own, each)
        answer = await own.query("s", read)
        assert answer.startswith(CHANGED), answer
        assert answer.endswith("E")

    lived(runner, env, main)


@pytest.mark.parametrize(
    ("used", "change"),
    [
        ("SELECT * FROM vv", "ALTER VIEW vv RENAME TO v3; ALTER VIEW v2 RENAME TO vv"),
        ("SELECT * FROM v1", REPLACE),
        ("SELECT * FROM x_a", "ALTER TABLE x_a RENAME TO x_d"),
        ("SELECT v FROM x_a WHERE k = 1", SWAP),
        ("INSERT INTO outp VALUES (1, 1)", "ALTER TABLE outp RENAME TO out2"),
        ("INSERT INTO outp SELECT x, x FROM v1", REPLACE),
        ("SELECT * FROM vv", "CREATE TABLE first.vv (x int)"),
        ("SELECT * FROM vv", "CREATE SCHEMA foreshore; CREATE TABLE foreshore.vv (x int)"),
    ],
)
@pytest.mark.parametrize("write", ["INSERT INTO outp VALUES (8, 8)", "CREATE TABLE mine (a int)"])
def test_a_block_that_writes_commits_while_its_names_mean_the_same(
    runner: asyncio.Runner, env: TestEnvironment, used: str, change: str, write: str
) -> None:
    async def main(own: Own) -> None:
        await own.query("s", "CREATE VIEW v1 AS SELECT v AS x FROM x_a")
        await own.query("s", "CREATE VIEW v2 AS SELECT 5 AS x")
        await own.query("s", "CREATE SCHEMA first")
        await own.query("s", 'SET search_path = "$user", first, public')
        await own.query("s", "BEGIN")
        assert "ERROR" not in await own.query("s", used)
        assert "ERROR" not in await own.query("s", write)
        for each in [change] if change.startswith("BEGIN") else change.split("; "):
            await ddl(own, each)
        answer = await own.query("s", "COMMIT")
        assert answer.startswith(CHANGED), answer
        table = "out2" if "out2" in change else "outp"
        assert await own.query("other", f"SELECT count(*) FROM {table}") == "0\nSELECT 1"

    lived(runner, env, main)


UNRELATED = (
    "CREATE TABLE elsewhere (a int)",
    "ALTER TABLE elsewhere ADD COLUMN b int",
    "ALTER TABLE elsewhere RENAME TO there",
    "DROP TABLE there",
    "COMMENT ON TABLE x_a IS 'a'",
    "COMMENT ON COLUMN x_a.v IS 'v'",
    "COMMENT ON VIEW vv IS 'vv'",
    "ALTER TABLE x_a SET (RETAIN HISTORY FOR '1 minute')",
    "CREATE INDEX i ON x_b (v)",
    "CREATE INDEX j ON vv (x)",
    "CREATE VIEW vvvv AS SELECT * FROM vv",
    "DROP VIEW vvvv",
    "CREATE TEMP TABLE x_a (k int)",
    "CREATE SCHEMA aside",
    "CREATE TABLE aside.x_a (k int)",
    "CREATE CLUSTER aside (SIZE 'embedded', REPLICATION FACTOR 0)",
    "DROP CLUSTER aside",
    "ANALYZE",
)


@pytest.mark.parametrize("end", ["COMMIT", "INSERT INTO outp VALUES (8, 8); COMMIT"])
def test_what_is_defined_elsewhere_disturbs_nobody(
    runner: asyncio.Runner, env: TestEnvironment, end: str
) -> None:
    async def main(own: Own) -> None:
        reads = ("SELECT * FROM vvv", "SELECT v FROM x_a WHERE k = 1", "SELECT * FROM mm")
        await own.query("s", "BEGIN")
        before = [await own.query("s", each) for each in reads]
        for each in UNRELATED:
            await ddl(own, each)
            assert [await own.query("s", each) for each in reads] == before, each
        assert "ERROR" not in await own.query("s", end)

    lived(runner, env, main)


def test_a_view_keeps_what_it_was_made_of(runner: asyncio.Runner, env: TestEnvironment) -> None:
    async def main(own: Own) -> None:
        await own.query("s", "BEGIN")
        assert await own.query("s", "SELECT * FROM vvv") == "1\nSELECT 1\nT"
        await ddl(own, SWAP)
        await ddl(own, "ALTER VIEW vv RENAME TO below")
        assert await own.query("s", "SELECT * FROM vvv") == "1\nSELECT 1\nT"
        await own.query("s", "INSERT INTO outp VALUES (8, 8)")
        assert await own.query("s", "COMMIT") == "COMMIT"

    lived(runner, env, main)


@pytest.mark.parametrize(
    ("change", "read"),
    [
        ("ALTER TABLE x_b ADD COLUMN w int DEFAULT 7", "SELECT * FROM mm"),
        ("ALTER TABLE x_b RENAME v TO w", "SELECT * FROM mm"),
        ("ALTER TABLE x_a RENAME v TO w", "SELECT * FROM vvv"),
    ],
)
def test_what_goes_on_over_an_altered_table_means_the_same(
    runner: asyncio.Runner, env: TestEnvironment, change: str, read: str
) -> None:
    async def main(own: Own) -> None:
        await own.query("s", "BEGIN")
        before = await own.query("s", read)
        assert before.endswith("SELECT 1\nT")
        await ddl(own, change)
        assert await own.query("s", read) == before

    lived(runner, env, main)


def test_a_block_that_has_read_nothing_yet_goes_by_what_names_mean_now(
    runner: asyncio.Runner, env: TestEnvironment
) -> None:
    async def main(own: Own) -> None:
        await own.query("s", "BEGIN")
        await own.query("s", "SELECT 1")
        await ddl(own, SWAP)
        assert await own.query("s", "SELECT v FROM x_a") == "2\nSELECT 1\nT"
        await own.query("s", "INSERT INTO outp VALUES (8, 8)")
        assert await own.query("s", "COMMIT") == "COMMIT"

    lived(runner, env, main)


def test_what_a_block_defines_itself_is_its_own(
    runner: asyncio.Runner, env: TestEnvironment
) -> None:
    async def main(own: Own) -> None:
        await own.query("s", "CREATE VIEW v1 AS SELECT v AS x FROM x_a")
        await own.query("s", "BEGIN")
        assert await own.query("s", "SELECT * FROM v1") == "1\nSELECT 1\nT"
        await own.query("s", REPLACE)
        assert await own.query("s", "SELECT * FROM v1") == "101\nSELECT 1\nT"
        await own.query("s", "CREATE TEMP TABLE x_a (v int)")
        assert await own.query("s", "SELECT * FROM x_a") == "SELECT 0\nT"
        await own.query("s", "ALTER TABLE outp RENAME TO out2")
        await own.query("s", "INSERT INTO out2 VALUES (1, 1)")
        await ddl(own, "CREATE TABLE elsewhere (a int)")
        assert await own.query("s", "SELECT * FROM v1, vvv") == "101|1\nSELECT 1\nT"
        assert await own.query("s", "COMMIT") == "COMMIT"

    lived(runner, env, main)


def test_what_a_block_defines_rests_on_what_names_meant(
    runner: asyncio.Runner, env: TestEnvironment
) -> None:
    async def main(own: Own) -> None:
        await own.query("s", "BEGIN")
        await own.query("s", "SELECT * FROM x_a")
        await ddl(own, SWAP)
        await own.query("s", "CREATE TABLE mine (a int)")
        assert (await own.query("s", "SELECT * FROM x_b")).startswith(CHANGED)

    lived(runner, env, main)


def test_a_prepared_statement_hears_of_other_columns_as_of_any_change(
    runner: asyncio.Runner, env: TestEnvironment
) -> None:
    async def main(own: Own) -> None:
        await own.query("s", "CREATE VIEW v1 AS SELECT v AS x FROM x_a")
        await own.query("s", "PREPARE p AS SELECT * FROM v1")
        await own.query("s", "BEGIN")
        await own.query("s", "EXECUTE p")
        await ddl(own, "CREATE OR REPLACE VIEW v1 AS SELECT v AS x, k FROM x_a")
        assert (await own.query("s", "EXECUTE p")).startswith(CHANGED)
        await own.query("s", "ROLLBACK")
        assert "ERROR 0A000" in await own.query("s", "EXECUTE p")

    lived(runner, env, main)


@pytest.mark.parametrize(
    ("begin", "waits", "answer"),
    [
        (
            "SELECT 1",
            "UPDATE x_b SET v = (SELECT x FROM v1) WHERE v > 0 RETURNING v",
            "101\nUPDATE",
        ),
        ("BEGIN", "SELECT x FROM v1, x_b FOR UPDATE OF x_b", "101\nSELECT"),
    ],
)
def test_a_first_statement_that_waits_goes_by_what_names_mean_then(
    runner: asyncio.Runner, env: TestEnvironment, begin: str, waits: str, answer: str
) -> None:
    async def main(own: Own) -> None:
        await own.query("s", "CREATE VIEW v1 AS SELECT v AS x FROM x_a")
        await own.query("holder", "BEGIN; LOCK TABLE x_b")
        await own.query("s", begin)
        asked = asyncio.ensure_future(own.query("s", waits, alone=False))
        await until(lambda: bool(env.environment.coordinator.locks._waiting))
        assert "ERROR" not in await own.query("other", REPLACE, alone=False)
        await own.query("holder", "COMMIT", alone=False)
        assert (await asked).startswith(answer)

    lived(runner, env, main)


def test_what_is_written_after_a_change_of_the_catalog_is_not_decided_with_it(
    runner: asyncio.Runner,
    env: TestEnvironment,
) -> None:
    """Only when the change is shown it can be told what names mean after it."""

    async def main(own: Own) -> None:
        group, catalog = env.environment.coordinator.group, env.environment.coordinator.catalog
        names = Relied()
        names.add(NameReads(None, {("item", "nowhere", "x"): None}), catalog, fixed=False)
        before, change, after = Write({}, names=names), Write({}, defines=True), Write({})
        nameless, after.names = Write({}), names
        group._pending = [before, change, after, nameless]
        for write in group._pending:
            write.done = asyncio.get_running_loop().create_future()
        assert group._form().writes == [before, change, nameless]
        assert group._pending == [after]
        assert group._form().writes == [after]

    lived(runner, env, main)
