"""Objects that copies of operators share: they are immutable, or one for all (`iteration.py`)."""

from typing import Self


class Shared:
    """An object that `copy.deepcopy` does not copy."""

    __slots__ = ()

    def __deepcopy__(self, memo: object) -> Self:
        """Return itself."""
        return self
