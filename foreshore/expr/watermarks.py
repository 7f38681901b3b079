"""Watermarks in plans: which rows are final, and the relation of the final rows.

A relation with a watermark gains no row whose time is before its watermark, which is the greatest
time so far less a delay. A column of what is computed from it is *bounded* if the rows with a value
v in it follow from rows whose times are before v and an offset. Once the watermark has passed that,
such a row never changes again.

    at                          times up to the value
    date_bin('1 min', at, ...)  times before the value and a minute
    window_end                  times before the value

With an IDLE TIMEOUT the watermark is at least what the clock has moved it to, which is the one row
of a relation beside it.

So the final rows are a filter of all rows by the watermark, which is a relation of one row:

    Filter(#1 <= #3)
      Join
        rows, with the end of the window in #1
        Reduce max(at) - delay
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from foreshore.expr.columns import columns_of, type_of
from foreshore.expr.functions.fields import unit_of
from foreshore.expr.functions.registry import resolve
from foreshore.expr.ir import (
    Aggregate,
    Call,
    Column,
    Constant,
    Filter,
    FlatMap,
    Get,
    Join,
    Let,
    Literal,
    LocalGet,
    Map,
    Negate,
    Project,
    Reduce,
    Relation,
    Scalar,
    Threshold,
    TopK,
    Union,
    Window,
)
from foreshore.expr.split import columns_used
from foreshore.ids import GlobalId
from foreshore.types import BOOL, INTERVAL, ColumnType

_DAY = 86_400_000_000
_UNITS = {  # of date_trunc, in months and microseconds
    "microseconds": (0, 1),
    "milliseconds": (0, 1_000),
    "second": (0, 1_000_000),
    "minute": (0, 60_000_000),
    "hour": (0, 3_600_000_000),
    "day": (0, _DAY),
    "week": (0, 7 * _DAY),
    "month": (1, 0),
    "quarter": (3, 0),
    "year": (12, 0),
}


@dataclass(frozen=True, slots=True)
class Bound:
    """Rows with a value v follow from rows of `get` whose times are before v and an offset.

    The offset is `first`, then `months`, then `micros`: the end of a month is found from its
    beginning only. With `inclusive`, times may be equal to that.
    """

    get: Get
    first: int = 0  # in microseconds, 0 without months
    months: int = 0
    micros: int = 0
    inclusive: bool = False

    def moved(self, micros: int) -> "Bound":
        """Return the bound of values that are earlier by so much."""
        if self.months:
            return replace(self, first=self.first + micros)
        return replace(self, micros=self.micros + micros)

    def moved_by_months(self, months: int) -> "Bound | None":
        """Return the bound of values that are earlier by so much, None if there is no such form."""
        return None if self.first else replace(self, months=self.months + months)

    @property
    def is_end(self) -> bool:
        """Whether the value itself is when it becomes final."""
        return not (self.first or self.months or self.micros or self.inclusive)


Bounds = frozenset[Bound]  # all hold; none: the rows never change
Bounded = Mapping[int, Bounds]  # of the columns that are bounded


def bounded_columns(relation: Relation) -> dict[Relation, Bounded]:
    """Return the bounded columns of a lowered relation, and of each of its parts."""
    analysis = BoundedColumns()
    analysis.of(relation)
    return analysis.found


class BoundedColumns:
    """The bounded columns of relations, and of what `LocalGet`s stand for."""

    def __init__(self) -> None:
        self.found: dict[Relation, Bounded] = {}
        self._values: dict[int, Bounded] = {}  # of Lets

    def bind(self, number: int, bounded: Bounded) -> None:
        """Let `LocalGet(number)` stand for a relation with these bounded columns."""
        self._values[number] = bounded

    def bound(self, number: int) -> Bounded:
        """Return the bounded columns of what `LocalGet(number)` stands for."""
        return self._values.get(number, {})

    def of(self, relation: Relation) -> Bounded:
        """Return the bounded columns of a lowered relation."""
        known = self.found.get(relation)
        if known is None or isinstance(relation, Let):
            known = self.found[relation] = self._node(relation)
        return known

    def _node(self, relation: Relation) -> Bounded:
        match relation:
            case Get(watermark=watermark):
                if watermark is None:
                    return {}
                return {watermark.column: frozenset((Bound(relation, inclusive=True),))}
            case Constant(columns=columns):
                return {i: frozenset() for i in range(len(columns))}
            case LocalGet(number=number):
                return self._values.get(number, {})
            case Let(number=number, value=value, body=body):
                self._values[number] = self.of(value)
                return self.of(body)
            case Filter(input=input) | Negate(input=input) | Threshold(input=input):
                return self.of(input)
            case Project(input=input, outputs=outputs):
                inner = self.of(input)
                return {i: inner[column] for i, column in enumerate(outputs) if column in inner}
            case Map(input=input, scalars=scalars):
                return _mapped(self.of(input), len(columns_of(input)), scalars)
            case FlatMap(input=input, function=function, args=args):
                inner = dict(self.of(input))
                if function.startswith("generate_series") and args:
                    begin = bounds_of(args[0], inner)
                    if begin is not None and _is_forward(args[-1]):
                        inner[len(columns_of(input))] = begin
                return inner
            case Reduce(input=input, group_key=key):
                inner = self.of(input)
                found = {i: bounds_of(scalar, inner) for i, scalar in enumerate(key)}
                return {i: bounds for i, bounds in found.items() if bounds is not None}
            case TopK(input=input, group_key=group) | Window(input=input, partition=group):
                inner = self.of(input)
                return {i: inner[i] for i in group if i in inner}
            case Union(inputs=inputs):
                parts = [self.of(each) for each in inputs]
                common = set.intersection(*(set(each) for each in parts))
                return {i: frozenset().union(*(each[i] for each in parts)) for i in common}
            case Join():
                return self._joined(relation)
            case _:
                return {}

    def _joined(self, join: Join) -> Bounded:
        """Return the columns that an equality compares with bounded ones of all other inputs."""
        parts = [self.of(each) for each in join.inputs]
        owner: list[int] = []
        bounded: dict[int, Bounds] = {}
        for number, (input, part) in enumerate(zip(join.inputs, parts, strict=True)):
            bounded |= {len(owner) + i: bounds for i, bounds in part.items()}
            owner += [number] * len(columns_of(input))
        if len(parts) == 1:
            return bounded
        found: dict[int, Bounds] = {}
        for equal in join.equivalences:
            members = [(scalar, bounds_of(scalar, bounded)) for scalar in equal]
            known = [(scalar, bounds) for scalar, bounds in members if bounds is not None]
            covered = {owner[i] for scalar, _ in known for i in columns_used(scalar)}
            if len(covered) < len(parts):
                continue
            together: Bounds = frozenset().union(*(bounds for _, bounds in known))
            found |= {each.index: together for each in equal if isinstance(each, Column)}
        return found


def _mapped(inner: Bounded, width: int, scalars: Sequence[Scalar]) -> Bounded:
    found = dict(inner)
    for place, scalar in enumerate(scalars, width):
        bounds = bounds_of(scalar, found)
        if bounds is not None:
            found[place] = bounds
    return found


def bounds_of(scalar: Scalar, columns: Bounded) -> Bounds | None:
    """Return the bounds of the values of a scalar over bounded columns, None if it has none."""
    match scalar:
        case Column(index=index):
            return columns.get(index)
        case Call(function=function, args=args):
            name, _, of = function.partition("(")
            match name, args:
                case "date_bin", (Literal(value=stride), value, Literal()) if stride is not None:
                    return _binned(bounds_of(value, columns), stride[0], _micros(stride))
                case "date_trunc" | "date_trunc_total", (Literal(value=str(unit)), value):
                    if (name := unit_of(unit)) in _UNITS:
                        return _binned(bounds_of(value, columns), *_UNITS[name])
                case "cast", (value,) if of == "timestamp,date)":
                    return _binned(bounds_of(value, columns), 0, _DAY)
                case "cast", (value,) if of == "date,timestamp)":
                    return bounds_of(value, columns)
                case "add" | "subtract", (value, Literal(value=(months, days, micros), type=type)):
                    sign = -1 if name == "add" else 1
                    bounds = bounds_of(value, columns)
                    if bounds is not None and type == INTERVAL and not months:
                        moved = sign * (days * _DAY + micros)
                        return frozenset(each.moved(moved) for each in bounds)
    return None


def _binned(bounds: Bounds | None, months: int, micros: int) -> Bounds | None:
    """Return the bounds of the beginnings of bins of such a length."""
    found = set()
    for each in bounds or ():
        moved = each.moved_by_months(months) if months else each.moved(micros)
        if moved is None:
            return None
        found.add(replace(moved, inclusive=False))
    return None if bounds is None else frozenset(found)


def _micros(interval: tuple[int, int, int]) -> int:
    return interval[1] * _DAY + interval[2]


def _is_forward(step: Scalar) -> bool:
    """Whether a step of generate_series is a positive interval."""
    return (
        isinstance(step, Literal)
        and step.type == INTERVAL
        and step.value is not None
        and min(step.value) >= 0
    )


# --- the final rows ------------------------------------------------------------------------


def watermark_relation(get: Get, earlier: int = 0) -> Relation:
    """Return the watermark of a relation, as one row; NULL before the first time.

    The time is `earlier` by so many microseconds.
    """
    watermark = get.watermark
    assert watermark is not None, get
    column = columns_of(get)[watermark.column]
    times = Project(get, (watermark.column,))
    finite = Call(f"isfinite({column.type.name})", (Column(0, column.type, column.nullable),), BOOL)
    greatest = Aggregate("max", (Column(0, column.type, column.nullable),), column.type)
    found: Relation = Reduce(Filter(times, (finite,)), (), (greatest,))
    if watermark.marks is not None:
        latest = Aggregate("max", (Column(0, column.type),), column.type)
        marks = Get(watermark.marks, (ColumnType(column.type),))
        found = Reduce(Union((found, marks)), (), (latest,))
    if not watermark.delay + earlier:
        return found
    delay = Literal((0, 0, watermark.delay + earlier), INTERVAL)
    late = _called("-", Column(0, column.type), delay)
    return Project(Map(found, (late,)), (1,))


def final_rows(relation: Relation) -> Relation | None:
    """Return the rows of a lowered relation that never change again; None if none are known to be.

    They are those of the first column that is the end of a window, else of the first bounded one.
    """
    bounded = bounded_columns(relation)[relation]
    usable = {i: bounds for i, bounds in sorted(bounded.items()) if bounds}
    if not usable:
        return None
    ends = [i for i, bounds in usable.items() if all(each.is_end for each in bounds)]
    place = next(iter((*ends, *usable)))
    columns = columns_of(relation)
    width, value = len(columns), Column(place, columns[place].type, columns[place].nullable)
    bounds = sorted(usable[place], key=_order)
    finals = [_final(value, each) for each in bounds]
    marks = [watermark_relation(each.get) for each in bounds]
    inclusive = [each.inclusive for each in bounds]
    if _are_shifted(bounds) and value.type.name != "date":
        # One time is compared with all watermarks, so that rows can wait in its order.
        finals, inclusive = [value] * len(bounds), [False] * len(bounds)
        marks = [watermark_relation(each.get, each.micros + each.inclusive) for each in bounds]
    added = tuple(dict.fromkeys(each for each in finals if each != value))
    rows = Map(relation, added) if added else relation
    predicates = []
    for number, final in enumerate(finals):
        type = type_of(final)
        at = value if final == value else Column(width + added.index(final), type)
        mark = Column(width + len(added) + number, type)
        predicates.append(_called("<" if inclusive[number] else "<=", at, mark))
    closed = Filter(Join((rows, *marks)), tuple(predicates))
    return Project(closed, tuple(range(width)))


def _are_shifted(bounds: Sequence[Bound]) -> bool:
    """Whether bounds are all in microseconds, and not all the same."""
    offsets = {(each.micros, each.inclusive) for each in bounds}
    return len(offsets) > 1 and not any(each.months for each in bounds)


def _order(bound: Bound) -> tuple[GlobalId, int, int, int]:
    return bound.get.id, bound.first, bound.months, bound.micros


def _final(value: Scalar, bound: Bound) -> Scalar:
    """Return the time that a watermark has to pass for rows with a value to be final."""
    if bound.first:
        value = _called("+", value, Literal((0, 0, bound.first), INTERVAL))
    if bound.months or bound.micros or type_of(value).name == "date":
        return _called("+", value, Literal((bound.months, 0, bound.micros), INTERVAL))
    return value


def _called(operator: str, *args: Scalar) -> Scalar:
    found = resolve(operator, tuple(map(type_of, args)))
    return Call(found.key, args, found.result)


# --- recognized by engines -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Closing:
    """Rows that appear once watermarks have passed the time in their column `column`.

    Each watermark is a relation of one row that never decreases. With `inclusive` a row appears
    when all are at its time, else beyond it.
    """

    rows: Relation
    column: int
    watermarks: tuple[Relation, ...]
    inclusive: bool


def closing_of(relation: Relation) -> Closing | None:
    """Return what a filter of rows by watermarks is, None for any other relation."""
    match relation:
        case Filter(input=Join(inputs=(rows, *marks), equivalences=()), predicates=predicates):
            pass
        case _:
            return None
    width = len(columns_of(rows))
    left, functions = set(), set()
    compared = set()
    for predicate in predicates:
        match predicate:
            case Call(function=name, args=(Column(index=a), Column(index=b))) if a < width <= b:
                left.add(a)
                functions.add(name.partition("(")[0])
                compared.add(b - width)
            case _:
                return None
    if not marks or len(left) != 1 or len(functions) != 1 or not functions <= {"le", "lt"}:
        return None
    if compared != set(range(len(marks))) or len(predicates) != len(marks):
        return None
    if not all(_maximum(mark) is not None for mark in marks):
        return None
    types = {columns_of(mark)[0].type.name for mark in marks}
    if not types <= {"timestamp", "timestamptz"} or any(len(columns_of(m)) > 1 for m in marks):
        return None
    (column,) = left
    return Closing(rows, column, tuple(marks), functions == {"le"})


def watermarked(mark: Relation) -> tuple[Get, int] | None:
    """Return the relation of which this is the watermark, and by how much it is earlier.

    None if it is something else.
    """
    reduce = _maximum(mark)
    if reduce is None:
        return None
    delay = 0
    match mark:
        case Project(input=Map(scalars=(Call(args=(_, Literal(value=(0, 0, int(delay))))),))):
            pass
    rows = reduce.input
    match rows:
        case Union(inputs=(Reduce(input=rows), Get())):
            pass
    match rows:
        case Filter(input=Project(input=Get(watermark=watermark) as get)) if watermark is not None:
            earlier = delay - watermark.delay
            return (get, earlier) if watermark_relation(get, earlier) == mark else None
    return None


def _maximum(mark: Relation) -> Reduce | None:
    """Return the maximum from which a constant is subtracted, None if `mark` is something else."""
    match mark:
        case Project(
            input=Map(input=inner, scalars=(Call(function=name, args=args),)), outputs=(1,)
        ):
            match args:
                case (Column(index=0), Literal()) if name.startswith("subtract("):
                    mark = inner
                case _:
                    return None
    match mark:
        case Reduce(group_key=(), aggregates=(Aggregate(function="max", filter=None),)):
            return mark
    return None
