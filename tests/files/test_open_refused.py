"""What the readers of open files refuse: what the server would not answer either."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.adapter.harness import House, in_house
from tests.harness import ROOT

sys.path.append(str(ROOT / "docs" / "open"))
import foreshore_files
import read_pandas


def found(data_dir: Path, name: str, as_of: int | None = None) -> Counter[str]:
    """Return the rows that the files have."""
    rows = foreshore_files.reading(data_dir, name, as_of, read_pandas.table).to_pylist()
    times = [row.pop("__diff") for row in rows]
    lines = ("|".join(map(str, row.values())) for row in rows)
    return Counter(dict(zip(lines, times, strict=True)))


async def tell(house: House, *statements: str) -> int:
    """Run statements that go well; return the time after them."""
    for statement in statements:
        answer = await house.query("s", statement)
        assert "ERROR" not in answer, answer
    return house.environment.coordinator.oracle.read_ts()


async def answer(house: House, name: str, as_of: int) -> str:
    """Return what the server says, rows without their tag."""
    lines = await house.query("s", f"SELECT * FROM {name} AS OF {as_of}")
    return "\n".join(line for line in lines.split("\n") if not line.startswith("SELECT "))


def test_what_is_made_of_a_view_in_error_is_refused(data_dir: Path) -> None:
    in_error, others = ("v", "w", "w2"), ("side", "t")
    answers: dict[int, dict[str, str]] = {}

    async def main(house: House) -> None:
        async def ask(*statements: str) -> None:
            at = await tell(house, *statements)
            answers[at] = {name: await answer(house, name, at) for name in (*in_error, *others)}

        await ask(
            "CREATE TABLE t (x int)",
            "CREATE MATERIALIZED VIEW v AS SELECT 10 / x AS q FROM t",
            "CREATE VIEW plain AS SELECT q FROM v WHERE q > 0",
            "CREATE MATERIALIZED VIEW w AS SELECT count(*) AS n FROM plain",
            "CREATE MATERIALIZED VIEW w2 AS SELECT n + 1 AS m FROM w",
            "CREATE MATERIALIZED VIEW side AS SELECT x FROM t",
            "INSERT INTO t VALUES (1)",
        )
        await ask("INSERT INTO t VALUES (0)")
        await ask("DELETE FROM t WHERE x = 0")

    in_house(data_dir, main)
    before, during, after = answers
    for at in (before, after):
        assert answers[at] == {"v": "10", "w": "1", "w2": "2", "side": "1", "t": "1"}
        for name, rows in answers[at].items():
            assert found(data_dir, name, at) == {rows: 1}
    for name in in_error:
        assert answers[during][name] == "ERROR 22012: division by zero"
        with pytest.raises(foreshore_files.Unreadable, match="22012 division by zero"):
            found(data_dir, name, during)
    for name in others:
        assert found(data_dir, name, during) == {"0": 1, "1": 1}
