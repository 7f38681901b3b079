"""Arranged inputs: a program that makes rows with keys, and the spine of these rows."""

from typing import Protocol

from foreshore.compute.flow.batch import Batch, Ints, Words
from foreshore.compute.flow.kernels.probing import ANY
from foreshore.compute.flow.program import Context, Program
from foreshore.compute.flow.shared import Shared
from foreshore.compute.flow.spine import ANY_ROW, Mark, Spine
from foreshore.update import Timestamp


class Readable(Protocol):
    """Arranged rows to look up."""

    @property
    def was_empty(self) -> bool:
        """Whether there were surely no rows before the window."""
        ...

    def is_indexed(self, key: int) -> bool:
        """Whether a look-up by a key has no index to make first."""
        ...

    def joined(
        self,
        key: int,
        batch: Batch,
        kept: Ints,
        added: Ints,
        before: Timestamp,
        most: int = ANY,
        where: Words = ANY_ROW,
    ) -> Batch:
        """Return what `Spine.joined` does."""
        ...


class Arranged:
    """The rows that `program` makes of an input, of one dataflow."""

    def __init__(self, program: Program, spine: Spine, context: Context) -> None:
        self.spine = spine
        self._program = program
        self._context = context
        self._mark: Mark | None = None

    @property
    def was_empty(self) -> bool:
        """Whether it had no rows before what is staged."""
        mark = self._mark
        return not len(self.spine) if mark is None else mark.is_empty

    def is_indexed(self, key: int) -> bool:
        """Whether a look-up by a key has no index to make first."""
        return self.spine.is_indexed(key)

    def insert(self, updates: Batch) -> None:
        """Stage updates of the input."""
        if self._mark is None:
            self._mark = self.spine.mark()
        self.spine.insert(self._program.run(updates, self._context))

    def clear(self) -> None:
        """Stage that there are no rows but those that are inserted from now on."""
        if self._mark is None:
            self._mark = self.spine.mark()
        self.spine.clear()

    def joined(
        self,
        key: int,
        batch: Batch,
        kept: Ints,
        added: Ints,
        before: Timestamp,
        most: int = ANY,
        where: Words = ANY_ROW,
    ) -> Batch:
        """Return what `Spine.joined` does."""
        return self.spine.joined(key, batch, kept, added, before, most, where)

    def commit(self) -> None:
        """Keep what was staged."""
        self._mark = None

    def restore(self) -> None:
        """Forget what was staged."""
        if self._mark is not None:
            self.spine.restore(self._mark)
            self._mark = None


class ArrangedOnce(Shared, Arranged):
    """Rows that all iterations of a recursion look up: of a part that does not vary.

    All of them insert the same updates in a window, of which those of the first are kept.
    """

    def __init__(self, program: Program, spine: Spine, context: Context) -> None:
        super().__init__(program, spine, context)
        self._cleared = False

    def insert(self, updates: Batch) -> None:
        """Stage updates of the input, unless they are staged already."""
        if self._mark is None or self._cleared:
            self._cleared = False
            super().insert(updates)

    def clear_once(self) -> None:
        """Clear it, unless another iteration has done so."""
        if not self._cleared:
            self._mark = self.spine.mark()
            self.spine.clear()
            self._cleared = True

    def commit(self) -> None:
        """Keep what was staged."""
        self._cleared = False
        super().commit()

    def restore(self) -> None:
        """Forget what was staged."""
        self._cleared = False
        super().restore()
