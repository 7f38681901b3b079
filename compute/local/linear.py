"""Linear plans evaluated by the functions' kernels, without an engine.

`evaluate_linear` computes Map, Filter, Project, FlatMap and Union over constants and over rows that
the caller provides: an INSERT of values, a SELECT without FROM, a RETURNING list. An engine on a
thread evaluates all other plans.
"""

from collections.abc import Mapping
from concurrent.futures import Executor

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from foreshore import blocking
from foreshore.compute.arrange.arrangement import consolidate
from foreshore.compute.engine import rows_schema
from foreshore.errors import DataError, InternalError
from foreshore.expr.cost import LIGHT, cost_of_relation, is_heavy
from foreshore.expr.datum import to_array
from foreshore.expr.evaluate import outcome
from foreshore.expr.ir import (
    And,
    Call,
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
    Union,
    columns_of,
    inputs_of,
    walk_relations,
)
from foreshore.ids import GlobalId
from foreshore.rows import split_diffs, table_of
from foreshore.types import ColumnType, array_of
from foreshore.update import DIFF, at_time

Columns = list[pa.Array]
Collections = Mapping[GlobalId | int, pa.Table]  # rows with `__diff` by id, or by LocalGet number


def can_evaluate_locally(relation: Relation) -> bool:
    """Whether `evaluate_linear` can compute `relation`, given its collections' rows."""
    return all(
        isinstance(node, Constant | Get | LocalGet | Let | Map | Filter | Project | Union | FlatMap)
        or (isinstance(node, Join) and not node.inputs)
        for node in walk_relations(relation)
    ) and not is_heavy(relation)


async def evaluated(
    executor: Executor, relation: Relation, collections: Collections, *, is_large: bool
) -> pa.Table:
    """Return what `evaluate_linear` returns; computed on a thread if it may take long.

    It may if the relation `is_large`, or by its estimated cost.
    """
    if not is_large and cost_of_relation(relation)[1] <= LIGHT:
        return evaluate_linear(relation, collections)
    return await blocking.run(executor, evaluate_linear, relation, collections)


def evaluate_linear(relation: Relation, collections: Collections | None = None) -> pa.Table:
    """Return the rows of `relation`, with `__diff`, over the rows of `collections`.

    Raises the least error if a row fails.
    """
    rows = table_of(*_evaluate(relation, collections or {}))
    return _consolidated(rows, columns_of(relation)) if _has_deletions(relation) else rows


def _has_deletions(relation: Relation) -> bool:
    """Whether a constant in `relation` has rows of negative multiplicity."""
    constants = (node for node in walk_relations(relation) if isinstance(node, Constant))
    return any(diff < 0 for constant in constants for _, diff in constant.rows)


def _consolidated(rows: pa.Table, types: tuple[ColumnType, ...]) -> pa.Table:
    """Return rows with `__diff` with equal rows added up, without those that cancel out."""
    if not types:
        total = pc.sum(rows[DIFF]).as_py() or 0
        return pa.table([[total] if total else []], schema=rows.schema)
    return consolidate(at_time(rows, 0), rows_schema(types), 0).remove_column(len(types))


def _evaluate(relation: Relation, given: Collections) -> tuple[Columns, pa.Array]:
    match relation:
        case Constant(rows=rows, columns=types):
            return (
                [to_array([row[i] for row, _ in rows], each.type) for i, each in enumerate(types)],
                pa.array([diff for _, diff in rows], pa.int64()),
            )
        case Join():
            return [], pa.array([1], pa.int64())
        case Get(id=key) | LocalGet(number=key):
            return split_diffs(given[key])
        case Let(number=number, value=value, body=body):
            return _evaluate(body, {**given, number: table_of(*_evaluate(value, given))})
        case Map(input=input, scalars=scalars):
            columns, diffs = _evaluate(input, given)
            for scalar in scalars:
                columns = [*columns, _scalar(scalar, columns, diffs)]
            return columns, diffs
        case Filter(input=input, predicates=predicates):
            columns, diffs = _evaluate(input, given)
            kept = _scalar(
                predicates[0] if len(predicates) == 1 else And(predicates), columns, diffs
            )
            return [column.filter(kept) for column in columns], diffs.filter(kept)
        case Project(input=input, outputs=outputs):
            columns, diffs = _evaluate(input, given)
            return [columns[i] for i in outputs], diffs
        case FlatMap(input=input, function=function, args=args, columns=added):
            columns, diffs = _evaluate(input, given)
            lists = _scalar(Call(function, args, array_of(added[0].type)), columns, diffs)
            places = pc.list_parent_indices(lists)
            repeated = [column.take(places) for column in columns]
            elements = [pc.list_flatten(lists)]
            if len(added) > 1:
                elements.append(_numbers(lists))
            return [*repeated, *elements], diffs.take(places)
        case Union():
            parts = [_evaluate(input, given) for input in inputs_of(relation)]
            return (
                [
                    pa.concat_arrays([columns[i] for columns, _ in parts])
                    for i in range(len(parts[0][0]))
                ],
                pa.concat_arrays([diffs for _, diffs in parts]),
            )
        case _:
            raise InternalError(f"{type(relation).__name__} is not linear")


def _numbers(lists: pa.Array) -> pa.Array:
    """Return each element's number in its list, from 1."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    ends = np.cumsum(lengths)
    firsts = np.repeat(ends - lengths, lengths)
    return pa.array(np.arange(1, len(firsts) + 1, dtype=np.int64) - firsts, pa.int64())


def _scalar(scalar: object, columns: Columns, diffs: pa.Array) -> pa.Array:
    if isinstance(scalar, Column):
        return columns[scalar.index]
    values, errors = outcome(scalar, columns, len(diffs))  # type: ignore[arg-type]
    if errors is not None and errors.null_count < len(errors):
        raise DataError.parse(pc.min(errors).as_py())
    return _one(values)


def _one(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
