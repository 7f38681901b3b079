"""The digits of the numbers in inputs, by the statistics of files and the rows of tails.

Expressions over few digits cannot overflow; they are computed many times faster than those that
can, and have no errors to look for.
"""

from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from foreshore.compute.engine import Input
from foreshore.expr.ir import Get, Relation
from foreshore.expr.narrow import narrowed
from foreshore.expr.split import split_errors
from foreshore.expr.traversal import walk_relations
from foreshore.ids import GlobalId

Digits = tuple[tuple[GlobalId, tuple[int | None, ...]], ...]


def digits_in(relation: Relation, inputs: Mapping[GlobalId, Input]) -> Digits:
    """Return how many digits the numerics of each collection that a plan reads have, if known."""
    columns = {node.id: node.columns for node in walk_relations(relation) if isinstance(node, Get)}
    return tuple(
        (
            id,
            tuple(
                _digits(inputs[id], i, column.type.scale or 0)
                if column.type.name == "numeric"
                else None
                for i, column in enumerate(columns[id])
            ),
        )
        for id in sorted(columns)
    )


def split_by_digits(relation: Relation, digits: Digits) -> tuple[Relation, Relation | None]:
    """Return the rows and errors of a plan over collections with no more digits than these."""
    return split_errors(narrowed(relation, dict(digits)))


def _digits(input: Input, column: int, scale: int) -> int | None:
    """Return how many digits the values of a column have at most, None if that is not known."""
    name = input.file_names[column]
    most = Decimal(0)
    for path in input.files:
        found = _most_in_file(path, name)
        if found is None:
            return None
        most = max(most, found)
    for table in input.tail:
        ends = pc.min_max(table.column(column)).as_py()
        most = max(most, *(abs(end) for end in ends.values() if end is not None), Decimal(0))
    return len(str(int(most.scaleb(scale))))


@lru_cache(maxsize=65_536)
def _most_in_file(path: str, name: str) -> Decimal | None:
    """Return the greatest absolute value in a column of a file, which never changes."""
    try:
        metadata = pq.read_metadata(path)
    except (OSError, pa.ArrowInvalid):  # the engine reports the same error
        return None
    places = [i for i in range(metadata.num_columns) if metadata.schema.column(i).path == name]
    if len(places) != 1 or metadata.schema.column(places[0]).logical_type.type != "DECIMAL":
        return None
    (place,) = places
    most = Decimal(0)
    for i in range(metadata.num_row_groups):
        statistics = metadata.row_group(i).column(place).statistics
        if statistics is None:
            return None
        if not statistics.has_min_max:
            if statistics.null_count == metadata.row_group(i).num_rows:
                continue
            return None
        most = max(most, abs(statistics.min), abs(statistics.max))
    return most
