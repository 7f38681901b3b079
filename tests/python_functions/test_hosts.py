"""Hosts: answers by row, and what ends a call or a host."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread, Timer
from typing import Any

import pyarrow as pa
import pytest

from foreshore.errors import DatabaseError, OutOfMemory, QueryCanceled
from foreshore.python_functions.calls import CHECKED
from foreshore.python_functions.definition import PythonFunction, key_of
from foreshore.python_functions.hosts import ExternalRoutineException, Hosts
from foreshore.python_functions.limits import Limits

ROWS = pa.array(range(10), pa.int64())


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    found = Hosts(1, Limits(seconds=20, memory=256 << 20))
    yield found
    found.close()


def _key(source: str, **options: Any) -> str:
    return key_of(PythonFunction("f", source, ("int8",), "int8", **options))


def _outcome(hosts: Hosts, source: str, array: pa.Array = ROWS, **options: Any) -> Any:
    values, errors = hosts.outcome(_key(source, **options), [array], pa.int64())
    return values.to_pylist(), None if errors is None else errors.to_pylist()


def test_row_that_raises_is_error_of_that_row(hosts: Hosts) -> None:
    helper = "def g(a):\n    return 12 // a\ndef f(a): return g(a - 3)"
    values, errors = _outcome(hosts, helper, ROWS[2:5])
    assert values == [-12, None, 12]
    raised = "ZeroDivisionError: integer division or modulo by zero"
    assert errors == [None, f'38000 function "f", line 2: {raised}', None]


def test_system_exit_is_error_of_its_row(hosts: Hosts) -> None:
    _, errors = _outcome(hosts, "import sys\ndef f(a): sys.exit(a)", ROWS[:1])
    assert errors == ['38000 function "f", line 2: SystemExit: 0']


def test_strict_function_is_not_called_with_null(hosts: Hosts) -> None:
    array = pa.array([1, None, 3], pa.int64())
    assert _outcome(hosts, "def f(a): return a + 1", array, strict=True) == ([2, None, 4], None)
    assert _outcome(hosts, "def f(a): return a is None", array) == ([0, 1, 0], None)


def test_vectorized_function_gets_columns_and_fails_by_row(hosts: Hosts) -> None:
    source = "import pyarrow.compute as pc\ndef f(a): return pc.divide(12, pc.subtract(a, 3))"
    values, errors = _outcome(hosts, source, ROWS[2:5], vectorized=True)
    assert values == [-12, None, 12]
    assert [each is None for each in errors] == [True, False, True]


def test_text_of_vectorized_function_is_checked(hosts: Hosts) -> None:
    source = "def f(a): return ['\\0' if x == 3 else str(x) for x in a.to_pylist()]"
    key = key_of(PythonFunction("f", source, ("int8",), "text", vectorized=True))
    values, errors = hosts.outcome(key, [ROWS[2:5]], pa.string())
    assert values.to_pylist() == ["2", None, "4"]
    assert errors is not None
    assert errors.to_pylist()[1].startswith("22021 invalid byte sequence")


def test_slow_function_is_called_for_few_rows_at_a_time() -> None:
    short = Hosts(1, Limits(seconds=4, memory=256 << 20))
    source = "import time\ndef f(a):\n  time.sleep(0.02)\n  return a"
    array = pa.array(range(250), pa.int64())
    try:
        assert _outcome(short, source, array, volatility="volatile")[0] == array.to_pylist()
    finally:
        short.close()


def test_vectorized_function_of_wrong_length_fails(hosts: Hosts) -> None:
    told = "did not return a column of 10 values but list of 1 values"
    with pytest.raises(ExternalRoutineException, match=told):
        _outcome(hosts, "def f(a): return [sum(a.to_pylist())]", vectorized=True)


@pytest.mark.parametrize(
    "source",
    [
        "import random\ndef f(a): return random.randrange(1 << 60)",
        "n = 0\ndef f(a):\n  global n\n  n += 1\n  return n",
        "from functools import cache\nimport random\n@cache\ndef g(a): return random.random()\n"
        "def f(a): return int(g(a) * 1e9)",
        "import random\ndef f(a): raise ValueError(random.random())",
    ],
)
def test_immutable_function_with_varying_answers_is_found(hosts: Hosts, source: str) -> None:
    for _ in range(2):  # also where the first try was for as many rows as are checked
        with pytest.raises(ExternalRoutineException, match='"f" is declared IMMUTABLE but'):
            _outcome(hosts, source, pa.array(range(CHECKED), pa.int64()))
    assert len(_outcome(hosts, source, volatility="volatile")[0]) == 10


def test_function_of_neighbouring_rows_is_found(hosts: Hosts) -> None:
    source = "import numpy as np\ndef f(a): return np.cumsum(a.to_numpy())"
    with pytest.raises(ExternalRoutineException, match="declared IMMUTABLE"):
        _outcome(hosts, source, vectorized=True)


def test_order_of_sets_is_the_same_in_each_host() -> None:
    source = "def f(a): return hash(str(a)) % 1000"
    found = []
    for _ in range(2):
        hosts = Hosts(1, Limits())
        found.append(_outcome(hosts, source))
        hosts.close()
    assert found[0] == found[1]


def test_host_that_dies_is_replaced(hosts: Hosts) -> None:
    with pytest.raises(ExternalRoutineException, match="has ended") as caught:
        _outcome(hosts, "import os\ndef f(a): os._exit(3)")
    assert caught.value.sqlstate == "38000"
    assert _outcome(hosts, "def f(a): return a")[0] == list(range(10))


def test_function_that_takes_too_much_memory_fails(hosts: Hosts) -> None:
    with pytest.raises(OutOfMemory):
        _outcome(hosts, "def f(a): return len(b'x' * (1 << 32))")
    assert _outcome(hosts, "def f(a): return a")[0] == list(range(10))


def test_module_that_cannot_run_fails(hosts: Hosts) -> None:
    with pytest.raises(DatabaseError, match="ModuleNotFoundError"):
        _outcome(hosts, "import no_such_module\ndef f(a): return a")


def test_row_with_an_endless_loop_is_an_error_of_it_alone() -> None:
    hosts = Hosts(1, Limits(seconds=1))
    source = """
