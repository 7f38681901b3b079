"""Bind TUMBLE, HOP and SESSION: windows of time as rows.

    tumble    each row in the one window of `size` that has its time (a Map)
    hop       a row for each window of `size`, one beginning every `slide`, that has it (a FlatMap)
    session   the rows of a key, none of which is more than `gap` after the one before (Windows)

A window has the times from `window_start` on and before `window_end`. Windows of tumble and hop
are aligned with 1970-01-01 00:00 (UTC) and `offset`. Rows whose time is NULL or infinite are in
no window. Days have 24 hours in any time zone; months have no fixed length and are refused.
"""

from collections.abc import Sequence

from foreshore.errors import (
    DatatypeMismatch,
    FeatureNotSupported,
    InvalidParameterValue,
)
from foreshore.expr.columns import columns_of, type_of
from foreshore.expr.evaluate import fold
from foreshore.expr.functions.comparison import check_equality
from foreshore.expr.ir import (
    Case,
    Column,
    Filter,
    Literal,
    Map,
    OrderKey,
    Project,
    Relation,
    Scalar,
    Window,
    WindowFunction,
)
from foreshore.sql import ast
from foreshore.sql.bind.binder import Clause
from foreshore.sql.bind.bound_item import BoundItem, scope_of
from foreshore.sql.bind.bound_query import AddedColumns
from foreshore.sql.bind.coerce import coerce, to_known
from foreshore.sql.bind.derived_item import derived_item
from foreshore.sql.bind.expression import ExpressionBinder
from foreshore.sql.bind.from_items import resolved_set
from foreshore.sql.bind.planning import Planning, located
from foreshore.sql.bind.positions import at_of
from foreshore.sql.bind.scope import Scope, Slot
from foreshore.sql.bind.sets import flat_map
from foreshore.types import INT8, INTERVAL, format_type

OUTPUTS = ("window_start", "window_end")
MOST_WINDOWS = 10_000  # of one row
_DAY = 86_400_000_000
_TIMES = ("timestamp", "timestamptz")


def bind_time_window(
    planning: Planning, item: ast.TimeWindowRef, parent: Scope | None
) -> BoundItem:
    """Return the input's columns, `window_start` and `window_end`."""
    return _TimeWindow(planning, item, parent).bind()


