"""Leases: the files in use by readers of this process, which must not be deleted.

A file that no state names any more is condemned, and deleted when no lease holds it. These leases
are in memory and end with the process. Readers in other processes use lease files, which
`garbage.py` checks before it deletes.
"""

from collections import Counter
from collections.abc import Callable, Iterable


class Leases:
    """The files in use. `delete` is called for files that may go."""

    def __init__(self, delete: Callable[[list[str]], None]) -> None:
        self._delete = delete
        self._held: Counter[str] = Counter()
        self._condemned: set[str] = set()

    def take(self, keys: Iterable[str]) -> Callable[[], None]:
        """Keep the files until the returned function is called."""
        kept = list(keys)
        self._held.update(kept)

        def release() -> None:
            released = kept[:]
            kept.clear()  # a second release does nothing
            self._held.subtract(released)
            self._collect(released)

        return release

    def condemn(self, keys: Iterable[str]) -> None:
        """Delete files as soon as no lease holds them."""
        named = list(keys)
        self._condemned.update(named)
        self._collect(named)

    def _collect(self, keys: Iterable[str]) -> None:
        gone = []
        for key in keys:
            if self._held[key] == 0:
                del self._held[key]
                if key in self._condemned:
                    self._condemned.discard(key)
                    gone.append(key)
        if gone:
            self._delete(gone)