def f(a):
    while a == 3:
        try: pass
        except Exception: pass
    return a"""
    values, errors = _outcome(hosts, source)
    assert values == [0, 1, 2, None, 4, 5, 6, 7, 8, 9]
    assert errors is not None
    assert errors[3] == '38000 function "f" took longer than 1 s for a row'
    assert [i for i, each in enumerate(errors) if each is not None] == [3]
    hosts.close()


def test_loop_that_catches_all_is_ended() -> None:
    hosts = Hosts(1, Limits(seconds=1))
    source = """
def f(a):
    while True:
        try:
            while True: pass
        except BaseException: pass"""
    with pytest.raises(ExternalRoutineException, match="took longer than"):
        _outcome(hosts, source)
    assert _outcome(hosts, "def f(a): return a")[0] == list(range(10))
    hosts.close()


def test_call_that_is_abandoned_ends_its_host() -> None:
    hosts, abandoned = Hosts(1, Limits()), Event()
    key = key_of(PythonFunction("f", "def f(a):\n  while True: pass", ("int8",), "int8"))
    Timer(0.5, abandoned.set).start()
    with pytest.raises(QueryCanceled):
        hosts.outcome(key, [ROWS], pa.int64(), abandoned)
    assert _outcome(hosts, "def f(a): return a")[0] == list(range(10))
    hosts.close()


def test_calls_of_threads_wait_for_a_host(hosts: Hosts) -> None:
    found: list[Any] = []
    source = "def f(a): return a * 2"
    threads = [Thread(target=lambda: found.append(_outcome(hosts, source))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [([2 * i for i in range(10)], None)] * 8
    assert len(hosts.pids) == 1


def test_environment_of_host_has_no_secrets(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    fresh = Hosts(1, Limits())
    source = "import os\ndef f(a): return 'AWS_SECRET_ACCESS_KEY' in os.environ"
    assert _outcome(fresh, source)[0] == [0] * 10
    fresh.close()


_ORPHAN = """
import os, sys
from threading import Event, Thread, Timer
import pyarrow as pa
from foreshore.python_functions.definition import PythonFunction, key_of
from foreshore.python_functions.hosts import Host
from foreshore.python_functions.limits import Limits
host = Host(Limits())
key = key_of(PythonFunction("f", "def f(a):\\n  while True: pass", ("int8",), "int8"))
batch = pa.RecordBatch.from_arrays([pa.array([1])], ["0"])
Thread(target=host.call, args=(key, batch, pa.int64()), daemon=True).start()
print(host.pid, flush=True)
sys.stdin.read()
os._exit(0)
"""


@pytest.mark.full
def test_host_ends_with_the_process_that_started_it_even_in_a_loop() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", _ORPHAN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    process.kill()
    process.communicate()
    while _is_running(pid):
        pass


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


FORKS = "import os\ndef f(a):\n  if os.fork() == 0: return -1\n  return a"


def test_process_that_a_function_forks_answers_nothing(hosts: Hosts) -> None:
    for _ in range(3):
        assert _outcome(hosts, FORKS, ROWS[1:3], volatility="volatile")[0] == [1, 2]
        assert _outcome(hosts, "def f(a): return a + 1")[0] == list(range(1, 11))


def test_bytes_that_are_no_answer_end_the_call(hosts: Hosts) -> None:
    source = (
        "import os, stat\ndef f(a):\n"
        "  for fd in range(3, 4096):\n"
        "    try:\n"
        "      if stat.S_ISSOCK(os.fstat(fd).st_mode): os.write(fd, b'R' + b'x' * 99)\n"
        "    except OSError: pass\n"
        "  return a"
    )
    with pytest.raises(ExternalRoutineException, match='"f" has sent what is no answer'):
        _outcome(hosts, source, volatility="volatile")
    assert _outcome(hosts, "def f(a): return a + 1")[0] == list(range(1, 11))


def test_answer_to_another_call_is_no_answer(hosts: Hosts) -> None:
    source = (
        "import __main__\nsend = __main__.send\n"
        "def twice(to, kind, *pieces):\n  send(to, kind, *pieces)\n  send(to, kind, *pieces)\n"
        "__main__.send = twice\ndef f(a): return a"
    )
    assert _outcome(hosts, source, volatility="volatile")[0] == ROWS.to_pylist()
    with pytest.raises(ExternalRoutineException, match='"f" has sent what is no answer'):
        _outcome(hosts, "def f(a): return a + 2", volatility="volatile")
    assert _outcome(hosts, "def f(a): return a + 1")[0] == list(range(1, 11))
