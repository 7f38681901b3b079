"""Dialects: render scalars of the IR as SQL of a bulk engine, exact and without errors.

    dialect.scalar(expr, columns)  SQL for the value of `expr`, NULL where it fails
    dialect.error(expr, columns)   SQL for the text of its error, NULL where it succeeds
    dialect.key(sql, type)         the form in which the engine's equality and order are SQL's
    dialect.used                   the Arrow functions called by the SQL, to be registered

Engine-specific parts are abstract: type names, literals of lists, intervals and instants, quoting
of text and names. A function with a rendering for the engine and these types uses it; others become
a call of an Arrow function over the kernel. The SQL never raises in the engine: failing values are
NULL, so an engine may evaluate branches that are not taken.
"""

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from foreshore.compute.render.kernel_calls import sliced
from foreshore.compute.render.kernel_errors import carrying
from foreshore.errors import DataError
from foreshore.expr.columns import type_of
from foreshore.expr.constant_lists import is_constant_list
from foreshore.expr.equality import is_plain
from foreshore.expr.evaluate import constant, fallible
from foreshore.expr.functions.apply import apply
from foreshore.expr.functions.comparison import interval_key, number_key
from foreshore.expr.functions.function import Rendering, ScalarFunction, Signature
from foreshore.expr.functions.registry import may_fail, scalar_function, signature
from foreshore.expr.functions.temporal import DATE_HIGHEST, DATE_LOWEST, HIGHEST, LOWEST
from foreshore.expr.ir import And, Call, Case, Column, ErrorOf, Literal, Or, OrderKey, Scalar
from foreshore.expr.traversal import walk_scalars
from foreshore.number_text import OID_NAMES
from foreshore.numbers import number, parts_of
from foreshore.python_functions.definition import is_python
from foreshore.types import (
    BOOL,
    BYTEA,
    INT8,
    NUMERIC_DIGITS,
    SORTED_BYTES,
    TEXT,
    Datum,
    SqlType,
    arrow_type,
    is_float,
    numeric_of_scale,
)

# Types that have the same name on all engines.
_TYPES = {
    "bool": "BOOLEAN",
    "int2": "SMALLINT",
    "int8": "BIGINT",
    "float4": "FLOAT",
    "float8": "DOUBLE",
    "date": "DATE",
    **dict.fromkeys(("mz_timestamp", "uint2", "uint4", "money"), "BIGINT"),
    **dict.fromkeys(OID_NAMES, "BIGINT"),
}


@dataclass(frozen=True, slots=True)
class ArrowFunction:
    """A kernel as an engine function for one signature; it returns values or errors.

    One that `raises` ends the statement by an error of a row.
    """

    name: str
    key: str
    types: Signature
    errors: bool
    raises: bool = False

    @property
    def result(self) -> SqlType:
        """Return the type of the result."""
        return TEXT if self.errors else self.types.result

    def __call__(self, *arrays: pa.Array) -> pa.Array:
        """Return values, NULL where a row fails, or errors, NULL where it does not.

        One more array than there are arguments has the number of the query.
        """
        columns = [
            _contiguous(a, arrow_type(t)) for a, t in zip(arrays, self.types.args, strict=False)
        ]
        number = None
        if len(arrays) > len(columns) and len(arrays[-1]):
            number = arrays[-1][0].as_py()
        with carrying():
            return sliced(self._made, columns, number)

    def _made(self, *columns: pa.Array) -> pa.Array:
        values, errors = apply(scalar_function(self.key), self.types, columns)
        if self.raises and errors is not None:
            raise DataError.parse(pc.min(errors).as_py())
        if not self.errors:
            return values
        return pa.nulls(len(values), pa.string()) if errors is None else errors


def _ask_hosts(scalars: Sequence[Scalar]) -> bool:
    """Whether functions in Python are called, whose hosts may fail."""
    return any(is_python(key) for key in _called(scalars))


def _vary(scalars: Sequence[Scalar]) -> bool:
    """Whether functions in Python are called whose values may be others at the next call."""
    return any(
        is_python(key) and scalar_function(key).volatility != "immutable"
        for key in _called(scalars)
    )


def _called(scalars: Sequence[Scalar]) -> Iterator[str]:
    parts = (part for scalar in scalars for part in walk_scalars(scalar))
    return (part.function for part in parts if isinstance(part, Call))


