"""Drop unused columns: each node returns only the columns that its parent uses.

This is the last rule. It pushes projections down to just above the leaves, where the other rules
had pulled them up. Unused definitions and aggregates are removed, along with errors they might
raise. TopK, and Window where the order of peers matters, keep all columns, because they break ties.
"""

from collections.abc import Iterable, Sequence
from typing import assert_never

from msgspec.structs import replace

from foreshore.expr.columns import columns_of
from foreshore.expr.ir import (
    Constant,
    Filter,
    FlatMap,
    Get,
    Join,
    JoinOn,
    Let,
    LetRec,
    LocalGet,
    Map,
    Negate,
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
from foreshore.expr.scalars import scalars_of, with_scalars
from foreshore.expr.split import columns_used
from foreshore.expr.traversal import inputs_of, with_inputs
from foreshore.expr.windows import orders_peers
from foreshore.sql.optimize import build
from foreshore.sql.optimize.scalars import remap

Columns = tuple[int, ...]  # ascending


def narrow(relation: Relation, *, ties: bool = True) -> Relation:
    """Return `relation` without unused columns.

    Without `ties`, TopK uses only the columns it orders by, so its choice among equal rows may
    change.
    """
    width = len(columns_of(relation))
    narrowing = _Narrowing(ties)
    narrowed = narrowing.narrow(relation, tuple(range(width)))
    return narrowing.with_narrow_locals(narrowed) if narrowing.locals else narrowed


def _places(columns: Sequence[int]) -> dict[int, int]:
    return {column: place for place, column in enumerate(columns)}


def _ascending(*columns: Iterable[int]) -> Columns:
    return tuple(sorted(set().union(*columns)))


def _used(scalars: Iterable[Scalar]) -> set[int]:
    return set().union(*map(columns_used, scalars))


class _Narrowing:
    def __init__(self, ties: bool) -> None:
        self.ties = ties
        self.requested: dict[int, set[int]] = {}  # columns used of each local, by number
        # Each local that a Let defines, narrowed, with the places of its columns; by number.
        self.locals: dict[int, tuple[LocalGet, dict[int, int]]] = {}
        self.changed: dict[int, tuple[Relation, Relation]] = {}  # by the identity of the first

    def narrow(self, relation: Relation, wanted: Columns) -> Relation:
        """Return the columns `wanted` of `relation`, in that order."""
        match relation:
            case Constant() | Get():
                return build.project(relation, wanted)
            case LocalGet(number=number):
                self.requested.setdefault(number, set()).update(wanted)
                return Project(relation, wanted)
            case Let(number=number, value=value, body=body):
                result = self.narrow(body, wanted)
                requested = _ascending(self.requested.pop(number, ()))
                narrowed = self.narrow(value, requested)
                types = columns_of(value)
                local = LocalGet(number, tuple(types[i] for i in requested))
                self.locals[number] = local, _places(requested)
                return Let(number, narrowed, result)
            case Map(input=input, scalars=scalars):
                return self.map(input, scalars, wanted)
            case Filter(input=input, predicates=predicates):
                needed = _ascending(wanted, _used(predicates))
                places = _places(needed)
                kept = Filter(
                    self.narrow(input, needed), tuple(remap(p, places) for p in predicates)
                )
                return _project(kept, [places[i] for i in wanted])
            case Project(input=input, outputs=outputs):
                needed = _ascending(outputs[i] for i in wanted)
                places = _places(needed)
                return _project(self.narrow(input, needed), [places[outputs[i]] for i in wanted])
            case FlatMap(input=input, function=function, args=args, columns=columns):
                width = len(columns_of(input))
                if relation.is_numbered and width + len(columns) - 1 not in wanted:
                    columns = columns[:-1]  # the row numbers are not used
                needed = _ascending((i for i in wanted if i < width), _used(args))
                places = _places((*needed, *range(width, width + len(columns))))
                moved = tuple(remap(arg, places) for arg in args)
                result = FlatMap(self.narrow(input, needed), function, moved, columns)
                return _project(result, [places[i] for i in wanted])
            case Join():
                return self.join(relation, wanted)
            case Reduce(input=input, group_key=group_key, aggregates=aggregates):
                keys = len(group_key)
                kept_aggregates = [i for i in range(len(aggregates)) if keys + i in wanted]
                reduced = Reduce(input, group_key, tuple(aggregates[i] for i in kept_aggregates))
                if not keys and not kept_aggregates:
                    return build.project(Constant((((), 1),), ()), ())
                places = _places((*range(keys), *(keys + i for i in kept_aggregates)))
                return _project(self.over_used(reduced, ()), [places[i] for i in wanted])
            case TopK(input=input, group_key=group_key):
                needed = tuple(range(len(columns_of(input))))
                if not self.ties:
                    needed = _ascending(wanted, group_key, _used(scalars_of(relation)))
                places = _places(needed)
                ordered = with_scalars(relation, lambda scalar: remap(scalar, places))
                top = with_inputs(ordered, (self.narrow(input, needed),))
                top = replace(top, group_key=tuple(places[i] for i in group_key))
                return _project(top, [places[i] for i in wanted])
            case Window():
                return self.window(relation, wanted)
            case Negate(input=input):
                return Negate(self.narrow(input, wanted))
            case Threshold(input=input):
                every = tuple(range(len(columns_of(input))))
                return _project(Threshold(self.narrow(input, every)), wanted)
            case Union(inputs=inputs):
                return Union(tuple(self.narrow(input, wanted) for input in inputs))
            case TemporalFilter(input=input, conditions=conditions):
                needed = _ascending(wanted, (column for _, column in conditions))
                places = _places(needed)
                moved_conditions = tuple((operator, places[i]) for operator, i in conditions)
                current = TemporalFilter(self.narrow(input, needed), moved_conditions)
                return _project(current, [places[i] for i in wanted])
            case LetRec(columns=columns, values=values, body=body):  # of all their columns
                narrowed_values = tuple(
                    self.narrow(value, tuple(range(len(types))))
                    for value, types in zip(values, columns, strict=True)
                )
                return with_inputs(relation, (*narrowed_values, self.narrow(body, wanted)))
            case JoinOn() | Recursive():
                raise AssertionError(f"not lowered: {relation}")
            case _:
                assert_never(relation)

    def window(self, window: Window, wanted: Columns) -> Relation:
        width = len(columns_of(window.input))
        kept = [i for i in range(len(window.functions)) if width + i in wanted]
        functions = tuple(window.functions[i] for i in kept)
        below = tuple(i for i in wanted if i < width)
        if not functions:
            return self.narrow(window.input, below)
        needed = tuple(range(width))
        if not (self.ties and any(map(orders_peers, functions))):
            used = _used(scalars_of(replace(window, functions=functions)))
            needed = _ascending(below, window.partition, used)
        places = _places((*needed, *(width + i for i in kept)))
        moved = with_scalars(
            replace(window, functions=functions), lambda scalar: remap(scalar, places)
        )
        narrowed = with_inputs(moved, (self.narrow(window.input, needed),))
        narrowed = replace(narrowed, partition=tuple(places[i] for i in window.partition))
        return _project(narrowed, [places[i] for i in wanted])

    def over_used(self, node: Reduce, more: Iterable[int]) -> Relation:
        """Return `node` over its input narrowed to what its scalars use."""
        needed = _ascending(_used(scalars_of(node)), more)
        places = _places(needed)
        moved = with_scalars(node, lambda scalar: remap(scalar, places))
        return with_inputs(moved, (self.narrow(node.input, needed),))

    def map(self, input: Relation, scalars: tuple[Scalar, ...], wanted: Columns) -> Relation:
        width = len(columns_of(input))
        needed = set(wanted)
        for i in reversed(range(len(scalars))):
            if width + i in needed:
                needed |= columns_used(scalars[i])
        below = _ascending(i for i in needed if i < width)
        kept = [i for i in range(len(scalars)) if width + i in needed]
        places = _places((*below, *(width + i for i in kept)))
        moved = tuple(remap(scalars[i], places) for i in kept)
        narrowed = self.narrow(input, below)
        result = Map(narrowed, moved) if moved else narrowed
        return _project(result, [places[i] for i in wanted])

    def with_narrow_locals(self, relation: Relation) -> Relation:
        """Return `relation` with reads of locals adjusted to their narrowed columns."""
        match relation:
            case Project(input=LocalGet(number=number), outputs=outputs) if number in self.locals:
                local, places = self.locals[number]
                return _project(local, [places[i] for i in outputs])
        inputs = inputs_of(relation)
        if not inputs:
            return relation
        found = self.changed.get(id(relation))
        if found is None:
            changed = tuple(map(self.with_narrow_locals, inputs))
            same = all(a is b for a, b in zip(inputs, changed, strict=True))
            found = relation, relation if same else with_inputs(relation, changed)
            self.changed[id(relation)] = found
        return found[1]

    def join(self, join: Join, wanted: Columns) -> Relation:
        needed = _ascending(wanted, _used(scalars_of(join)))
        places = _places(needed)
        inputs = []
        start = 0
        for input in join.inputs:
            end = start + len(columns_of(input))
            own = tuple(i - start for i in needed if start <= i < end)
            inputs.append(self.narrow(input, own))
            start = end
        moved = with_scalars(join, lambda scalar: remap(scalar, places))
        return _project(with_inputs(moved, tuple(inputs)), [places[i] for i in wanted])


def _project(input: Relation, outputs: Sequence[int]) -> Relation:
    """Return Project(input, outputs), merged with a projection below or omitted if trivial."""
    if isinstance(input, Project):
        return _project(input.input, [input.outputs[i] for i in outputs])
    if tuple(outputs) == tuple(range(len(columns_of(input)))):
        return input
    return Project(input, tuple(outputs))
