"""After warming, maintaining views compiles nothing: a small step may run on the replica's loop."""

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from foreshore.compute.flow.kernels import compiled
from foreshore.compute.flow.kernels.jit import UNCOMPILED

SCRIPT = """
import pkgutil
from importlib import import_module
from random import Random

import foreshore.compute.flow.kernels as kernels
from foreshore.compute.bulk.duckdb import DuckDbEngine
from foreshore.compute.flow import spine
from foreshore.compute.flow.engine import FlowEngine
from foreshore.compute.flow.warm import warm
from tests.compute.cases import Case, check_maintained, random_history
from tests.compute.flow.test_forgetting import Forgetting
from tests.compute.flow.test_loop import LOOPS, graphs
from tests.compute.plans import PLANS


def compiled():
    modules = [import_module(f"{kernels.__name__}.{m.name}") for m in pkgutil.iter_modules(kernels.__path__)]
    return {
        (name, str(signature))
        for module in modules
        for name, function in vars(module).items()
        for signature in getattr(function, "signatures", ())
    }


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


LOADING = """
from foreshore.compute.flow import warm

warm.compiled.note = None  # as nothing is compiled here
called = []
warm._maintain = lambda view, bulk: called.append(view)
warm.warm()
assert not called
"""


def test_what_was_compiled_is_loaded_by_later_processes() -> None:
    for script in ("from foreshore.compute.flow.warm import warm; warm()", LOADING):
        subprocess.run([sys.executable, "-c", script], check=True, timeout=120)


CONTENTS = [
    None,
    b"",
    b"other",
    pickle.dumps(None),
    b"cnumba.of_another_version\nType\n.",
    pickle.dumps((("0", "0", "0"), {})),
]


@pytest.mark.parametrize("content", CONTENTS)
def test_note_that_does_not_fit_is_not_used(
    content: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "note"
    monkeypatch.setattr(compiled, "_path", lambda: path)
    if content is not None:
        path.write_bytes(content)
    assert not compiled.load("1")
    compiled.note("1")
    assert compiled.load("1") != UNCOMPILED
    assert not compiled.load("2")


SOON = """
import threading

from foreshore.compute.checkpoint.manifest import engine_version
from foreshore.compute.flow import warm
from foreshore.compute.flow.kernels import compiled

compiled.SHARE = 0
compiled.note = None  # as nothing is compiled here
called = []
warm._maintain = lambda view, bulk: called.append(view)
noted = compiled._noted(engine_version())
assert noted
some = compiled._kernels()[next(iter(noted))]
index, some._cache._cache_file._load_index = some._cache._cache_file._load_index, dict
assert not compiled.load_later(engine_version()), "a kernel is not in the cache"
some._cache._cache_file._load_index = index
warm.warm_soon()
for thread in threading.enumerate():
    if thread.name == "kernels":
        thread.join()
assert not called
known = compiled._kernels()
for name, signatures in noted.items():
    assert set(signatures) <= set(known[name].signatures), name
    assert not known[name].stats.cache_misses, name
"""


def test_thread_loads_what_is_in_the_cache() -> None:
    for script in ("from foreshore.compute.flow.warm import warm; warm()", SOON):
        subprocess.run([sys.executable, "-c", script], check=True, timeout=120)
