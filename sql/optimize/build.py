"""Constructors that keep plans in the plain form; all rules build nodes with them.

The plain form has no node without effect, no two adjacent nodes that could be one, nothing above an
empty relation, and projections as high as possible (`projection.py` pushes them down again at the
end).
"""

from collections.abc import Sequence
from itertools import accumulate

from foreshore.expr.columns import columns_of, type_of
from foreshore.expr.equality import has_one_form
from foreshore.expr.ir import (
    Aggregate,
    Call,
    Column,
    Constant,
    Filter,
    FlatMap,
    Join,
    Literal,
    LocalGet,
    Map,
    Negate,
    OrderKey,
    Project,
    Reduce,
    Relation,
    Scalar,
    Threshold,
    TopK,
    Union,
    Window,
    WindowFunction,
)
from foreshore.expr.scalars import with_scalars
from foreshore.expr.split import Test, can_fail, columns_used
from foreshore.expr.traversal import walk_relations
from foreshore.sql.optimize.scalars import conjuncts, is_never_true, remap, substitute
from foreshore.types import BOOL, ColumnType

UNIT = Join(())


def empty(columns: Sequence[ColumnType]) -> Constant:
    """Return the relation without rows."""
    return Constant((), tuple(columns))


def is_empty(relation: Relation) -> bool:
    """Return whether `relation` is the empty constant."""
    return isinstance(relation, Constant) and not relation.rows


def project(input: Relation, outputs: Sequence[int]) -> Relation:
    """Return Project(input, outputs)."""
    match input:
        case Project(input=inner, outputs=places):
            return project(inner, [places[i] for i in outputs])
        case Constant(rows=rows, columns=columns):
            if tuple(outputs) == tuple(range(len(columns))):
                return input
            narrowed = tuple([(tuple([row[i] for i in outputs]), count) for row, count in rows])
            return Constant(narrowed, tuple(columns[i] for i in outputs))
        case Map(input=inner):
            width = len(columns_of(inner))
            if all(i < width for i in outputs):
                return project(inner, outputs)
    if tuple(outputs) == tuple(range(len(columns_of(input)))):
        return input
    return Project(input, tuple(outputs))


def map_(input: Relation, scalars: Sequence[Scalar]) -> Relation:
    """Return Map(input, scalars)."""
    if not scalars:
        return input
    match input:
        case Map(input=inner, scalars=first):
            return map_(inner, (*first, *scalars))
        case Project(input=inner, outputs=outputs):
            width = len(columns_of(inner))
            above = (*outputs, *range(width, width + len(scalars)))
            return project(map_(inner, [remap(scalar, above) for scalar in scalars]), above)
        case Constant(rows=rows, columns=columns) if _are_literals(scalars):
            values = tuple(s.value for s in scalars if isinstance(s, Literal))
            types = tuple(ColumnType(type_of(s), _is_null(s)) for s in scalars)
            return Constant(
                tuple(((*row, *values), count) for row, count in rows), (*columns, *types)
            )
        case Join(inputs=()) if _are_literals(scalars):
            return map_(Constant((((), 1),), ()), scalars)
    width = len(columns_of(input))
    places = [*range(width)]  # existing columns and duplicates are not computed again
    made: dict[Scalar, int] = {}
    for scalar in scalars:
        moved = remap(scalar, places)
        if isinstance(moved, Column):
            places.append(moved.index)
        else:
            places.append(made.setdefault(moved, width + len(made)))
    return project(Map(input, tuple(made)) if made else input, places)


def _are_literals(scalars: Sequence[Scalar]) -> bool:
    return all(isinstance(scalar, Literal) for scalar in scalars)


def _is_null(scalar: Scalar) -> bool:
    return isinstance(scalar, Literal) and scalar.value is None


