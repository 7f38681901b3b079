"""Finds out by a scan of the inputs that a plan has no errors, rather than by computing them.

The errors of a scalar over a join are among those of the scalar over all rows of the one input that
it reads. Mostly there are none, and looking for them there is cheaper than a second join.
"""

from collections.abc import Sequence

from foreshore.expr import ir
from foreshore.expr.columns import columns_of
from foreshore.expr.ir import Column, Scalar
from foreshore.expr.scalars import bind_scalar
from foreshore.expr.split import can_fail, columns_used, shift


def suspects(relation: ir.Relation) -> list[ir.Relation] | None:
    """Return plans over single inputs, such that a plan without errors in them has none itself.

    None if that cannot be told: for plans other than a reduction of linear operators over a join
    of linear operators over collections, any of which may be missing.
    """
    found = _Found()
    if isinstance(relation, ir.Reduce):
        columns, base = found.linear(relation.input)
        for aggregate in relation.aggregates:
            if aggregate.order_by:
                return None
            conditions = () if aggregate.filter is None else (aggregate.filter,)
            found.check([*aggregate.args, *conditions], columns)
        found.check(relation.group_key, columns)
    else:
        _, base = found.linear(relation)
    inputs: Sequence[ir.Relation] = (base,)
    if isinstance(base, ir.Join):
        inputs = base.inputs
        found.check([s for each in base.equivalences for s in each], columns_as_scalars(base))
    plans: list[ir.Relation] = []
    start = 0
    for input in inputs:
        below = _Found()
        columns, collection = below.linear(input)
        if not isinstance(collection, ir.Get):
            return None
        stop = start + len(columns)
        own = [s for s in found.failing if all(start <= i < stop for i in columns_used(s))]
        found.failing = [s for s in found.failing if s not in own]
        below.check([shift(scalar, -start) for scalar in own], columns)
        if below.failing:
            plans.append(ir.Map(collection, tuple(dict.fromkeys(below.failing))))
        start = stop
    return None if found.failing else plans


def columns_as_scalars(relation: ir.Relation) -> list[Scalar]:
    """Return the columns of a relation as scalars over it."""
    return [Column(i, c.type, c.nullable) for i, c in enumerate(columns_of(relation))]


class _Found:
    """The scalars of linear operators that can fail, over what is below all of them."""

    def __init__(self) -> None:
        self.failing: list[Scalar] = []

    def linear(self, relation: ir.Relation) -> tuple[list[Scalar], ir.Relation]:
        """Return the columns of a relation over what is below its linear operators, and that."""
        match relation:
            case ir.Map(input=input, scalars=scalars):
                columns, base = self.linear(input)
                for scalar in scalars:
                    columns += self.check([scalar], columns)
                return columns, base
            case ir.Filter(input=input, predicates=predicates):
                columns, base = self.linear(input)
                self.check(predicates, columns)
                return columns, base
            case ir.Project(input=input, outputs=outputs):
                columns, base = self.linear(input)
                return [columns[i] for i in outputs], base
        return columns_as_scalars(relation), relation

    def check(self, scalars: Sequence[Scalar], columns: Sequence[Scalar]) -> list[Scalar]:
        """Note which scalars over `columns` can fail; return them over what is below."""

        def below(scalar: Scalar) -> Scalar | None:
            return columns[scalar.index] if isinstance(scalar, Column) else None

        bound = [bind_scalar(scalar, below) for scalar in scalars]
        self.failing += filter(can_fail, bound)
        return bound
