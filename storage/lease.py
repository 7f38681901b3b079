"""Leases: which files somebody is reading, so that none is deleted under their eyes.

A file that no state names any more is condemned, and deleted as soon as no lease names it. These
live in memory, being this environment's own: after a restart nobody reads by them. Who reads the
files from outside has a lease file, which `garbage.py` looks at before it deletes.
"""

from collections import Counter
from collections.abc import Callable, Iterable


class Leases:
    """The files in use; `delete` is called for those that are to go."""

    def __init__(self, delete: Callable[[list[str]], None]) -> None:
        self._delete = delete
        self._held: Counter[str] = Counter()
        self._condemned: set[str] = set()

    def take(self, keys: Iterable[str]) -> Callable[[], None]:
        """Keep the files until the function returned is called."""
        kept = list(keys)
        self._held.update(kept)

        def release() -> None:
            released = kept[:]
            kept.clear()  # a second release does nothing
            self._held.subtract(released)
            self._collect(released)

        return release

    def condemn(self, keys: Iterable[str]) -> None:
        """Have files deleted as soon as nobody holds them."""
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
