"""Long arrays that a statement gives, as rows that are made before the rest of it.

    SELECT sum(x) FROM unnest($1::numeric[]) AS x      SELECT count(*) FROM generate_series(1, $1)

The text of such a plan would be as long as the array, and one call would make all its elements at
once. Kernels make the elements of arrays of numbers, strings and the like in little time, so the
plan reads them like a collection.
"""

from collections.abc import Iterator, Mapping

import pyarrow as pa

from foreshore.compute.engine import rows_schema
from foreshore.compute.linear import elements_of
from foreshore.compute.local.linear import checked_values
from foreshore.errors import DataError
from foreshore.expr.cost import size_of
from foreshore.expr.ir import IN_STEP, Call, FlatMap, Get, Join, Literal, Relation, Scalar
from foreshore.expr.traversal import inputs_of, walk_relations, walk_scalars, with_inputs
from foreshore.ids import GlobalId

LONG_ARRAY = 4096  # elements from which on an array becomes rows
MOST_ELEMENTS = 250_000  # of arrays
MOST_NUMBERS = 200_000  # of a series; an engine makes those of a longer one row by row
MOST_SIZE = 1 << 23  # characters
CASTS = ("cast_array(anyarray)", "assign_array(anyarray)", "relabel")
QUICK = frozenset(
    "bool int2 int4 int8 oid float4 float8 numeric text varchar bpchar name date time timestamp"
    " timestamptz uuid mz_timestamp".split()
)  # types of elements whose casts take about a microsecond


def reads_arrays(relation: Relation) -> bool:
    """Whether arrays that depend on no row are among the inputs of a plan."""
    return any(
        isinstance(node, FlatMap) and node.input == Join(()) for node in walk_relations(relation)
    )


def has_long_arrays(relation: Relation) -> bool:
    """Whether a bound plan has long arrays that kernels make rows of."""
    return any(True for _ in _found(relation))


def _found(relation: Relation) -> Iterator[FlatMap]:
    for node in walk_relations(relation):
        if isinstance(node, FlatMap) and node.input == Join(()):
            counts = [_elements(array) for array in _arrays(node)]
            if None not in counts and max(filter(None, counts), default=0) >= LONG_ARRAY:
                yield node


def _arrays(node: FlatMap) -> tuple[Scalar, ...]:
    """Return the arrays; without a Call of unnest, which is the array itself."""
    if node.function == IN_STEP or node.function != "unnest(anyarray)":
        return node.arrays
    return node.args


def _elements(array: Scalar) -> int | None:
    """Return how many elements an array has; None if it may take long to make them."""
    match array:
        case Literal(value=None):
            return 0
        case Literal(value=tuple() | list() as value, type=type):
            return len(value) if len(value) <= MOST_ELEMENTS and _is_quick(type.element) else None
        case Call(function=function, args=(inner,), type=type) if function in CASTS:
            return _elements(inner) if _is_quick(type.element) else None
        case Call(function="unnest(anyarray)", args=(inner,)):
            return _elements(inner)
        case Call(function="generate_series(int4,int4)" | "generate_series(int8,int8)", args=args):
            first, last = (arg.value if isinstance(arg, Literal) else None for arg in args)
            if first is None or last is None:
                return None
            count = max(0, last - first + 1)
            return count if count <= MOST_NUMBERS else None
    return None


def _is_quick(element: object) -> bool:
    return getattr(element, "name", None) in QUICK


def rows_of(node: FlatMap) -> pa.Table | None:
    """Return the rows of a long array; None if they are too large, or one fails.

    May take long.
    """
    literals = (part for array in _arrays(node) for part in walk_scalars(array))
    sizes = (size_of(part.value) for part in literals if isinstance(part, Literal))
    if sum(sizes) > MOST_SIZE:
        return None
    try:
        _, columns = elements_of(node, (), 1, checked_values)
    except DataError:  # it may be that no row is needed
        return None
    return pa.Table.from_arrays(columns, schema=rows_schema(node.columns))


def over_long_arrays(relation: Relation) -> tuple[Relation, dict[GlobalId, pa.Table]]:
    """Return a bound plan that reads its long arrays as collections, and these; may take long."""
    arrays: dict[FlatMap, GlobalId] = {}
    given: dict[GlobalId, pa.Table] = {}
    for node in dict.fromkeys(_found(relation)):
        rows = rows_of(node)
        if rows is not None:
            arrays[node] = GlobalId(f"a{len(arrays) + 1}")
            given[arrays[node]] = rows
    return (_over(relation, arrays), given) if arrays else (relation, given)


def _over(relation: Relation, arrays: Mapping[FlatMap, GlobalId]) -> Relation:
    """Return a plan that reads `arrays` as collections."""
    if isinstance(relation, FlatMap) and relation in arrays:
        return Get(arrays[relation], relation.columns)
    inputs = inputs_of(relation)
    below = tuple(_over(input, arrays) for input in inputs)
    if all(a is b for a, b in zip(inputs, below, strict=True)):
        return relation
    return with_inputs(relation, below)
