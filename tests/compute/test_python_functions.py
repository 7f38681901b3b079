"""Plans that call functions in Python are exact at every time, on each engine.

What is right is told by the model, in which the same functions are Python's of this process.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from foreshore.compute.bulk.duckdb import DuckDbEngine
from foreshore.compute.engine import Engine
from foreshore.expr.columns import columns_of
from foreshore.expr.ir import (
    Aggregate,
    Call,
    Column,
    Filter,
    Join,
    Map,
    Project,
    Reduce,
    Relation,
    Scalar,
    count_all,
)
from foreshore.python_functions.definition import PythonFunction, key_of, kind_of
from foreshore.python_functions.limits import ALLOWED
from foreshore.types import BOOL, FLOAT8, INT4, TEXT, SqlType, array_of
from tests import model
from tests.compute.cases import Case, check_maintained, random_history
from tests.compute.plans import U1, U2, column
from tests.compute.without_bulk import WithoutBulk
from tests.compute.workers.in_threads import workers
from tests.harness import java
from tests.model import Failure

MIX = "def mix(a, b): return None if a is None or b == 2 else 12 // (a - 1) + (b or 0)"
PICK = "def pick(a): return a is not None and a % 2 == 1"
HALF = """
import pyarrow as pa, pyarrow.compute as pc
def half(a: pa.Array) -> pa.Array: return pc.divide(pc.cast(a, pa.float64()), 2.0)
"""
LONGEST = """
class longest:
    def init(self): return []
    def add(self, state, value): return [*state, value or '']
    def finish(self, state): return max(state, key=lambda s: (len(s), s), default=None)
"""

MIDDLE = """
import bisect
class middle:
    def init(self): return []
    def add(self, state, value):
        if value == 3: raise ValueError("three")
        bisect.insort(state, -1 if value is None else value)
        return state
    def remove(self, state, value):
        state.remove(-1 if value is None else value)
        return state
    def result(self, state):
        return state[len(state) // 2] if state else None
"""
HEAP = MIDDLE.replace("middle", "stuck").replace("state.remove", "1 // 0; state.remove")


def _mix(a: int | None, b: int | None) -> int | None:
    if a is None or b == 2:
        return None
    if a == 1:
        raise Failure(
            '38000 function "mix", line 1: ZeroDivisionError: integer division or modulo by zero'
        )
    return 12 // (a - 1) + (b or 0)


def _longest(values: tuple[str | None, ...] | None) -> str | None:
    return max((v or "" for v in values or ()), key=lambda s: (len(s), s), default=None)


def _middle(values: tuple[int | None, ...] | None, name: str = "middle") -> int | None:
    state = sorted(-1 if value is None else value for value in values or ())
    if 3 in state:
        raise Failure(f'38000 function "{name}", line 6: ValueError: three')
    return state[len(state) // 2] if state else None


MEANT: dict[str, Callable[..., Any]] = {
    "python:mix": _mix,
    "python:pick": lambda a: a is not None and a % 2 == 1,
    "python:half": lambda a: None if a is None else a / 2,
    "python:longest": _longest,
    "python:middle": _middle,
    "python:stuck": partial(_middle, name="stuck"),
}


def _called(name: str, source: str, result: SqlType, *args: Column, **options: Any) -> Call:
    kinds = tuple(kind_of(arg.type) for arg in args)
    function = PythonFunction(name, source, kinds, kind_of(result), **options)
    return Call(key_of(function), args, result)


def _mixed(a: Column, b: Column) -> Scalar:
    return _called("mix", MIX, INT4, a, b)


_A, _B = column(0), column(1)
_PICKED = Filter(U1, (_called("pick", PICK, BOOL, _B),))
_TEXTS = Reduce(U1, (_A,), (Aggregate("array_agg", (column(2, TEXT),), array_of(TEXT)),))
_NUMBERS = Reduce(U1, (_A,), (Aggregate("array_agg", (_B,), array_of(INT4)), count_all()))
_ALL = Reduce(
    U1, (), (Aggregate("array_agg", (_A,), array_of(INT4), filter=_called("pick", PICK, BOOL, _B)),)
)


def _folded(name: str, source: str, over: Relation, at: int, *kept: int) -> Relation:
    call = _called(name, source, INT4, column(at, array_of(INT4)), retracts=True)
    width = len(columns_of(over))
    return Project(Map(over, (call,)), (*kept, width))


PLANS: dict[str, Relation] = {
    "values": Map(U1, (_mixed(_A, _B), _called("half", HALF, FLOAT8, _A, vectorized=True))),
    "predicate": _PICKED,
    "key of groups": Reduce(U1, (_mixed(_A, _B),), (count_all(),)),
    "argument of an aggregate": Reduce(
        _PICKED, (_A,), (Aggregate("max", (_mixed(_A, _B),), INT4),)
    ),
    "key of a join": Project(
        Join(
            (U1, U2),
            ((_called("half", HALF, FLOAT8, _A, vectorized=True),
              _called("half", HALF, FLOAT8, column(len(U1.columns)), vectorized=True)),),
        ),
        (0, 1),
    ),
    "aggregate that takes values back": _folded("middle", MIDDLE, _NUMBERS, 1, 0, 2),
    "aggregate of all, filtered": _folded("middle", MIDDLE, _ALL, 0),
    "aggregate that fails to take values back": _folded("stuck", HEAP, _NUMBERS, 1, 0),
    "aggregate": Map(
        _TEXTS, (_called("longest", LONGEST, TEXT, column(1, array_of(TEXT))),)
    ),
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def meant() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(ALLOWED, "1")
        for name, function in MEANT.items():
            patch.setitem(model.OF_NULLS, name, function)
        yield


@contextmanager
def _operators() -> Iterator[Engine]:
    bulk = DuckDbEngine(threads=1)
    yield WithoutBulk(bulk)
    bulk.close()


@contextmanager
def _duckdb() -> Iterator[Engine]:
    engine = DuckDbEngine(threads=2)
    yield engine
    engine.close()


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(_operators, id="operators"),
        pytest.param(_duckdb, id="duckdb"),
        pytest.param(partial(workers, 2), id="workers"),
    ],
)
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    with request.param() as engine:
        yield engine


@pytest.mark.parametrize("name", PLANS)
def test_plan_is_exact_at_every_time(engine: Engine, name: str) -> None:
    _check(engine, name, 5)


def _check(engine: Engine, name: str, count: int) -> None:
    random = Random(name)
    for _ in range(count):
        cuts = frozenset(random.sample(range(2, 5), random.randint(0, 3)))
        check_maintained(engine, Case(PLANS[name], random_history(random), cuts))


@pytest.mark.full
def test_plans_are_exact_at_every_time_on_spark(tmp_path: Path) -> None:
    from foreshore.compute.bulk.spark import SparkEngine
    from foreshore.compute.bulk.spark_local import LocalSteps
    from foreshore.compute.spark.options import SparkOptions
    from foreshore.compute.spark.session import stop_spark

    java()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalSteps, "hydrates", lambda *of: False)
        patch.setattr(LocalSteps, "takes", lambda *of: False)
        stop_spark()  # one that runs may have been started without Python functions
        engine = SparkEngine(SparkOptions(tmp_path, "local[2]", 1024))
        for name in PLANS:
            _check(engine, name, 1)
        engine.close()
    stop_spark()
