"""Each kind of reference against a concurrent drop of what it names: none is left to nothing.

The cases are complete over the catalog's own list of references: a new kind there needs one here.
"""

import asyncio
from collections import defaultdict
from itertools import count
from typing import NamedTuple, get_args

import pytest

from foreshore.adapter import dispatch
from foreshore.catalog.builtin.registry import BUILTINS
from foreshore.catalog.dangling import dangling, describe
from foreshore.catalog.references import ReferenceKind
from tests.adapter.harness import TestEnvironment

# What the cases use, made for each of them under a name of its own.
MADE = {
    "role": "CREATE ROLE {role}",
    "other": "CREATE ROLE {other}",
    "third": "CREATE ROLE {third}",
    "table": "CREATE TABLE {table} (a int PRIMARY KEY, b int)",
    "more": "CREATE TABLE {more} (a int PRIMARY KEY, b int)",
    "view": "CREATE VIEW {view} AS SELECT a FROM {table}",
    "schema": "CREATE SCHEMA {schema}",
    "database": "CREATE DATABASE {database}",
    "cluster": "CREATE CLUSTER {cluster} (SIZE 'embedded', REPLICATION FACTOR 0)",
    "policy": "CREATE NETWORK POLICY {policy} (RULES (r (ACTION = 'allow', DIRECTION = 'ingress',"
    " ADDRESS = '0.0.0.0/0')))",
    "type": "CREATE TYPE {type} AS ENUM ('x')",
    "function": "CREATE FUNCTION {function}(int) RETURNS int LANGUAGE sql AS 'SELECT $1'",
    "sequence": "CREATE SEQUENCE {sequence}",
    "secret": "CREATE SECRET {secret} AS 'x'",
    "connection": "CREATE CONNECTION {connection} TO SSH TUNNEL (HOST 'h', USER 'u')",
    "source": "CREATE SOURCE {source} FROM LOAD GENERATOR AUCTION (TICK INTERVAL '1 h')",
}
DROP_ROLE, DROP_TABLE = "DROP ROLE {role}", "DROP TABLE {table}"


class Case(NamedTuple):
    """A statement that names an object, and one that drops it; both after some others."""

    names: str
    drops: str
    before: tuple[str, ...] = ()


def each_with(drops: str, *names: str) -> tuple[Case, ...]:
    """Return the cases of statements that name what one statement drops."""
    return tuple(Case(each, drops) for each in names)


