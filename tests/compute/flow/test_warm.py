"""After warming, maintaining views compiles nothing: a small step may run on the replica's loop."""

import subprocess
import sys

SCRIPT = """
import pkgutil
from importlib import import_module
from random import Random

import foreshore.compute.flow.kernels as kernels
from foreshore.compute.bulk.duckdb import DuckDbEngine
from foreshore.compute.flow.engine import FlowEngine
from foreshore.compute.flow.warm import warm
from tests.compute.cases import Case, check_maintained, random_history
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
engine = FlowEngine(DuckDbEngine(threads=1))
for name, plan in PLANS.items():
    check_maintained(engine, Case(plan, random_history(Random(name)), frozenset((2,))))
assert compiled() == before, compiled() - before
"""


def test_views_compile_nothing_after_warming() -> None:
    subprocess.run([sys.executable, "-c", SCRIPT], check=True, timeout=120)
