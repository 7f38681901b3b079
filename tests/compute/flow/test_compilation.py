"""Kernels are compiled by processes of their own, and a call waits for its kernel alone."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from foreshore.compute.flow import compilation
from foreshore.compute.flow.compilation import Compilation
from foreshore.compute.flow.kernels import compiled
from foreshore.compute.flow.kernels.jit import GATE, UNCOMPILED

# Has kernel `a` at once, each other when it is requested, and ends after `z`.
COMPILER = """
import sys
print("a", flush=True)
for name in sys.stdin:
    print(name, end="", flush=True)
    if name.strip() == "z":
        break
"""


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Let two processes run `COMPILER`; give a list that grows when kernels are loaded."""
    loads: list[str] = []
    monkeypatch.setattr(compilation, "COMMAND", (sys.executable, "-c", COMPILER))
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    monkeypatch.setattr(compiled, "is_complete", lambda: False)
    monkeypatch.setattr(compiled, "load_later", lambda: loads.append("kernels"))
    yield loads
    assert GATE.is_open


def test_call_waits_for_its_kernel_alone(loaded: list[str]) -> None:
    compiling = Compilation()
    compiling.begin()
    assert not GATE.is_open
    for name in ("a", "b", "b"):
        GATE.pass_through(name)
    assert not GATE.is_open
    GATE.pass_through("z")
    compiling.finish()
    assert not loaded


def test_kernels_are_loaded_once(loaded: list[str]) -> None:
    compiling = Compilation()
    for _ in range(2):
        compiling.load()
    assert loaded == ["kernels"]


def test_close_ends_processes_and_waiting_calls(
    loaded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    script = "import time; print('a', flush=True); time.sleep(1000)"
    monkeypatch.setattr(compilation, "COMMAND", (sys.executable, "-c", script))
    compiling = Compilation()
    compiling.begin()
    GATE.pass_through("a")
    waiting = threading.Thread(target=GATE.pass_through, args=("b",))
    waiting.start()
    compiling.close()
    waiting.join()
    assert [each.poll() is not None for each in compiling._processes] == [True, True]
    compiling.finish()


def test_second_compilation_leaves_it_to_the_first(loaded: list[str]) -> None:
    first, second = Compilation(), Compilation()
    first.begin()
    second.begin()
    assert not second._processes
    second.close()
    assert not GATE.is_open
    first.close()
    first.finish()


def test_nothing_is_started_where_all_is_compiled(
    loaded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "is_complete", lambda: True)
    none = Compilation()
    none.begin()
    assert not none._processes
    none.finish()


def test_process_that_cannot_start_is_no_error(
    loaded: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compilation, "COMMAND", (str(tmp_path / "missing"),))
    none = Compilation()
    none.begin()
    assert GATE.is_open
    none.finish()


def test_process_that_does_not_end_is_left_alone(
    loaded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compilation, "COMMAND", (sys.executable, "-c", "input()"))
    monkeypatch.setattr(compilation, "MOST_SECONDS", 0.05)
    slow = Compilation()
    monkeypatch.setattr(slow, "_request", lambda name, processes: None)
    slow.begin()
    GATE.pass_through("b")
    assert not GATE.is_open
    slow.close()
    slow.finish()


FIRST_VIEW = """
from random import Random

from foreshore.compute.bulk.duckdb import DuckDbEngine
from foreshore.compute.flow.compilation import Compilation
from foreshore.compute.flow.engine import FlowEngine
from foreshore.compute.flow.kernels.jit import GATE, KERNELS
from tests.compute.cases import Case, check_maintained, random_history
from tests.compute.plans import PLANS

compilation = Compilation()
compilation.begin()
engine = FlowEngine(DuckDbEngine(threads=1), None, compilation)
name = "count and sum by key"
check_maintained(engine, Case(PLANS[name], random_history(Random(name)), frozenset((2,))))
print(GATE.is_open, sum(sum(each.stats.cache_misses.values()) for each in KERNELS.values()))
engine.close()
"""


@pytest.mark.full
def test_first_view_waits_for_its_kernels_and_compiles_none(tmp_path: Path) -> None:
    if UNCOMPILED:
        pytest.skip("there are no compiled kernels")
    environment = {"NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": ":".join(sys.path)}
    output = subprocess.run(
        [sys.executable, "-c", FIRST_VIEW],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
    ).stdout
    assert output.split() == ["False", "0"]
