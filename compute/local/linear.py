"""Linear plans evaluated by the functions' kernels, without an engine.

`evaluate_linear` computes Map, Filter, Project, FlatMap and Union over constants and over rows that
the caller provides: an INSERT of values, a SELECT without FROM, a RETURNING list. An engine on a
thread evaluates all other plans.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor

import pyarrow as pa
import pyarrow.compute as pc

from foreshore import blocking
from foreshore.compute.arrange.arrangement import consolidate
from foreshore.compute.engine import rows_schema
from foreshore.compute.finish import batch_of_rows
from foreshore.compute.linear import Rows, apply, flat
from foreshore.compute.result import KEPT_BYTES
from foreshore.errors import DataError
from foreshore.expr.columns import columns_of
from foreshore.expr.cost import LIGHT, cost_of_relation, is_heavy
from foreshore.expr.evaluate import outcome
from foreshore.expr.ir import (
    Column,
    Constant,
    Filter,
    FlatMap,
    Get,
    Join,
    Let,
    LocalGet,
    Map,
    Project,
    Relation,
    Scalar,
    Union,
)
from foreshore.expr.traversal import walk_relations
from foreshore.ids import GlobalId
from foreshore.rows import table_of
from foreshore.types import ColumnType
from foreshore.update import DIFF, at_time

FEW_LITERALS = 100  # rows

Collections = Mapping[GlobalId | int, pa.Table]  # rows with `__diff` by id, or by LocalGet number


def can_evaluate_locally(relation: Relation) -> bool:
    """Whether `evaluate_linear` can compute `relation`, given its collections' rows, in no time."""
    return is_linear(relation) and not is_heavy(relation)


def is_linear(relation: Relation) -> bool:
    """Whether `evaluate_linear` can compute `relation`, given its collections' rows."""
    return all(
        isinstance(node, Constant | Get | LocalGet | Let | Map | Filter | Project | Union | FlatMap)
        or (isinstance(node, Join) and not node.inputs)
        for node in walk_relations(relation)
    )


def multiplies_rows(relation: Relation) -> bool:
    """Whether `relation` may have more rows than its inputs have together."""
    return any(isinstance(node, FlatMap) for node in walk_relations(relation))


def literal_rows(relation: Relation) -> pa.RecordBatch | None:
    """Return the rows of a small relation of literals; None for any other relation."""
    if not isinstance(relation, Constant) or len(relation.rows) > FEW_LITERALS:
        return None
    tuples = [row for row, diff in relation.rows if diff == 1]
    if len(tuples) < len(relation.rows):
        return None
    rows = batch_of_rows(tuples, relation.columns)
    return rows if rows.get_total_buffer_size() <= KEPT_BYTES else None


def is_light_relation(relation: Relation) -> bool:
    """Whether `evaluate_linear` takes little, by the estimated cost."""
    return cost_of_relation(relation)[1] <= LIGHT


async def evaluated(
    executor: Executor, relation: Relation, collections: Collections, *, is_large: bool
) -> pa.Table:
    """Return what `evaluate_linear` returns; computed on a thread if it may take long.

    It may if the relation `is_large`, or by its estimated cost.
    """
    if not is_large and is_light_relation(relation):
        return evaluate_linear(relation, collections)
    return await blocking.run(executor, evaluate_linear, relation, collections)


def evaluate_linear(relation: Relation, collections: Collections | None = None) -> pa.Table:
    """Return the rows of `relation`, with `__diff`, over the rows of `collections`.

    Raises the least error if a row fails.
    """
    given = {key: Rows.of_table(rows, 1) for key, rows in (collections or {}).items()}
    locals = {key: rows for key, rows in given.items() if isinstance(key, int)}
    found = apply(relation, lambda get: given[get.id], locals, checked_values)
    rows = table_of(found.columns, found.along[0])
    return _consolidated(rows, columns_of(relation)) if has_deletions(relation) else rows


def has_deletions(relation: Relation) -> bool:
    """Whether a constant in `relation` has rows of negative multiplicity."""
    constants = (node for node in walk_relations(relation) if isinstance(node, Constant))
    return any(diff < 0 for constant in constants for _, diff in constant.rows)


def _consolidated(rows: pa.Table, types: tuple[ColumnType, ...]) -> pa.Table:
    """Return rows with `__diff` with equal rows added up, without those that cancel out."""
    if not types:
        total = pc.sum(rows[DIFF]).as_py() or 0
        return pa.table([[total] if total else []], schema=rows.schema)
    return consolidate(at_time(rows, 0), rows_schema(types), 0).remove_column(len(types))


def checked_values(scalar: Scalar, columns: Sequence[pa.Array], rows: int) -> pa.Array:
    """Return the values of `scalar`; raises DataError if it fails."""
    if isinstance(scalar, Column):
        return columns[scalar.index]
    values, errors = outcome(scalar, columns, rows)
    if errors is not None and errors.null_count < len(errors):
        raise DataError.parse(pc.min(errors).as_py())
    return flat(values)
