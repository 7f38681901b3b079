"""Aggregates and other constructs in which the bulk engines' SQL differs.

An aggregate is over entries with multiplicities. count and sum are sums of products and accept
unconsolidated entries. All others need consolidated rows, and count only those with a positive
multiplicity. Sums and comoments of floats are exact and rounded once (`exact.py`), so they do not
depend on order or engine.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from foreshore.expr.ir import Aggregate, Literal, WindowFunction
from foreshore.expr.series import Series
from foreshore.expr.windows import PLACES, is_first
from foreshore.types import SqlType

SUM_FLOAT = "foreshore_sum_float"
COMOMENT_FLOAT = "foreshore_comoment_float"
FRAMED = {"sum_float": "foreshore_framed_sums", "comoment_float": "foreshore_framed_comoments"}
ONE = "CAST(1 AS BIGINT)"  # the multiplicity of entries of which each is there once


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of an aggregate.

    `key` is the form that the engine can compare; `order` the terms of an order without ties;
    `reversed` orders equal values that differ in display in reverse, empty if there are none.
    """

    value: str
    key: str
    order: Sequence[str]
    type: SqlType
    reversed: str = ""


@dataclass(frozen=True, slots=True)
class Sort:
    """A sort key: SQL that the engine orders as SQL does, and the direction."""

    key: str
    descending: bool = False
    nulls_first: bool = False

    @property
    def sql(self) -> str:
        """Return the term of an ORDER BY."""
        direction = "DESC" if self.descending else "ASC"
        return f"{self.key} {direction} NULLS {'FIRST' if self.nulls_first else 'LAST'}"


