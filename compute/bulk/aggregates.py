"""Aggregates and the few other idioms in which the bulk engines' SQL differs.

An aggregate is over entries, each with a multiplicity. count and sum are sums of products, and take
entries as they come; all others are given rows whose entries have been added up, and count only those
with a positive multiplicity. Sums of floats are of the exact values, rounded once
(`compute/bulk/exact.py`), so that neither order nor engine shows.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from foreshore.expr.ir import Aggregate
from foreshore.types import SqlType

SUM_FLOAT = "foreshore_sum_float"


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of an aggregate: its value, and the form that the engine can compare."""

    value: str
    key: str
    type: SqlType


class Idioms(ABC):
    """How an engine says what is not scalar."""

    def aggregate(
        self,
        aggregate: Aggregate,
        args: Sequence[Argument],
        conditions: Sequence[str],
        order: Sequence[str],
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
                return f"CAST({self.float_sum(arg.value, diff, where)} AS {result})"
            case "array_agg":
                (arg,) = args
                order = [*order, self.order(arg.key, False, False)]
                return self.collect(arg.value, diff, order, [*conditions, f"{diff} > 0"])
            case "string_agg":
                where = [*conditions, f"{args[0].value} IS NOT NULL", f"{diff} > 0"]
                order = [*order, *(self.order(arg.key, False, False) for arg in args)]
                return self.concatenate(args[0].value, args[1].value, diff, order, where)

    def product_sum(self, arg: Argument, conditions: Sequence[str], diff: str) -> str:
        """Return the sum of the values, each as often as it occurs."""
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
    def float_sum(self, value: str, diff: str, where: Sequence[str]) -> str:
        """Return the exact sum of floats, rounded."""

    @abstractmethod
    def collect(self, value: str, diff: str, order: Sequence[str], where: Sequence[str]) -> str:
        """Return the values in order, each `diff` times, NULL if there are none."""

    @abstractmethod
    def concatenate(
        self, value: str, delimiter: str, diff: str, order: Sequence[str], where: Sequence[str]
    ) -> str:
        """Return the strings in order, before each but the first its delimiter."""

    @abstractmethod
    def unnest(self, rows: str) -> str:
        """Return the SELECT item that makes a row of each element of a list."""

    def order(self, key: str, descending: bool, nulls_first: bool) -> str:
        """Return a sort key."""
        return f"{key} {'DESC' if descending else 'ASC'} NULLS {'FIRST' if nulls_first else 'LAST'}"

    def positive_zero(self, value: str, type: str) -> str:
        """Return a float with both zeros made one."""
        return f"CASE WHEN {value} = 0 THEN CAST(0 AS {type}) ELSE {value} END"


def weight(conditions: Sequence[str], diff: str) -> str:
    """Return `diff` where `conditions` hold, else 0."""
    return f"CASE WHEN {' AND '.join(conditions)} THEN {diff} ELSE 0 END" if conditions else diff


class DuckDbIdioms(Idioms):
    """DuckDB's."""

    def product(self, arg: Argument, diff: str) -> str:
        return f"CAST({arg.value} AS {self.accumulator_type(arg.type)}) * {diff}"

    def accumulator_type(self, type: SqlType) -> str:
        return f"DECIMAL(38, {type.scale})" if type.scale else "HUGEINT"

    def extreme(self, function: str, arg: Argument, where: Sequence[str]) -> str:
        filter = f"FILTER (WHERE {' AND '.join(where)})"
        if arg.key == arg.value:
            return f"{function}({arg.value}) {filter}"
        return f"({function}({{'k': {arg.key}, 'v': {arg.value}}}) {filter}).v"

    def float_sum(self, value: str, diff: str, where: Sequence[str]) -> str:
        entry = f"{{'x': CAST({value} AS DOUBLE), 'd': CAST({diff} AS BIGINT)}}"
        return f"{SUM_FLOAT}(list({entry}) FILTER (WHERE {' AND '.join(where)}))"

    def collect(self, value: str, diff: str, order: Sequence[str], where: Sequence[str]) -> str:
        return (
            f"flatten(list(repeat([{value}], {diff}) ORDER BY {', '.join(order)}) "
            f"FILTER (WHERE {' AND '.join(where)}))"
        )

    def concatenate(
        self, value: str, delimiter: str, diff: str, order: Sequence[str], where: Sequence[str]
    ) -> str:
        values = self.collect(value, diff, order, where)
        joined = self.collect(f"coalesce({delimiter}, '') || {value}", diff, order, where)
        return f"{values}[1] || array_to_string({joined}[2:], '')"

    def unnest(self, rows: str) -> str:
        return f"unnest({rows})"
