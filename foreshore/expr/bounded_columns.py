"""Bounded columns of relations: up to which time of a stream a row with a value follows from.

    at                          times up to the value
    date_bin('1 min', at, ...)  times before the value and a minute
    window_end                  times before the value

A column of a join is bounded by all inputs: one column of each is equal to it, or at most it and an
interval, by the join's equivalences or by filters above it.

    u.at <= t.at + '1 min'      t.at: times of t up to the value, and of u up to a minute later

The end of a session is bounded, as only rows up to it can make the session longer.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from foreshore.expr.columns import columns_of, type_of
from foreshore.expr.functions.fields import unit_of
from foreshore.expr.ir import (
    And,
    Call,
    Case,
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
    WindowFunction,
)
from foreshore.expr.split import columns_used
from foreshore.expr.traversal import operands_of, with_operands
from foreshore.types import INTERVAL

_DAY = 86_400_000_000
_TIMES = ("timestamp", "timestamptz")
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

    def __init__(self, *, loose: bool = False) -> None:
        """Begin without values; `loose` is about values that are not NULL only."""
        self.found: dict[Relation, Bounded] = {}
        self.joined: dict[Join, list[Bounded]] = {}  # the columns of joins, as each use has them
        self._values: dict[int, Bounded] = {}  # of Lets
        self._loose = loose
        # A FULL JOIN has NULL for what one of its sides lacks, and the coalesce of both is bounded.
        self._of_known = None if loose else BoundedColumns(loose=True)

    def bind(self, number: int, bounded: Bounded) -> None:
        """Let `LocalGet(number)` stand for a relation with these bounded columns."""
        self._values[number] = bounded
        if self._of_known is not None:
            self._of_known.bind(number, bounded)

    def bound(self, number: int) -> Bounded:
        """Return the bounded columns of what `LocalGet(number)` stands for."""
        return self._values.get(number, {})

    def of(self, relation: Relation) -> Bounded:
        """Return the bounded columns of a lowered relation."""
        known = self.found.get(relation)
        if known is None or isinstance(relation, Let):
            known = self.found[relation] = self._node(relation)
        return known

    def closing_in(self, join: Join) -> Bounded:
        """Return the columns of a join whose rows find no partners once they are closed.

        They are bounded in all uses of the join.
        """
        uses = self.joined.get(join, [])
        if not uses:
            return {}
        common = set.intersection(*(set(each) for each in uses))
        return {i: frozenset().union(*(each[i] for each in uses)) for i in sorted(common)}

    def _node(self, relation: Relation) -> Bounded:
        over = _over_join(relation)
        if over is not None and over.join.inputs:
            bounded = self._joined(over.join, over.predicates)
            self.joined.setdefault(over.join, []).append(bounded)
            known = self._of_known
            loose = {} if known is None else known._joined(over.join, over.predicates)
            found = {i: self._scalar(each, bounded, loose) for i, each in enumerate(over.outputs)}
            return {i: bounds for i, bounds in found.items() if bounds is not None}
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
                if self._of_known is not None:
                    self._of_known.bind(number, self._of_known.of(value))
                return self.of(body)
            case Filter(input=input) | Negate(input=input) | Threshold(input=input):
                return self.of(input)
            case Project(input=input, outputs=outputs):
                inner = self.of(input)
                return {i: inner[column] for i, column in enumerate(outputs) if column in inner}
            case Map(input=input, scalars=scalars):
                known = self._of_known
                loose = {} if known is None else known.of(input)
                return self._mapped(self.of(input), loose, len(columns_of(input)), scalars)
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
                return {i: inner[i] for i in group if i in inner} | dict(
                    self._session_ends(relation)
                )
            case Union(inputs=inputs):
                parts = [self.of(each) for each in inputs]
                common = set.intersection(*(set(each) for each in parts))
                return {i: frozenset().union(*(each[i] for each in parts)) for i in common}
            case _:
                return {}

    def _session_ends(self, relation: Relation) -> Bounded:
        """Return the column of the last times of sessions, if a window function computes them."""
        session = _session_of(relation)
        if session is None:
            return {}
        rows, now, gap = session
        bounds = self.of(rows).get(now)
        if bounds is None:
            return {}
        last = len(columns_of(relation)) - 1
        return {last: frozenset(replace(each.moved(gap), inclusive=True) for each in bounds)}

    def _joined(self, join: Join, predicates: Sequence[Scalar]) -> Bounded:
        """Return the columns that are compared with bounded ones of all other inputs."""
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
        earlier = [each for part in map(_comparisons, predicates) for each in part]
        for place, own in bounded.items():
            if place in found:
                continue
            partners: dict[int, Bounds] = {owner[place]: own}
            for least, most, beyond in earlier:
                if most == place and least in bounded:
                    moved = frozenset(each.moved(beyond) for each in bounded[least])
                    partners.setdefault(owner[least], moved)
            if len(partners) == len(parts):
                found[place] = frozenset().union(*partners.values())
        return found

    def _mapped(
        self, inner: Bounded, loose: Bounded, width: int, scalars: Sequence[Scalar]
    ) -> Bounded:
        found, known = dict(inner), dict(loose)
        for place, scalar in enumerate(scalars, width):
            bounds = self._scalar(scalar, found, known)
            if bounds is not None:
                found[place] = known[place] = bounds
        return found

    def _scalar(self, scalar: Scalar, columns: Bounded, known: Bounded) -> Bounds | None:
        """Return the bounds of a scalar; `known` has those of columns where they are not NULL."""
        match scalar:
            case Literal(value=None) if self._loose:
                return frozenset()
            case Call(function="coalesce", args=args):
                parts = [bounds_of(each, columns if self._loose else known) for each in args]
                if None not in parts:
                    return frozenset().union(*(each for each in parts if each is not None))
        return bounds_of(scalar, columns)


@dataclass(frozen=True, slots=True)
class _OverJoin:
    """Filters, projections and maps of a join: all scalars are over its columns."""

    join: Join
    outputs: tuple[Scalar, ...]
    predicates: tuple[Scalar, ...]


def _over_join(relation: Relation) -> _OverJoin | None:
    """Return what a relation computes of a join, None if it is something else."""
    chain: list[Relation] = []
    node = relation
    while isinstance(node, Filter | Project | Map):
        chain.append(node)
        node = node.input
    if not isinstance(node, Join):
        return None
    types = columns_of(node)
    outputs: list[Scalar] = [Column(i, each.type, each.nullable) for i, each in enumerate(types)]
    predicates: list[Scalar] = []

    def resolved(scalar: Scalar) -> Scalar:
        if isinstance(scalar, Column):
            return outputs[scalar.index]
        operands = operands_of(scalar)
        return with_operands(scalar, tuple(map(resolved, operands))) if operands else scalar

    for each in reversed(chain):
        match each:
            case Filter(predicates=found):
                predicates += map(resolved, found)
            case Project(outputs=places):
                outputs = [outputs[i] for i in places]
            case Map(scalars=scalars):
                for scalar in scalars:
                    outputs.append(resolved(scalar))
    return _OverJoin(node, tuple(outputs), tuple(predicates))


def _comparisons(predicate: Scalar) -> Iterator[tuple[int, int, int]]:
    """Yield columns a and b and microseconds c such that a <= b + c where a predicate is true."""
    match predicate:
        case And(args=args):
            for each in args:
                yield from _comparisons(each)
        case Call(function=name, args=(one, other)) if name in ("le", "lt", "ge", "gt"):
            if type_of(one) != type_of(other) or type_of(one).name not in _TIMES:
                return
            least, most = (one, other) if name in ("le", "lt") else (other, one)
            a, b = _shifted(least), _shifted(most)
            if a is not None and b is not None:
                yield a[0], b[0], b[1] - a[1]


def _shifted(scalar: Scalar) -> tuple[int, int] | None:
    """Return a column and the microseconds that are added to it; None for any other scalar."""
    match scalar:
        case Column(index=index):
            return index, 0
        case Call(function=function, args=(inner, Literal(value=(0, days, micros), type=type))):
            name = function.partition("(")[0]
            found = _shifted(inner)
            if name in ("add", "subtract") and type == INTERVAL and found is not None:
                length = days * _DAY + micros
                return found[0], found[1] + (length if name == "add" else -length)
    return None


def _session_of(relation: Relation) -> tuple[Relation, int, int] | None:
    """Return rows with their time's column and a gap, if the last column ends their sessions.

    It is the last known of the times that no row follows within the gap (`sql/bind/time_windows`).
    """
    match relation:
        case Window(
            functions=(WindowFunction(function="last_known", args=(Column(index=ends),)),),
            order_key=(order, *_),
            partition=partition,
            input=node,
        ) if order.descending and isinstance(order.expr, Column):
            now = order.expr.index
        case _:
            return None
    while isinstance(node, Window) and node.partition == partition:
        node = node.input
    if not isinstance(node, Map) or ends < len(columns_of(node.input)):
        return None
    match node.scalars[ends - len(columns_of(node.input))]:
        case Case(
            branches=((Call(function=function, args=(Column(index=next), latest)), Literal()),),
            otherwise=Column(index=end),
        ) if function == "le" and end == now:
            beyond = _shifted(latest)
        case _:
            return None
    match node.input:
        case Window(input=rows, order_key=(order, *_), functions=functions) as beside:
            place = next - len(columns_of(rows))
        case _:
            return None
    if beyond is None or beyond[0] != now or not 0 <= place < len(functions):
        return None
    lead = functions[place]
    follows = lead.function == "lead" and lead.args[:1] == (order.expr,) and not order.descending
    is_next = len(lead.args) > 1 and getattr(lead.args[1], "value", None) == 1
    same = beside.partition == partition
    is_column = isinstance(order.expr, Column) and order.expr.index == now
    if not (follows and is_next and same and is_column):
        return None
    return rows, now, beyond[1]


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
