"""What a bulk engine computes to hydrate an operator."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from foreshore.compute.engine import Input
from foreshore.compute.flow.convert import is_direct
from foreshore.compute.flow.errors import may_be_negative
from foreshore.compute.flow.shared import Shared
from foreshore.compute.render.certain import suspects
from foreshore.compute.render.digits import digits_in
from foreshore.expr import ir
from foreshore.expr.columns import columns_of
from foreshore.expr.ir import Aggregate, count_all
from foreshore.expr.narrow import narrowed
from foreshore.expr.split import split_errors
from foreshore.expr.traversal import walk_relations
from foreshore.ids import GlobalId
from foreshore.types import INT8


@dataclass(frozen=True, slots=True)
class Bulk(Shared):
    """The plan of an operator's rows, and the port where its errors are noted, -1 for none.

    Instead of a reduction's rows there are its groups: the key, the count of rows, and other
    columns, for which `sums` has True for a sum and False for a count, which precedes each sum.
    """

    plan: ir.Relation
    port: int
    sums: tuple[bool, ...] = ()


@dataclass(frozen=True, slots=True)
class Begun:
    """The plans of the rows and of the errors that a bulk engine computes."""

    bulk: Bulk
    rows: ir.Relation
    errors: ir.Relation | None


def begun(
    bulk: Bulk, inputs: Mapping[GlobalId, Input], has_rows: Callable[[ir.Relation], bool]
) -> Begun | None:
    """Return the plans over `inputs`, None if it is not worth while.

    A reduction with errors costs a bulk engine more than the operators. `has_rows` tells whether a
    plan that cannot fail has rows.
    """
    plan = narrowed(bulk.plan, dict(digits_in(bulk.plan, inputs)))
    rows, errors = split_errors(plan)
    if errors is not None and not _may_have_errors(plan, has_rows):
        rows, errors = split_errors(plan, lambda call: False)
    if errors is not None and bulk.port < 0:
        return None
    return Begun(bulk, rows, errors)


def _may_have_errors(plan: ir.Relation, has_rows: Callable[[ir.Relation], bool]) -> bool:
    """Whether a plan may have errors, as far as scans of its inputs show."""
    found = suspects(plan)
    if found is None:
        return True
    errors = [split_errors(suspect)[1] for suspect in found]
    return any(each is not None and has_rows(each) for each in errors)


def is_alone(relation: ir.Relation) -> bool:
    """Whether a plan can be evaluated by itself, with multiplicities that are positive."""
    nodes = walk_relations(relation)
    return not any(
        isinstance(node, ir.LocalGet | ir.LetRec) for node in nodes
    ) and not may_be_negative(relation, {})


def partial_sums(reduce: ir.Reduce) -> Bulk | None:
    """Return how a bulk engine computes a reduction's groups, None if it cannot.

    The aggregates must be counts and sums.
    """
    if not reduce.aggregates or not is_alone(reduce.input):
        return None
    columns = columns_of(reduce)
    if not all(is_direct(column.type) for column in columns[: len(reduce.group_key)]):
        return None
    partial: list[Aggregate] = [count_all()]
    for each in reduce.aggregates:
        if each.distinct or each.function not in ("count", "sum"):
            return None
        if each.function == "count" and not each.args and each.filter is None:
            continue
        partial.append(Aggregate("count", each.args, INT8, filter=each.filter))
        if each.function == "sum":
            partial.append(each)
    sums = tuple(each.function == "sum" for each in partial[1:])
    return Bulk(ir.Reduce(reduce.input, reduce.group_key, tuple(partial)), -1, sums)
