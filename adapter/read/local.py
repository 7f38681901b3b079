"""Evaluation in the environment's own process: constants, and what the system knows of itself.

`evaluate_linear` computes Map, Filter, Project and Union over constants and over given rows with
the functions' kernels, at once: an INSERT of values, a SELECT without FROM, a RETURNING list. What
is more than that goes to an engine on a thread.
"""

from collections.abc import Mapping, Sequence
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
from foreshore.rows import split_diffs
from foreshore.types import ColumnType, array_of, arrow_type
from foreshore.update import DIFF, DIFF_FIELD, TIME_FIELD

Columns = list[pa.Array]


def can_evaluate_locally(relation: Relation) -> bool:
    """Whether `evaluate_linear` can compute `relation`, given its collections' rows."""
    return all(
        isinstance(node, Constant | Get | LocalGet | Let | Map | Filter | Project | Union | FlatMap)
        or (isinstance(node, Join) and not node.inputs)
        for node in walk_relations(relation)
    ) and not is_heavy(relation)


async def evaluated(
    executor: Executor,
    relation: Relation,
    collections: Mapping[GlobalId | int, pa.Table],
    *,
    is_large: bool,
) -> pa.Table:
    """Return what `evaluate_linear` does, computed on a thread if that may take long.

    So it does if the relation `is_large`.
    """
    if not is_large and cost_of_relation(relation)[1] <= LIGHT:
        return evaluate_linear(relation, collections)
    return await blocking.run(executor, evaluate_linear, relation, collections)


def evaluate_linear(
    relation: Relation, collections: Mapping[GlobalId | int, pa.Table] | None = None
) -> pa.Table:
    """Return the rows of `relation`, each with its multiplicity, by `rows_schema` and `__diff`.

    `collections` are rows with `__diff`, by id or by the number of a LocalGet. Raises the least
    error if a row fails.
    """
    types = columns_of(relation)
    columns, diffs = _evaluate(relation, dict(collections or {}))
    rows = with_diffs(types, columns, diffs)
    if any(isinstance(node, Constant) and _takes_away(node) for node in walk_relations(relation)):
        return _added_up(rows, types)
    return rows


def _takes_away(constant: Constant) -> bool:
    """Whether rows of `constant` stand for what is not there, against others that are."""
    return any(diff < 0 for _, diff in constant.rows)


def _added_up(rows: pa.Table, types: tuple[ColumnType, ...]) -> pa.Table:
    """Return rows with `__diff`, equal ones as one, without those that cancel each other."""
    if not types:
        total = pc.sum(rows[DIFF]).as_py() or 0
        return pa.table([[total] if total else []], schema=rows.schema)
    times = pa.repeat(pa.scalar(0, TIME_FIELD.type), rows.num_rows)
    updates = rows.add_column(len(types), TIME_FIELD, times)
    return consolidate(updates, rows_schema(types), 0).remove_column(len(types))


def with_diffs(types: Sequence[ColumnType], columns: Columns, diffs: pa.Array) -> pa.Table:
    """Return columns of these types and multiplicities as one table."""
    fields = [pa.field(f"c{i}", arrow_type(each.type)) for i, each in enumerate(types)]
    return pa.Table.from_arrays([*columns, diffs], schema=pa.schema([*fields, DIFF_FIELD]))


def _one(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return column


def _evaluate(
    relation: Relation, given: Mapping[GlobalId | int, pa.Table]
) -> tuple[Columns, pa.Array]:
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
            columns, diffs = _evaluate(value, given)
            bound = with_diffs(columns_of(value), columns, diffs)
            return _evaluate(body, {**given, number: bound})
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
    """Return the number of each element in its list, from 1."""
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
