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

from collections.abc import Sequence
from dataclasses import dataclass

from foreshore.expr.bounded_columns import Bound, bounded_columns
from foreshore.expr.columns import columns_of, type_of
from foreshore.expr.functions.registry import resolve
from foreshore.expr.ir import (
    Aggregate,
    Call,
    Column,
    Filter,
    Get,
    Join,
    Literal,
    Map,
    Project,
    Reduce,
    Relation,
    Scalar,
    Union,
)
from foreshore.ids import GlobalId
from foreshore.types import BOOL, INTERVAL, ColumnType

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