def filter_(input: Relation, predicates: Sequence[Scalar], fallible: Test) -> Relation:
    """Return Filter(input, predicates)."""
    wanted = conjuncts(predicates)
    if not wanted or is_empty(input):
        return input
    if any(is_never_true(predicate) for predicate in wanted) and not any(
        can_fail(predicate, fallible) for predicate in wanted
    ):
        return empty(columns_of(input))
    match input:
        case Project(input=inner, outputs=outputs):
            moved = [remap(predicate, outputs) for predicate in wanted]
            return project(filter_(inner, moved, fallible), outputs)
        case Map(input=inner, scalars=scalars):
            width = len(columns_of(inner))
            known = [None] * width + [s if isinstance(s, Literal) else None for s in scalars]
            if any(known):
                wanted = [substitute(predicate, known) for predicate in wanted]
        case Filter(input=inner, predicates=first):
            # If another predicate is NULL, a later one that fails would raise a new error.
            if not any(can_fail(predicate, fallible) for predicate in wanted):
                return filter_(inner, (*first, *wanted), fallible)
    return Filter(input, tuple(wanted))


def flat_map(
    input: Relation, function: str, args: tuple[Scalar, ...], columns: tuple[ColumnType, ...]
) -> Relation:
    """Return FlatMap(input, function, args, columns)."""
    match input:
        case Project(input=inner, outputs=outputs):
            width = len(columns_of(inner))
            moved = tuple(remap(arg, outputs) for arg in args)
            places = (*outputs, *range(width, width + len(columns)))
            return project(FlatMap(inner, function, moved, columns), places)
        case Constant(rows=()):
            return empty((*columns_of(input), *columns))
    return FlatMap(input, function, args, columns)


def union(inputs: Sequence[Relation]) -> Relation:
    """Return Union(inputs)."""
    flat: list[Relation] = []
    for input in inputs:
        parts = input.inputs if isinstance(input, Union) else (input,)
        flat += (part for part in parts if not is_empty(part))
    if not flat:
        return empty(columns_of(inputs[0]))
    return flat[0] if len(flat) == 1 else Union(tuple(flat))


def negate(input: Relation) -> Relation:
    """Return Negate(input)."""
    match input:
        case Negate(input=inner):
            return inner
        case Project(input=inner, outputs=outputs):
            return project(negate(inner), outputs)
        case Constant(rows=rows, columns=columns):
            return Constant(tuple((row, -count) for row, count in rows), columns)
        case _:
            return Negate(input)


def threshold(input: Relation) -> Relation:
    """Return Threshold(input), or `input` itself if no rows are removed.

    Threshold is kept if equal rows may differ in representation, because it merges them.
    """
    if not all(has_one_form(column.type) for column in columns_of(input)):
        return input if isinstance(input, Threshold) else Threshold(input)
    for node in walk_relations(input):
        match node:
            case Negate() | LocalGet():  # a local may be the relation that is removed
                return input if isinstance(input, Threshold) else Threshold(input)
            case Constant(rows=rows) if any(count < 0 for _, count in rows):
                return Threshold(input)
    return input


def top_k(
    input: Relation,
    group_key: tuple[int, ...],
    order_key: tuple[OrderKey, ...],
    limit: Scalar | None,
    offset: Scalar | None,
) -> Relation:
    """Return TopK(input, group_key, order_key, limit, offset)."""
    none = limit is None or _is_null(limit)
    start = offset is None or _is_null(offset) or _is_zero(offset)
    if is_empty(input) or (none and start):
        return input
    if limit is not None and _is_zero(limit):
        return empty(columns_of(input))
    return TopK(input, group_key, order_key, None if none else limit, None if start else offset)


def window(
    input: Relation,
    partition: tuple[int, ...],
    order_key: tuple[OrderKey, ...],
    functions: tuple[WindowFunction, ...],
) -> Relation:
    """Return Window(input, partition, order_key, functions)."""
    result = Window(input, partition, order_key, functions)
    if is_empty(input):
        return empty(columns_of(result))
    return result if functions else input


def _is_zero(scalar: Scalar) -> bool:
    return isinstance(scalar, Literal) and scalar.value == 0


def reduce_(
    input: Relation, group_key: tuple[Scalar, ...], aggregates: tuple[Aggregate, ...]
) -> Relation:
    """Return Reduce(input, group_key, aggregates)."""
    if is_empty(input) and group_key:
        return empty(columns_of(Reduce(input, group_key, aggregates)))
    if isinstance(input, Project):
        outputs = input.outputs
        moved = Reduce(input.input, group_key, aggregates)
        return with_scalars(moved, lambda scalar: remap(scalar, outputs))
    return Reduce(input, group_key, aggregates)


