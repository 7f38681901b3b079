"""Eager start: a callback of the loop runs a task's work up to its first wait.

    rest = start(task, context, work)    in a callback, while the task waits for something
    await rest                           in the task, if there is a rest

Most statements of a busy client wait for nothing. The callback that received them runs them as if
it were the connection's task, which does not wake: `current_task` is that task, and the context is
its own, so time-outs, cancellation and context variables are the same before the first wait and
after it. Work that waits is handed to the task as it stands; nothing runs twice.

`_enter_task` is asyncio's documented way to run a part of a task ("Extending").
"""

import asyncio
from asyncio.tasks import _enter_task, _leave_task
from collections.abc import Coroutine, Generator
from contextvars import Context
from typing import Any


class Rest:
    """The rest of work that waits, or has not begun. Its task awaits it."""

    __slots__ = ("_awaited", "_work", "is_cancelled")

    def __init__(self, work: Coroutine[Any, Any, None], awaited: Any = None) -> None:
        self._work = work
        self._awaited = awaited  # what the work waits for; None: a step of the loop
        self.is_cancelled = False  # the task was cancelled before it came to this

    def __await__(self) -> Generator[Any, Any, None]:
        """Let the work go on to its end.

        No frame here keeps an error, or a future that has one: its traceback holds this frame, and
        with it what the work holds.
        """
        work = self._work
        error: BaseException | None = None
        if self.is_cancelled and (self._awaited is None or not self._awaited.cancel()):
            error = asyncio.CancelledError()
        while True:
            if error is None:
                try:
                    yield self._take()
                except BaseException as raised:
                    error = raised
            try:
                if error is None:
                    self._awaited = work.send(None)
                else:
                    thrown, error = error, None
                    try:
                        self._awaited = work.throw(thrown)
                    finally:
                        del thrown
            except StopIteration:
                return

    def _take(self) -> Any:
        awaited, self._awaited = self._awaited, None
        return awaited


def start(
    task: asyncio.Task[Any], context: Context, work: Coroutine[Any, Any, None]
) -> Rest | None:
    """Run `work` as if in `task`, up to its first wait; return its rest, if it waits.

    The task waits meanwhile. Raises what the work raises.
    """
    if asyncio.current_task() is not None:  # the caller is no callback of the loop
        return Rest(work)
    loop = task.get_loop()
    _enter_task(loop, task)
    try:
        awaited = context.run(work.send, None)
    except StopIteration:
        return None
    finally:
        _leave_task(loop, task)
    return Rest(work, awaited)
