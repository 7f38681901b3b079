"""From a reduction of a plan to its operator."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING
from typing import Literal as OneOf

import numpy as np

from foreshore.compute.flow.bulk import partial_sums
from foreshore.compute.flow.compiler import Compiler
from foreshore.compute.flow.convert import Form
from foreshore.compute.flow.float_sums import Comoments, FloatSums
from foreshore.compute.flow.folds import Fold
from foreshore.compute.flow.kernels import groups
from foreshore.compute.flow.layout import Place, composed, layout_of
from foreshore.compute.flow.operators.folded import Folded
from foreshore.compute.flow.operators.listed import Listed
from foreshore.compute.flow.operators.reduce import Distinct, End, Extremes, Reduce, SumOf, Sums
from foreshore.compute.flow.sums import SumTable, width_of_sum
from foreshore.compute.flow.unsupported import Unsupported
from foreshore.expr import ir
from foreshore.expr.columns import columns_of, type_of
from foreshore.expr.equality import has_many_forms
from foreshore.expr.ir import Aggregate, And, Call, Case, Column, Literal, Scalar
from foreshore.expr.split import can_fail, is_not_null
from foreshore.types import BOOL, ColumnType, SqlType

if TYPE_CHECKING:
    from foreshore.compute.flow.build import Builder

_KINDS = {"sum": 2, "sum_float": groups.FLOAT, "comoment_float": groups.COMOMENT}
Kind = OneOf["sums", "distinct", "extreme", "listed", "folded"]
KINDS: dict[Kind, str] = {  # and what is kept for them
    "sums": "sums",
    "distinct": "counts of values, and sums,",
    "extreme": "ordered rows",
    "listed": "ordered rows, all of which are read,",
    "folded": "ordered rows, and states in Python,",
}


def kind_of_aggregate(aggregate: Aggregate) -> Kind:
    """Return how an aggregate is maintained."""
    if isinstance(aggregate, Fold):
        return "folded"
    match aggregate.function:
        case "count" | "sum" | "sum_float":
            return "distinct" if aggregate.distinct and aggregate.args else "sums"
        case "comoment_float" if not aggregate.distinct:
            return "sums"
        case "min" | "max":
            return "extreme"
        case _:
            return "listed"


def require_canonical(type: SqlType) -> None:
    """Raise Unsupported if the key of a type is none of its values."""
    if has_many_forms(type):
        raise Unsupported(f"groups of {type}")


def build_reduce(builder: "Builder", reduce: ir.Reduce) -> int:
    """Build a reduction; return the operator's number."""
    if builder.context.peers is None or not _has_ends_alone(builder, reduce):
        return _ReduceBuilder(builder, reduce).build()
    # Each worker keeps its own minima and maxima, of which one takes the least and the greatest.
    builder.built_as(reduce, _ReduceBuilder(builder, reduce, of_worker=True).build())
    ends = tuple(
        Aggregate(each.function, (Column(i, each.type),), each.type)
        for i, each in enumerate(reduce.aggregates)
    )
    return _ReduceBuilder(builder, ir.Reduce(reduce, (), ends)).build()


def _has_ends_alone(builder: "Builder", reduce: ir.Reduce) -> bool:
    """Whether a reduction to one row has minima and maxima only, each of which changes rarely."""
    return (
        not reduce.group_key
        and len(reduce.aggregates) > 0
        and all(kind_of_aggregate(each) == "extreme" for each in reduce.aggregates)
        and builder.is_monotonic(reduce.input)
    )


