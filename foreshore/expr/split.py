"""Errors as data: splits a plan that may fail into two that cannot, rows and errors.

    Map(t, a / b)    rows    Map(Filter(t, ErrorOf(a / b) IS NULL), a / b)
                     errors  the column ErrorOf(a / b) of t, where it is not NULL

In both plans, the value of a failing call is NULL and `ErrorOf` tells that it failed. Engines know
nothing of failing and maintain errors like other rows: they appear with the failing row and
disappear with it. The errors of a plan are the union of those of its nodes, each of which reads the
rows (not the errors) of its inputs. Nodes above do not change them: an error in a row that a
Negate, a Threshold or an aggregate would have dropped still counts, positively, with the row's
multiplicity.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from foreshore.deep_trees import allow_depth
from foreshore.expr.columns import columns_of, keeping_columns
from foreshore.expr.ir import (
    And,
    Call,
    Case,
    Column,
    Constant,
    ErrorOf,
    Filter,
    FlatMap,
    Get,
    Join,
    JoinOn,
    Let,
    LetRec,
    Literal,
    LocalGet,
    Map,
    Negate,
    Once,
    Project,
    Recursive,
    Reduce,
    Relation,
    Scalar,
    TemporalFilter,
    Threshold,
    TopK,
    Union,
    Window,
)
from foreshore.expr.scalars import frame_offsets
from foreshore.expr.series import series_of
from foreshore.expr.share import share
from foreshore.expr.traversal import (
    inputs_of,
    operands_of,
    walk_relations,
    walk_scalars,
    with_inputs,
    with_operands,
)
from foreshore.types import BOOL, TEXT, ColumnType

Test = Callable[[Call], bool]

NO_TEXT = Literal(None, TEXT)
ERROR_COLUMNS = (ColumnType(TEXT, False),)
# Never TRUE: the predicate of a Filter that exists only for its errors.
NEVER_TRUE = frozenset({"single_row_check"})


def may_fail(call: Call) -> bool:
    """Whether `call` can fail, according to the registry."""
    from foreshore.expr.functions import registry

    return registry.may_fail(call)


def split_errors(relation: Relation, fallible: Test = may_fail) -> tuple[Relation, Relation | None]:
    """Return the rows of a lowered `relation`, and its errors (one text column) if it may fail."""
    allow_depth()
    with keeping_columns():
        rows, errors = Splitter(fallible).split(relation)
    return rows, share(_union(errors, ERROR_COLUMNS)) if errors else None


def known_sound(relation: Relation) -> Relation:
    """Return the rows of a lowered relation of which is known that it has no errors."""
    allow_depth()
    with keeping_columns():
        return Splitter(lambda _: False).split(relation)[0]


def can_fail(scalar: Scalar, fallible: Test = may_fail) -> bool:
    """Whether evaluating `scalar` may fail for a row, not counting errors inside `ErrorOf`."""
    stack = [scalar]
    while stack:
        node = stack.pop()
        if isinstance(node, ErrorOf | Once):
            continue
        if isinstance(node, Call) and fallible(node):
            return True
        stack.extend(operands_of(node))
    return False


def columns_used(scalar: Scalar) -> frozenset[int]:
    """Return the positions of the columns that `scalar` uses."""
    return frozenset(s.index for s in walk_scalars(scalar) if isinstance(s, Column))


def is_null(scalar: Scalar) -> Scalar:
    """Return the scalar `IS NULL`."""
    return Call("is_null", (scalar,), BOOL)


def is_not_null(scalar: Scalar) -> Scalar:
    """Return the scalar `IS NOT NULL`."""
    return Call("is_not_null", (scalar,), BOOL)


def shift(scalar: Scalar, by: int) -> Scalar:
    """Return `scalar` with all its columns moved by `by`."""
    if isinstance(scalar, Column):
        return Column(scalar.index + by, scalar.type, scalar.nullable)
    operands = operands_of(scalar)
    if not operands:
        return scalar
    return with_operands(scalar, tuple(shift(operand, by) for operand in operands))


def before_projection(scalar: Scalar, outputs: Sequence[int]) -> Scalar:
    """Return `scalar` over the columns of which a projection takes `outputs`."""
    if isinstance(scalar, Column):
        return Column(outputs[scalar.index], scalar.type, scalar.nullable)
    operands = operands_of(scalar)
    if not operands:
        return scalar
    return with_operands(scalar, tuple(before_projection(each, outputs) for each in operands))


Split = tuple[Relation, list[Relation]]


@dataclass
class Splitter:
    """Splits plans; a subclass may look at each error and the rows that have it."""

    fallible: Test
    # Whether the value of the Let with this number may have rows of negative multiplicity.
    negative: dict[int, bool] = field(default_factory=dict)
    _signed: dict[int, tuple[Relation, bool]] = field(default_factory=dict)  # by identity

    def split(self, relation: Relation) -> Split:
        """Return the rows of `relation`, and the plans of its errors."""
        if isinstance(relation, Let):
            value, errors = self.split(relation.value)
            if not reads_local(relation.body, relation.number):
                return self.split(relation.body)  # a value that is never read does not fail
            self.negative[relation.number] = self.may_be_negative(value)
            body, inner = self.split(relation.body)
            if inner:
                errors.append(Let(relation.number, value, _union(inner, ERROR_COLUMNS)))
            return Let(relation.number, value, body), errors
        inputs: list[Relation] = []
        errors = []
        for input in inputs_of(relation):
            rows, below = self.split(input)
            inputs.append(rows)
            errors += below
        # These may fail even if their inputs are empty.
        whole = isinstance(relation, Join | TopK | Window)
        node = with_inputs(relation, tuple(inputs)) if whole else _over(relation, inputs)
        rows, own = self._split_node(node)
        return rows, errors + own

    def _split_node(self, node: Relation) -> Split:
        """Split `node`, whose inputs have been split."""
        match node:
            case Map(input=input, scalars=scalars):
                return self._split_map(node, input, scalars)
            case Filter(input=input, predicates=predicates):
                return self._split_filter(node, input, predicates)
            case FlatMap(input=input):
                arrays = [each for each in node.arrays if series_of(each) is None]
                sound, errors = self._check(input, self._errors_of(arrays))
                return _over(node, [sound]), errors
            case Join():
                return self._split_join(node)
            case Reduce(input=input):
                sound, errors = self._check(input, self._reduce_errors(node))
                return _over(node, [sound]), errors
            case TopK(input=input, order_key=order_key, limit=limit, offset=offset):
                keys = [key.expr for key in order_key]
                sound, errors = self._check(input, self._errors_of(keys))
                bounds = [bound for bound in (offset, limit) if bound is not None]
                for error in self._errors_of(bounds):
                    errors.append(self.failing(Join(()), error, 0))
                return _over(node, [sound]), errors
            case Window(input=input, functions=functions):
                sound, errors = self._check(input, self._window_errors(node))
                offsets = dict.fromkeys(o for f in functions for o in frame_offsets(f))
                for error in self._errors_of(list(offsets)):
                    errors.append(self.failing(Join(()), error, 0))
                return _over(node, [sound]), errors
            case Constant() | Get() | LocalGet() | Project() | Negate() | Threshold() | Union():
                return node, []
            case TemporalFilter():
                return node, []
            case Let() | JoinOn() | LetRec() | Recursive():
                raise AssertionError(f"not here: {node}")
            case _:
                assert_never(node)

    def _split_map(self, node: Map, input: Relation, scalars: tuple[Scalar, ...]) -> Split:
        errors = self._errors_of(scalars)
        width = len(columns_of(input))
        if all(column < width for error in errors for column in columns_used(error)):
            sound, failing = self._check(input, errors)
            return _over(node, [sound]), failing
        sound, failing = self._check(node, errors)  # scalars that use earlier ones
        return sound, failing

    def _split_filter(self, node: Filter, input: Relation, predicates: tuple[Scalar, ...]) -> Split:
        conjunction = predicates[0] if len(predicates) == 1 else And(predicates)
        errors = self._errors_of([conjunction])
        if not errors:
            return node, []
        _, failing = self._check(input, errors)
        if any(isinstance(p, Call) and p.function in NEVER_TRUE for p in predicates):
            return Constant((), columns_of(input)), failing
        return Filter(input, (*predicates, is_null(errors[0]))), failing

    def _split_join(self, join: Join) -> Split:
        inputs: list[Relation] = []
        errors: list[Relation] = []
        start = 0
        for number, input in enumerate(join.inputs):
            end = start + len(columns_of(input))
            owned = [
                shift(scalar, -start)
                for equivalence in join.equivalences
                for scalar in equivalence
                if _belongs(scalar, start, end, number)
            ]
            sound, failing = self._check(input, self._errors_of(owned))
            inputs.append(sound)
            errors += failing
            start = end
        return _over(join, inputs), errors

    def _reduce_errors(self, reduce: Reduce) -> list[Scalar]:
        errors = self._errors_of(reduce.group_key)
        for aggregate in reduce.aggregates:
            used = (*aggregate.args, *(key.expr for key in aggregate.order_by))
            errors += self._filtered_errors(used, aggregate.filter)
        return errors

    def _window_errors(self, window: Window) -> list[Scalar]:
        errors = self._errors_of([key.expr for key in window.order_key])
        for function in window.functions:
            errors += self._filtered_errors(function.args, function.filter)
        return errors

    def _filtered_errors(self, used: Sequence[Scalar], filter: Scalar | None) -> list[Scalar]:
        """Return the errors of the filter, and of `used` where it is TRUE."""
        inner = self._errors_of(used)
        if filter is None:
            return inner
        if inner:
            inner = [Case(((filter, _first(inner)),), NO_TEXT, TEXT)]
        return [*self._errors_of([filter]), *inner]

    def _errors_of(self, scalars: Sequence[Scalar]) -> list[Scalar]:
        return [ErrorOf(scalar) for scalar in scalars if can_fail(scalar, self.fallible)]

    def _check(self, input: Relation, errors: Sequence[Scalar]) -> Split:
        """Return the rows of `input` with none of `errors`, and the errors of the others."""
        if not errors or _is_empty(input):
            return input, []
        failing = self.failing(input, _first(errors), len(columns_of(input)))
        if self.may_be_negative(input):
            failing = Union((Threshold(failing), Threshold(Negate(failing))))
        return Filter(input, tuple(map(is_null, errors))), [failing]

    def failing(self, input: Relation, error: Scalar, width: int) -> Relation:
        """Return the errors of the rows of `input`, which has `width` columns."""
        text = Column(width, TEXT)
        return Project(Filter(Map(input, (error,)), (is_not_null(text),)), (width,))

    def may_be_negative(self, relation: Relation) -> bool:
        """Whether multiplicities may be negative, judging by the plan."""
        match relation:
            case Negate():
                return not _is_empty(relation.input)
            case Threshold() | Reduce() | TopK() | Window() | Get():
                return False
            case Constant(rows=rows):
                return any(count < 0 for _, count in rows)
            case LocalGet(number=number):
                return self.negative.get(number, False)
            case _:
                found = self._signed.get(id(relation))
                if found is None:
                    # It stays alive for as long as its identity is a key.
                    found = self._signed[id(relation)] = relation, self._may_be(relation)
                return found[1]

    def _may_be(self, relation: Relation) -> bool:
        if isinstance(relation, Let):
            self.negative[relation.number] = self.may_be_negative(relation.value)
            return self.may_be_negative(relation.body)
        return any(map(self.may_be_negative, inputs_of(relation)))


def _first(errors: Sequence[Scalar]) -> Scalar:
    return errors[0] if len(errors) == 1 else Call("coalesce", tuple(errors), TEXT)


def _belongs(scalar: Scalar, start: int, end: int, number: int) -> bool:
    """Whether `scalar` is over columns `start` to `end`; constants count as the first input's."""
    used = columns_used(scalar)
    return start <= min(used) < end if used else number == 0


def reads_local(relation: Relation, number: int) -> bool:
    """Whether `relation` reads the value of the Let with this number."""
    return any(
        isinstance(node, LocalGet) and node.number == number for node in walk_relations(relation)
    )


def _is_empty(relation: Relation) -> bool:
    return isinstance(relation, Constant) and not relation.rows


def _union(relations: Sequence[Relation], columns: tuple[ColumnType, ...]) -> Relation:
    kept = tuple(relation for relation in relations if not _is_empty(relation))
    if not kept:
        return Constant((), columns)
    return kept[0] if len(kept) == 1 else Union(kept)


def _over(relation: Relation, inputs: Sequence[Relation]) -> Relation:
    """Return `relation` over `inputs`, simplified if inputs are empty."""
    match relation:
        case Union():
            return _union(inputs, columns_of(relation))
        case TemporalFilter() if _is_empty(inputs[0]):
            return inputs[0]
        case (
            Map()
            | Filter()
            | Project()
            | FlatMap()
            | Negate()
            | Threshold()
            | TopK()
            | Window()
            | Join()
        ):
            if any(map(_is_empty, inputs)):
                return Constant((), columns_of(relation))
    return with_inputs(relation, tuple(inputs))
