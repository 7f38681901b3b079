"""Sources of Python functions are compiled in a limited process, never in the server's."""

import resource
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from foreshore.errors import DatabaseError
from foreshore.python_functions.compilation import Compiler

FOLDED = "def f(): return " + "'a'*4000+" * 700 + "''"  # 1 GB in an unlimited process
# Sources that take much memory, much time or a deep stack.
HOSTILE = {
    "constants folded": FOLDED,
    "constants folded in a tuple": "def f(): return " + "(1,)*250+" * 700 + "()",
    "nested lists": "def f(): return " + "[" * 5000 + "]" * 5000,
    "minus signs": "def f(): return " + "-" * 100_000 + "1",
    "attributes": "def f(a): return a" + ".a" * 100_000,
    "calls": "def f(a): return a" + "()" * 100_000,
    "nested functions": "\n".join(" " * i + "def f():" for i in range(101)),
    "powers": "def f(): return " + "9**" * 100_000 + "9",
    "a long number": "def f(): return " + "9" * 1_000_000,
    "elif": "def f(a):\n if a: pass\n" + " elif a: pass\n" * 50_000,
    "nul": "def f(): return 1\0",
    "surrogate": "def f(): return '\udc80'",
    "many functions": "def f(): return 0\n" * 200_000,
}
REFUSED = ("42601", "53200", "54001")


@pytest.fixture
def compiler() -> Iterator[Compiler]:
    made = Compiler(memory=192 << 20, seconds=2)
    yield made
    made.close()


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_source_fails_in_the_process_only(compiler: Compiler, kind: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF)
    with pytest.raises(DatabaseError) as caught:
        compiler.definitions_of(HOSTILE[kind])
    after = resource.getrusage(resource.RUSAGE_SELF)
    assert caught.value.sqlstate in REFUSED, caught.value
    assert caught.value.sqlstate == "53200" or "folded" not in kind
    assert after.ru_maxrss - before.ru_maxrss < 64 << 10  # kilobytes
    assert [each.name for each in compiler.definitions_of("def g(): ...")] == ["g"]


@pytest.mark.full
def test_long_compilation_is_ended() -> None:
    compiler = Compiler(memory=4 << 30, seconds=1)
    try:
        with pytest.raises(DatabaseError, match="more than 1 s") as caught:
            compiler.definitions_of("def f(): return 0\n" * 300_000)
        assert caught.value.sqlstate == "57014"
    finally:
        compiler.close()


def test_known_source_needs_no_process(compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    source = "def f(a, b=1): ..."
    found = compiler.definitions_of(source)
    monkeypatch.setattr(subprocess, "Popen", None)
    compiler.close()
    assert compiler.definitions_of(source) == found


def test_known_source_waits_for_no_other_compilation(compiler: Compiler) -> None:
    source = "def f(a): ..."
    found = compiler.definitions_of(source)
    with ThreadPoolExecutor(1) as thread:
        with compiler._lock:  # as while another source is compiled
            assert thread.submit(compiler.definitions_of, source).result(10) == found
        assert thread.submit(compiler.definitions_of, "def g(): ...").result()
