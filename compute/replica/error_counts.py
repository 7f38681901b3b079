"""A replica's report of the errors in the data of a dataflow that has indexes.

The errors are counted anew only after they have changed. Of very many errors their number is that
of their updates, and the texts are those of a sample, so that a report stays cheap.
"""

from collections import Counter

import pyarrow as pa
import pyarrow.compute as pc

from foreshore.compute.arrange.arrangement import Arrangement, TooManyRows
from foreshore.compute.protocol import MOST_ERRORS, ErrorCount
from foreshore.errors import ObjectNotInPrerequisiteState

MOST_EXAMINED = 50_000

Counted = tuple[int, tuple[ErrorCount, ...]]  # all errors, and the most frequent texts


class ErrorCounts:
    """The errors of one dataflow at the newest time that it knows."""

    def __init__(self) -> None:
        self._of: tuple[object, object] | None = None  # the runs and the tail that were counted
        self._counted: Counted = (0, ())

    def count(self, errors: Arrangement) -> Counted:
        """Return the number of errors, and at most `MOST_ERRORS` texts with theirs."""
        if not errors.rows:
            return 0, ()
        if self._of is None or self._of[0] is not errors.runs or self._of[1] is not errors.tail:
            self._of = errors.runs, errors.tail
            self._counted = _counted(errors)
        return self._counted


def _counted(errors: Arrangement) -> Counted:
    try:
        texts = errors.scan(max(errors.upper - 1, errors.since), MOST_EXAMINED).column(0)
    except TooManyRows:
        sample = errors.parts()[0].slice(0, MOST_EXAMINED).rows.column(0)
        return errors.rows, _most_frequent(sample)
    except ObjectNotInPrerequisiteState:  # nothing is known yet at any time that can be read
        return 0, ()
    return len(texts), _most_frequent(texts)


def _most_frequent(texts: pa.Array) -> tuple[ErrorCount, ...]:
    counts = Counter(
        {each["values"]: each["counts"] for each in pc.value_counts(texts).to_pylist()}
    )
    return tuple(ErrorCount(text, rows) for text, rows in counts.most_common(MOST_ERRORS))
