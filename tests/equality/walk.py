"""The walk: a case's queries on each path that answers them, held to PostgreSQL's answers.

few rows       evaluated in the server's process
DuckDB         one statement of the bulk engine
views          maintained by the replica's operators, or by the engine that a cluster has
indexes        look-ups in an index, and in the key of a table
"""

from collections.abc import Iterator

import pytest

from tests.adapter.harness import TestEnvironment
from tests.equality.cases import ORDERED, QUERIES, SHOWN, Case
from tests.equality.record import Answers, short

NAME = "walk"


class Walk:
    """The tables of one case in an environment; `patch` can take a path away."""

    def __init__(self, env: TestEnvironment, case: Case, patch: pytest.MonkeyPatch) -> None:
        self._env = env
        self._case = case
        self._patch = patch
        self.wrong: list[str] = []

    async def check(self, expected: Answers, cluster: str = "") -> None:
        """Note in `wrong` what differs from PostgreSQL's answers, or between paths."""
        for sql in ("CREATE SCHEMA walk", "SET search_path = walk", *self._case.prepared()):
            await self._run(sql)
        if cluster:
            await self._run(f"SET cluster = {cluster}")
        queries = {**QUERIES, **SHOWN}
        for number, sql in enumerate(queries.values()):
            await self._run(f"CREATE MATERIALIZED VIEW v{number} AS {sql}")
        await self._run("CREATE INDEX t_x ON t (x)")
        await self._ask("before", expected["before"])
        for sql, answer in zip(self._case.keyed(), expected["keyed"], strict=True):
            self._compare("keys", sql, short(await self._answer(sql)), answer)
        for sql in self._case.changes():
            await self._run(sql)
        await self._ask("after", expected["after"])
        await self._run("DROP SCHEMA walk CASCADE")

    async def _ask(self, when: str, expected: list[str]) -> None:
        wanted = dict(zip([*QUERIES, *ORDERED], expected, strict=True))
        shown: dict[str, list[str]] = {}
        for path in self._paths():
            for name, sql in {**QUERIES, **ORDERED, **SHOWN}.items():
                rows = await self._answer(sql)
                if name in wanted:
                    found = short(rows, is_ordered=name in ORDERED)
                    self._compare(f"{when} {path}", sql, found, wanted[name])
                elif shown.setdefault(name, sorted(rows)) != sorted(rows):
                    self._compare(f"{when} {path}", sql, str(sorted(rows)), str(shown[name]))
        for number, (name, sql) in enumerate({**QUERIES, **SHOWN}.items()):
            rows = await self._answer(f"SELECT * FROM v{number}")
            if name in wanted:
                self._compare(f"{when} view", sql, short(rows), wanted[name])
            elif shown[name] != sorted(rows):
                self._compare(f"{when} view", sql, str(sorted(rows)), str(shown[name]))

    def _paths(self) -> Iterator[str]:
        yield "few rows"
        with self._patch.context() as patch:
            patch.setattr("foreshore.adapter.read.bound.small.FEW_ROWS", -1)
            patch.setattr("foreshore.compute.peek.FEW_INDEXED", -1)
            yield "DuckDB"

    def _compare(self, where: str, sql: str, found: str, wanted: str) -> None:
        if found != wanted:
            self.wrong.append(f"{self._case.name}: {where}: {sql}\n    {found}\n    not {wanted}")

    async def _run(self, sql: str) -> None:
        answer = await self._env.query(NAME, sql)
        if answer.startswith("ERROR"):
            self.wrong.append(f"{self._case.name}: {sql}\n    {answer}")

    async def _answer(self, sql: str) -> list[str]:
        lines = (await self._env.query(NAME, sql)).split("\n")
        if lines[0].startswith("ERROR"):
            return [" ".join(lines[0].split(":")[0].split()[:2])]
        return lines[:-1]
