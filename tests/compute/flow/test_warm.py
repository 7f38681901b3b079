"""After warming, maintaining views compiles nothing: a small step may run on the replica's loop."""

import subprocess
import sys
from pathlib import Path

import pytest

from foreshore.compute.flow.kernels import compiled
from foreshore.compute.flow.kernels.jit import UNCOMPILED

SCRIPT = """
from random import Random

from foreshore.compute.bulk.duckdb import DuckDbEngine
from foreshore.compute.flow import spine
from foreshore.compute.flow.engine import FlowEngine
from foreshore.compute.flow.kernels.jit import KERNELS
from foreshore.compute.flow.warm import warm
from tests.compute.cases import Case, check_maintained, random_history
from tests.compute.flow.test_forgetting import Forgetting
from tests.compute.flow.test_loop import LOOPS, graphs
from tests.compute.plans import PLANS


def compiled():
    return {(name, str(types)) for name, each in KERNELS.items() for types in each.signatures}


warm()
before = compiled()
assert before
bulk = DuckDbEngine(threads=1)
engine = FlowEngine(bulk)
for spine.TAIL_ROWS in (1 << 14, 3):
    for name, plan in PLANS.items():
        history = random_history(Random(name))
        check_maintained(engine, Case(plan, history, frozenset((2,))))
    engine = Forgetting(bulk, Random(1))  # which also merges runs
for name, plan in LOOPS.items():
    check_maintained(engine, Case(plan, graphs(Random(name), 4, 4, 6), frozenset((2, 3))))
assert compiled() == before, compiled() - before
"""


def test_views_compile_nothing_after_warming() -> None:
    subprocess.run([sys.executable, "-c", SCRIPT], check=True, timeout=120)


def test_signatures_are_those_of_calls() -> None:
    if UNCOMPILED:
        pytest.skip("there are no compiled kernels")
    script = "from tests.compute.flow.kernel_calls import calls; print(*calls(), sep='\\n')"
    found = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=120
    ).stdout
    noted = compiled.SIGNATURES.read_text()
    assert sorted(found.splitlines()) == sorted(noted.splitlines()), (
        "run python -m tests.compute.flow.kernel_calls"
    )


LATER = """
import threading

from foreshore.compute.flow.kernels import compiled

compiled.SHARE = 0
compiled.compile_missing()
assert compiled.is_complete()
compiled.load_later()
for thread in threading.enumerate():
    if thread.name == "kernels":
        thread.join()
known = compiled._kernels()
for name, types in compiled.signatures().items():
    assert types in known[name].signatures, name
    assert not known[name].stats.cache_misses, name
"""


def test_thread_loads_what_is_in_the_cache() -> None:
    for script in ("from foreshore.compute.flow.warm import warm; warm()", LATER):
        subprocess.run([sys.executable, "-c", script], check=True, timeout=120)


SIDE_BY_SIDE = """
import sys
from queue import SimpleQueue

from foreshore.compute.flow.kernels import compiled

few = ("rows.hash_keys", "rows.pick_words", "interning.total_length", "frames.subtract_rows")
all_types = compiled.signatures()
compiled.signatures = lambda: {name: all_types[name] for name in few}
requested = SimpleQueue()
requested.put(few[2])
told = []
compiled.compile_missing(told.append, requested)
assert sorted(told) == sorted(few), told
assert compiled.is_complete()
compiled_here = [name for name in few if compiled._kernels()[name].stats.cache_misses]
print(*(name for name in told if name in compiled_here))
"""


def test_processes_compile_each_kernel_once(tmp_path: Path) -> None:
    if UNCOMPILED:
        pytest.skip("there are no compiled kernels")
    environment = {"NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": ":".join(sys.path)}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", SIDE_BY_SIDE], env=environment, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    outputs = [process.communicate(timeout=120)[0].split() for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    names = [name for output in outputs for name in output]
    assert len(names) == len(set(names)) == 4, outputs
    assert any(output and output[0] == "interning.total_length" for output in outputs), outputs
