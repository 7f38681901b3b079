"""Aggregates and other constructs in which the bulk engines' SQL differs.

An aggregate is over entries with multiplicities. count and sum are sums of products and accept
unconsolidated entries. All others need consolidated rows, and count only those with a positive
multiplicity. Sums and comoments of floats are exact and rounded once (`compute/bulk/exact.py`), so
they do not depend on order or engine.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from foreshore.expr.ir import Aggregate
from foreshore.types import SqlType

SUM_FLOAT = "foreshore_sum_float"
COMOMENT_FLOAT = "foreshore_comoment_float"


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of an aggregate.

    `key` is the form that the engine can compare; `order` the terms of an order without ties.
    """

    value: str
    key: str
    order: Sequence[str]
    type: SqlType


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
    ) -> str:
        """Return the aggregate of type `result` over the entries for which `conditions` hold."""
        match aggregate.function:
            case "count":
                present = [*conditions, *(f"{arg.value} IS NOT NULL" for arg in args)]
                return f"CAST(coalesce(sum({weight(present, diff)}), 0) AS BIGINT)"
            case "sum":
                (arg,) = args
                present = [*conditions, f"{arg.value} IS NOT NULL"]
                total = self.product_sum(arg, conditions, diff)
                count = f"sum({weight(present, diff)})"
                return f"CASE WHEN {count} <> 0 THEN CAST({total} AS {result}) END"
            case "min" | "max":
                (arg,) = args
                where = [*conditions, f"{arg.value} IS NOT NULL", f"{diff} > 0"]
                return self.extreme(aggregate.function, arg, where)
            case "sum_float":
                (arg,) = args
                where = [*conditions, f"{arg.value} IS NOT NULL", f"{diff} > 0"]
                total = self.of_floats(SUM_FLOAT, {"x": arg.value}, diff, where)
                return f"CAST({total} AS {result})"
            case "comoment_float":
                x, y = (arg.value for arg in args)
                where = [*conditions, f"{x} IS NOT NULL", f"{y} IS NOT NULL", f"{diff} > 0"]
                moment = self.of_floats(COMOMENT_FLOAT, {"x": x, "y": y}, diff, where)
                return f"CAST({moment} AS {result})"
            case "array_agg":
                (arg,) = args
                order = [*order, *map(Sort, arg.order)]
                return self.collect(arg.value, diff, order, [*conditions, f"{diff} > 0"])
            case "string_agg":
                where = [*conditions, f"{args[0].value} IS NOT NULL", f"{diff} > 0"]
                order = [*order, *(Sort(arg.key) for arg in args)]
                return self.concatenate(args[0].value, args[1].value, diff, order, where)

    def product_sum(self, arg: Argument, conditions: Sequence[str], diff: str) -> str:
        """Return the sum of the values, each times its multiplicity."""
        where = f" FILTER (WHERE {' AND '.join(conditions)})" if conditions else ""
        return f"sum({self.product(arg, diff)}){where}"

    @abstractmethod
    def product(self, arg: Argument, diff: str) -> str:
        """Return an integer or numeric argument times `diff`, exactly."""

    @abstractmethod
    def accumulator_type(self, type: SqlType) -> str:
        """Return the type of sums over arguments of `type`."""

    @abstractmethod
    def extreme(self, function: str, arg: Argument, where: Sequence[str]) -> str:
        """Return the least or greatest value."""

    @abstractmethod
    def of_floats(
        self, function: str, values: Mapping[str, str], diff: str, where: Sequence[str]
    ) -> str:
        """Return a call of Foreshore's `function` over a list of structs of floats and `diff`."""

    @abstractmethod
    def collect(self, value: str, diff: str, order: Sequence[Sort], where: Sequence[str]) -> str:
        """Return the values in order, each `diff` times, NULL if there are none."""

    @abstractmethod
    def concatenate(
        self, value: str, delimiter: str, diff: str, order: Sequence[Sort], where: Sequence[str]
    ) -> str:
        """Return the strings in order, with delimiters between them."""

    @abstractmethod
    def unnest(self, rows: str) -> str:
        """Return the SELECT item that makes a row of each element of a list."""

    @abstractmethod
    def numbered(self, rows: str) -> str:
        """Return a list's elements and their numbers, from 1, as structs of `e` and `n`."""

    @abstractmethod
    def structs(self, rows: Sequence[Mapping[str, str]]) -> str:
        """Return a list of structs."""


def weight(conditions: Sequence[str], diff: str) -> str:
    """Return `diff` where `conditions` hold, else 0."""
    return f"CASE WHEN {' AND '.join(conditions)} THEN {diff} ELSE 0 END" if conditions else diff


