"""Values are equal and in order on each path as they are in PostgreSQL, whatever they are within.

`make test` has the keys (`test_keys.py`), `make test-full` the queries of a few cases, and `make
test-slow` those of all. PostgreSQL's answers are recorded by `record.py`.
"""

from pathlib import Path

import pytest

from tests.adapter.harness import TestEnvironment, in_environment
from tests.equality.cases import Case, cases
from tests.equality.record import recorded
from tests.equality.walk import Walk

FEW = [Case("jsonb", "array"), Case("interval", "record"), Case("numeric", "matrix")]


def check(directory: Path, some: list[Case], monkeypatch: pytest.MonkeyPatch) -> None:
    expected = recorded()
    wrong: list[str] = []

    async def scenario(env: TestEnvironment) -> None:
        for case in some:
            walk = Walk(env, case, monkeypatch)
            await walk.check(expected[case.name])
            wrong.extend(walk.wrong)

    in_environment(directory, scenario)
    assert not wrong, "\n".join(wrong)


@pytest.mark.full
@pytest.mark.timeout(300)
def test_queries_compare_values_as_postgresql(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(tmp_path, FEW, monkeypatch)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("type", sorted({case.type for case in cases()}))
def test_queries_compare_values_of_each_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, type: str
) -> None:
    check(tmp_path, [case for case in cases() if case.type == type], monkeypatch)