class Idioms(ABC):
    """The constructs of an engine that are not scalar."""

    def aggregate(
        self,
        aggregate: Aggregate,
        args: Sequence[Argument],
        conditions: Sequence[str],
        order: Sequence[Sort],
        diff: str,
        result: str,
        over: str = "",
    ) -> str:
        """Return the aggregate of type `result` over the entries for which `conditions` hold.

        `over` is the OVER clause that follows each of the engine's aggregates in a window.
        """
        match aggregate.function:
            case "count":
                if diff == ONE and not args:
                    return f"CAST({self.call('count', '*', conditions, over)} AS BIGINT)"
                if diff == ONE and len(args) == 1:
                    return f"CAST({self.call('count', args[0].value, conditions, over)} AS BIGINT)"
                present = [*conditions, *(f"{arg.value} IS NOT NULL" for arg in args)]
                return f"CAST(coalesce(sum({weight(present, diff)}){over}, 0) AS BIGINT)"
            case "sum":
                (arg,) = args
                present = [*conditions, f"{arg.value} IS NOT NULL"]
                total = self.product_sum(arg, conditions, diff, over)
                if diff == ONE:
                    return f"CAST({total} AS {result})"
                count = f"sum({weight(present, diff)}){over}"
                return f"CASE WHEN {count} <> 0 THEN CAST({total} AS {result}) END"
            case "min" | "max":
                (arg,) = args
                where = [*conditions, f"{arg.value} IS NOT NULL", f"{diff} > 0"]
                return self.extreme(aggregate.function, arg, where, over)
            case "sum_float":
                (arg,) = args
                where = [*conditions, f"{arg.value} IS NOT NULL", f"{diff} > 0"]
                total = self.of_floats(SUM_FLOAT, {"x": arg.value}, diff, where, over)
                return f"CAST({total} AS {result})"
            case "comoment_float":
                x, y = (arg.value for arg in args)
                where = [*conditions, f"{x} IS NOT NULL", f"{y} IS NOT NULL", f"{diff} > 0"]
                moment = self.of_floats(COMOMENT_FLOAT, {"x": x, "y": y}, diff, where, over)
                return f"CAST({moment} AS {result})"
            case "array_agg":
                (arg,) = args
                order = [*order, *map(Sort, arg.order)]
                return self.collect(arg.value, diff, order, [*conditions, f"{diff} > 0"], over)
            case "string_agg":
                where = [*conditions, f"{args[0].value} IS NOT NULL", f"{diff} > 0"]
                order = [*order, *(Sort(arg.key) for arg in args)]
                return self.concatenate(args[0].value, args[1].value, diff, order, where, over)

    def product_sum(
        self, arg: Argument, conditions: Sequence[str], diff: str, over: str = ""
    ) -> str:
        """Return the sum of the values, each times its multiplicity."""
        return self.call("sum", self.product(arg, diff), conditions, over)

    def call(self, function: str, value: str, where: Sequence[str], over: str) -> str:
        """Return an aggregate of a value where conditions hold; NULLs must not count."""
        filter = f" FILTER (WHERE {' AND '.join(where)})" if where else ""
        return f"{function}({value}){filter}{over}"

    def product(self, arg: Argument, diff: str) -> str:
        """Return an integer or numeric argument times `diff`, exactly."""
        value = f"CAST({arg.value} AS {self.accumulator_type(arg.type)})"
        return value if diff == ONE else f"{value} * {diff}"

    @abstractmethod
    def accumulator_type(self, type: SqlType) -> str:
        """Return the type of sums over arguments of `type`, which does not overflow silently."""

    def extreme(self, function: str, arg: Argument, where: Sequence[str], over: str = "") -> str:
        """Return the least or greatest value: of pairs if values are compared by a key.

        Of equal values a group shows the least, as operators over arrangements do.
        """
        if arg.key == arg.value:
            return self.call(function, arg.value, where, over)
        if function == "max" and arg.reversed and not over:
            arg = replace(arg, key=self.pair(replace(arg, value=arg.reversed)))
        return f"({self.call(function, self.pair(arg), where, over)}).v"

    @abstractmethod
    def pair(self, arg: Argument) -> str:
        """Return a struct of an argument's key and value, `k` and `v`."""

    @abstractmethod
    def of_floats(
        self,
        function: str,
        values: Mapping[str, str],
        diff: str,
        where: Sequence[str],
        over: str = "",
    ) -> str:
        """Return a call of Foreshore's `function` over a list of structs of floats and `diff`."""

    @abstractmethod
    def framed(self, function: str, number: str, values: Mapping[str, str]) -> str:
        """Return a call of Foreshore's `function` over a list of structs in order of `number`."""

    @abstractmethod
    def collect(
        self,
        value: str,
        diff: str,
        order: Sequence[Sort],
        where: Sequence[str],
        over: str = "",
    ) -> str:
        """Return the values in order, each `diff` times, NULL if there are none."""

    @abstractmethod
    def concatenate(
        self,
        value: str,
        delimiter: str,
        diff: str,
        order: Sequence[Sort],
        where: Sequence[str],
        over: str = "",
    ) -> str:
        """Return the strings in order, with delimiters between them."""

    @abstractmethod
    def has_window(self, function: WindowFunction) -> bool:
        """Return whether the engine has the function over windows with SQL's meaning."""

    @abstractmethod
    def last_known(self, value: str) -> str:
        """Return the call of the last value that is not NULL, before OVER."""

    @abstractmethod
    def repeated(self, diff: str) -> str:
        """Return the SELECT item that makes `diff` rows of each row."""

    @abstractmethod
    def unnest(self, rows: str) -> str:
        """Return the SELECT item that makes a row of each element of a list."""

    def series(self, series: Series) -> str | None:
        """Return a SELECT of `e`, the integers of a series; None if it is unnested from a list."""
        return None

    @abstractmethod
    def element(self, rows: str, number: str) -> str:
        """Return the element of a list with a number from 1, the last one for -1, or NULL."""

    @abstractmethod
    def numbered(self, rows: str) -> str:
        """Return a list's elements and their numbers, from 1, as structs of `e` and `n`."""

    @abstractmethod
    def in_step(self, arrays: Sequence[str]) -> str:
        """Return the list of the elements of arrays with one number; NULL where one has ended."""

    @abstractmethod
    def part(self, element: str, place: int) -> str:
        """Return the value of an element of `in_step` that comes from an array, from 0."""

    @abstractmethod
    def structs(self, rows: Sequence[Mapping[str, str]]) -> str:
        """Return a list of structs."""


def weight(conditions: Sequence[str], diff: str) -> str:
    """Return `diff` where `conditions` hold, else 0."""
    return f"CASE WHEN {' AND '.join(conditions)} THEN {diff} ELSE 0 END" if conditions else diff


