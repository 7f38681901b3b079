"""The refreshes of a view with a schedule that need a mark, over an input that often fails."""

from types import SimpleNamespace
from typing import cast

import pytest

from foreshore.compute.controller.error_log import ErrorLog
from foreshore.compute.controller.maintained import Dataflow
from foreshore.compute.controller.read_errors import ReadErrors
from foreshore.refresh import Refresh
from tests.compute.runtime.harness import id_
from tests.compute.runtime.test_error_log import VIEW, Store

READER = id_("u2")
EVERY, UPPER = 10, 3_000


def _errors(schedule: Refresh) -> tuple[ReadErrors, Dataflow, ErrorLog]:
    """Return the errors, a view with the schedule, and the log of its input that fails at times."""
    steps = {time: None if time % 3 else "22012 division by zero" for time in range(0, UPPER, 7)}
    log = ErrorLog(VIEW, UPPER, Store(dict(steps)))

    def dataflow(refresh: Refresh | None, imports: object, **writers: object) -> Dataflow:
        description = SimpleNamespace(imports=imports, refresh=refresh, as_of=0)
        return cast(Dataflow, SimpleNamespace(description=description, writers=writers))

    dataflows = {
        VIEW: dataflow(None, (), **{VIEW: SimpleNamespace(errors=log)}),
        READER: dataflow(schedule, (VIEW,)),
    }
    return ReadErrors(dataflows.get), dataflows[READER], log


def test_refreshes_at_which_errors_of_inputs_differ_are_marked() -> None:
    schedule = Refresh(every_ms=EVERY)
    errors, reader, _ = _errors(schedule)
    marked = errors.marks(reader, schedule, 1, UPPER, initial=False)
    fails = {time: bool([*errors.at([VIEW], time)]) for time in range(0, UPPER, EVERY)}
    assert marked == [time for time in fails if time and fails[time] != fails[time - EVERY]]
    assert len(marked) > 100


def test_input_is_asked_once_for_a_window_and_never_without_a_refresh(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schedule = Refresh(every_ms=EVERY)
    errors, reader, log = _errors(schedule)
    asked: list[int] = []
    changes = log.changes

    def counted(lower: int, upper: int, *, steps: bool = True) -> list[int]:
        asked.append(lower)
        return changes(lower, upper, steps=steps)

    monkeypatch.setattr(log, "changes", counted)
    assert errors.marks(reader, schedule, 1_001, 1_010, initial=False) == []
    assert not asked
    assert errors.marks(reader, schedule, 1, UPPER, initial=False)
    assert len(asked) == 1
