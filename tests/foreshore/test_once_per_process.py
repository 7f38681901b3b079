"""Values that a process makes once: two threads that come first have the same one."""

from collections.abc import Callable
from threading import Event, Thread, current_thread
from types import ModuleType
from typing import Any

import pytest

from foreshore.expr.functions import python
from foreshore.once_per_process import OncePerProcess, once_per_process
from foreshore.python_functions import hosts, limits
from foreshore.storage import blob, s3_blob


class _Slow:
    """A class whose first object is being made when a second thread asks for one.

    It goes on once that thread waits for the lock of the value, or has ended without.
    """

    def __init__(self, ask: Callable[[], object]) -> None:
        self.made: list[object] = []
        self._ask = ask
        self.second = Thread(target=self._ask_too)
        self.found: list[object] = []
        self._goes_on = Event()

    def _ask_too(self) -> None:
        try:
            self.found.append(self._ask())
        finally:
            self._goes_on.set()

    def __call__(self, *arguments: object) -> object:
        self.made.append(arguments)
        if len(self.made) == 1:
            self.second.start()
            self._goes_on.wait()
        return object()

    def lock_of(self, values: OncePerProcess[Any]) -> Any:
        """Return the lock of values, for which the second thread is known to wait."""
        if current_thread() is self.second:
            self._goes_on.set()
        return vars(values)["_lock"]


CASES: dict[str, tuple[ModuleType, str, Callable[[], object]]] = {
    "answers of Python functions": (python, "Answers", python.answers),
    "hosts of Python functions": (hosts, "Hosts", hosts.hosts),
    "clients of buckets": (s3_blob, "S3Blob", lambda: blob._s3_blob("s3://of-two-threads")),
}


@pytest.mark.parametrize("name", CASES)
def test_two_threads_that_come_first_have_the_same_value(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, made, ask = CASES[name]
    monkeypatch.setenv(limits.KEPT, "77")  # a limit that no other test has
    slow: Any = _Slow(ask)
    monkeypatch.setattr(module, made, slow)
    monkeypatch.setattr(OncePerProcess, "_lock", property(slow.lock_of), raising=False)
    first = ask()
    slow.second.join()
    assert slow.found == [first]
    assert len(slow.made) == 1


def test_newest_values_are_kept_until_they_are_forgotten() -> None:
    value = once_per_process(2)(lambda name: [name])
    assert value.is_empty()
    one, two = value("one"), value("two")
    assert value("one") is one
    value("three")
    assert value("one") is one
    assert value("two") is not two
    value.forget()
    assert value.is_empty()
    assert value("one") is not one
