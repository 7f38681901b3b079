"""When a process that has grown gives memory back."""

import pytest

from foreshore import memory
from foreshore.memory import GROWN, LOOKS_AFTER_END, Returns


@pytest.fixture
def returns(monkeypatch: pytest.MonkeyPatch) -> Returns:
    monkeypatch.setattr(memory, "resident_bytes", lambda: 0)
    return Returns()


def test_nothing_is_due_before_it_grows_by_much(returns: Returns) -> None:
    returns.note_end()
    assert not any(returns.is_due(GROWN) for _ in range(100))


def test_it_is_due_once_it_has_grown(returns: Returns) -> None:
    assert returns.is_due(GROWN + 1)


def test_it_tries_again_a_while_after_a_session_has_ended(returns: Returns) -> None:
    size = returns._tried = 2 * GROWN  # it has tried before, and could give nothing back
    assert not any(returns.is_due(size) for _ in range(100))
    returns.note_end()
    looks = [look for look in range(1, 100) if returns.is_due(size)]
    assert looks == [*LOOKS_AFTER_END]