def _contiguous(array: pa.Array | pa.ChunkedArray, type: pa.DataType) -> pa.Array:
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0) if array.num_chunks == 1 else array.combine_chunks()
    return array if array.type == type else array.cast(type)


class Dialect(ABC):
    """Renders scalars. One instance per statement, so `used` is what that statement calls."""

    name: str
    types: ClassVar[Mapping[str, str]]  # types with engine-specific names
    text: ClassVar[str]  # the type of all others: text types and jsonb
    hash_function: ClassVar[str | None] = None  # of any columns together

    def __init__(self) -> None:
        self.used: dict[str, ArrowFunction] = {}

    # --- what engines say in their own way -------------------------------------------------

    @abstractmethod
    def rendering(self, function: ScalarFunction, *, sure: bool) -> Rendering | None:
        """Return the function's rendering for this engine; `sure` calls do not fail."""

    @staticmethod
    @abstractmethod
    def list_type(element: str) -> str:
        """Return the name of the type of lists of `element`."""

    @staticmethod
    @abstractmethod
    def list_of(items: Sequence[str]) -> str:
        """Return a list of SQL values."""

    @staticmethod
    @abstractmethod
    def bytes_of(datum: bytes) -> str:
        """Return SQL for a byte string."""

    @staticmethod
    @abstractmethod
    def interval_of(months: int, days: int, micros: int) -> str:
        """Return SQL for an interval."""

    @abstractmethod
    def number_of(self, value: Decimal, rest: bytes, scale: int) -> str:
        """Return SQL for a numeric without a declared scale, given its parts."""

    @staticmethod
    @abstractmethod
    def native_interval(months: int, days: int, micros: int) -> str:
        """Return SQL for a distance between timestamps."""

    @staticmethod
    @abstractmethod
    def moment_of_time(sql: str) -> str:
        """Return SQL for the timestamp of a time on a fixed day."""

    @abstractmethod
    def integral(self, datum: int, type: SqlType) -> str:
        """Return SQL for a constant with an integer as its physical form."""

    @staticmethod
    @abstractmethod
    def quote(text: str) -> str:
        """Return SQL for a string."""

    @staticmethod
    @abstractmethod
    def identifier(name: str) -> str:
        """Return a name as a quoted identifier."""

    # --- types, constants, keys ------------------------------------------------------------

    @classmethod
    def type_name(cls, type: SqlType) -> str:
        """Return the engine's name of a column's type."""
        if type.element is not None:
            return cls.list_type(cls.type_name(type.element))
        match type.name:
            case "numeric":
                return f"DECIMAL({NUMERIC_DIGITS},{type.scale})"
            case "int2vector":
                return cls.list_type(_TYPES["int2"])
            case "oidvector":
                return cls.list_type(_TYPES["oid"])
            case name if name in SORTED_BYTES:
                return cls.types["bytea"]
            case name:
                return _TYPES.get(name) or cls.types.get(name, cls.text)

    def literal(self, datum: Datum, type: SqlType) -> str:
        """Return SQL for a constant of exactly that type."""
        name = self.type_name(type)
        if datum is None:
            return f"CAST(NULL AS {name})"
        if type.element is not None:
            assert isinstance(datum, tuple), datum
            items = [self.literal(item, type.element) for item in datum]
            return f"CAST({self.list_of(items)} AS {name})"
        match datum:
            case bool():
                return "TRUE" if datum else "FALSE"
            case bytes():
                return self.bytes_of(datum)
            case (months, days, micros) if type.name == "interval":
                return self.interval_of(months, days, micros)
            case tuple():
                return f"CAST({self.list_of([str(item) for item in datum])} AS {name})"
            case float():
                return f"CAST('{datum!r}' AS {name})"
            case int():
                return self.integral(datum, type)
            case str() if type.name == "number":
                return self.number_of(*parts_of(number(datum)))
            case str() if type.name == "numeric":
                return f"CAST('{datum}' AS {name})"
            case str():
                return self.quote(datum)
            case _:
                raise AssertionError(f"no datum of {type}: {datum!r}")

    def key(self, sql: str, type: SqlType) -> str:
        """Return the form of a value that the engine groups, joins and orders as SQL does.

        It may be of another type. Numerics of one scale compare; for several see `common_keys`.
        """
        if is_plain(type) or type.name == "numeric":
            return sql
        if is_float(type):
            return f"({sql} + CAST(0 AS {self.type_name(type)}))"
        if type.name == "interval":
            return f"({interval_key(self, sql)})"
        if type.name == "number":
            return number_key(self, sql)
        return self.order_bytes(sql, type)

    def identity(self, sql: str, type: SqlType) -> tuple[str, ...]:
        """Return the forms that distinguish all values that are displayed differently.

        In a GROUP BY of a float, -0.0 equals 0.0, as in SQL. But rows are the same only if they are
        equal bit for bit, except NaNs.
        """
        if is_float(type):
            return sql, self.is_negative_zero(sql)
        if type.element is not None and is_float(type.element):
            return sql, self.each(sql, "e", self.is_negative_zero("e"))
        return (sql,)

    @abstractmethod
    def of_group(self, column: str, identity: tuple[str, ...]) -> str:
        """Return the exact value of a column in a group by its `identity`."""

    def total_order(self, sql: str, type: SqlType) -> list[str]:
        """Return sort terms under which only indistinguishable values tie."""
        return list(dict.fromkeys((self.key(sql, type), *self.identity(sql, type))))

    def reversed(self, sql: str, type: SqlType) -> str:
        """Return what orders equal values in reverse of their display, empty if they have one."""
        if type.name == "number":
            return f"(- CAST(({sql}).scale AS BIGINT))"
        if type.name == "interval":
            wide = self.type_name(numeric_of_scale(0))
            months, days = (f"CAST(({sql}).{part} AS {wide})" for part in ("months", "days"))
            return f"(- ({months} * 4294967296 + {days}))"
        return ""

    def representative(self, sql: str, type: SqlType) -> str:
        """Return the value that represents all values equal to a float, or a list of floats."""
        if is_float(type):
            zero = f"CAST(0 AS {self.type_name(type)})"
            return f"(CASE WHEN {sql} = 0 THEN {zero} ELSE {sql} END)"
        if type.element is not None and is_float(type.element):
            return self.each(sql, "e", self.representative("e", type.element))
        return sql

    @abstractmethod
    def is_negative_zero(self, sql: str) -> str:
        """Return whether a float is -0.0."""

    @abstractmethod
    def each(self, items: str, name: str, item: str) -> str:
        """Return the list of the values of `item` for the elements `name` of a list."""

    def common_keys(self, sqls: Sequence[str], types: Sequence[SqlType]) -> list[str]:
        """Return keys that are equal exactly where the values are, for joins on different scales.

        A numeric that the largest scale cannot hold equals no value of the others and becomes NULL.
        """
        scales = {t.scale for t in types if t.name == "numeric"}
        if len(scales) < 2:
            return [self.key(sql, type) for sql, type in zip(sqls, types, strict=True)]
        scale = max(s or 0 for s in scales)
        return [f"TRY_CAST({sql} AS DECIMAL(38,{scale}))" for sql in sqls]

    def order_by(self, keys: Sequence[OrderKey], columns: Sequence[str]) -> str:
        """Return the terms of an ORDER BY over infallible keys."""
        return ", ".join(
            self.order_term(
                self.key(self.scalar(key.expr, columns), type_of(key.expr)),
                descending=key.descending,
                nulls_first=key.nulls_first,
            )
            for key in keys
        )

    @staticmethod
    def order_term(sql: str, *, descending: bool, nulls_first: bool) -> str:
        """Return one explicit term of an ORDER BY."""
        return f"{sql} {'DESC' if descending else 'ASC'} NULLS {'FIRST' if nulls_first else 'LAST'}"

    # --- values ----------------------------------------------------------------------------

    def scalar(self, expr: Scalar, columns: Sequence[str]) -> str:
        """Return SQL for the value of `expr` over a row whose columns are the SQL `columns`."""
        match expr:
            case Column(index=index):
                return columns[index]
            case Literal(value=value, type=type):
                return self.literal(value, type)
            case Call():
                return self._call(expr, columns)
            case And(args=args):
                return self._junction("AND", args, columns)
            case Or(args=args):
                return self._junction("OR", args, columns)
            case Case():
                return self._case(expr, columns)
            case ErrorOf(expr=inner):
                return self.error(inner, columns)
            case _:
                raise AssertionError(f"cannot be rendered: {expr}")

    def _junction(self, word: str, args: Sequence[Scalar], columns: Sequence[str]) -> str:
        if not args:
            return self.literal(word == "AND", BOOL)
        return "(" + f" {word} ".join(self.scalar(arg, columns) for arg in args) + ")"

    def _case(self, case: Case, columns: Sequence[str]) -> str:
        parts = ["CASE"]
        for condition, result in case.branches:
            if fallible(condition):
                parts.append(f"WHEN ({self.error(condition, columns)}) IS NOT NULL THEN NULL")
            parts.append(
                f"WHEN {self.scalar(condition, columns)} THEN {self.scalar(result, columns)}"
            )
        parts.append(f"ELSE {self.scalar(case.otherwise, columns)} END")
        return "(" + " ".join(parts) + ")"

    def _call(self, call: Call, columns: Sequence[str]) -> str:
        if call.function == "coalesce" and any(map(fallible, call.args)):
            return self._case(_as_case(call), columns)
        if not call.args:
            value = constant(call)
            assert isinstance(value, Literal), call
            return self.literal(value.value, value.type)
        function, types = scalar_function(call.function), signature(call)
        if is_constant_list(call):
            return self._in_list(call, columns)
        args = [self.scalar(arg, columns) for arg in call.args]
        if may_fail(call) and _vary(call.args):
            return self.arrow_call(function.key, types, args, raises=True)
        by_kernel = _ask_hosts(call.args) and may_fail(call)
        value = self.apply(function, types, args, sure=not may_fail(call), by_kernel=by_kernel)
        if function.strict or not any(map(fallible, call.args)):
            return value
        failed = " OR ".join(
            f"({self.error(arg, columns)}) IS NOT NULL" for arg in call.args if fallible(arg)
        )
        return f"(CASE WHEN {failed} THEN NULL ELSE {value} END)"

    def _in_list(self, call: Call, columns: Sequence[str]) -> str:
        """Return SQL for the comparison of a value with the elements of a constant array."""
        value, array = call.args
        assert isinstance(array, Literal), call
        assert array.type.element is not None, call
        of_any = call.function == "eq_any"
        if not array.value:
            return self.literal(not of_any, BOOL)
        type = array.type.element
        is_integer = type.name in ("int2", "int4", "int8")  # casts take as long as all the rest
        items = ", ".join(
            str(item) if is_integer and item is not None else self.literal(item, type)
            for item in array.value
        )
        return f"({self.scalar(value, columns)} {'IN' if of_any else 'NOT IN'} ({items}))"

    def apply(
        self,
        function: ScalarFunction,
        types: Signature,
        args: Sequence[str],
        *,
        sure: bool = False,
        by_kernel: bool = False,
    ) -> str:
        """Return SQL for a function of arguments that are SQL already; `sure` calls do not fail.

        `by_kernel`: an engine's TRY would take the failure of a host in an argument for NULL.
        """
        rendering = None if by_kernel else self.rendering(function, sure=sure)
        if rendering is not None:
            sql = rendering(self, types, args)
            if sql is not None:
                return sql
        return self.arrow_call(function.key, types, args, errors=False)

    def arrow_call(
        self,
        key: str,
        types: Signature,
        args: Sequence[str],
        *,
        errors: bool = False,
        raises: bool = False,
    ) -> str:
        """Return a call of the Arrow function over a kernel, and add that to `used`."""
        digest = hashlib.blake2b(repr((key, types)).encode(), digest_size=6).hexdigest()
        stem = re.sub(r"[^a-z0-9]+", "_", key.split("(")[0].lower()).strip("_") or "op"
        name = f"fs_{stem}_{digest}{'_error' if errors else '_raise' if raises else ''}"
        self.used[name] = ArrowFunction(name, key, types, errors, raises)
        return f"{name}({', '.join(self.arguments(types, args))})"

    def arguments(self, types: Signature, args: Sequence[str]) -> Sequence[str]:
        """Return what an Arrow function is given for the arguments of its kernel."""
        return args

    def raw(self, datum: int, type: SqlType) -> str:
        """Return a call that yields a constant which the engine's literals cannot express."""
        types = Signature((INT8,), type)
        return self.arrow_call("of_integer(int8)", types, [f"CAST({datum} AS BIGINT)"])

    def order_bytes(self, sql: str, type: SqlType) -> str:
        """Return the call that yields a value's key as bytes, for types the engine cannot order."""
        return self.arrow_call("order_bytes", Signature((type,), BYTEA), [sql])

    # --- errors ----------------------------------------------------------------------------

    def error(self, expr: Scalar, columns: Sequence[str]) -> str:
        """Return SQL for the error of `expr`, of the engine's text type."""
        if not fallible(expr):
            return self.literal(None, TEXT)
        match expr:
            case Call(function="coalesce"):
                return self._case_error(_as_case(expr), columns)
            case Call():
                return self._call_error(expr, columns)
            case And(args=args):
                return self._junction_error("NOT ", expr, args, columns)
            case Or(args=args):
                return self._junction_error("", expr, args, columns)
            case Case():
                return self._case_error(expr, columns)
            case _:
                raise AssertionError(f"cannot fail: {expr}")

    def _junction_error(
        self, sign: str, expr: Scalar, args: Sequence[Scalar], columns: Sequence[str]
    ) -> str:
        errors = self._first([self.error(arg, columns) for arg in args if fallible(arg)])
        return f"(CASE WHEN {sign}{self.scalar(expr, columns)} THEN NULL ELSE {errors} END)"

    def _case_error(self, case: Case, columns: Sequence[str]) -> str:
        parts = ["CASE"]
        for condition, result in case.branches:
            if fallible(condition):
                error = self.error(condition, columns)
                parts.append(f"WHEN ({error}) IS NOT NULL THEN {error}")
            parts.append(
                f"WHEN {self.scalar(condition, columns)} THEN {self.error(result, columns)}"
            )
        parts.append(f"ELSE {self.error(case.otherwise, columns)} END")
        return "(" + " ".join(parts) + ")"

    def _call_error(self, call: Call, columns: Sequence[str]) -> str:
        errors = [self.error(arg, columns) for arg in call.args if fallible(arg)]
        function, types = scalar_function(call.function), signature(call)
        if may_fail(call) and not _vary([call]):  # else its value ends the statement
            args = [self.scalar(arg, columns) for arg in call.args]
            by_kernel = _ask_hosts(call.args)
            errors.append(self._own_error(function, types, args, by_kernel=by_kernel))
        return self._first(errors)

    def _own_error(
        self, function: ScalarFunction, types: Signature, args: Sequence[str], *, by_kernel: bool
    ) -> str:
        if function.error_sql is not None and not by_kernel:
            sql = function.error_sql(self, types, args)
            if sql is not None:
                return f"({sql})"
        text = function.only_error(types)
        if text is not None:
            failing = self.literal(text, TEXT)
        else:
            failing = self.arrow_call(function.key, types, args, errors=True)
        if not function.strict:
            if not is_python(function.key):
                return failing
            value = self.apply(function, types, args, by_kernel=by_kernel)  # not twice for each row
            return f"(CASE WHEN ({value}) IS NULL THEN {failing} END)"
        given = "".join(f"({arg}) IS NOT NULL AND " for arg in args)
        value = self.apply(function, types, args, by_kernel=by_kernel)
        return f"(CASE WHEN {given}({value}) IS NULL THEN {failing} END)"

    def _first(self, errors: Sequence[str]) -> str:
        if not errors:
            return self.literal(None, TEXT)
        return errors[0] if len(errors) == 1 else f"COALESCE({', '.join(errors)})"


def is_infinity(datum: int, type: SqlType) -> bool:
    """Whether a date or timestamp is infinite, that is, an extreme of its integer."""
    if type.name == "date":
        return datum in (DATE_LOWEST, DATE_HIGHEST)
    return type.name in ("timestamp", "timestamptz") and datum in (LOWEST, HIGHEST)


def _as_case(call: Call) -> Case:
    """Return coalesce as a CASE."""
    branches = tuple((Call("is_not_null", (arg,), BOOL), arg) for arg in call.args[:-1])
    return Case(branches, call.args[-1], call.type)


def of_arity(function: Callable[..., pa.Array], count: int) -> Callable[..., pa.Array]:
    """Return `function` with exactly `count` parameters, since engines count them.

    It says of which module it is: Spark would look for it in all, each time that it is pickled.
    """
    names = ", ".join(f"a{i}" for i in range(count))
    scope: dict[str, Any] = {"function": function, "__name__": __name__}
    made: Callable[..., pa.Array] = eval(f"lambda {names}: function({names})", scope)
    return made  # generated names only
