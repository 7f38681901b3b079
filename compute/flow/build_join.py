"""From a join of a plan to its arrangements and the paths of its inputs' changes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from foreshore.compute.flow.batch import Batch
from foreshore.compute.flow.compiler import Compiler
from foreshore.compute.flow.layout import Layout, composed, layout_of
from foreshore.compute.flow.operators.arranged import Arranged
from foreshore.compute.flow.operators.join import Join, Path, Stage
from foreshore.compute.flow.operators.operator import Constant, Linear
from foreshore.compute.flow.spine import Spine
from foreshore.expr import ir
from foreshore.expr.ir import Call, Column, Scalar, columns_of, type_of
from foreshore.expr.split import can_fail, columns_used, is_not_null
from foreshore.types import BOOL, ColumnType

if TYPE_CHECKING:
    from foreshore.compute.flow.build import Builder


@dataclass(frozen=True, slots=True)
class _Key:
    """One component of a look-up's key, and whether NULL equals NULL."""

    scalar: Scalar
    null_safe: bool

    @property
    def column(self) -> ColumnType:
        """Return the type of the key's column."""
        return ColumnType(type_of(self.scalar), self.null_safe)


def build_join(
    builder: "Builder", join: ir.Join, top: ir.Relation, chain: Sequence[ir.Relation]
) -> int:
    """Build a join with the linear operators on top of it, up to `top`; return its number."""
    layout = layout_of(columns_of(top))
    if join.inputs:
        return _JoinBuilder(builder, join, top, chain).build(layout)
    row = Batch(np.zeros((1, 0), np.int64), np.zeros(1, np.int64), np.ones(1, np.int64))
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
        widths = [len(columns_of(input)) for input in join.inputs]
        self._starts = [sum(widths[:i]) for i in range(len(widths))]
        self._owner = [i for i, width in enumerate(widths) for _ in range(width)]
        self._inputs = [self._checked(number) for number in range(len(join.inputs))]
        self._demanded = self._columns_demanded()
        self._arranged: list[tuple[int, Arranged]] = []
        self._layouts: list[tuple[list[int], Layout]] = []  # of what is after the key
        self._known: dict[tuple[int, tuple[_Key, ...]], int] = {}

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
        paths = [self._path(i, layout) for i in range(len(self._inputs))]
        return self._builder.add(
            Join(tuple(self._inputs), layout, self._arranged, paths, self._builder.context)
        )

    def _columns_demanded(self) -> frozenset[int]:
        """Return the columns of the join that the chain or a key needs."""
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
        for equivalence in self._join.equivalences:
            for scalar in equivalence:
                used |= columns_used(scalar)
        return frozenset(i for i in used if i < width)

    # --- equivalences

    def _of_input(self, scalar: Scalar) -> int | None:
        """Return the input whose columns a scalar uses, None if it uses none."""
        used = {self._owner[i] for i in columns_used(scalar)}
        assert len(used) <= 1, scalar
        return next(iter(used), None)

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

    def _keys(self, bound: Sequence[int], input: int) -> list[tuple[_Key, _Key]]:
        """Return the pairs of keys, of the bound inputs and of `input`, that a look-up uses."""
        pairs = []
        for position, equivalence in enumerate(self._join.equivalences):
            safe = position in self._join.null_safe
            outer = [s for s in equivalence if self._of_input(s) in bound]
            inner = [s for s in equivalence if self._of_input(s) == input]
            if outer and inner:
                pairs.append((_Key(outer[0], safe), _Key(inner[0], safe)))
        return pairs

    # --- arrangements and paths

    def _arrangement(self, input: int, keys: tuple[_Key, ...]) -> int:
        """Return the number of the arrangement of an input by keys."""
        known = self._known.get((input, keys))
        if known is not None:
            return known
        compiler = self._input_compiler(input)
        self._put_key(compiler, keys, self._input_columns(input))
        width = len(compiler.texts)
        columns = [i for i in self._input_columns(input) if i in self._demanded]
        layout = self._put_columns(compiler, columns, self._input_columns(input))
        program = compiler.program()
        spine = Spine(width, program.texts, self._context.interner, self._context.seed)
        self._arranged.append((input, Arranged(program, spine, self._context)))
        self._layouts.append((columns, layout))
        self._known[input, keys] = len(self._arranged) - 1
        return len(self._arranged) - 1

    def _path(self, start: int, layout: Layout) -> Path:
        """Return the path of the changes of one input."""
        bound = [start]
        compiler = self._input_compiler(start)
        have = self._input_columns(start)
        stages: list[tuple[int, int, int, Layout]] = []
        programs = []
        while len(bound) < len(self._inputs):
            free = [i for i in range(len(self._inputs)) if i not in bound]
            chosen = max(free, key=lambda i: (len(self._keys(bound, i)), -i))
            pairs = self._keys(bound, chosen)
            arranged = self._arrangement(chosen, tuple(inner for _, inner in pairs))
            self._put_key(compiler, [outer for outer, _ in pairs], have)
            key = len(compiler.texts)
            kept_columns = [i for i in have if i in self._demanded]
            kept = self._put_columns(compiler, kept_columns, have)
            programs.append(compiler.program())
            added, added_layout = self._layouts[arranged]
            stages.append((arranged, chosen, key, kept))
            have = [*kept_columns, *added]
            compiler = Compiler(composed([kept, added_layout]), self._context.interner)
            bound.append(chosen)
        self._finish(compiler, have, layout)
        programs.append(compiler.program())
        return Path(
            programs[0],
            tuple(
                Stage(arranged, input, np.arange(key, key + kept.words), then)
                for (arranged, input, key, kept), then in zip(stages, programs[1:], strict=True)
            ),
        )

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

    def _put_key(self, compiler: Compiler, keys: Sequence[_Key], have: list[int]) -> None:
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
    operands = ir.operands_of(scalar)
    if not operands:
        return scalar
    return ir.with_operands(scalar, tuple(_relative(operand, have) for operand in operands))
