"""What a call takes is estimated: whatever takes more than 20 ms is not light.

The calls are of all registered functions, with arguments that fit into a short statement.
"""

import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from time import thread_time

import pytest

from foreshore.expr.cost import is_light
from foreshore.expr.evaluate import outcome
from foreshore.expr.functions.function import BY_KEY
from foreshore.expr.functions.registry import NO_LITERAL, resolve, resolve_table
from foreshore.expr.ir import Call, Literal, Scalar
from foreshore.expr.number_cost import digits_written
from foreshore.types import INT4, INT8, INTERVAL, JSONB, NUMBER, TEXT, TIMESTAMP, SqlType
from tests.foreshore.hostile_calls import calls, casts
from tests.loop_guard import is_slow

LIMIT_S = 0.02
GIVE_UP_S = 30  # of a call that should have been light
JSONPATH = SqlType("jsonpath")
NINES, SMALL = "9" * 16_000, "0." + "0" * 400 + "7"
DEEP = "[" * 200 + "]" * 200
COUNTED = "(a{0,200}){0,50}"

# Calls that take from 20 ms to years, by a value and not by the lengths of their arguments.
DEMANDING: list[tuple[str, list[tuple[object, SqlType]]]] = [
    ("exp", [("1500", NUMBER)]),
    ("exp", [("100000.5", NUMBER)]),
    ("ln", [("9" * 4000 + ".5", NUMBER)]),
    ("log", [("7", NUMBER), (SMALL * 2, NUMBER)]),
    ("power", [(SMALL, NUMBER), ("1.5", NUMBER)]),
    ("power", [("7", NUMBER), ("100000", NUMBER)]),
    ("sqrt", [(NINES, NUMBER)]),
    ("gcd", [(NINES, NUMBER), (NINES[:-1], NUMBER)]),
    ("lcm", [(NINES, NUMBER), (NINES[:-1], NUMBER)]),
    ("/", [(NINES, NUMBER), (NINES[:-1], NUMBER)]),
    ("%", [(NINES, NUMBER), (NINES[:-1], NUMBER)]),
    ("factorial", [(20_000, INT8)]),
    ("repeat", [("x", TEXT), (1_000_000, INT4)]),
    ("lpad", [("x", TEXT), (1_000_000, INT4)]),
    ("rpad", [("x", TEXT), (1_000_000, INT4)]),
    ("format", [("%1000000s", TEXT), ("x", TEXT)]),
    ("regexp_instr", [("b" * 400, TEXT), (COUNTED, TEXT)]),
    ("regexp_substr", [("b" * 400, TEXT), (COUNTED, TEXT)]),
    ("regexp_count", [("b" * 400, TEXT), (COUNTED, TEXT)]),
    ("regexp_replace", [("b" * 400, TEXT), (COUNTED, TEXT), ("x", TEXT)]),
    ("regexp_split_to_array", [("b" * 400, TEXT), (COUNTED, TEXT)]),
    ("~", [("b" * 400, TEXT), (COUNTED, TEXT)]),
    ("jsonb_path_query_array", [("[" + "1," * 999 + "1]", JSONB), ("$" + "[*]" * 99, JSONPATH)]),
    ("jsonb_path_query_array", [(DEEP, JSONB), ("$" + ".**" * 100, JSONPATH)]),
    ("jsonb_path_match", [(DEEP, JSONB), ("$" + ".**" * 100, JSONPATH)]),
    ("jsonb_path_exists", [(DEEP, JSONB), ("$" + ".**" * 100 + ".a", JSONPATH)]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "args"), DEMANDING)
def test_call_that_takes_long_is_not_light(name: str, args: list[tuple[object, SqlType]]) -> None:
    types, data = [type for _, type in args], tuple(value for value, _ in args)
    found = resolve(name, types, data)
    assert not is_light(Call(found.key, tuple(Literal(*each) for each in args), found.result))


def test_long_series_of_times_is_not_light() -> None:
    times = (Literal(10**15, TIMESTAMP), Literal(-(10**17), TIMESTAMP))
    step = Literal((0, -1, 0), INTERVAL)
    found = resolve_table("generate_series", [TIMESTAMP, TIMESTAMP, INTERVAL], (NO_LITERAL,) * 3)
    assert not is_light(Call(found.key, (*times, step), TIMESTAMP))


def test_cast_that_writes_long_numbers_is_not_light() -> None:
    numbers = "{" + ",".join(["1e130000"] * 40) + "}"
    for scalar in casts():
        assert isinstance(scalar, Call)
        if scalar.args[0] == Literal(numbers, TEXT):
            assert not is_light(scalar), scalar


def test_light_calls_take_little_time() -> None:
    chosen = list(BY_KEY)[::40]
    _check(call for key in chosen for call in calls(key, 2))


@pytest.mark.full
def test_all_light_calls_take_little_time() -> None:
    _check(casts())
    _check(call for key in BY_KEY for call in calls(key, 60))


def _check(scalars: Iterable[Scalar]) -> None:
    late = []
    for scalar in scalars:
        if not is_light(scalar):
            continue
        with _ended(scalar):
            outcome(scalar, (), 1)  # loads what the function needs
            began = thread_time()
            outcome(scalar, (), 1)
        took = thread_time() - began
        if took > LIMIT_S and is_slow(took, LIMIT_S):
            late.append((round(took, 3), str(scalar)[:200]))
    assert not late


@contextmanager
def _ended(scalar: Scalar) -> Iterator[None]:
    """Fail if the body takes very long."""

    def fail(*_: object) -> None:
        raise AssertionError(f"takes more than {GIVE_UP_S} s: {scalar}")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(GIVE_UP_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def test_digest_is_no_long_number() -> None:
    digest = '{"sha": "7fb9e123456c9e99999a", "n": 1.5e3, "of": "9e123456ab"}'
    assert digits_written((digest,)) == 3
    assert digits_written(("{1e130000,-2.5E-16000}",)) == 146_000
