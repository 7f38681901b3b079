"""Cost estimates for evaluating scalars, from the sizes of their literals.

    light       computed on the event loop
    not light   computed where it delays nothing and can be stopped

The unit is the processing of a character, about 0.1 microseconds. The size of a column's value is
unknown, so a usual one is assumed. A call has a maximal size of its result, and a number of passes
over its arguments. Functions not listed here make one pass and return no more than their arguments.
"""

import re
from bisect import bisect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, islice
from math import comb, prod

from foreshore.expr.columns import columns_of, type_of
from foreshore.expr.functions.python import NAME as PYTHON
from foreshore.expr.functions.registry import scalar_function
from foreshore.expr.ir import (
    Arguments,
    Call,
    Column,
    Constant,
    Filter,
    FlatMap,
    Join,
    Let,
    Literal,
    Map,
    Project,
    Reduce,
    Relation,
    Scalar,
    Union,
    Window,
)
from foreshore.expr.number_cost import (
    cost_of_numbers,
    digits_written,
    handles_numbers,
    reads_numbers,
)
from foreshore.expr.scalars import scalars_of
from foreshore.expr.series import series_of
from foreshore.expr.split import columns_used
from foreshore.expr.traversal import inputs_of, operands_of, walk_relations, walk_scalars
from foreshore.types import Datum, SqlType

LIGHT = 1 << 17  # units: about ten milliseconds
SMALL = 16  # the size of values of bounded length
USUAL = 256  # of an unknown value
USUAL_NUMBER = 32  # of one in a column of numerics without a scale
LONG = 4 * USUAL  # the size above which an estimate for a usual value is far too low
MANY_ELEMENTS = LIGHT // SMALL  # of an array, which is not light however short they are
CALL = 8  # of a call, in addition to its arguments
OVERHEAD = 200  # once, independent of the number of rows
PATTERN = 50  # per character, for compiling a regular expression
_DAY = 86_400_000_000
USUAL_DEPTH = 8  # of a document
LONGEST_NAME = 64
MATCH = 40  # of a match, in addition to its characters
_SHORT = frozenset((int, float, bool, type(None)))
_STRINGS = frozenset((str, bytes, type(None)))
MANY_PARTS = 1000  # of a relation
MANY_ROWS = 1_000_000  # of a join, or of elements of arrays
MANY_GIVEN = 250_000  # elements of an array of literals
MOST = 1 << 62
_LISTS = ("array_agg", "string_agg")  # a value may be in the lists of all rows of a window
_OF_ONE_SIZE = frozenset(
    "bool int2 int4 int8 oid float4 float8 date time timestamp timestamptz uuid char"
    " regclass regnamespace regproc regtype regrole".split()
)
_COUNTS = frozenset(
    ("array_upper(anyarray,int4)", "array_length(anyarray,int4)", "cardinality(anyarray)")
)

_COUNTED = re.compile(r"\{([0-9]{1,4})(?:,([0-9]{0,4}))?\}")
MOST_REPEATED = 255  # of one repetition in PostgreSQL's patterns

Values = Sequence[Datum]  # of arguments; None if unknown
Sizes = Sequence[int]


@dataclass(frozen=True, slots=True)
class Cost:
    """The size of a value, and its cost: of the most expensive call, and of all calls."""

    size: int
    dearest: int = 0
    total: int = 0
    calls: int = 0


def cost_of(scalar: Scalar) -> Cost:
    """Return the estimated cost of evaluating `scalar` for one row."""
    if isinstance(scalar, Literal):
        return Cost(size_of(scalar.value))
    operands = operands_of(scalar)
    parts = [cost_of(each) for each in operands]
    sizes = [each.size for each in parts]
    dearest = max((each.dearest for each in parts), default=0)
    total = sum(each.total for each in parts)
    calls = sum(each.calls for each in parts) + 1
    most = most_size(type_of(scalar))
    if isinstance(scalar, Column) and scalar.type.name == "number":
        return Cost(USUAL_NUMBER, calls=calls)
    if not isinstance(scalar, Call):
        return Cost(min(max(sizes, default=USUAL), most), dearest, total, calls)
    size, work = cost_of_call(scalar.function, [*map(_estimated, operands)], sizes)
    size = min(size, most)
    if scalar.type.name == "bit" and scalar.type.length:  # which it is filled up to
        size, work = max(size, scalar.type.length), work + scalar.type.length
    return Cost(size, max(dearest, work), min(total + work, MOST), calls)


def most_size(type: SqlType) -> int:
    """Return the size that no value of a type exceeds; a numeric of a scale has few digits."""
    if type.name in ("name", "numeric"):
        return LONGEST_NAME
    return SMALL if type.element is None and type.name in _OF_ONE_SIZE else MOST


