"""The test mode in which two engines maintain each dataflow: they agree, or the dataflow stops."""

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from foreshore.compute.bulk.duckdb import DuckDbEngine
from foreshore.compute.flow.dataflow import FlowDataflow
from foreshore.compute.flow.engine import FlowEngine
from foreshore.compute.output import Output, TableOutput
from foreshore.compute.replica.instance import SECOND_OPINION
from foreshore.compute.second_opinion import SecondOpinion
from foreshore.errors import InternalError
from tests.adapter.harness import TestEnvironment, in_environment
from tests.compute.cases import Case, check_maintained, random_history
from tests.compute.plans import PLANS

NAMES = sorted(PLANS)


@pytest.fixture(scope="module")
def engine() -> Iterator[SecondOpinion]:
    """Yield the arrangement engine with DuckDB's opinion."""
    engine = SecondOpinion(FlowEngine(DuckDbEngine(threads=1)), DuckDbEngine(threads=1))
    yield engine
    engine.close()


@pytest.mark.parametrize("name", NAMES[::5])
def test_both_engines_agree_on_each_operator(engine: SecondOpinion, name: str) -> None:
    random = Random(name)
    check_maintained(engine, Case(PLANS[name], random_history(random), frozenset({2, 4})))


def maintain_all(engine: SecondOpinion, cases: list[Case]) -> None:
    for case in cases:
        check_maintained(engine, case)


def test_a_lost_update_stops_the_dataflow(
    engine: SecondOpinion, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = FlowDataflow.step

    def forgetful(self: FlowDataflow, *args: Any) -> Output:
        output = step(self, *args)
        return TableOutput(output.rows.slice(1), output.errors)

    monkeypatch.setattr(FlowDataflow, "step", forgetful)
    random = Random(1)
    cases = [Case(PLANS["join"], random_history(random)) for _ in range(5)]
    with pytest.raises(InternalError, match="two engines disagree on the rows") as found:
        maintain_all(engine, cases)
    assert "updates differ" in (found.value.detail or "")


def test_replicas_get_a_second_opinion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SECOND_OPINION, "1")
    compared: list[str] = []
    create = SecondOpinion.create

    def created(self: SecondOpinion, *args: Any) -> Any:
        compared.append(args[0].id)
        return create(self, *args)

    monkeypatch.setattr(SecondOpinion, "create", created)

    async def scenario(env: TestEnvironment) -> None:
        random = Random(0)
        await env.ran(
            "s",
            "CREATE TABLE t (k int, g int, j jsonb, x float8)",
            "CREATE MATERIALIZED VIEW sums AS SELECT g, count(*) AS n, sum(x) AS s FROM t GROUP BY g",
            "CREATE MATERIALIZED VIEW best AS SELECT DISTINCT ON (g) g, k, j FROM t ORDER BY g, x, k",
            "CREATE VIEW pairs AS SELECT a.k, b.j FROM t a JOIN t b ON a.k = b.g",
            "CREATE INDEX pairs_k ON pairs (k)",
            "CREATE VIEW kinds AS SELECT j, max(x) AS most FROM t GROUP BY j",
            "CREATE INDEX kinds_j ON kinds (most)",
        )
        for _ in range(12):
            k, g = random.randint(0, 9), random.randint(0, 3)
            await env.ran(
                "s",
                f"INSERT INTO t VALUES ({k}, {g}, '{{\"a\": {random.choice(['1', '1.0'])}}}', {k / 3})",
                f"DELETE FROM t WHERE k = {random.randint(0, 9)} AND g = {g}",
            )
        for read in (
            "SELECT sum(n) FROM sums",
            "SELECT count(*) > 0 FROM best",
            "SELECT count(*) >= 0 FROM pairs",
            "SELECT count(*) FROM kinds",
        ):
            assert (await env.query("s", read)).endswith("SELECT 1")

    in_environment(tmp_path, scenario)
    assert len(compared) == 4