CASES: dict[ReferenceKind, tuple[Case, ...]] = {
    "owner": (
        *each_with(
            DROP_ROLE,
            "ALTER TABLE {table} OWNER TO {role}",
            "ALTER VIEW {view} OWNER TO {role}",
            "ALTER SCHEMA {schema} OWNER TO {role}",
            "ALTER DATABASE {database} OWNER TO {role}",
            "ALTER CLUSTER {cluster} OWNER TO {role}",
            "ALTER TYPE {type} OWNER TO {role}",
            "ALTER FUNCTION {function}(int) OWNER TO {role}",
            "ALTER SECRET {secret} OWNER TO {role}",
            "ALTER CONNECTION {connection} OWNER TO {role}",
            "ALTER NETWORK POLICY {policy} OWNER TO {role}",
            "CREATE SCHEMA AUTHORIZATION {role}",
            "CREATE DATABASE {database}x OWNER {role}",
        ),
        Case(
            "REASSIGN OWNED BY {other} TO {role}",
            DROP_ROLE,
            ("ALTER TABLE {table} OWNER TO {other}",),
        ),
        Case("SET ROLE {role}; CREATE TEMP TABLE own{role} (a int); RESET ROLE", DROP_ROLE),
    ),
    "grantee": (
        *each_with(
            DROP_ROLE,
            "GRANT SELECT ON {table} TO {role}",
            "GRANT SELECT (b) ON {table} TO {role}",
            "GRANT SELECT ON {view} TO {role}",
            "GRANT USAGE ON SEQUENCE {sequence} TO {role}",
            "GRANT USAGE ON SCHEMA {schema} TO {role}",
            "GRANT CONNECT ON DATABASE {database} TO {role}",
            "GRANT USAGE ON CLUSTER {cluster} TO {role}",
            "GRANT USAGE ON TYPE {type} TO {role}",
            "GRANT EXECUTE ON FUNCTION {function}(int) TO {role}",
            "GRANT USAGE ON SECRET {secret} TO {role}",
            "GRANT USAGE ON CONNECTION {connection} TO {role}",
            "ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO {role}",
            "ALTER DEFAULT PRIVILEGES FOR ROLE {other} GRANT SELECT ON TABLES TO {role}",
            "GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role}",
        ),
        Case(
            "GRANT SELECT ON {table}temp TO {role}",
            DROP_ROLE,
            ("CREATE TEMP TABLE {table}temp (a int)",),
        ),
    ),
    "grantor": (
        Case(
            "SET ROLE {role}; GRANT SELECT ON {table} TO {other}; RESET ROLE",
            "REVOKE ALL ON {table} FROM {role} CASCADE; DROP ROLE {role}",
            ("GRANT SELECT ON {table} TO {role} WITH GRANT OPTION",),
        ),
    ),
    "role of a membership": (
        Case("GRANT {role} TO {other}", DROP_ROLE),
        Case("GRANT {other} TO {role}", DROP_ROLE),
        Case("CREATE ROLE {role}x IN ROLE {role}", DROP_ROLE),
        Case("CREATE ROLE {role}y ROLE {role}", DROP_ROLE),
    ),
    "grantor of a membership": (Case("GRANT {third} TO {other} GRANTED BY {role}", DROP_ROLE),),
    "schema of default privileges": (
        Case(
            "ALTER DEFAULT PRIVILEGES FOR ROLE {other} IN SCHEMA {schema} GRANT SELECT ON TABLES"
            " TO PUBLIC",
            "DROP SCHEMA {schema}",
        ),
    ),
    "database of settings": (
        Case(
            "ALTER ROLE {other} IN DATABASE {database} SET TimeZone = 'UTC'",
            "DROP DATABASE {database}",
        ),
    ),
    "network policy": (
        Case("ALTER ROLE {other} SET network_policy = {policy}", "DROP NETWORK POLICY {policy}"),
    ),
    "database": (Case("CREATE SCHEMA {database}.s", "DROP DATABASE {database}"),),
    "schema": each_with(
        "DROP SCHEMA {schema}",
        "CREATE TABLE {schema}.x (a int)",
        "CREATE VIEW {schema}.x AS SELECT 1",
        "CREATE TYPE {schema}.x AS ENUM ('y')",
        "CREATE DOMAIN {schema}.x AS int",
        "CREATE FUNCTION {schema}.x() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "CREATE SEQUENCE {schema}.x",
        "CREATE SECRET {schema}.x AS 'y'",
        "CREATE CONNECTION {schema}.x TO SSH TUNNEL (HOST 'h', USER 'u')",
        "CREATE SOURCE {schema}.x FROM LOAD GENERATOR COUNTER (TICK INTERVAL '1 h')",
        "ALTER TABLE {table} SET SCHEMA {schema}",
    ),
    "cluster": each_with(
        "DROP CLUSTER {cluster}",
        "CREATE MATERIALIZED VIEW {table}v IN CLUSTER {cluster} AS SELECT a FROM {table}",
        "CREATE INDEX {table}i IN CLUSTER {cluster} ON {table} (b)",
        "ALTER CLUSTER {cluster} SET (REPLICATION FACTOR 1)",
    ),
    "dependency": (
        Case("CREATE VIEW {table}v AS SELECT a FROM {table}", DROP_TABLE),
        Case("CREATE TEMP VIEW {table}v AS SELECT a FROM {table}", DROP_TABLE),
        Case("CREATE VIEW {view}v AS SELECT a FROM {view}", "DROP VIEW {view}"),
        Case("CREATE TABLE {type}t (a {type})", "DROP TYPE {type}"),
        Case("CREATE TEMP TABLE {type}t (a {type})", "DROP TYPE {type}"),
        Case("CREATE VIEW {function}v AS SELECT {function}(1)", "DROP FUNCTION {function}(int)"),
        Case(
            "CREATE TABLE {sequence}t (a int DEFAULT nextval('{sequence}'))",
            "DROP SEQUENCE {sequence}",
        ),
    ),
    "known table": (Case("ALTER TABLE {table} ADD COLUMN c int", "DROP VIEW {view}"),),
    "indexed relation": (Case("CREATE INDEX {table}i ON {table} (b)", DROP_TABLE),),
    "whole": (
        Case(
            "CREATE TABLE {source}b FROM SOURCE {source} (REFERENCE bids)",
            "DROP SOURCE {source} CASCADE",
        ),
    ),
    "owning table": (
        Case("ALTER SEQUENCE {sequence} OWNED BY {table}.a", DROP_TABLE),
        Case("CREATE SEQUENCE {table}s OWNED BY {table}.a", DROP_TABLE),
    ),
    "referenced table": (
        Case("ALTER TABLE {more} ADD FOREIGN KEY (b) REFERENCES {table}", DROP_TABLE),
    ),
    "source": (
        Case("ALTER SOURCE {source} ADD TABLE bids AS {source}b", "DROP SOURCE {source} CASCADE"),
    ),
    "table of a policy": (Case("CREATE POLICY p ON {table}", DROP_TABLE),),
    "role of a policy": (
        Case("CREATE POLICY p ON {table} TO {role}", DROP_ROLE),
        Case("ALTER POLICY p ON {table} TO {role}", DROP_ROLE, ("CREATE POLICY p ON {table}",)),
    ),
    "connection": (
        Case(
            "CREATE CONNECTION {connection}p TO POSTGRES (HOST 'h', DATABASE 'd', USER 'u',"
            " PASSWORD SECRET {secret}, SSH TUNNEL {connection}) WITH (VALIDATE = false)",
            "DROP CONNECTION {connection}",
        ),
    ),
    "secret": (
        Case(
            "CREATE CONNECTION {secret}p TO POSTGRES (HOST 'h', DATABASE 'd', USER 'u',"
            " PASSWORD SECRET {secret}) WITH (VALIDATE = false)",
            "DROP SECRET {secret}",
        ),
        Case(
            "CREATE SINK {secret}k FROM {table} INTO WEBHOOK (URL 'http://127.0.0.1:9/', PRIVATE,"
            " HEADER 'A' = SECRET {secret})",
            "DROP SECRET {secret}",
        ),
    ),
}
# What one of two statements may fail with: it does not exist, it has dependents, or a conflict.
FAILURES = ("42704", "40001", "2BP01", "3F000", "3D000", "42P01", "42883", "40P01", "42501")
NUMBERS = count()
ALL = [
    pytest.param(case, id=f"{kind}-{at}")
    for kind, cases in CASES.items()
    for at, case in enumerate(cases)
]
FIRST_OF_KIND = [pytest.param(cases[0], id=kind) for kind, cases in CASES.items()]