class DuckDbIdioms(Idioms):
    """DuckDB's constructs."""

    def accumulator_type(self, type: SqlType) -> str:
        """Return a 128-bit type, as decimal if there is a scale."""
        return f"DECIMAL(38, {type.scale})" if type.scale else "HUGEINT"

    def pair(self, arg: Argument) -> str:
        """Return a struct literal."""
        return f"{{'k': {arg.key}, 'v': {arg.value}}}"

    def of_floats(
        self,
        function: str,
        values: Mapping[str, str],
        diff: str,
        where: Sequence[str],
        over: str = "",
    ) -> str:
        """Return a call over a list of struct literals."""
        floats = "".join(f"'{name}': CAST({sql} AS DOUBLE), " for name, sql in values.items())
        entry = f"{{{floats}'d': CAST({diff} AS BIGINT)}}"
        return f"{function}({self.call('list', entry, where, over)})"

    def framed(self, function: str, number: str, values: Mapping[str, str]) -> str:
        """Return a call over an ordered list of struct literals."""
        fields = ", ".join(f"'{name}': {sql}" for name, sql in values.items())
        return f"{function}(list({{'n': {number}, {fields}}} ORDER BY {number}))"

    def collect(
        self,
        value: str,
        diff: str,
        order: Sequence[Sort],
        where: Sequence[str],
        over: str = "",
    ) -> str:
        """Return a list, flattened if rows are there more than once."""
        by = ", ".join(sort.sql for sort in order)
        if diff == ONE:
            return self.call("list", f"{value} ORDER BY {by}", where, over)
        lists = self.call("list", f"repeat([{value}], {diff}) ORDER BY {by}", where, over)
        return f"flatten({lists})"

    def concatenate(
        self,
        value: str,
        delimiter: str,
        diff: str,
        order: Sequence[Sort],
        where: Sequence[str],
        over: str = "",
    ) -> str:
        """Return the first value, then all others with their delimiters."""
        values = self.collect(value, diff, order, where, over)
        joined = self.collect(f"coalesce({delimiter}, '') || {value}", diff, order, where, over)
        return f"{values}[1] || array_to_string({joined}[2:], '')"

    def has_window(self, function: WindowFunction) -> bool:
        """Return false where peers are excluded among rows: rows in order have no peers."""
        frame = function.frame
        return (
            function.function in PLACES
            or frame.unit != "rows"
            or frame.exclude not in ("group", "ties")
        )

    def last_known(self, value: str) -> str:
        """Return a call with IGNORE NULLS."""
        return f"last_value({value} IGNORE NULLS)"

    def repeated(self, diff: str) -> str:
        """Return an unnested range."""
        return f"unnest(range({diff}))"

    def unnest(self, rows: str) -> str:
        """Return a call of unnest."""
        return f"unnest({rows})"

    def series(self, series: Series) -> str:
        """Return a call of a table function: a list would be in memory, where no limit counts."""
        return f"SELECT generate_series AS e FROM generate_series({', '.join(map(str, series))})"

    def element(self, rows: str, number: str) -> str:
        """Return a subscript."""
        return f"({rows})[{number}]"

    def numbered(self, rows: str) -> str:
        """Return a list_transform with the position."""
        return f"list_transform({rows}, lambda e, i: {{'e': e, 'n': i}})"

    def in_step(self, arrays: Sequence[str]) -> str:
        """Return list_zip, which fills up with NULL."""
        return f"list_zip({', '.join(f'coalesce({array}, [])' for array in arrays)})"

    def part(self, element: str, place: int) -> str:
        """Return the field of a struct without names."""
        return f"struct_extract_at({element}, {place + 1})"

    def structs(self, rows: Sequence[Mapping[str, str]]) -> str:
        """Return a list of struct literals."""
        items = (", ".join(f"'{name}': {sql}" for name, sql in row.items()) for row in rows)
        return f"[{', '.join(f'{{{item}}}' for item in items)}]"