def _estimated(scalar: Scalar) -> Datum:
    """Return the value of an argument: of the number of elements of an array, a usual one.

    Arrays of type `shaped` are left out: their subscripts may be any numbers.
    """
    if isinstance(scalar, Literal):
        value: Datum = scalar.value
        return value
    if isinstance(scalar, Call) and scalar.function in _COUNTS:
        array = operands_of(scalar)[0]
        return cost_of(array).size if type_of(array).name == "array" else None
    return None


def size_of(datum: Datum) -> int:
    """Return the size of a value; of a long array, a lower bound that is not light."""
    if isinstance(datum, str | bytes):
        return len(datum)
    if isinstance(datum, list | tuple):
        if len(datum) > MANY_ELEMENTS or (datum and isinstance(datum[0], int | float)):
            return SMALL * (1 + len(datum))
        return SMALL + sum(map(size_of, datum))
    return SMALL


def is_long(datum: Datum) -> bool:
    """Whether a single call that processes the value may take long."""
    return isinstance(datum, str | bytes | list | tuple) and size_of(datum) > LIGHT


def cost_of_call(key: str, values: Values, sizes: Sizes) -> tuple[int, int]:
    """Return the size of a call's result, and the call's cost without its arguments."""
    function = scalar_function(key)
    name, sizes = function.name, sizes or (0,)
    grown, worked = _GROWTH.get(name), _WORK.get(name)
    size = sum(sizes) + SMALL if grown is None else grown(values, sizes)
    if function.args and reads_numbers(function):
        size += digits_written(values)
    work = CALL + sum(sizes) + size if worked is None else worked(values, sizes) + size
    if handles_numbers(function):
        size, work = cost_of_numbers(name, values, sizes, size, work)
    return min(size, MOST), min(work, MOST)


def is_demanding(key: str) -> bool:
    """Whether a call may cost more than the sizes of its arguments suggest."""
    name = scalar_function(key).name
    return name in _GROWTH or name in _WORK


def may_grow(key: str) -> bool:
    """Whether the result of a call may be much longer than its arguments."""
    name = scalar_function(key).name
    return name in _GROWTH and name != "length"


# --- results that are longer than the arguments -------------------------------------------------


def _number(value: Datum) -> int:
    return max(value, 0) if isinstance(value, int) else MOST


def _repeated(values: Values, sizes: Sizes) -> int:
    return sizes[0] * _number(values[1])


def _padded(values: Values, sizes: Sizes) -> int:
    return max(sizes[0], _number(values[1]))


def _replaced(values: Values, sizes: Sizes) -> int:
    old = values[1]
    parts = sizes[0] // max(len(old), 1) + 1 if isinstance(old, str) else sizes[0]
    return sizes[0] + parts * sizes[2]


def _replaced_by_pattern(values: Values, sizes: Sizes) -> int:
    return (sizes[0] + 1) * max(sizes[2], 1)


def _replaced_in_array(values: Values, sizes: Sizes) -> int:
    if sizes[2] == SMALL:
        return sizes[0]
    items = len(values[0]) if isinstance(values[0], list | tuple) else sizes[0]
    return sizes[0] + items * sizes[2]


def _joined(values: Values, sizes: Sizes) -> int:
    return sizes[0] * max(sizes[1], 1) + sum(sizes[2:]) * sizes[0] // SMALL


def _formatted(values: Values, sizes: Sizes) -> int:
    pattern = values[0]
    if not isinstance(pattern, str):
        return MOST  # it may have any width
    widths = sum(min(int(digits[:20]), MOST) for digits in re.findall(r"[0-9]+", pattern))
    if "*" in pattern:  # a width is among the arguments
        widths += sum(_number(each) for each in values[1:] if not isinstance(each, str))
    return len(pattern) + widths + (pattern.count("%") + 1) * sum(sizes)