class _TimeWindow:
    def __init__(self, planning: Planning, item: ast.TimeWindowRef, parent: Scope | None) -> None:
        self.item = item
        self.name = item.kind.upper()
        self.part = planning.binding.item(planning, item.input, parent)
        scope = scope_of(self.part, parent)
        self.binder = ExpressionBinder(planning, scope, Clause(f"the arguments of {self.name}"))
        self.width = len(self.part.columns)
        self.time = self._time()
        self.type = type_of(self.binder.bind(self.time))

    def bind(self) -> BoundItem:
        """Return the item, bound."""
        match self.item.kind:
            case "tumble":
                relation = self._tumble()
            case "hop":
                relation = self._hop()
            case "session":
                relation = self._session()
        part, item = self.part, self.item
        slots = [*part.visible, *(Slot(name, self.width + i) for i, name in enumerate(OUTPUTS))]
        return derived_item(part, relation, slots, item.alias, item.columns)

    # --- arguments

    def _time(self) -> ast.Expression:
        """Return the time of a row; a date is its beginning."""
        scalar = self.binder.bind(self.item.time)
        type = type_of(scalar)
        if type.name == "date":
            return self._cast(self.item.time, "timestamp")
        if type.name not in _TIMES or not isinstance(scalar, Column):
            raise DatatypeMismatch(
                f"the time of {self.name} must be a column of type timestamp or timestamp with "
                f"time zone, not {format_type(type)}",
                position=at_of(self.item.time) + 1,
            )
        return self.item.time

    def _length(self, name: str, *, positive: bool = True) -> int:
        """Return a constant length in microseconds; an offset of 0 if there is none."""
        expr = self.item.lengths.get(name)
        if expr is None:
            return 0
        scalar = coerce(self.binder.planning, self.binder.bind(expr), INTERVAL, "implicit", 0)
        at = at_of(expr) + 1
        if scalar is None:
            raise DatatypeMismatch(f"the {name} of {self.name} must be an interval", position=at)
        scalar = fold(scalar)
        if not isinstance(scalar, Literal) or scalar.value is None:
            raise FeatureNotSupported(
                f"the {name} of {self.name} has to be a constant", position=at
            )
        months, days, micros = scalar.value
        if months:
            raise FeatureNotSupported(
                "timestamps cannot be binned into intervals containing months or years",
                position=at,
            )
        length = int(days * _DAY + micros)
        if positive and length <= 0:
            raise InvalidParameterValue(
                f"the {name} of {self.name} must be greater than zero", position=at
            )
        return length

    def _interval(self, micros: int) -> ast.Expression:
        return self._cast(ast.String(f"{micros} microseconds", self.item.at), "interval")

    def _cast(self, expr: ast.Expression, type: str) -> ast.Expression:
        at = self.item.at
        return ast.CastTo(expr, ast.TypeName((type,), (), 0, at), at)

    def _plus(self, expr: ast.Expression, micros: int) -> ast.Expression:
        sign = "-" if micros < 0 else "+"
        return ast.Operation(sign, expr, self._interval(abs(micros)), self.item.at)

    def _bin(self, length: int, time: ast.Expression) -> ast.Expression:
        """Return the beginning of the bin that has `time`."""
        offset = self._length("offset", positive=False) % length
        epoch = self._cast(ast.String("1970-01-01 00:00:00+00", self.item.at), self.type.name)
        origin = self._plus(epoch, offset) if offset else epoch
        args = (self._interval(length), time, origin)
        return ast.FunctionCall(("date_bin",), args, self.item.at)

    def _finite(self) -> Relation:
        """Return the rows that have a time."""
        at = self.item.at
        finite = self.binder.bind(ast.FunctionCall(("isfinite",), (self.time,), at))
        return Filter(self.part.relation, (finite,))

    def _columns(self, relation: Relation, values: Sequence[Scalar]) -> Relation:
        """Return the input's columns of a relation, and `values`."""
        added = AddedColumns(columns_of(relation))
        places = [added.place(value) for value in values]
        return Project(added.relation(relation), (*range(self.width), *places))

    # --- windows

    def _tumble(self) -> Relation:
        size = self._length("size")
        start = self._bin(size, self.time)
        values = tuple(map(self.binder.bind, (start, self._plus(start, size))))
        return self._columns(self._finite(), values)

    def _hop(self) -> Relation:
        """Return a row for each beginning of a window that is after `time - size`."""
        slide, size = self._length("slide"), self._length("size")
        if size > slide * MOST_WINDOWS:
            raise InvalidParameterValue(
                f"HOP has more than {MOST_WINDOWS} windows for a row", position=self.item.at + 1
            )
        before = self._bin(slide, self._plus(self.time, -size))
        args = (self._plus(before, slide), self._bin(slide, self.time), self._interval(slide))
        call = ast.FunctionCall(("generate_series",), args, self.item.at)
        rows = flat_map(self._finite(), *resolved_set(self.binder, call))
        (start,) = rows.values
        end = self._beyond(start, size)
        return self._columns(rows.relation, (start, end))

    def _session(self) -> Relation:
        """Return the rows with the first time of their session, and the last one and `gap`.

        A row begins a session if it is more than `gap` after the row before it, and ends one in the
        same way. The last beginning up to a row is that of its session; so a change reaches
        only the rows of sessions that it changes.
        """
        gap = self._length("gap")
        keys = [self._known(key) for key in self.item.keys]
        added = AddedColumns(self.part.columns)
        partition = tuple(map(added.place, keys))
        time = added.place(self.binder.bind(self.time))
        relation = added.relation(self._finite())
        width = added.width
        now = Column(time, self.type)
        beside = [
            WindowFunction(name, (now, Literal(1, INT8), Literal(None, self.type)), self.type)
            for name in ("lag", "lead")
        ]
        relation = Window(relation, partition, (OrderKey(now),), tuple(beside))
        before, after = (Column(width + i, self.type) for i in range(2))
        begins = self._unless(now, self._at_most(now, self._beyond(before, gap)))
        ends = self._unless(now, self._at_most(after, self._beyond(now, gap)))
        relation = Map(relation, (begins, ends))
        for descending in (False, True):
            known = Column(width + 2 + descending, self.type)
            order = (OrderKey(now, descending), OrderKey(known))  # of equal times, the known first
            last = WindowFunction("last_known", (known,), self.type)
            relation = Window(relation, partition, order, (last,))
        start, last_time = (Column(width + 4 + i, self.type) for i in range(2))
        return self._columns(relation, (start, self._beyond(last_time, gap)))

    def _known(self, key: ast.Expression) -> Scalar:
        scalar = to_known(self.binder.planning, self.binder.bind(key), at_of(key))
        with located(at_of(key)):
            check_equality(type_of(scalar))
        return scalar

    def _unless(self, value: Scalar, condition: Scalar) -> Scalar:
        return Case(((condition, Literal(None, self.type)),), value, self.type)

    def _at_most(self, a: Scalar, b: Scalar) -> Scalar:
        return self.binder.call("<=", (a, b), self.item.at)

    def _beyond(self, time: Scalar, micros: int) -> Scalar:
        length = Literal((0, 0, micros), INTERVAL)
        return self.binder.call("+", (time, length), self.item.at)