class DuckDbIdioms(Idioms):
    """DuckDB's constructs."""

    def product(self, arg: Argument, diff: str) -> str:
        """Return the product in the accumulator's type, which does not overflow silently."""
        return f"CAST({arg.value} AS {self.accumulator_type(arg.type)}) * {diff}"

    def accumulator_type(self, type: SqlType) -> str:
        """Return a 128-bit type, as decimal if there is a scale."""
        return f"DECIMAL(38, {type.scale})" if type.scale else "HUGEINT"

    def extreme(self, function: str, arg: Argument, where: Sequence[str]) -> str:
        """Return min or max, of pairs if values are compared by a key."""
        filter = f"FILTER (WHERE {' AND '.join(where)})"
        if arg.key == arg.value:
            return f"{function}({arg.value}) {filter}"
        return f"({function}({{'k': {arg.key}, 'v': {arg.value}}}) {filter}).v"

    def of_floats(
        self, function: str, values: Mapping[str, str], diff: str, where: Sequence[str]
    ) -> str:
        """Return a call over a list of struct literals."""
        floats = "".join(f"'{name}': CAST({sql} AS DOUBLE), " for name, sql in values.items())
        entry = f"{{{floats}'d': CAST({diff} AS BIGINT)}}"
        return f"{function}(list({entry}) FILTER (WHERE {' AND '.join(where)}))"

    def collect(self, value: str, diff: str, order: Sequence[Sort], where: Sequence[str]) -> str:
        """Return a flattened list of lists."""
        by = ", ".join(sort.sql for sort in order)
        return (
            f"flatten(list(repeat([{value}], {diff}) ORDER BY {by}) "
            f"FILTER (WHERE {' AND '.join(where)}))"
        )

    def concatenate(
        self, value: str, delimiter: str, diff: str, order: Sequence[Sort], where: Sequence[str]
    ) -> str:
        """Return the first value, then all others with their delimiters."""
        values = self.collect(value, diff, order, where)
        joined = self.collect(f"coalesce({delimiter}, '') || {value}", diff, order, where)
        return f"{values}[1] || array_to_string({joined}[2:], '')"

    def unnest(self, rows: str) -> str:
        """Return a call of unnest."""
        return f"unnest({rows})"

    def numbered(self, rows: str) -> str:
        """Return a list_transform with the position."""
        return f"list_transform({rows}, lambda e, i: {{'e': e, 'n': i}})"

    def structs(self, rows: Sequence[Mapping[str, str]]) -> str:
        """Return a list of struct literals."""
        items = (", ".join(f"'{name}': {sql}" for name, sql in row.items()) for row in rows)
        return f"[{', '.join(f'{{{item}}}' for item in items)}]"


class SparkIdioms(Idioms):
    """Spark's constructs. Session settings make products of decimals keep their scale."""

    def product(self, arg: Argument, diff: str) -> str:
        """Return the product as a decimal of 38 digits, which fails instead of overflowing."""
        return f"CAST({arg.value} AS {self.accumulator_type(arg.type)}) * {diff}"

    def accumulator_type(self, type: SqlType) -> str:
        """Return a decimal of maximal precision."""
        return f"DECIMAL(38, {type.scale or 0})"

    def extreme(self, function: str, arg: Argument, where: Sequence[str]) -> str:
        """Return min or max, of pairs if values are compared by a key."""
        filter = f"FILTER (WHERE {' AND '.join(where)})"
        if arg.key == arg.value:
            return f"{function}({arg.value}) {filter}"
        return f"({function}(struct({arg.key} AS k, {arg.value} AS v)) {filter}).v"

    def of_floats(
        self, function: str, values: Mapping[str, str], diff: str, where: Sequence[str]
    ) -> str:
        """Return a call over a list of structs."""
        floats = "".join(f"CAST({sql} AS DOUBLE) AS {name}, " for name, sql in values.items())
        entry = f"struct({floats}CAST({diff} AS BIGINT) AS d)"
        return f"{function}(collect_list({entry}) FILTER (WHERE {' AND '.join(where)}))"

    def collect(self, value: str, diff: str, order: Sequence[Sort], where: Sequence[str]) -> str:
        """Return a list of structs sorted by an explicit comparison, then expanded."""
        return self._if_any(where, self._values(value, diff, order, where))

    def concatenate(
        self, value: str, delimiter: str, diff: str, order: Sequence[Sort], where: Sequence[str]
    ) -> str:
        """Return the first value, then all others with their delimiters."""
        values = self._values(value, diff, order, where)
        joined = self._values(f"concat(coalesce({delimiter}, ''), {value})", diff, order, where)
        rest = f"array_join(slice({joined}, 2, greatest(size({joined}) - 1, 0)), '')"
        return self._if_any(where, f"concat(try_element_at({values}, 1), {rest})")

    def _values(self, value: str, diff: str, order: Sequence[Sort], where: Sequence[str]) -> str:
        keys = ", ".join(f"{sort.key} AS k{i}" for i, sort in enumerate(order))
        rows = f"collect_list(struct({keys}, {value} AS v, {diff} AS d))"
        compared = "0"
        for i, sort in reversed(list(enumerate(order))):
            null, value_ = ("-1", "1") if sort.nulls_first else ("1", "-1")
            less, more = ("1", "-1") if sort.descending else ("-1", "1")
            compared = (
                f"CASE WHEN l.k{i} IS NOT DISTINCT FROM r.k{i} THEN {compared} "
                f"WHEN l.k{i} IS NULL THEN {null} WHEN r.k{i} IS NULL THEN {value_} "
                f"WHEN l.k{i} < r.k{i} THEN {less} ELSE {more} END"
            )
        listed = f"{rows} FILTER (WHERE {' AND '.join(where)})"
        ordered = f"array_sort({listed}, (l, r) -> {compared})"
        return f"flatten(transform({ordered}, e -> array_repeat(e.v, CAST(e.d AS INT))))"

    def _if_any(self, where: Sequence[str], value: str) -> str:
        return f"CASE WHEN count(CASE WHEN {' AND '.join(where)} THEN 1 END) > 0 THEN {value} END"

    def unnest(self, rows: str) -> str:
        """Return a call of explode."""
        return f"explode({rows})"

    def numbered(self, rows: str) -> str:
        """Return a transform with the index, which Spark counts from 0."""
        return f"transform({rows}, (e, i) -> struct(e AS e, i + 1 AS n))"

    def structs(self, rows: Sequence[Mapping[str, str]]) -> str:
        """Return an array of structs."""
        items = (", ".join(f"{sql} AS {name}" for name, sql in row.items()) for row in rows)
        return f"array({', '.join(f'struct({item})' for item in items)})"
