"""How long a server had no processor to run on: what a wait on a busy machine has to be less."""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path


class Starvation:
    """How long a server's threads, and this one, have had no processor to run on from now on.

    Its children count too: until one is started the server waits for it. A thread or a child that
    ends meanwhile does not count, as nothing is known of it any more.

    So does the time that a virtual machine's host has taken from its processors, of which nobody
    knows whose it was.

    With `of_loop` it is what the event loop, the server's first thread, has waited for: its own
    delay and the longest of another thread. For while that holds the interpreter's lock (GIL) and
    has no processor, the loop waits, too.
    """

    def __init__(self, pid: int, *, of_loop: bool = False) -> None:
        self._pid = pid
        self._of_loop = of_loop
        self._before = dict(_delays(pid))
        self._stolen = _stolen()

    def seconds(self) -> float:
        """Return the sum over the threads that count."""
        grown = {path: delay - self._before.get(path, 0) for path, delay in _delays(self._pid)}
        stolen = _stolen() - self._stolen
        if not self._of_loop:
            return sum(grown.values()) / 1e9 + stolen
        both = [grown.pop(each, 0) for each in (_own(), _schedstat(self._pid, self._pid))]
        threads = [delay for path, delay in grown.items() if "task" in path.parts]
        return (sum(both) + max(threads, default=0)) / 1e9 + stolen


def _stolen() -> float:
    """Return the seconds that the host has taken from all processors so far."""
    first, _, _ = Path("/proc/stat").read_text().partition("\n")
    return int(first.split()[8]) / os.sysconf("SC_CLK_TCK")


def _own() -> Path:
    return Path("/proc/thread-self/schedstat").resolve()


def _schedstat(pid: int, thread: int) -> Path:
    return Path(f"/proc/{pid}/task/{thread}/schedstat")


def _delays(pid: int) -> Iterator[tuple[Path, int]]:
    """Yield the nanoseconds for which each thread has had no processor so far."""
    places = [_own()]
    for thread in Path(f"/proc/{pid}/task").iterdir():
        places.append(thread / "schedstat")
        with suppress(OSError):  # the thread has ended
            children = (thread / "children").read_text().split()
            places += [Path(f"/proc/{child}/schedstat") for child in children]
    yield from _read(places)


def _read(places: Iterable[Path]) -> Iterator[tuple[Path, int]]:
    for place in places:
        with suppress(OSError, IndexError):
            yield place, int(place.read_text().split()[1])
