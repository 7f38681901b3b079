"""How long a server had no processor to run on: what a wait on a busy machine has to be less."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


class Starvation:
    """How long a server's threads, and this one, have had no processor to run on from now on.

    Its children count too: until one is started the server waits for it. A thread or a child that
    ends meanwhile does not count, as nothing is known of it any more.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._before = dict(_delays(pid))

    def seconds(self) -> float:
        """Return the sum over all threads."""
        delays = _delays(self._pid)
        return sum(delay - self._before.get(path, 0) for path, delay in delays) / 1e9


def _delays(pid: int) -> Iterator[tuple[Path, int]]:
    """Yield the nanoseconds for which each thread has had no processor so far."""
    places = [Path("/proc/thread-self/schedstat").resolve()]
    for thread in Path(f"/proc/{pid}/task").iterdir():
        places.append(thread / "schedstat")
        with suppress(OSError):  # the thread has ended
            children = (thread / "children").read_text().split()
            places += [Path(f"/proc/{child}/schedstat") for child in children]
    for place in places:
        with suppress(OSError, IndexError):
            yield place, int(place.read_text().split()[1])