class SparkIdioms(Idioms):
    """Spark's constructs. Session settings make products of decimals keep their scale."""

    def accumulator_type(self, type: SqlType) -> str:
        """Return a decimal of maximal precision."""
        return f"DECIMAL(38, {type.scale or 0})"

    def pair(self, arg: Argument) -> str:
        """Return a struct."""
        return f"struct({arg.key} AS k, {arg.value} AS v)"

    def of_floats(
        self,
        function: str,
        values: Mapping[str, str],
        diff: str,
        where: Sequence[str],
        over: str = "",
    ) -> str:
        """Return a call over a list of structs."""
        floats = "".join(f"CAST({sql} AS DOUBLE) AS {name}, " for name, sql in values.items())
        entry = f"struct({floats}CAST({diff} AS BIGINT) AS d)"
        return f"{function}({self.call('collect_list', entry, where, over)})"

    def framed(self, function: str, number: str, values: Mapping[str, str]) -> str:
        """Return a call over a list of structs, sorted by their first fields."""
        fields = ", ".join(f"{sql} AS {name}" for name, sql in values.items())
        return f"{function}(array_sort(collect_list(struct({number} AS n, {fields}))))"

    def collect(
        self,
        value: str,
        diff: str,
        order: Sequence[Sort],
        where: Sequence[str],
        over: str = "",
    ) -> str:
        """Return a list of structs sorted by an explicit comparison, then expanded."""
        return self._if_any(where, self._values(value, diff, order, where, over), over)

    def concatenate(
        self,
        value: str,
        delimiter: str,
        diff: str,
        order: Sequence[Sort],
        where: Sequence[str],
        over: str = "",
    ) -> str:
        """Return the first value, then all others with their delimiters."""
        values = self._values(value, diff, order, where, over)
        later = f"concat(coalesce({delimiter}, ''), {value})"
        joined = self._values(later, diff, order, where, over)
        rest = f"array_join(slice({joined}, 2, greatest(size({joined}) - 1, 0)), '')"
        return self._if_any(where, f"concat(try_element_at({values}, 1), {rest})", over)

    def _values(
        self, value: str, diff: str, order: Sequence[Sort], where: Sequence[str], over: str
    ) -> str:
        keys = ", ".join(f"{sort.key} AS k{i}" for i, sort in enumerate(order))
        row = f"struct({keys}, {value} AS v, {diff} AS d)"
        compared = "0"
        for i, sort in reversed(list(enumerate(order))):
            null, value_ = ("-1", "1") if sort.nulls_first else ("1", "-1")
            less, more = ("1", "-1") if sort.descending else ("-1", "1")
            compared = (
                f"CASE WHEN l.k{i} IS NOT DISTINCT FROM r.k{i} THEN {compared} "
                f"WHEN l.k{i} IS NULL THEN {null} WHEN r.k{i} IS NULL THEN {value_} "
                f"WHEN l.k{i} < r.k{i} THEN {less} ELSE {more} END"
            )
        listed = self.call("collect_list", row, where, over)
        ordered = f"array_sort({listed}, (l, r) -> {compared})"
        return f"flatten(transform({ordered}, e -> array_repeat(e.v, CAST(e.d AS INT))))"

    def _if_any(self, where: Sequence[str], value: str, over: str) -> str:
        found = f"count(CASE WHEN {' AND '.join(where)} THEN 1 END){over}"
        return f"CASE WHEN {found} > 0 THEN {value} END"

    def call(self, function: str, value: str, where: Sequence[str], over: str) -> str:
        """Return an aggregate; Spark has no FILTER in windows, but its aggregates skip NULLs."""
        if not (where and over):
            return super().call(function, value, where, over)
        return f"{function}(CASE WHEN {' AND '.join(where)} THEN {value} END){over}"

    def has_window(self, function: WindowFunction) -> bool:
        """Return false for GROUPS and EXCLUDE, and calls that need an order of their own."""
        frame = function.frame
        if function.function in ("lag", "lead"):
            _, rows, default = function.args
            return isinstance(default, Literal) and isinstance(rows, Literal) and bool(rows.value)
        if function.function in PLACES:
            return True
        if (frame.unit == "groups" and not is_first(function)) or frame.exclude != "nothing":
            return False
        if function.function == "nth_value":
            return is_first(function)
        return function.function != "last_value" or frame.unit == "rows"

    def last_known(self, value: str) -> str:
        """Return a call that ignores NULLs."""
        return f"last_value({value}, true)"

    def repeated(self, diff: str) -> str:
        """Return an exploded sequence."""
        return f"explode(sequence(CAST(1 AS BIGINT), {diff}))"

    def unnest(self, rows: str) -> str:
        """Return a call of explode."""
        return f"explode({rows})"

    def element(self, rows: str, number: str) -> str:
        """Return a call of try_element_at."""
        return f"try_element_at({rows}, CAST({number} AS INT))"

    def numbered(self, rows: str) -> str:
        """Return a transform with the index, which Spark counts from 0."""
        return f"transform({rows}, (e, i) -> struct(e AS e, i + 1 AS n))"

    def in_step(self, arrays: Sequence[str]) -> str:
        """Return arrays_zip, which fills up with NULL; fields of expressions have numbers."""
        return f"arrays_zip({', '.join(f'coalesce({array}, array())' for array in arrays)})"

    def part(self, element: str, place: int) -> str:
        """Return the field of a struct by its number, from 0."""
        return f"{element}.`{place}`"

    def structs(self, rows: Sequence[Mapping[str, str]]) -> str:
        """Return an array of structs."""
        items = (", ".join(f"{sql} AS {name}" for name, sql in row.items()) for row in rows)
        return f"array({', '.join(f'struct({item})' for item in items)})"