# --- joins ---------------------------------------------------------------------------------


def join(
    inputs: Sequence[Relation],
    equivalences: Sequence[Sequence[Scalar]],
    null_safe: Sequence[int],
    fallible: Test,
) -> Relation:
    """Return Join(inputs, equivalences, null_safe), merged with joins below."""
    if any(map(is_empty, inputs)):
        return empty([column for input in inputs for column in columns_of(input)])
    parts = _Parts(fallible)
    places: list[int] = []  # positions of the columns of `inputs` among those of the parts
    for input in inputs:
        places += parts.add(input)
    for position, equivalence in enumerate(equivalences):
        moved = [remap(scalar, places) for scalar in equivalence]
        parts.equate(moved, position in null_safe)
    return project(parts.build(), places)


class _Parts:
    """The inputs of a join under construction; inputs of one known row become constants."""

    def __init__(self, fallible: Test) -> None:
        self.fallible = fallible
        self.inputs: list[Relation] = []
        self.width = 0
        self.classes: list[tuple[list[Scalar], bool]] = []
        self.filters: list[Scalar] = []

    def add(self, input: Relation) -> list[int]:
        """Add `input` and return the positions of its columns."""
        start = self.width
        match input:
            case Project(input=inner, outputs=outputs):
                places = self.add(inner)
                return [places[i] for i in outputs]
            case Join(inputs=inner_inputs, equivalences=equivalences, null_safe=safe):
                for inner in inner_inputs:
                    self.inputs.append(inner)
                    self.width += len(columns_of(inner))
                for position, equivalence in enumerate(equivalences):
                    moved = [remap(s, range(start, self.width)) for s in equivalence]
                    self.equate(moved, position in safe)
            case Constant(rows=(((), 1),)):
                pass
            case _:
                self.inputs.append(input)
                self.width += len(columns_of(input))
        return list(range(start, self.width))

    def equate(self, scalars: Sequence[Scalar], null_safe: bool) -> None:
        """Add an equivalence, merging those that share a scalar."""
        members = list(dict.fromkeys(scalars))
        apart: list[tuple[list[Scalar], bool]] = []
        safe = null_safe
        for other, other_safe in self.classes:
            if any(scalar in other for scalar in members):
                members = list(dict.fromkeys([*other, *members]))
                safe = safe and other_safe
            else:
                apart.append((other, other_safe))
        if len(members) > 1 or not safe:
            apart.append((members, safe))
        self.classes = apart

    def build(self) -> Relation:
        ends = list(accumulate(len(columns_of(input)) for input in self.inputs))
        kept: list[tuple[tuple[Scalar, ...], bool]] = []
        filters: list[Scalar] = []
        for members, safe in self.classes:
            owners = {scalar: owner_of(scalar, ends) for scalar in members}
            single = [s for s, owner in owners.items() if owner is not None and owner >= 0]
            if len({owners[scalar] for scalar in single}) > 1:
                kept.append((tuple(single), safe))
                first, *rest = single[0], *(s for s in members if s not in single)
            else:
                first, *rest = members
                if not rest:
                    filters.append(Call("is_not_null", (first,), BOOL))
            test = "is_not_distinct" if safe else "eq"
            filters += (Call(test, (first, other), BOOL) for other in rest)
        if len(self.inputs) == 1 and not kept:
            return filter_(self.inputs[0], filters, self.fallible)
        joined = Join(
            tuple(self.inputs),
            tuple(members for members, _ in kept),
            tuple(i for i, (_, safe) in enumerate(kept) if safe),
        )
        return filter_(joined, filters, self.fallible)


def owner_of(scalar: Scalar, ends: Sequence[int]) -> int | None:
    """Return the input whose columns `scalar` uses: -1 for none, None for several."""
    used = columns_used(scalar)
    if not used:
        return -1
    low, high = min(used), max(used)
    for number, end in enumerate(ends):
        if low < end:
            return number if high < end else None
    raise AssertionError(f"column {high} of {ends}")
