"""Notices of the progress of a large query, which its session gets when there is progress."""

import asyncio

import pytest

from foreshore.compute.controller import query_progress
from foreshore.compute.controller.query_progress import progress_told
from foreshore.compute.protocol import BulkChoice, StageStatus
from tests.adapter.harness import until


def stage(work: str, completed: int, failed: int = 0) -> tuple[str, StageStatus]:
    return "r1", StageStatus(work, 1, 2, "scan", 8, 2, completed, failed)


async def test_only_changes_of_its_own_stages_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_progress, "TOLD_SECONDS", 0.001)
    looked, told = 0, list[str]()
    now = [stage("query of session 7", 1), stage("query of session 7", 2), stage("views", 4)]

    def stages() -> list[tuple[str, StageStatus]]:
        nonlocal looked
        looked += 1
        return now

    async def after(count: int) -> None:
        await until(lambda: looked >= count)

    with progress_told(BulkChoice("spark", work="query of session 7"), stages, told.append):
        await after(5)
        assert told == ["Spark: 3 of 16 tasks are done, 4 run"]
        now[:2] = [stage("query of session 7", 8, failed=1)]
        await after(looked + 2)
        now.clear()
        await after(looked + 2)
    assert told[1:] == ["Spark: 8 of 8 tasks are done, 2 run, 1 attempts have failed"]
    before = looked
    with progress_told(BulkChoice("duckdb"), stages, told.append):
        await asyncio.sleep(0.01)
    assert looked == before