class _ReduceBuilder:
    def __init__(self, builder: "Builder", reduce: ir.Reduce, *, of_worker: bool = False) -> None:
        self._builder = builder
        self._reduce = reduce
        self._of_worker = of_worker  # over the rows of this worker; there is no row without any
        self._checks = list(_checks(reduce))
        self._port = -1
        only_sums = all(kind_of_aggregate(a) == "sums" for a in reduce.aggregates)
        if only_sums and any(map(can_fail, self._checks)):  # checked where sums are computed
            self._input = builder.node(reduce.input)
            self._port = builder.port(reduce, reduce.input)
        else:
            self._input = builder.checked(reduce, reduce.input, self._checks)
            self._checks = []
        columns = columns_of(reduce)
        width = len(reduce.group_key)
        if not of_worker:
            self._input = builder.at_owners(self._input, reduce.group_key)
        self._monotonic = builder.is_monotonic(reduce.input)
        self._key = layout_of(columns[:width])
        self._values = layout_of(columns[width:])
        self.layout = composed([self._key, self._values])

    def build(self) -> int:
        """Build the operator."""
        plain: list[tuple[Aggregate, Place]] = []
        distinct: list[Distinct] = []
        ordered: list[Extremes | Listed | Folded] = []
        # By value and filter, and whether the order is descending: a maximum of values that are
        # equal and look different is the first of them, for all others the last of what a minimum
        # is the first of.
        ends: dict[tuple[Scalar, Scalar | None, bool], list[End]] = {}
        for number, aggregate in enumerate(self._reduce.aggregates):
            place = self.layout.places[len(self._key.places) + number]
            match kind_of_aggregate(aggregate):
                case "distinct":
                    distinct.append(self._distinct(aggregate, place))
                case "sums":
                    plain.append((aggregate, place))
                case "extreme":
                    (arg,) = aggregate.args
                    is_max = aggregate.function == "max"
                    descending = is_max and has_many_forms(type_of(arg))
                    end = End(place, is_last=is_max and not descending)
                    ends.setdefault((arg, aggregate.filter, descending), []).append(end)
                case "listed" | "folded":
                    ordered.append(self._listed(aggregate, place))
        ordered += [self._extremes(*of, found) for of, found in ends.items()]
        for scalar, place in zip(self._reduce.group_key, self._key.places, strict=True):
            if has_many_forms(place.type):
                ordered.append(self._least_shown(scalar, place))
        return self._builder.add(
            Reduce(
                self._input,
                self.layout,
                self._key,
                self._sums(self._compiler(), plain),
                ordered,
                distinct,
                self._builder.context,
                partial_sums(self._reduce),
                always=not self._reduce.group_key
                and self._builder.owns_empty_key
                and not self._of_worker,
            )
        )

    def _compiler(self) -> Compiler:
        return self._builder.compiler(self._input)

    def _put_key(self, compiler: Compiler) -> None:
        scalars = [compiler.resolved(scalar) for scalar in self._reduce.group_key]
        compiler.put(self._key.columns, scalars, "key")

    def _sums(self, compiler: Compiler, aggregates: Sequence[tuple[Aggregate, Place]]) -> Sums:
        """Return counts and sums; the compiler's columns are those of the input."""
        if self._checks:
            compiler.check([compiler.resolved(scalar) for scalar in self._checks], self._port)
        self._put_key(compiler)
        kinds: list[int] = []
        sums: list[SumOf] = []
        for aggregate, place in aggregates:
            at = _width(kinds)
            if aggregate.function == "count" and not aggregate.args and aggregate.filter is None:
                sums.append(SumOf("rows", 0, place))
                continue
            compiler.put_scalar(compiler.resolved(counted_when(aggregate)), 1)
            kinds.append(1)
            if aggregate.function == "count":
                sums.append(SumOf("count", at, place))
                continue
            sums.append(self._sum(compiler, aggregate, at, place))
            kinds.append(_KINDS[aggregate.function])
        table = SumTable(self._key.words, np.array(kinds, np.int64))
        return Sums(compiler.program(), table, sums)

    def _extremes(
        self, arg: Scalar, filter: Scalar | None, descending: bool, ends: Sequence[End]
    ) -> Extremes:
        """Return minima and maxima of a value, which share their ordered rows."""
        compiler = self._compiler()
        compiler.filter([is_not_null(arg), *(() if filter is None else (filter,))])
        self._put_key(compiler)
        value = compiler.resolved(arg)
        compiler.put_order(value, descending=descending, nulls=1)
        if has_many_forms(type_of(arg)):
            return self._first(compiler, value, ends)
        return self._ends_of(compiler, value, "key", ends)

    def _least_shown(self, key: Scalar, place: Place) -> Extremes:
        """Return what gives a column of the key the least of the equal values of a group."""
        compiler = self._compiler()
        compiler.filter([is_not_null(key)])
        self._put_key(compiler)
        return self._first(compiler, compiler.resolved(key), [End(place, is_last=False)])

    def _first(self, compiler: Compiler, value: Scalar, ends: Sequence[End]) -> Extremes:
        """Return what gives the first value in the order put out, of equal ones the least."""
        compiler.put_shown(value)
        return self._ends_of(compiler, value, "row", ends)

    def _ends_of(
        self, compiler: Compiler, value: Scalar, form: Form, ends: Sequence[End]
    ) -> Extremes:
        at = len(compiler.texts)
        compiler.put((ColumnType(type_of(value), False),), (value,), form)
        program = compiler.program()
        spine = self._builder.spine(self._key.words, program.texts)
        monotonic = self._monotonic
        return Extremes(program, spine, at, ends, self._builder.context, monotonic=monotonic)

    def _listed(self, aggregate: Aggregate, place: Place) -> Listed | Folded:
        compiler = self._compiler()
        conditions = [] if aggregate.function == "array_agg" else _conditions(aggregate)[:1]
        if aggregate.function == "comoment_float":
            conditions = [is_not_null(arg) for arg in aggregate.args]
        if aggregate.filter is not None:
            conditions.append(aggregate.filter)
        compiler.filter(conditions)
        self._put_key(compiler)
        args = [compiler.resolved(arg) for arg in aggregate.args]
        for key in aggregate.order_by:
            expr = compiler.resolved(key.expr)
            nulls = -1 if key.nulls_first else 1
            compiler.put_order(expr, descending=key.descending, nulls=nulls)
        for arg in args:
            compiler.put_order(arg, descending=False, nulls=1)
        columns = tuple(ColumnType(type_of(arg)) for arg in args)
        for arg in args:
            if aggregate.distinct:
                require_canonical(type_of(arg))
            else:
                compiler.put_shown(arg)
        compiler.put(columns, args, "key" if aggregate.distinct else "row")
        program = compiler.program()
        spine = self._builder.spine(self._key.words, program.texts)
        context = self._builder.context
        if isinstance(aggregate, Fold):
            return Folded(aggregate, program, spine, layout_of(columns), place, context)
        return Listed(aggregate, program, spine, layout_of(columns), place, context)

    def _distinct(self, aggregate: Aggregate, place: Place) -> Distinct:
        args = aggregate.args
        for arg in args:
            if aggregate.function != "count":
                require_canonical(type_of(arg))
        compiler = self._compiler()
        compiler.filter(_conditions(aggregate))
        self._put_key(compiler)
        values = tuple(ColumnType(type_of(arg), False) for arg in args)
        compiler.put(values, [compiler.resolved(arg) for arg in args], "key")
        program = compiler.program()
        over = composed([self._key, layout_of(values)])
        inner = Compiler(over, self._builder.context.interner)
        first = inner.columns[len(self._key.places)]
        plain = Aggregate(aggregate.function, (first,), aggregate.type)
        sums = self._over_distinct(inner, plain, place)
        counts = SumTable(program.width, np.zeros(0, np.int64))
        return Distinct(program, counts, sums, self._key.words, self._builder.context)

    def _over_distinct(self, compiler: Compiler, aggregate: Aggregate, place: Place) -> Sums:
        keys = compiler.columns[: len(self._key.places)]
        compiler.put(self._key.columns, keys, "row")
        compiler.put_scalar(counted_when(aggregate), 1)
        kinds = [1]
        if aggregate.function == "count":
            made = SumOf("count", 1, place)
        else:
            made = self._sum(compiler, aggregate, 1, place)
            kinds.append(_KINDS[aggregate.function])
        return Sums(
            compiler.program(), SumTable(self._key.words, np.array(kinds, np.int64)), [made]
        )

    def _sum(self, compiler: Compiler, aggregate: Aggregate, at: int, place: Place) -> SumOf:
        """Put out what a row contributes to a sum; return the sum, of which `at` is the count."""
        word = len(compiler.texts)
        scalars = [compiler.resolved(scalar) for scalar in summed(aggregate)]
        for scalar in scalars:
            compiler.put_scalar(scalar, 2 if aggregate.function == "sum" else 1)
        match aggregate.function:
            case "sum":
                return SumOf("sum", at, place)
            case "sum_float":
                return SumOf("sum", at, place, FloatSums(self._key.words, word, at + 1))
            case _:
                return SumOf("sum", at, place, Comoments(self._key.words, word, at + 1))


