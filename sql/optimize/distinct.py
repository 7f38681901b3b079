"""Remove DISTINCT from rows that are distinct already.

A Reduce without aggregates over columns that contain a unique key is a projection; one above
another on the same columns is redundant. Also drops a Threshold over rows that are never removed
twice (`build.threshold`).
"""

from foreshore.expr.columns import type_of
from foreshore.expr.equality import has_signed_zeros
from foreshore.expr.ir import Column, Let, Reduce, Relation
from foreshore.expr.traversal import inputs_of, with_inputs
from foreshore.sql.optimize import build
from foreshore.sql.optimize.properties import Analysis


def drop_distinct(relation: Relation) -> Relation:
    """Return `relation` without the Reduces that its unique keys make redundant."""
    return _drop(relation, Analysis({}))


def _drop(relation: Relation, analysis: Analysis) -> Relation:
    if isinstance(relation, Let):
        value = _drop(relation.value, analysis)
        analysis.known[relation.number] = analysis.keys(value)
        return Let(relation.number, value, _drop(relation.body, analysis))
    inputs = inputs_of(relation)
    below = tuple(_drop(input, analysis) for input in inputs)
    if any(a is not b for a, b in zip(inputs, below, strict=True)):
        relation = with_inputs(relation, below)
    if isinstance(relation, Reduce) and relation.group_key and not relation.aggregates:
        columns = [scalar.index for scalar in relation.group_key if isinstance(scalar, Column)]
        # Grouping by a float returns 0.0 for -0.0, even for a group of one row.
        signed = any(has_signed_zeros(type_of(scalar)) for scalar in relation.group_key)
        if len(columns) == len(relation.group_key) and not signed:
            given = frozenset(columns)
            if any(key <= given for key in analysis.keys(relation.input)):
                return build.project(relation.input, columns)
    return relation