def test_each_kind_of_reference_has_a_case() -> None:
    assert CASES.keys() == set(get_args(ReferenceKind))


class Pair:
    """A case under names of its own, run by sessions `a` and `b`, or `b` and `a`."""

    def __init__(self, env: TestEnvironment, case: Case) -> None:
        self.env = env
        number = next(NUMBERS)
        self._names = {kind: f"{kind}{number}" for kind in MADE}
        self.names, self.drops = map(self._named, (case.names, case.drops))
        self._before = case.before
        self._used = [
            kind
            for kind, made in MADE.items()
            if any(f"{{{kind}}}" in sql for sql in (case.names, case.drops, *case.before))
            or (kind == "table" and "{view}" in case.names + case.drops)
        ]
        self.failed: list[str] = []

    def _named(self, sql: str) -> str:
        return sql.format_map(defaultdict(str, self._names))

    async def prepare(self) -> None:
        self.env.environment.unlock_secrets(bytes(32))
        for session in ("names", "drops"):  # whatever a case before has left there
            await self.env.query(session, "ROLLBACK")
            await self.env.query(session, "RESET ROLE")
        await self.env.ran("names", *(self._named(MADE[kind]) for kind in self._used))
        await self.env.ran("names", *map(self._named, self._before))

    async def run(self, session: str, sql: str) -> None:
        for each in sql.split("; "):
            answer = await self.env.query(session, each, alone=False)
            if answer.startswith("ERROR"):
                self.failed.append(answer)
                assert answer.split()[1].removesuffix(":") in FAILURES, (each, answer)
                break
        if "SET ROLE" in sql and not self.blocked(session):
            await self.env.query(session, "RESET ROLE", alone=False)

    def blocked(self, session: str) -> bool:
        return self.env.sessions[session].transaction_status != "I"

    async def end(self, session: str) -> None:
        answer = await self.env.query(session, "COMMIT", alone=False)
        if answer.startswith("ERROR"):
            self.failed.append(answer)
            assert answer.split()[1].removesuffix(":") in FAILURES, answer
        await self.env.query(session, "RESET ROLE", alone=False)

    async def waiting(self, task: "asyncio.Task[None]") -> None:
        """Go on when a statement is done, or waits for a lock."""
        locks = self.env.environment.coordinator.locks
        while not task.done() and not locks._waiting:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0)

    async def check(self) -> None:
        """Nothing is named that does not exist, and one of the two statements took effect."""
        coordinator = self.env.environment.coordinator
        assert not list(map(describe, dangling(coordinator.state))), self.failed
        await coordinator.check_settled()
        assert len(self.failed) < 2, self.failed