def _width(kinds: Sequence[int]) -> int:
    """Return the words of sums, with that of the diffs."""
    return 1 + sum(map(width_of_sum, kinds))


def _checks(reduce: ir.Reduce) -> Iterator[Scalar]:
    """Yield the scalars whose errors count, in order."""
    yield from reduce.group_key
    for aggregate in reduce.aggregates:
        used = (*aggregate.args, *(key.expr for key in aggregate.order_by))
        if aggregate.filter is None:
            yield from used
            continue
        yield aggregate.filter
        for scalar in used:
            type = type_of(scalar)
            yield Case(((aggregate.filter, scalar),), Literal(None, type), type)


def _conditions(aggregate: Aggregate) -> list[Scalar]:
    """Return when a row counts."""
    pairs = aggregate.function in ("count", "comoment_float")
    args = aggregate.args if pairs else aggregate.args[:1]
    conditions: list[Scalar] = [is_not_null(arg) for arg in args]
    if aggregate.filter is not None:
        conditions.append(aggregate.filter)
    return conditions


def counted_when(aggregate: Aggregate) -> Scalar:
    """Return a condition, never NULL, for a row to count."""
    conditions = _conditions(aggregate)
    both = conditions[0] if len(conditions) == 1 else And(tuple(conditions))
    return Call("is_true", (both,), BOOL)


def summed(aggregate: Aggregate) -> list[Scalar]:
    """Return what a row adds to sums, NULL for nothing."""
    if aggregate.filter is None and len(aggregate.args) == 1:
        return list(aggregate.args)
    condition = counted_when(aggregate)
    return [
        Case(((condition, arg),), Literal(None, type_of(arg)), type_of(arg))
        for arg in aggregate.args
    ]
