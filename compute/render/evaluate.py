"""Common parts of evaluations: the two plans of a relation, and checks of results."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from foreshore.compute.engine import Input
from foreshore.errors import DataError, InternalError
from foreshore.expr.ir import Constant, Negate, Relation
from foreshore.expr.lowered import check_lowered
from foreshore.expr.split import split_errors
from foreshore.expr.traversal import sources_of, walk_relations
from foreshore.update import DIFF

# Of a tail, from which on it is worth while to render a statement for rows that are there once.
MANY_ROWS = 10_000


@dataclass(frozen=True, slots=True)
class Plans:
    """A relation as two plans that cannot fail: its rows, and its errors if there can be any."""

    rows: Relation
    errors: Relation | None

    @property
    def all(self) -> tuple[Relation, ...]:
        """Return both, the rows first."""
        return (self.rows,) if self.errors is None else (self.rows, self.errors)


def plans_of(relation: Relation) -> Plans:
    """Return the two plans of a lowered relation."""
    check_lowered(relation)
    return Plans(*split_errors(relation))


def takes_away(relation: Relation) -> bool:
    """Whether some part of a relation may have rows less than no times, for others to cancel."""
    return any(
        isinstance(node, Negate)
        or (isinstance(node, Constant) and any(count < 0 for _, count in node.rows))
        for node in walk_relations(relation)
    )


def adds_only(input: Input) -> bool:
    """Whether `input` surely has no retractions, as far as this is cheap to find out."""
    return all(diffs is not None and diffs[0] >= 0 for diffs in _diffs(input))


def has_single_rows(input: Input) -> bool:
    """Whether each entry of `input`, which has files or many rows, surely adds one row."""
    is_large = bool(input.files) or sum(table.num_rows for table in input.tail) >= MANY_ROWS
    return is_large and all(diffs == (1, 1) for diffs in _diffs(input))


def _diffs(input: Input) -> Iterator[tuple[int, int] | None]:
    """Yield the least and the greatest diff of each part of `input`, None if not known."""
    yield from map(_diffs_of_file, input.files)
    for table in input.tail:
        if table.num_rows:
            ends = pc.min_max(table.column(DIFF)).as_py()
            yield ends["min"], ends["max"]


@lru_cache(maxsize=4096)
def _diffs_of_file(path: str) -> tuple[int, int] | None:
    """Return the least and the greatest diff of a batch's file, which never changes."""
    try:
        metadata = pq.read_metadata(path)
    except (OSError, pa.ArrowInvalid):  # the engine reports the same error
        return None
    place = metadata.schema.names.index(DIFF)
    ends: list[int] = []
    for i in range(metadata.num_row_groups):
        statistics = metadata.row_group(i).column(place).statistics
        if statistics is None or not statistics.has_min_max:
            return None
        ends += statistics.min, statistics.max
    return (min(ends), max(ends)) if ends else (1, 1)


def check_result(relation: Relation, rows: pa.Table) -> pa.Table:
    """Return `rows` after checking that no multiplicity is negative."""
    if rows.num_rows and pc.min(rows[DIFF]).as_py() < 0:
        sources = ", ".join(sorted(sources_of(relation))) or "constants"
        raise InternalError(f"negative multiplicity in a result over {sources}")
    return rows


def raise_least(errors: pa.Table) -> None:
    """Raise the least error in the data, if there is any."""
    if errors.num_rows:
        raise DataError.parse(pc.min(errors.column(0)).as_py())
