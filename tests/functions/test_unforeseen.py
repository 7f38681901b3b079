"""An exception that nobody expected of a function is the error of its row, and of no other."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from foreshore.expr.functions import rows
from foreshore.expr.functions.function import Signature
from foreshore.expr.functions.rows import mapped
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
