"""From a join of a plan to its arrangements and the paths of its inputs' changes."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from foreshore.compute.flow.batch import Batch, Ints
from foreshore.compute.flow.bulk import Bulk, is_alone
from foreshore.compute.flow.compiler import Compiler
from foreshore.compute.flow.conditions import Conditions
from foreshore.compute.flow.join_inputs import Lookup, arranged, imported
from foreshore.compute.flow.join_plan import Key, Keys, Plan, input_of, owners, plans_of
from foreshore.compute.flow.layout import Layout, composed, layout_of
from foreshore.compute.flow.linear_chain import linear_chain
from foreshore.compute.flow.operators.arranged import Arranged
from foreshore.compute.flow.operators.join import Join, Path, Stage
from foreshore.compute.flow.operators.operator import Constant, Linear
from foreshore.compute.flow.operators.spread_join import SpreadJoin
from foreshore.expr import ir
from foreshore.expr.columns import columns_of
from foreshore.expr.ir import Call, Column, Scalar
from foreshore.expr.split import can_fail, columns_used, is_not_null, split_errors
from foreshore.expr.traversal import operands_of, with_operands
from foreshore.types import BOOL, ColumnType

if TYPE_CHECKING:
    from foreshore.compute.flow.build import Builder


def build_join(
    builder: "Builder", join: ir.Join, top: ir.Relation, chain: Sequence[ir.Relation]
) -> int:
    """Build a join with the linear operators on top of it, up to `top`; return its number."""
    layout = layout_of(columns_of(top))
    if join.inputs:
        return _JoinBuilder(builder, join, top, chain).build(layout)
    there = int(builder.owns_empty_key)
    row = Batch(np.zeros((there, 0), np.int64), np.zeros(there, np.int64), np.ones(there, np.int64))
    number = builder.add(Constant(layout_of(()), row))
    compiler = builder.compiler(number)
    builder.compile_chain(compiler, chain, top)
    compiler.put_row(layout.columns)
    return builder.add(Linear(number, layout, compiler.program(), builder.context))


class _JoinBuilder:
    def __init__(
        self,
        builder: "Builder",
        join: ir.Join,
        top: ir.Relation,
        chain: Sequence[ir.Relation],
    ) -> None:
        self._builder = builder
        self._context = builder.context
        self._join = join
        self._top = top
        self._chain = chain
        self._ports: dict[int, int] = {}
        self._owner = owners(join)
        self._inputs = [self._checked(number) for number in range(len(join.inputs))]
        self._used = self._columns_used()

    def _checked(self, number: int) -> int:
        """Return the operator of an input's rows for which no scalar of an equivalence fails."""
        have = self._input_columns(number)
        owned = [
            _relative(scalar, have)
            for equivalence in self._join.equivalences
            for scalar in equivalence
            if (self._of_input(scalar) or 0) == number
        ]
        return self._builder.checked(self._top, self._join.inputs[number], owned)

    def build(self, layout: Layout) -> int:
        """Build the operator."""
        plans = plans_of(self._join)
        lookups = [
            self._lookup(
                input,
                plans,
                list(
                    dict.fromkeys(
                        tuple(inner for _, inner in pairs)
                        for plan in plans
                        for chosen, pairs in plan
                        if chosen == input
                    )
                ),
            )
            for input in range(len(self._inputs))
        ]
        self._builder.lookups[self._join] = lookups
        paths = [self._path(start, plan, lookups, layout) for start, plan in enumerate(plans)]
        arranged = [None if lookup is None else lookup.readable for lookup in lookups]
        is_spread = self._context.peers is not None and len(paths) > 1
        kind = SpreadJoin if is_spread else Join
        return self._builder.add(
            kind(tuple(self._inputs), layout, arranged, paths, self._bulk(lookups), self._context)
        )

    def _bulk(self, lookups: Sequence[Lookup | None]) -> Bulk | None:
        """Return how a bulk engine can begin the join: where all inputs are imported.

        They may not fail, as errors of theirs would be noted by others too.
        """
        imported = [self._builder.import_of(linear_chain(i)[1]) for i in self._join.inputs]
        own = any(lookup and isinstance(lookup.readable, Arranged) for lookup in lookups)
        if own or None in imported or not is_alone(self._top):
            return None
        if any(split_errors(input)[1] is not None for input in self._join.inputs):
            return None
        if split_errors(self._top)[1] is not None and not self._ports:
            return None
        return Bulk(self._top, next(iter(self._ports.values()), -1))

    def _columns_used(self) -> frozenset[int]:
        """Return the columns of the join that the chain needs."""
        width = len(self._owner)
        compiler = Compiler(layout_of(columns_of(self._join)), self._context.interner)
        used: set[int] = set()
        for node in self._chain:
            match node:
                case ir.Filter(predicates=predicates):
                    for predicate in predicates:
                        used |= columns_used(compiler.resolved(predicate))
                case ir.Map(scalars=scalars):
                    start = len(compiler.columns)
                    compiler.map(scalars)
                    for scalar in compiler.columns[start:]:
                        if can_fail(scalar):
                            used |= columns_used(scalar)
                case ir.Project(outputs=outputs):
                    compiler.project(outputs)
        for scalar in compiler.columns:
            used |= columns_used(scalar)
        return frozenset(i for i in used if i < width)

    # --- equivalences

    def _of_input(self, scalar: Scalar) -> int | None:
        return input_of(scalar, self._owner)

    def _local(self, input: int) -> list[Scalar]:
        """Return the conditions that an input's rows must fulfil to join with anything."""
        conditions: list[Scalar] = []
        for position, equivalence in enumerate(self._join.equivalences):
            safe = position in self._join.null_safe
            own = [s for s in equivalence if self._of_input(s) == input]
            fixed = [s for s in equivalence if self._of_input(s) is None]
            if not own and not (fixed and input == 0):
                continue
            first, *rest = [*own, *fixed]
            if not safe:
                conditions.append(is_not_null(first))
            for other in rest:
                conditions.append(Call("is_not_distinct" if safe else "eq", (first, other), BOOL))
        return conditions

    # --- look-ups and paths

    def _needed(self, later: Plan) -> frozenset[int]:
        """Return the columns of the join that the chain or a later look-up needs."""
        keys = (outer.scalar for _, pairs in later for outer, _ in pairs)
        return self._used.union(*map(columns_used, keys))

    def _lookup(self, input: int, plans: Sequence[Plan], keys: Sequence[Keys]) -> Lookup | None:
        """Return how an input is looked up by each of `keys`."""
        if not keys:
            return None
        have = self._input_columns(input)
        needed = self._needed([each for plan in plans for each in plan])
        demanded = {column: place for place, column in enumerate(have) if column in needed}
        relative = {
            each: tuple(Key(_relative(key.scalar, have), key.null_safe) for key in each)
            for each in keys
        }
        chain, base = linear_chain(self._join.inputs[input])
        source = self._builder.import_of(base)
        found = None
        if source is not None:
            picked = source.collection.picked
            unique = [
                [picked.index(i) for i in key]
                for key in getattr(base, "keys", ())
                if set(key) <= set(picked)
            ]
            compiler = self._builder.compiler(self._builder.node(base))
            conditions = [_relative(c, have) for c in self._local(input)]
            found = imported(
                source, compiler, chain, conditions, demanded, [*relative.values()], unique,
                self._context.interner,
            )  # fmt: skip
        if found is None:
            compiler = self._input_compiler(input)
            owner = self._builder.owner_of(base)
            found = arranged(compiler, demanded, [*relative.values()], self._context, owner)
        numbers = {key: found.numbers[relative[key]] for key in keys}
        return replace(found, numbers=numbers)

    def _path(
        self, start: int, plan: Plan, lookups: Sequence[Lookup | None], layout: Layout
    ) -> Path:
        """Return the path of the changes of one input."""
        compiler = self._input_compiler(start)
        have = self._input_columns(start)
        stages: list[tuple[int, int, Ints, Ints, Conditions]] = []
        programs = []
        for place, (chosen, pairs) in enumerate(plan):
            lookup = lookups[chosen]
            assert lookup is not None
            needed = self._needed(plan[place + 1 :])
            self._put_key(compiler, [outer for outer, _ in pairs], have)
            key = len(compiler.texts)
            kept_columns = [i for i in have if i in needed]
            kept = self._put_columns(compiler, kept_columns, have)
            programs.append(compiler.program())
            found = [i for i in self._input_columns(chosen) if i in needed]
            stored, added, added_layout = lookup.added(found)
            number = lookup.numbers[tuple(inner for _, inner in pairs)]
            kept_words = np.arange(key, key + kept.words)
            stages.append((chosen, number, kept_words, added, lookup.where))
            compiler = Compiler(composed([kept, added_layout]), self._context.interner)
            self._expose(compiler, lookup, len(kept_columns), stored, found)
            have = [*kept_columns, *found]
        self._finish(compiler, have, layout)
        programs.append(compiler.program())
        following = zip(stages, programs[1:], strict=True)
        return Path(programs[0], tuple(Stage(*stage, then) for stage, then in following))

    @staticmethod
    def _expose(
        compiler: Compiler, lookup: Lookup, before: int, stored: list[int], found: list[int]
    ) -> None:
        """Filter the rows found by a look-up, and make their columns those of the join."""
        columns = compiler.columns

        def moved(scalar: Scalar) -> Scalar:
            if isinstance(scalar, Column):
                return columns[before + stored.index(scalar.index)]
            operands = operands_of(scalar)
            return with_operands(scalar, tuple(map(moved, operands))) if operands else scalar

        compiler.filter_resolved([moved(each) for each in lookup.filters])
        compiler.columns = [*columns[:before], *(moved(lookup.outputs[i]) for i in found)]

    def _finish(self, compiler: Compiler, have: list[int], layout: Layout) -> None:
        """Compile the chain over the joined columns."""
        columns = columns_of(self._join)
        compiler.columns = [
            compiler.columns[have.index(i)] if i in have else ir.Literal(None, column.type)
            for i, column in enumerate(columns)
        ]
        self._builder.compile_chain(compiler, self._chain, self._top, self._ports)
        compiler.put_row(layout.columns)

    def _input_compiler(self, input: int) -> Compiler:
        """Return a compiler over an input, with the conditions that its rows must fulfil."""
        compiler = self._builder.compiler(self._inputs[input])
        have = self._input_columns(input)
        conditions = [_relative(c, have) for c in self._local(input)]
        if conditions:
            compiler.filter(conditions)
        return compiler

    def _input_columns(self, input: int) -> list[int]:
        return [i for i, owner in enumerate(self._owner) if owner == input]

    def _put_key(self, compiler: Compiler, keys: Sequence[Key], have: list[int]) -> None:
        scalars = [compiler.resolved(_relative(key.scalar, have)) for key in keys]
        compiler.put([key.column for key in keys], scalars, "key")

    def _put_columns(self, compiler: Compiler, columns: list[int], have: list[int]) -> Layout:
        scalars = [compiler.columns[have.index(i)] for i in columns]
        types = columns_of(self._join)
        wanted = tuple(
            ColumnType(types[i].type, getattr(scalar, "nullable", True))
            for i, scalar in zip(columns, scalars, strict=True)
        )
        compiler.put(wanted, scalars, "row")
        return layout_of(wanted)


def _relative(scalar: Scalar, have: list[int]) -> Scalar:
    """Return a scalar over the join's columns as one over the columns at hand."""
    if isinstance(scalar, Column):
        return Column(have.index(scalar.index), scalar.type, scalar.nullable)
    operands = operands_of(scalar)
    if not operands:
        return scalar
    return with_operands(scalar, tuple(_relative(operand, have) for operand in operands))