def _series(values: Values, sizes: Sizes) -> int:
    start, stop, *steps = values
    step = steps[0] if steps else 1
    if isinstance(step, tuple):  # an interval, of times in microseconds
        months, days, micros = step
        step = (months * 30 + days) * _DAY + micros
    if not (isinstance(start, int) and isinstance(stop, int) and isinstance(step, int)):
        return MOST
    return SMALL * (1 + max(0, (stop - start) // (step or 1)))


def _filled(values: Values, sizes: Sizes) -> int:
    dimensions = values[1]
    if not isinstance(dimensions, list | tuple):
        return MOST
    return sizes[0] * min(prod(_number(each) for each in dimensions if each is not None), MOST)


def _indented(values: Values, sizes: Sizes) -> int:
    return sizes[0] * (2 + 4 * _depth(values[0]))


_GROWTH: dict[str, Callable[[Values, Sizes], int]] = {
    "repeat": _repeated,
    "lpad": _padded,
    "rpad": _padded,
    "replace": _replaced,
    "regexp_replace": _replaced_by_pattern,
    "array_replace": _replaced_in_array,
    "array_to_string": _joined,
    "concat_ws": lambda values, sizes: sum(sizes[1:]) + sizes[0] * len(sizes),
    "format": _formatted,
    "array_fill": _filled,
    "generate_series": _series,
    "jsonb_pretty": _indented,
    "encode": lambda values, sizes: 4 * sizes[0] + SMALL,
    "quote_literal": lambda values, sizes: 2 * sizes[0] + SMALL,
    "string_to_array": lambda values, sizes: SMALL * (sizes[0] + 1),
    "string_to_table": lambda values, sizes: SMALL * (sizes[0] + 1),
    "regexp_split_to_array": lambda values, sizes: SMALL * (sizes[0] + 1),
    "regexp_split_to_table": lambda values, sizes: SMALL * (sizes[0] + 1),
    "regexp_matches": lambda values, sizes: SMALL * (sizes[0] + 1),
    "length": lambda values, sizes: SMALL,
}  # fmt: skip


# --- calls that look at their arguments more than once ------------------------------------------


def _matched(values: Values, sizes: Sizes) -> int:
    """Return the cost of searching one match; with one argument, `~` is bitwise NOT."""
    if len(sizes) == 1:
        return CALL
    text, pattern = sizes[0], sizes[1]
    if isinstance(values[1], str) and "{" in values[1] and pattern * PATTERN <= LIGHT:
        pattern = max(pattern, pattern_size(values[1]))
    return CALL + pattern * PATTERN + text * (1 + pattern // 8)


def pattern_size(pattern: str) -> int:
    """Return the number of characters of a pattern whose counted repetitions are written out."""
    groups, atom, at = [0], 0, 0
    while at < len(pattern):
        counted = _COUNTED.match(pattern, at)
        if counted is not None:
            count = min(int(counted[2] or counted[1]), MOST_REPEATED)
            groups[-1] += atom * max(count - 1, 0)
            atom *= max(count, 1)
            at = counted.end()
            continue
        if pattern[at] == "(":
            groups.append(0)
        elif pattern[at] == ")" and len(groups) > 1:
            atom = groups.pop() + 1
            groups[-1] += atom
        else:
            atom = 1
            groups[-1] += 1
        at += 2 if pattern[at] == "\\" else 1
    return min(sum(groups), MOST)


def _matched_all(values: Values, sizes: Sizes) -> int:
    """Return the cost of searching all matches, each possibly to the end."""
    return _matched(values, sizes) + sizes[0] * MATCH + sizes[0] * sizes[0] // 64


def _like(values: Values, sizes: Sizes) -> int:
    return CALL + sizes[0] * (1 + sizes[1] // 16) + sizes[1]


def _followed(values: Values, sizes: Sizes) -> int:
    """Return the cost of following a path: `.**` twice visits all descendants of descendants."""
    document, path = values[0], values[1]
    size, steps = sizes[0], sizes[1]
    if not isinstance(path, str):
        return CALL + size * (2 + steps)
    everywhere = path.count(".**")
    visited = comb(_depth(document) + everywhere, everywhere) if everywhere else 1
    patterns = pattern_size(path) * PATTERN if "like_regex" in path else 0
    return CALL + size * visited * (2 + steps) + patterns


def _depth(document: Datum) -> int:
    """Return how deep a document is nested, at most: a usual depth if it is unknown."""
    if not isinstance(document, str):
        return USUAL_DEPTH
    if len(document) > LIGHT:
        return len(document)
    return max(accumulate((c in "[{") - (c in "]}") for c in document), default=0)


def _quadratic(values: Values, sizes: Sizes) -> int:
    return CALL + sizes[0] * (1 + sum(sizes[1:]) // 64)


_PATHS = (
    "jsonb_path_exists", "jsonb_path_match", "jsonb_path_query", "jsonb_path_query_array",
    "jsonb_path_query_first", "jsonb_path_exists_tz", "jsonb_path_match_tz",
    "jsonb_path_query_tz", "jsonb_path_query_array_tz", "jsonb_path_query_first_tz", "@?", "@@",
)  # fmt: skip
_WORK: dict[str, Callable[[Values, Sizes], int]] = {
    **dict.fromkeys(("~", "!~", "~*", "!~*", "regexp_like", "regexp_match", "substring"), _matched),
    **dict.fromkeys(
        ("regexp_replace", "regexp_matches", "regexp_count", "regexp_split_to_array",
         "regexp_split_to_table", "regexp_instr", "regexp_substr"),
        _matched_all,
    ),
    **dict.fromkeys(("~~", "!~~", "~~*", "!~~*"), _like),
    **dict.fromkeys(("array_position", "array_positions", "&&", "@>", "<@"), _quadratic),
    **dict.fromkeys(("?|", "?&"), _quadratic),
    **dict.fromkeys(_PATHS, _followed),
    "length": lambda values, sizes: CALL + sizes[0] // 8,
    PYTHON: lambda values, sizes: LIGHT + 1,  # it waits for another process
}  # fmt: skip


# --- relations ----------------------------------------------------------------------------------


def is_light(scalar: Scalar) -> bool:
    """Whether `scalar` may be computed on the event loop."""
    cost = cost_of(scalar)
    return cost.total + OVERHEAD * cost.calls <= LIGHT


def is_heavy(relation: Relation) -> bool:
    """Whether a single uninterruptible call, or the whole, may take long."""
    return has_long_step(relation) or any(
        isinstance(node, Join | FlatMap)
        and not _is_series(node)
        and cost_of_relation(node)[0] > MANY_ROWS
        for node in ([] if _is_range(relation) else walk_relations(relation))
    )


def has_long_step(relation: Relation) -> bool:
    """Whether a single uninterruptible call may take long."""
    if _is_range(relation):
        return False
    nodes = list(walk_relations(relation))
    costs = [cost_of(each) for node in nodes for each in _computed(node)]
    if any(cost.dearest > LIGHT for cost in costs):
        return True
    long_datum = any(isinstance(node, Constant) and _has_long_datum(node) for node in nodes)
    return long_datum and any(cost.calls > 0 for cost in costs)


def takes_long_for_a_row(relation: Relation) -> bool:
    """Whether a single call for one row may take long, if integers of series come in pieces."""
    nodes = list(walk_relations(relation))
    costs = (
        cost_of(each)
        for node in nodes
        for each in _computed(node)
        if not (isinstance(node, FlatMap) and is_series_of_integers(each))
    )
    return any(cost.dearest > LIGHT for cost in costs) or any(
        isinstance(node, Constant) and _has_long_datum(node) for node in nodes
    )


def is_series_of_integers(array: Scalar) -> bool:
    """Whether `array` has the integers between two bounds."""
    return isinstance(array, Call) and array.function.startswith("generate_series(int")


def _is_series(node: Relation) -> bool:
    """Whether `node` is a series of integers, which an engine makes row by row."""
    return (
        isinstance(node, FlatMap)
        and node.input == Join(())
        and series_of(node.arrays[0]) is not None
    )


def _computed(node: Relation) -> Iterable[Scalar]:
    """Return the scalars that a node computes."""
    if isinstance(node, FlatMap):
        return [each for each in node.arrays if not is_given(each) and not _is_series(node)]
    return scalars_of(node)


def is_given(array: Scalar) -> bool:
    """Whether `array` is a literal, or the elements of one, that is quickly made a column."""
    while isinstance(array, Call) and (
        array.function == "unnest(anyarray)" or _is_cast_of_integers(array)
    ):
        (array,) = array.args
    return isinstance(array, Literal) and size_of(array.value) < SMALL * MANY_GIVEN


def _is_cast_of_integers(call: Call) -> bool:
    """Whether `call` is a cast between arrays of integers, which drivers send as they fit."""
    if call.function != "cast_array(anyarray)":
        return False
    elements = call.type.element, type_of(call.args[0]).element
    return all(each is not None and each.name in ("int2", "int4", "int8") for each in elements)


def has_growing_call(relation: Relation) -> bool:
    """Whether `relation` makes values that may be much longer than those that it reads."""
    for node in walk_relations(relation):
        if isinstance(node, Window) and any(e.function in _LISTS for e in node.functions):
            return True
        if any(map(grows, node.arrays if isinstance(node, FlatMap) else scalars_of(node))):
            return True
    return False


def grows(scalar: Scalar) -> bool:
    """Whether `scalar` makes values that may be much longer than those that it reads."""
    return any(isinstance(part, Call) and may_grow(part.function) for part in walk_scalars(scalar))


def computes_numbers(relation: Relation) -> bool:
    """Whether `relation` has calls over numbers of any length, whose costs are those of digits."""
    return any(
        isinstance(part, Call) and handles_numbers(scalar_function(part.function))
        for node in walk_relations(relation)
        for scalar in scalars_of(node)
        for part in walk_scalars(scalar)
    )


def _is_range(relation: Relation) -> bool:
    """Whether `relation` is one series of less than a million integers; their kernel is quick."""
    while isinstance(relation, Project):
        relation = relation.input
    match relation:
        case FlatMap(input=Join(inputs=()), function=function):
            is_series = function.startswith("generate_series(int")
            return is_series and cost_of(relation.arrays[0]).size < SMALL * MANY_ROWS
        case _:
            return False


def is_large(relation: Relation) -> bool:
    """Whether traversing `relation` and its scalars takes milliseconds by itself."""
    parts = (
        one
        for node in walk_relations(relation)
        for part in chain((node,), *map(walk_scalars, scalars_of(node)))
        for one in (part.numbers if isinstance(part, Arguments) else (part,))
    )
    return next(islice(parts, MANY_PARTS, None), None) is not None


def _has_long_datum(constant: Constant) -> bool:
    for i in range(len(constant.columns)):
        datums = [row[i] for row, _ in constant.rows]
        kinds = set(map(type, datums))
        if kinds <= _SHORT:
            continue
        if kinds <= _STRINGS and max(map(len, filter(None, datums)), default=0) <= LIGHT:
            continue
        if any(map(is_long, datums)):
            return True
    return False


def _joined_counts(join: Join, counts: list[int]) -> list[int]:
    """Return the numbers of rows of a join's inputs, 1 for those joined by WITH ORDINALITY.

    A number is there once, so such an input adds at most one row to each of the others.
    """
    starts = list(accumulate((len(columns_of(each)) for each in join.inputs), initial=0))
    numbers = {
        starts[i] + place: i
        for i, each in enumerate(join.inputs)
        if (place := _number_column(each)) is not None
    }
    for equivalence in join.equivalences:
        used = [columns_used(each) for each in equivalence]
        linked = {bisect(starts, min(each)) - 1 for each in used if each}
        bare = {each.index for each in equivalence if isinstance(each, Column)}
        numbered = {numbers[index] for index in bare & numbers.keys()}
        if numbered and len(linked) > 1:
            if linked == numbered:
                numbered.remove(max(numbered, key=counts.__getitem__))
            return [1 if i in numbered else count for i, count in enumerate(counts)]
    return counts


def _number_column(relation: Relation) -> int | None:
    """Return the column of a relation that numbers the rows of arrays, if there is one."""
    match relation:
        case FlatMap(input=Join(inputs=()), is_numbered=True, columns=columns):
            return len(columns) - 1
        case Project(input=input, outputs=outputs):
            place = _number_column(input)
            return outputs.index(place) if place in outputs else None
        case _:
            return None


def cost_of_a_row(relation: Relation) -> int:
    """Return the estimated cost of all scalars of `relation`, each for one row.

    Series of integers are left out, and what is computed of aggregates over all rows.
    """
    top = relation
    while isinstance(top, Map | Filter | Project):
        top = top.input
    if isinstance(top, Reduce) and not top.group_key:
        relation = top
    scalars = [
        each
        for node in walk_relations(relation)
        for each in _computed(node)
        if not (isinstance(node, FlatMap) and is_series_of_integers(each))
    ]
    return sum(cost_of(each).total for each in scalars)


def cost_of_relation(relation: Relation, overhead: int = OVERHEAD) -> tuple[int, int]:
    """Return the estimated number of rows of `relation`, and the cost of computing them.

    A collection that is read counts as one row. Each call of a kernel has an `overhead`.
    """
    rows, work = 1, 0
    match relation:
        case Constant(columns=columns):
            return len(relation.rows), len(relation.rows) * (2 + 2 * len(columns))
        case Let(value=value, body=body):
            rows, work = cost_of_relation(body, overhead)
            return rows, work + cost_of_relation(value, overhead)[1]
    parts = [cost_of_relation(each, overhead) for each in inputs_of(relation)]
    work = sum(work for _, work in parts)
    if isinstance(relation, Union):
        return sum(rows for rows, _ in parts), work
    counts = [rows for rows, _ in parts]
    if isinstance(relation, Join):
        counts = _joined_counts(relation, counts)
    rows = min(prod(counts), MOST)
    if isinstance(relation, FlatMap):
        costs = [cost_of(array) for array in relation.arrays]
        longest = max(cost.size for cost in costs) // SMALL
        return min(rows * max(longest, 1), MOST), work + rows * sum(cost.total for cost in costs)
    for scalar in scalars_of(relation):
        cost = cost_of(scalar)
        work += rows * cost.total + overhead * cost.calls
    return rows, min(work, MOST)
