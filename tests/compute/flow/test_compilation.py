"""Kernels are compiled by a process of its own, and the first dataflow waits for it."""

import sys
import time
from pathlib import Path

import pytest

from foreshore.compute.flow import compilation
from foreshore.compute.flow.compilation import Compilation
from foreshore.compute.flow.kernels import compiled

AWAIT_FILE = """
import pathlib, sys, time
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.01)
pathlib.Path(sys.argv[2]).touch()
"""


def replaced(monkeypatch: pytest.MonkeyPatch, *command: str, complete: bool = False) -> list[str]:
    """Let a compilation run `command`; return a list that grows when kernels are loaded."""
    loaded: list[str] = []
    monkeypatch.setattr(compilation, "COMMAND", (sys.executable, "-c", *command))
    monkeypatch.setattr(compiled, "is_complete", lambda version: complete)
    monkeypatch.setattr(compilation, "warm_soon", lambda: loaded.append("kernels"))
    return loaded


def test_finish_waits_for_the_process_and_then_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, done = tmp_path / "start", tmp_path / "done"
    loaded = replaced(monkeypatch, AWAIT_FILE, str(start), str(done))
    waited = Compilation()
    waited.begin()
    assert not loaded
    assert not done.exists()
    start.touch()
    waited.finish()
    assert done.exists()
    assert loaded == ["kernels"]


def test_close_ends_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    never = str(tmp_path / "never")
    replaced(monkeypatch, AWAIT_FILE, never, never)
    ended = Compilation()
    ended.begin()
    process = ended._process
    assert process is not None
    ended.close()
    assert process.poll() is not None


def test_nothing_is_started_where_all_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = replaced(monkeypatch, "raise SystemExit(1)", complete=True)
    none = Compilation()
    none.begin()
    assert none._process is None
    none.finish()
    assert loaded == ["kernels"]


def test_process_that_cannot_start_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = replaced(monkeypatch)
    monkeypatch.setattr(compilation, "COMMAND", (str(tmp_path / "missing"),))
    none = Compilation()
    none.begin()
    none.finish()
    assert loaded == ["kernels"]


def test_process_that_does_not_end_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    never = str(tmp_path / "never")
    loaded = replaced(monkeypatch, AWAIT_FILE, never, never)
    monkeypatch.setattr(compilation, "MOST_SECONDS", 0.05)
    slow = Compilation()
    slow.begin()
    process = slow._process
    assert process is not None
    before = time.process_time()
    slow.finish()
    assert loaded == ["kernels"]
    assert time.process_time() - before < 1
    assert process.poll() is None
    process.kill()
    process.wait()
