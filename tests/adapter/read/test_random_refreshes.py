"""Views with schedules over a view that fails at times: random refreshes, mending, and restarts.

Each read gives the rows of the last refresh, or the error if rows were missing then, also at
earlier times and after restarts. What is expected is computed from the table's rows alone.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import pytest

from foreshore.compute.controller import error_log
from tests.adapter.harness import TestEnvironment, in_environment
from tests.effort import examples

VIEWS = {
    "daily": "WITH (REFRESH EVERY '1000 days')",
    "lagging": "WITH (TARGET LAG = '1000 days', REFRESH POLICY = INCREMENTAL)",
    "once": "WITH (REFRESH AT CREATION)",
    "passive": "WITH (TARGET LAG = DOWNSTREAM, ON ERROR = SKIP)",
}


@dataclass(frozen=True)
class Content:
    """The contents of a view: a count, and whether rows were missing when it was computed."""

    rows: int
    lacks: bool


class Scenario:
    """An environment, and what its views have to be; `expected` at times that have passed."""

    def __init__(self, env: TestEnvironment, random: Random, *, keeps_past: bool) -> None:
        self.env, self.random, self.keeps_past = env, random, keeps_past
        self.good, self.bad, self.skips = 1, random.randrange(2), False
        self.views: dict[str, Content] = {}
        self.expected: dict[int, dict[str, Content | None]] = {}

    async def begin(self) -> None:
        await self.env.ran(
            "s",
            "CREATE TABLE t (id int, a int)",
            "INSERT INTO t VALUES (0, 1)",
            *["INSERT INTO t VALUES (1, 0)"] * self.bad,
            "CREATE MATERIALIZED VIEW m AS SELECT id, 10 / a AS x FROM t",
        )
        for name, options in VIEWS.items():
            create = f"CREATE MATERIALIZED VIEW {name} {options} AS"
            await self.env.ran("s", f"{create} SELECT count(*) AS n FROM m")
            self.views[name] = self.now()
        above = "CREATE MATERIALIZED VIEW above WITH (REFRESH EVERY '1000 days') AS"
        await self.env.ran(
            "s",
            f"{above} SELECT n FROM lagging",
            "CREATE MATERIALIZED VIEW plain AS SELECT n FROM once",
            "CREATE VIEW v AS SELECT n FROM plain",
            "CREATE INDEX ON v (n)",
        )
        self.views["above"] = self.views["lagging"]

    def now(self) -> Content:
        return Content(self.good, bool(self.bad) and not self.skips)

    async def step(self) -> None:
        env, random = self.env, self.random
        match random.choice(["fail", "mend", "add", "refresh", "refresh", "policy", "reopen"]):
            case "fail":
                await env.ran("w", "INSERT INTO t VALUES (1, 0)")
                self.bad += 1
            case "mend":
                await env.ran("w", "UPDATE t SET a = 1 WHERE a = 0")
                self.good, self.bad = self.good + self.bad, 0
            case "add":
                await env.ran("w", "INSERT INTO t VALUES (2, 5)")
                self.good += 1
            case "refresh":
                name = random.choice([*VIEWS, "above"])
                await env.ran("w", f"REFRESH MATERIALIZED VIEW {name}")
                self.views[name] = self.views["lagging"] if name == "above" else self.now()
            case "policy":
                self.skips = not self.skips
                policy = "SKIP" if self.skips else "FAIL"
                await env.ran("w", f"ALTER MATERIALIZED VIEW m SET (ON ERROR = {policy})")
            case "reopen":
                await env.reopen()
        await self.note()

    async def note(self) -> None:
        """Keep what reads return at this time, and compare with reads at it or an earlier one."""
        found: dict[str, Content | None] = {
            name: None if content.lacks and not self.skips else replace(content, lacks=False)
            for name, content in self.views.items()
        }
        found["plain"] = found["v"] = found["once"]
        found["m"] = None if self.bad and not self.skips else Content(self.good, lacks=False)
        oracle = self.env.environment.coordinator.oracle
        self.expected[oracle.read_ts()] = found
        await self.compare("")
        if not self.keeps_past:
            await self.env.environment.coordinator.allow_compaction()
        elif self.random.random() < 0.3:
            await self.compare(self.random.choice([*self.expected]))

    async def compare(self, at: int | str) -> None:
        expected = self.expected[at if isinstance(at, int) else max(self.expected)]
        for name, content in expected.items():
            column = "count(*)" if name == "m" else "n"
            found = await self.env.query("r", f"SELECT {column} FROM {name}{at and f' AS OF {at}'}")
            wanted = "ERROR 22012: division by zero" if content is None else f"{content.rows}\n"
            assert found.startswith(wanted), (name, at, found, wanted)


def _run(tmp_path: Path, seed: int, steps: int, *, keeps_past: bool) -> None:
    async def scenario(env: TestEnvironment) -> None:
        states = Scenario(env, Random(seed), keeps_past=keeps_past)
        await states.begin()
        await states.note()
        for _ in range(steps):
            await states.step()
        await env.reopen()
        await states.compare("")
        for time in [*states.expected][-10:] if keeps_past else ():
            await states.compare(time)

    in_environment(tmp_path, scenario, lag_ms=3_600_000 if keeps_past else 1)


@pytest.mark.full
@pytest.mark.parametrize("keeps_past", [True, False])
@pytest.mark.parametrize("seed", range(examples(20)))
def test_refreshed_views_keep_rows_or_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, keeps_past: bool
) -> None:
    monkeypatch.setattr(error_log, "COMPACTED_STEPS", 2)
    monkeypatch.setattr(error_log, "MAX_STEPS", 64)
    _run(tmp_path, seed, 40, keeps_past=keeps_past)
