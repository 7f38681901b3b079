"""The stacks of threads that walk deep trees hold as many frames as Python lets them have."""

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from foreshore.deep_trees import STACK_BYTES, DeepThreads

# Ways in which recursion goes through C, each with the stack that C needs; `f` calls itself.
WAYS = {
    "map": "def f(n): return tuple(map(f, (n - 1,)))",
    "generator": "def f(n): return tuple(f(i) for i in (n - 1,))",
    "sorted": "def f(n): return sorted((n - 1,), key=f)",
    "partial": "from functools import partial\ndef f(n): return partial(f, n - 1)()",
    "reduce": "from functools import reduce\ndef f(n): return reduce(lambda a, b: f(n - 1), (1, 2))",
    "hash": """
class E:
    def __init__(self, n): self.n = n
    def __hash__(self): return f(self.n - 1)
def f(n): return len({E(n): 1})""",
    "equality": """
class E:
    def __init__(self, n): self.n = n
    def __hash__(self): return 1
    def __eq__(self, other): return f(self.n - 1)
def f(n): return E(n) in {E(n)}""",
    "attribute": """
class E:
    def __init__(self, n): self.n = n
    def __getattr__(self, name): return E(self.n - 1).more
def f(n): return E(n).more""",
    "init": """
class E:
    def __init__(self, n): E(n - 1)
f = E""",
    "substitution": "import re\ndef f(n): return re.sub('x', lambda m: f(n - 1), 'x')",
    "cache": """
from functools import lru_cache
@lru_cache
def f(n): return f(n - 1)""",
}
TREES = """
import msgspec, pickle
from foreshore.expr.ir import Call, Column
from foreshore.types import INT4
def deep():
    tree = Column(0, INT4)
    for _ in range(FRAMES):
        tree = Call("neg_int4", (tree,), INT4)
    return tree
def tried(work):
    try:
        work()
    except RecursionError:
        pass
def f(n):
    tried(lambda: hash(deep()))
    tried(lambda: deep() == deep())
    tried(lambda: repr(deep()))
    tried(lambda: msgspec.msgpack.encode(deep()))
    tried(lambda: pickle.dumps(deep()))
    raise RecursionError
"""
CHILD = """
from foreshore.deep_trees import FRAMES, DeepThreads, allow_depth
allow_depth()
{way}
def run():
    try:
        f(FRAMES * 2)
    except RecursionError:
        return "refused"
print({started})
"""
# How processes start the threads on which they walk plans.
STARTED = {
    "planning": 'DeepThreads(1, "deep").submit(run).result()',
    "process": "__import__('foreshore.deep_trees').deep_trees.run_on_deep_stack(run)",
    "replica's pool": "__import__('foreshore.compute.replica.pools')"
    '.compute.replica.pools.Pool(1, "deep").submit(run).result()',
}
DECODED = """
from foreshore.expr.ir import Join, Negate
from foreshore.expr.lowered import decode_relation, encode_relation
def f(n):
    inner = encode_relation(Join((), ()))
    level = encode_relation(Negate(Join((), ()))).removesuffix(inner)
    decode_relation(level * n + inner)
"""


def test_threads_that_are_started_at_once_have_their_stacks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Programs may run two databases on two event loops."""
    first, second = DeepThreads(1), DeepThreads(1)
    other = threading.Thread(target=lambda: second.submit(print))
    is_within, has_ended = threading.Event(), threading.Event()
    sizes = []

    def submit(pool: DeepThreads, *_: object) -> None:
        if pool is first:
            other.start()
            is_within.wait(0.05)  # the other one has to wait for us
        else:
            is_within.set()
            has_ended.wait()
        sizes.append(threading.stack_size(STACK_BYTES))

    monkeypatch.setattr(ThreadPoolExecutor, "submit", submit)
    before = threading.stack_size(0)  # it is told only when another one is set
    try:
        first.submit(print)
        has_ended.set()
        other.join()
        assert threading.stack_size(0) == 0
    finally:
        threading.stack_size(before)
    assert sizes == [STACK_BYTES, STACK_BYTES]


@pytest.mark.full
@pytest.mark.parametrize("way", [*WAYS.values(), TREES], ids=[*WAYS, "trees"])
def test_stack_holds_all_frames(way: str) -> None:
    check_stack(way, STARTED["planning"])


@pytest.mark.full
@pytest.mark.parametrize("started", STARTED.values(), ids=STARTED)
@pytest.mark.parametrize("way", [WAYS["map"], DECODED], ids=["map", "decoded"])
def test_each_process_has_the_stack(way: str, started: str) -> None:
    check_stack(way, started)


def check_stack(way: str, started: str) -> None:
    """Assert that a recursion of twice the frames is refused and does not end a process."""
    child = [sys.executable, "-c", CHILD.format(way=way, started=started)]
    found = subprocess.run(child, capture_output=True, text=True, timeout=120, check=False)
    assert (found.returncode, found.stdout) == (0, "refused\n"), found.stderr[-2000:]
