"""How much a plan reads, and from which files, by the statistics of the batches' files."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import pyarrow as pa
import pyarrow.parquet as pq

from foreshore.compute.engine import Input
from foreshore.compute.hydrate.policy import Volume
from foreshore.expr.ir import Filter, Get, Project, Relation, Scalar
from foreshore.expr.split import before_projection, columns_used
from foreshore.expr.traversal import inputs_of, walk_relations
from foreshore.ids import GlobalId
from foreshore.storage.selection import may_hold_rows
from foreshore.update import DIFF, TIME, Timestamp


def pruned(
    relation: Relation, inputs: Mapping[GlobalId, Input], as_of: Timestamp
) -> dict[GlobalId, Input]:
    """Return the inputs of a plan without the files that have no row for it as of a time.

    Statistics of a file's columns show that all its updates are later, or that no row fulfils the
    filters above each place where the plan gets the collection.
    """

    def needed(path: str, input: Input, wanted: Sequence[Sequence[Scalar]]) -> bool:
        metadata = _metadata(path)
        return metadata is None or any(
            may_hold_rows(metadata, input.file_names, predicates, as_of) for predicates in wanted
        )

    found = {}
    for name, wanted in filters_of(relation).items():
        input = inputs[name]
        kept = tuple(path for path in input.files if needed(path, input, wanted))
        found[name] = input if kept == input.files else replace(input, files=kept)
    return found


def filters_of(relation: Relation) -> dict[GlobalId, list[Sequence[Scalar]]]:
    """Return the filters above each place where a plan gets a collection."""
    filters: defaultdict[GlobalId, list[Sequence[Scalar]]] = defaultdict(list)
    stack = [relation]
    while stack:
        match stack.pop():
            case Filter(input=Get(id=name), predicates=predicates):
                filters[name].append(predicates)
            case Filter(input=Project(input=Get(id=name), outputs=outputs), predicates=found):
                filters[name].append([before_projection(each, outputs) for each in found])
            case Get(id=name):
                filters[name].append(())
            case node:
                stack.extend(inputs_of(node))
    return dict(filters)


def volume_of(relation: Relation, inputs: Mapping[GlobalId, Input]) -> Volume:
    """Return what a plan reads of its inputs' files, by column, and of their tails."""
    total = Volume(0, 0)
    for name, picked in columns_read(relation).items():
        input = inputs[name]
        names = frozenset([*(input.file_names[i] for i in picked), TIME, DIFF])
        for path in input.files:
            rows, size = _size(path, names)
            total += Volume(rows, size)
        for table in input.tail:
            total += Volume(table.num_rows, table.nbytes)
    return total


def estimated(relation: Relation, kept: Mapping[GlobalId, Volume]) -> Volume:
    """Return about what a plan reads of collections of given volumes: of all columns alike."""
    widths = {
        node.id: len(node.columns) for node in walk_relations(relation) if isinstance(node, Get)
    }
    total = Volume(0, 0)
    for name, picked in columns_read(relation).items():
        whole = kept.get(name, Volume(0, 0))
        total += Volume(whole.rows, whole.bytes * (len(picked) + 2) // (widths[name] + 2))
    return total


def columns_read(relation: Relation) -> dict[GlobalId, set[int]]:
    """Return the numbers of the columns that a plan reads of each collection."""
    found: defaultdict[GlobalId, set[int]] = defaultdict(set)
    stack = [relation]
    while stack:
        node = stack.pop()
        match node:
            case Project(input=Get(id=name), outputs=outputs):
                found[name].update(outputs)
            case Project(input=Filter(input=Get(id=name), predicates=predicates), outputs=outputs):
                found[name].update(outputs, *map(columns_used, predicates))
            case Get(id=name, columns=columns):
                found[name].update(range(len(columns)))
            case _:
                stack.extend(inputs_of(node))
    return dict(found)


@lru_cache(maxsize=4096)
def _metadata(path: str) -> pq.FileMetaData | None:
    """Return the footer of a batch's file, which never changes; None if it is not readable.

    The engine that reads the file reports the error.
    """
    try:
        return pq.read_metadata(path)
    except (OSError, pa.ArrowInvalid):
        return None


def _size(path: str, names: frozenset[str]) -> tuple[int, int]:
    """Return the rows of a file, and the bytes of the columns called `names`, as stored."""
    metadata, size = _metadata(path), 0
    if metadata is None:
        return 0, 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for leaf in range(group.num_columns):
            column = group.column(leaf)
            if column.path_in_schema.partition(".")[0] in names:
                size += column.total_compressed_size
    return metadata.num_rows, size