async def run_pair(pair: Pair, first: str, *, blocks: bool) -> None:
    """Run one statement in a block, the other beside it, and commit."""
    sqls = {"names": pair.names, "drops": pair.drops}
    second = "drops" if first == "names" else "names"
    await pair.env.query(second, "BEGIN" if blocks else "SELECT 1", alone=False)
    await pair.env.query(first, "BEGIN", alone=False)
    await pair.run(first, sqls[first])
    beside = asyncio.ensure_future(pair.run(second, sqls[second]))
    await pair.waiting(beside)
    await pair.end(first)
    await beside
    if blocks:
        await pair.end(second)


@pytest.mark.parametrize("case", FIRST_OF_KIND)
async def test_nothing_is_named_that_was_dropped_before(env: TestEnvironment, case: Case) -> None:
    pair = Pair(env, case)
    await pair.prepare()
    await run_pair(pair, "drops", blocks=False)
    await pair.check()


@pytest.mark.full
@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize("first", ["names", "drops"])
@pytest.mark.parametrize("case", ALL)
async def test_nothing_is_named_that_was_dropped_in_all_orders(
    env: TestEnvironment, case: Case, first: str, blocks: bool
) -> None:
    pair = Pair(env, case)
    await pair.prepare()
    await run_pair(pair, first, blocks=blocks)
    await pair.check()


@pytest.mark.full
@pytest.mark.parametrize("first", ["names", "drops"])
@pytest.mark.parametrize("case", ALL)
async def test_nothing_is_named_that_was_dropped_at_once(
    env: TestEnvironment, case: Case, first: str
) -> None:
    pair = Pair(env, case)
    await pair.prepare()
    both = [pair.run("names", pair.names), pair.run("drops", pair.drops)]
    await asyncio.gather(*(both if first == "names" else both[::-1]))
    await pair.check()


@pytest.mark.full
@pytest.mark.parametrize("first", ["names", "drops"])
@pytest.mark.parametrize("case", ALL)
async def test_commit_is_refused_of_statements_that_took_no_lock(
    env: TestEnvironment, monkeypatch: pytest.MonkeyPatch, case: Case, first: str
) -> None:
    async def none(_: object) -> None:
        pass

    pair = Pair(env, case)
    await pair.prepare()
    with monkeypatch.context() as patched:
        patched.setattr(dispatch, "lock_catalog", none)
        await run_pair(pair, first, blocks=True)
    await pair.check()


@pytest.mark.full
async def test_system_relations_answer_after_all_pairs(env: TestEnvironment) -> None:
    for builtin in BUILTINS.values():
        answer = await env.query("a", f'SELECT * FROM {builtin.schema}."{builtin.name}"')
        assert "ERROR XX" not in answer, builtin.name
