"""Calls of hosts that are found again when work has given way."""

import gc
import weakref
from collections.abc import Sequence
from threading import Event

import pyarrow as pa
import pytest

from foreshore.python_functions.asked import Asked
from foreshore.python_functions.patience import GivesWay, patient

SHORT, LONG = [pa.array([1])], [pa.array([2])]


def test_next_try_finds_what_gave_way_and_keeps_no_other_call() -> None:
    asked, gate, calls = Asked(), Event(), list[int]()

    def ask(columns: Sequence[pa.Array]) -> pa.Array:
        calls.append(columns[0][0].as_py())
        if columns is LONG:
            gate.wait(60)
        return pa.array([calls[-1] + 10])

    def gives_way() -> None:
        raise GivesWay("others go first")

    with patient(lambda: None):
        kept = weakref.ref(asked.outcome(ask, SHORT))
        asked.try_again()  # another operator of the dataflow has given way
        gc.collect()
        assert kept() is None
    with patient(gives_way), pytest.raises(GivesWay):
        asked.outcome(ask, LONG)
    asked.try_again()
    gate.set()
    with patient(lambda: None):
        assert asked.outcome(ask, [pa.array([2])]).to_pylist() == [12]
    assert calls == [1, 2]
