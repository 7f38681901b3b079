"""Rows of COPY that are in a file until the commit: all or none, each key once."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from foreshore import spill
from foreshore.adapter.write import copy
from foreshore.errors import UniqueViolation
from tests.adapter.harness import TestEnvironment

COUNT = 1_000
NAMED = tuple(f"{i},name {i}" for i in range(COUNT))


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let some rows be many."""
    monkeypatch.setattr(spill, "KEPT_BYTES", 0)
    monkeypatch.setattr(spill, "PIECE_ROWS", 64)
    monkeypatch.setattr(copy, "PIECE_ROWS", 64)


def write(place: Path, lines: Iterable[str]) -> None:
    """Let the file have these lines."""
    place.write_text("".join(f"{line}\n" for line in lines))


@pytest.fixture
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with rows whose first column counts up."""
    place = tmp_path_factory.mktemp("outside") / "rows.csv"
    write(place, NAMED)
    return place


def mapped(env: TestEnvironment) -> list[str]:
    """Return the pieces of files below `scratch` that are mapped."""
    with open("/proc/self/maps") as maps:
        return [line for line in maps if str(env.storage.scratch) in line]


async def where(env: TestEnvironment, text: str) -> str | None:
    """Return where a statement says that a key comes twice."""
    session = await env.session("a")
    with pytest.raises(UniqueViolation) as caught:
        async for _ in session.simple(text):
            pass
    await session.fail()
    return caught.value.where


async def test_rows_are_there_at_the_commit_or_never(own_env: TestEnvironment, place: Path) -> None:
    env = own_env
    env.environment.let_copy([str(place.parent)], env.data_dir)
    await env.ran("a", "CREATE TABLE t (x int, y text, z int DEFAULT 7)", "BEGIN")
    copied = f"COPY t (x, y) FROM '{place}'"
    await env.ran("a", copied)
    sums = "SELECT count(*), sum(x), sum(z), max(y) FROM t"
    found = f"{COUNT}|{sum(range(COUNT))}|{7 * COUNT}|name 999\nSELECT 1\nT"
    assert await env.query("a", sums) == found
    assert await env.query("b", "SELECT count(*) FROM t") == "0\nSELECT 1"
    assert mapped(env)
    await env.ran("a", "ROLLBACK")
    assert not mapped(env)
    assert await env.query("a", "SELECT count(*) FROM t") == "0\nSELECT 1"
    assert await env.query("a", copied + " WHERE x % 2 = 0") == f"COPY {COUNT // 2}"
    assert await env.query("b", "SELECT count(*), sum(x) FROM t") == f"500|{250 * 998}\nSELECT 1"
    assert list(env.storage.scratch.iterdir()) == []


async def test_a_key_that_comes_twice_is_refused(own_env: TestEnvironment, place: Path) -> None:
    env = own_env
    env.environment.let_copy([str(place.parent)], env.data_dir)
    await env.ran("a", "CREATE TABLE t (x int PRIMARY KEY, y text)")
    await env.ran("a", "CREATE TABLE self (x int PRIMARY KEY, y int REFERENCES self)")
    write(place, (*NAMED, "3,again"))
    assert await where(env, f"COPY t FROM '{place}'") == f"COPY t, file rows.csv, row {COUNT + 1}"
    assert await env.query("a", "SELECT count(*) FROM t") == "0\nSELECT 1"
    await env.ran("a", "INSERT INTO t VALUES (900, 'there')")
    write(place, NAMED)
    odd = f"COPY t FROM '{place}' WHERE x % 3 = 0"
    assert await where(env, odd) == "COPY t, file rows.csv, row 901"
    assert await env.query("a", f"COPY t FROM '{place}' WHERE x <> 900") == f"COPY {COUNT - 1}"
    # Each row refers to one that follows, the last to itself.
    write(place, (f"{i},{min(i + 1, COUNT - 1)}" for i in range(COUNT)))
    assert await env.query("a", f"COPY self FROM '{place}'") == f"COPY {COUNT}"
