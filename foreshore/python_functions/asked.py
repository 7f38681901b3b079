"""Calls of hosts that go on when their work has given way, and are found again in the next try.

    asked = Asked()
    asked.outcome(call, columns)     waits, and lets the current check end the wait
    asked.forget()                   after a success, or an error that is not `GivesWay`

`Answers` are by row, and for functions of which each answer is small. Here a call is known by all
of its columns, which are looked at only if some work has given way: so a call that does not take
long costs no more than a thread.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from threading import Event, Thread
from typing import Self

import pyarrow as pa

from foreshore.python_functions.patience import POLL_SECONDS, GivesWay, current_check

Columns = Sequence[pa.Array]


@dataclass(slots=True)
class _Call:
    """A call on a thread of its own."""

    columns: Columns
    done: Event = field(default_factory=Event)
    found: pa.Array | None = None
    error: BaseException | None = None

    def begin(self, ask: Callable[[Columns], pa.Array]) -> Self:
        def run() -> None:
            try:
                self.found = ask(self.columns)
            except BaseException as error:
                self.error = error
            finally:
                self.done.set()

        Thread(target=run, daemon=True, name="asking").start()
        return self


class Asked:
    """The calls of one operator since its last success; of one thread at a time."""

    def __init__(self) -> None:
        self._here: list[_Call] = []  # of this try
        self._before: dict[bytes, _Call] = {}  # of tries that have given way

    def outcome(self, ask: Callable[[Columns], pa.Array], columns: Columns) -> pa.Array:
        """Return what `ask` gives for columns, perhaps as a try before has asked for it.

        Raises what the current check of `patience.py` raises, and what `ask` does.
        """
        check = current_check()
        if check is None:
            return ask(columns)
        call = self._before.get(_digest(columns)) if self._before else None
        if call is None:
            call = _Call(columns).begin(ask)
        self._here.append(call)
        try:
            while not call.done.wait(POLL_SECONDS):
                check()
        except GivesWay:
            self._before |= {_digest(each.columns): each for each in self._here}
            self._here = []
            raise
        except BaseException:
            self.forget()
            raise
        if call.error is not None:
            self.forget()
            raise call.error
        assert call.found is not None
        return call.found

    def try_again(self) -> None:
        """Forget what this try has asked and got; the next one may ask for it once more.

        What has given way before is kept.
        """
        self._here = []

    def forget(self) -> None:
        """Forget all calls. Nobody waits for those that still run."""
        self._here, self._before = [], {}

    def __deepcopy__(self, memo: object) -> "Asked":
        """Return one without calls: a copy of an operator asks for itself."""
        return Asked()


def _digest(columns: Columns) -> bytes:
    """Return a hash of all values of columns."""
    batch = pa.RecordBatch.from_arrays(list(columns), [str(i) for i in range(len(columns))])
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, batch.schema) as writer:
        writer.write_batch(batch)
    return blake2b(out.getvalue(), digest_size=16).digest()
