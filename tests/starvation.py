"""How long a server had no processor to run on: what a wait on a busy machine has to be less."""

from contextlib import suppress
from pathlib import Path


def starved(pid: int) -> float:
    """Return for how many seconds a server's threads, and this one, had no processor to run on.

    The first moments of its children count too: until they are started it waits for them.
    """
    total = _delay(Path("/proc/thread-self/schedstat"))
    for thread in Path(f"/proc/{pid}/task").iterdir():
        total += _delay(thread / "schedstat")
        with suppress(OSError):  # the thread has ended
            for child in (thread / "children").read_text().split():
                total += _delay(Path(f"/proc/{child}/schedstat"))
    return total / 1e9


def _delay(path: Path) -> int:
    try:
        return int(path.read_text().split()[1])
    except (OSError, IndexError):  # it has ended
        return 0
