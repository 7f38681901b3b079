"""An exception that nobody expected of a function is the error of its row, and of no other."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from foreshore.compute.render.dialect import ArrowFunction
from foreshore.errors import DataError, DivisionByZero, OutOfMemory
from foreshore.expr.functions import rows
from foreshore.expr.functions.apply import apply
from foreshore.expr.functions.function import BY_KEY, ScalarFunction, Signature
from foreshore.expr.functions.rows import fail, mapped
from foreshore.python_functions.definition import PREFIX
from foreshore.types import INT8, TEXT, TIMESTAMP, SqlType
from tests.logged import logged_by

NUMBERS = pa.array([1, 2, None, 2, 3])

KINDS: dict[str, tuple[Callable[[Any], Any], SqlType]] = {
    "division": (lambda n: 1 // (n - 2), INT8),
    "key": (lambda n: {1: 1, 3: 3}[n], INT8),
    "index": (lambda n: [1, 2, 0, 0][-n if n != 2 else 9], INT8),
    "encoding": (lambda n: "\udcff".encode() if n == 2 else b"1", SqlType("bytea")),
    "number": (lambda n: int("x" if n == 2 else "1"), INT8),
    "result too large": (lambda n: 10**30 if n == 2 else n, INT8),
    "time too late": (lambda n: 2**63 if n == 2 else n, TIMESTAMP),
    "no text": (lambda n: 7 if n == 2 else "a", TEXT),
}


@pytest.mark.parametrize("kind", KINDS)
def test_row_alone_fails_with_the_same_text_each_time(
    kind: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "_LOGGED", set())
    compute, result = KINDS[kind]
    values, errors = mapped(compute)(Signature((INT8,), result), NUMBERS)
    found = errors.to_pylist()
    assert [error is None for error in found] == [True, False, True, False, True]
    assert found[1] == found[3]
    assert found[1].startswith("XX000")
    assert [value is None for value in values.to_pylist()] == [False, True, True, True, False]
    assert len(logged_by(caplog, "foreshore")) == 1


@pytest.mark.parametrize("error", [MemoryError(), OSError("no file"), ImportError("none")])
def test_what_does_not_follow_from_the_row_fails_all(error: Exception) -> None:
    def compute(number: int) -> int:
        raise error

    with pytest.raises(type(error)):
        mapped(compute)(Signature((INT8,), INT8), NUMBERS)


@pytest.mark.parametrize("error", [OutOfMemory("none"), RecursionError()])
def test_errors_that_are_no_users_fail_all_rows(error: Exception) -> None:
    def compute(number: int) -> int:
        raise error

    with pytest.raises(type(error)):
        mapped(compute)(Signature((INT8,), INT8), NUMBERS)


RAISED: dict[str, Exception] = {
    "arithmetic": OverflowError("too large"),
    "arrow": pa.ArrowInvalid("no"),
    "arrow's missing kernel": pa.ArrowNotImplementedError("no"),
    "encoding": UnicodeDecodeError("utf-8", b"\xff", 0, 1, "no"),
    "foreseen": fail("22003", "value out of range"),
    "index": IndexError(),
    "key": KeyError(7),
    "pattern": re.error("no"),
    "user's": DivisionByZero("division by zero"),
}


class Columns:
    """A kernel of whole columns that raises an exception if 2 is among the numbers."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.calls: list[list[int | None]] = []

    def __call__(self, types: Signature, numbers: pa.Array) -> pa.Array:
        self.calls.append(numbers.to_pylist())
        if 2 in self.calls[-1]:
            raise self.error
        return pc.multiply(numbers, 10)

    def function(self, **options: Any) -> ScalarFunction:
        options = {"fallible": True, **options}
        return ScalarFunction("fails_for_two", "fails_for_two", ("int8",), "int8", self, **options)


NUMBER = Signature((INT8,), INT8)


@pytest.mark.parametrize("kind", RAISED)
def test_column_kernel_fails_its_rows_alone(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    rows._LOGGED.clear()
    values, errors = apply(Columns(RAISED[kind]).function(), NUMBER, [NUMBERS])
    assert values.to_pylist() == [10, None, None, None, 30]
    assert errors is not None
    texts = errors.to_pylist()
    assert [text is None for text in texts] == [True, False, True, False, True]
    of_one_row = apply(Columns(RAISED[kind]).function(), NUMBER, [pa.array([2])])[1]
    assert of_one_row is not None
    assert {texts[1], texts[3]} == set(of_one_row.to_pylist())
    assert len(logged_by(caplog, "foreshore")) == (kind not in ("foreseen", "user's"))


def test_failing_rows_among_many_are_found_by_halves() -> None:
    columns = Columns(KeyError(7))
    numbers = pa.array([2 if i in (5, 4_000) else 3 for i in range(4_096)])
    errors = apply(columns.function(), NUMBER, [numbers])[1]
    assert errors is not None
    assert [i for i, text in enumerate(errors.to_pylist()) if text] == [5, 4_000]
    assert len(columns.calls) < 60


def test_kernel_that_fails_without_rows_has_none() -> None:
    def kernel(types: Signature, numbers: pa.Array) -> pa.Array:
        return pa.array([numbers[0].as_py()])

    function = ScalarFunction("first", "first", ("int8",), "int8", kernel, fallible=True)
    values, errors = apply(function, NUMBER, [NUMBERS[:0]])
    assert (len(values), values.type, errors) == (0, pa.int64(), None)


ONCE: dict[str, dict[str, Any]] = {
    "volatile": {"volatility": "volatile"},
    "cannot fail": {"fallible": False},
}


@pytest.mark.parametrize("kind", ONCE)
def test_kernel_is_run_once(kind: str) -> None:
    columns = Columns(KeyError(7))
    with pytest.raises(KeyError):
        apply(columns.function(**ONCE[kind]), NUMBER, [NUMBERS])
    assert len(columns.calls) == 1


def test_function_in_python_is_run_once() -> None:
    columns = Columns(KeyError(7))
    function = replace(columns.function(), key=PREFIX + "f")
    with pytest.raises(KeyError):
        apply(function, NUMBER, [NUMBERS])
    assert len(columns.calls) == 1


def test_errors_of_a_function_that_cannot_fail_are_not_lost() -> None:
    def compute(number: int) -> int:
        return 1 // (number - 2)

    function = ScalarFunction("sure", "sure", ("int8",), "int8", mapped(compute))
    with pytest.raises(DataError, match="internal error: ZeroDivisionError"):
        apply(function, NUMBER, [NUMBERS])


def test_function_with_one_error_fails_with_its_text() -> None:
    function = Columns(KeyError(7)).function(error="22003 value out of range")
    errors = apply(function, NUMBER, [NUMBERS])[1]
    assert errors is not None
    assert errors.to_pylist() == [None, *["22003 value out of range", None] * 2]


def test_engine_gets_the_values_and_the_errors_of_a_column_kernel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(BY_KEY, "fails_for_two", Columns(KeyError(7)).function())
    values, errors = (
        ArrowFunction("f", "fails_for_two", NUMBER, errors=each)(NUMBERS) for each in (False, True)
    )
    assert values.to_pylist() == [10, None, None, None, 30]
    assert [text is None for text in errors.to_pylist()] == [True, False, True, False, True]
