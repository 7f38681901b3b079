"""Random statements give the same rows, types and errors by rows, by columns and in PostgreSQL."""

import asyncio
from pathlib import Path

import pytest

from tests.effort import examples
from tests.statements.oracle import run_rounds

OF_A_ROUND = 80  # statements


def check(directory: Path, postgres_url: str | None, rounds: int, first: int) -> None:
    """Run rounds of statements, of which none may differ."""
    seeds = range(first, first + rounds)
    count = asyncio.run(run_rounds(directory, postgres_url, seeds, OF_A_ROUND))
    assert count.by_rows > 10 * rounds, "few were answered by programs over rows"
    assert not count.found, "\n".join(map(str, count.found))


def test_statements_by_rows_answer_as_by_columns(tmp_path: Path) -> None:
    check(tmp_path, None, examples(20), 1)


@pytest.mark.full
def test_statements_answer_as_in_postgresql(tmp_path: Path, postgres_url: str) -> None:
    check(tmp_path, postgres_url, examples(50), 101)
