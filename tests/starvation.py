"""How long a server had no processor to run on: what a wait on a busy machine has to be less."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path


class Starvation:
    """How long a server's threads, and this one, have had no processor to run on from now on.

    Its children count too: until one is started the server waits for it. A thread or a child that
    ends meanwhile does not count, as nothing is known of it any more. With `loop_only` the server's
    only thread that counts is the first, on which its event loop runs.
    """

    def __init__(self, pid: int, *, loop_only: bool = False) -> None:
        self._pid = pid
        self._delays = _delays_of_loop if loop_only else _delays
        self._before = dict(self._delays(pid))

    def seconds(self) -> float:
        """Return the sum over all threads."""
        delays = self._delays(self._pid)
        return sum(delay - self._before.get(path, 0) for path, delay in delays) / 1e9


def _delays(pid: int) -> Iterator[tuple[Path, int]]:
    """Yield the nanoseconds for which each thread has had no processor so far."""
    places = [Path("/proc/thread-self/schedstat").resolve()]
    for thread in Path(f"/proc/{pid}/task").iterdir():
        places.append(thread / "schedstat")
        with suppress(OSError):  # the thread has ended
            children = (thread / "children").read_text().split()
            places += [Path(f"/proc/{child}/schedstat") for child in children]
    yield from _read(places)


def _delays_of_loop(pid: int) -> Iterator[tuple[Path, int]]:
    own = Path("/proc/thread-self/schedstat").resolve()
    return _read([own, Path(f"/proc/{pid}/task/{pid}/schedstat")])


def _read(places: Iterable[Path]) -> Iterator[tuple[Path, int]]:
    for place in places:
        with suppress(OSError, IndexError):
            yield place, int(place.read_text().split()[1])
