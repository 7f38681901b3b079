"""Scalars as Python source: each becomes statements that compute it, and an expression of it.

Functions that declare `one` are called on data; others run their kernel over columns of one value.
An exception of either is the error of a row: the caller lets columns compute the whole plan, which
tell the error as they always do. So a scalar that fails need not be told from its neighbours.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from foreshore.compute.rows.source import NotCompiled, Source
from foreshore.datum import from_array, to_array
from foreshore.errors import DataError
from foreshore.expr.columns import type_of
from foreshore.expr.constant_lists import is_constant_list
from foreshore.expr.equality import has_one_form, is_plain, python_key
from foreshore.expr.evaluate import fallible
from foreshore.expr.functions.apply import apply
from foreshore.expr.functions.registry import scalar_function, signature
from foreshore.expr.functions.rows import unchanged
from foreshore.expr.ir import (
    And,
    Arguments,
    Call,
    Case,
    Column,
    Environment,
    Literal,
    Once,
    Or,
    Parameter,
    Scalar,
)
from foreshore.expr.traversal import walk_scalars
from foreshore.types import Datum, SqlType, is_float

_OPERATORS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_TESTS = {
    "is_true": "True",
    "is_not_true": "True",
    "is_false": "False",
    "is_not_false": "False",
    "is_unknown": "None",
    "is_not_unknown": "None",
}
_WRITTEN = (bool, int, str)  # literals that are written into the source
LONGEST_WRITTEN = 100


class Value(NamedTuple):
    """An expression without side effects, and whether it may be None."""

    text: str
    nullable: bool


Row = Sequence[Value]


class Scalars:
    """Writes scalars over a row; each is computed once within the block that first needs it."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.session_values: dict[str, int] = {}  # their places in `values`, by name
        self.computed: dict[Once, Value] = {}  # before all rows
        self.kernel_calls = 0  # calls for one row, at most, that run a kernel

    def write(self, scalar: Scalar, row: Row) -> Value:
        """Write what computes `scalar` over the columns of `row`, and return its value."""
        match scalar:
            case Column(index=index):
                return row[index]
            case Literal(value=value):
                return Value(self._literal(value), value is None)
            case Parameter(number=number):
                return Value(f"args[{number - 1}]", True)
            case Arguments(numbers=numbers):
                items = ", ".join(f"args[{number - 1}]" for number in numbers)
                return Value(f"({items},)", False)
            case Environment(name=name):
                return self._session_value(name)
            case And(args=args):
                return self._junction(args, row, "False", "True")
            case Or(args=args):
                return self._junction(args, row, "True", "False")
            case Case():
                return self._case(scalar, row)
            case Once(expr=expr):
                return self.computed.get(scalar) or self.write(expr, ())
            case Call(number=number) if number:
                return self._session_value(name_of_call(number))
            case Call(function="coalesce", args=args):
                return self._coalesce(args, row)
            case Call():
                return self._call(scalar, row)
            case _:
                raise NotCompiled(type(scalar).__name__)

    def _session_value(self, name: str) -> Value:
        place = self.session_values.setdefault(name, len(self.session_values))
        return Value(f"values[{place}]", True)

    def write_once(self, scalars: Iterable[Scalar]) -> None:
        """Write what is computed once for what follows."""
        for scalar in scalars:
            for each in walk_scalars(scalar):
                if isinstance(each, Once) and each not in self.computed:
                    value = self.write(each.expr, ())
                    self.computed[each] = Value(self._source.assign(value.text), value.nullable)

    def write_filter(self, predicates: Sequence[Scalar], row: Row) -> None:
        """Write what goes on with the next row unless all predicates are TRUE."""
        sure = [each for each in predicates if not fallible(each)]
        unsure = [each for each in predicates if fallible(each)]
        unknown = None
        for each in sure:
            value = self.write(each, row)
            if not unsure:
                self._source.line(f"if {value.text} is not True: continue")
                continue
            self._source.line(f"if {value.text} is False: continue")
            if value.nullable:
                unknown = unknown or self._source.assign("True")
                self._source.line(f"if {value.text} is None: {unknown} = None")
        if unsure:
            # An error counts unless something is FALSE, so also beside NULL.
            whole = self.write(And(tuple(unsure)), row)
            self._source.line(f"if {whole.text} is not True: continue")
            if unknown is not None:
                self._source.line(f"if {unknown} is None: continue")

    def key(self, scalar: Scalar, row: Row) -> Value:
        """Write a scalar as a value that Python finds equal where SQL does."""
        return self.equal_form(self.write(scalar, row), type_of(scalar))

    def equal_form(self, value: Value, type: SqlType) -> Value:
        """Return a value in a form that Python finds equal where SQL does."""
        if is_plain(type):
            return value
        return self._converted(value, lambda datum: python_key(datum, type))

    def _converted(self, value: Value, convert: Callable[[Any], Any]) -> Value:
        text = f"{self._source.constant(convert)}({value.text})"
        if value.nullable:
            text = f"None if {value.text} is None else {text}"
        return Value(self._source.assign(text), value.nullable)

    def _literal(self, value: Datum) -> str:
        if value is None:
            return "None"
        if type(value) in _WRITTEN and len(str(value)) <= LONGEST_WRITTEN:
            return repr(value)
        return self._source.constant(value)

    def _junction(self, args: Sequence[Scalar], row: Row, decisive: str, other: str) -> Value:
        """Write AND or OR: those that cannot fail first, as a decisive one overrides errors.

        After one that is NULL the others are computed, as an error beside it counts.
        """
        source = self._source
        found = source.assign(other)
        nullable = False
        ordered = sorted(args, key=fallible)
        with _Nested(source) as nested:
            for number, arg in enumerate(ordered):
                value = self.write(arg, row)
                source.line(f"if {value.text} is {decisive}: {found} = {decisive}")
                if value.nullable:
                    nullable = True
                    source.line(f"elif {value.text} is None: {found} = None")
                if number < len(ordered) - 1:
                    nested.enter(f"if {found} is not {decisive}:")
        return Value(found, nullable)

    def _case(self, case: Case, row: Row) -> Value:
        source = self._source
        found = source.name()
        nullable = False
        with _Nested(source) as nested:
            for test, branch in case.branches:
                tested = self.write(test, row)
                with source.block(f"if {tested.text} is True:"):
                    value = self.write(branch, row)
                    nullable |= value.nullable
                    source.line(f"{found} = {value.text}")
                nested.enter("else:")
            value = self.write(case.otherwise, row)
            nullable |= value.nullable
            source.line(f"{found} = {value.text}")
        return Value(found, nullable)

    def _coalesce(self, args: Sequence[Scalar], row: Row) -> Value:
        source = self._source
        found = source.name()
        nullable = True
        with _Nested(source) as nested:
            for number, arg in enumerate(args):
                value = self.write(arg, row)
                source.line(f"{found} = {value.text}")
                nullable = value.nullable
                if not nullable:
                    break
                if number < len(args) - 1:
                    nested.enter(f"if {found} is None:")
        return Value(found, nullable)

    def _call(self, call: Call, row: Row) -> Value:
        source = self._source
        if is_constant_list(call) and has_one_form(type_of(call.args[0])):
            return self._in_list(call, row)
        args = [self.write(arg, row) for arg in call.args]
        if call.function in ("eq_any", "ne_all") and _is_in_plain_array(call):
            return self._in_array(call.function == "eq_any", *args)
        match call.function, args:
            case (("is_null" | "is_not_null"), [Value(nullable=False)]):
                return Value(repr(call.function == "is_not_null"), False)
            case "is_null", [only]:
                return Value(f"({only.text} is None)", False)
            case "is_not_null", [only]:
                return Value(f"({only.text} is not None)", False)
            case (("is_true" | "is_false" | "is_unknown"), [only]):
                return Value(f"({only.text} is {_TESTS[call.function]})", False)
            case (("is_not_true" | "is_not_false" | "is_not_unknown"), [only]):
                return Value(f"({only.text} is not {_TESTS[call.function]})", False)
            case "not", [only]:
                return self._strict(f"not {only.text}", args)
            case "relabel", [only]:
                return only
            case "array", _:
                return Value(source.assign(f"({', '.join(each.text for each in args)},)"), False)
            case (("is_distinct" | "is_not_distinct"), [a, b]):
                left = self.equal_form(a, type_of(call.args[0]))
                right = self.equal_form(b, type_of(call.args[1]))
                operator = "!=" if call.function == "is_distinct" else "=="
                return Value(source.assign(f"{left.text} {operator} {right.text}"), False)
        types = signature(call)
        function = scalar_function(call.function)
        if call.function in _OPERATORS:
            if all(map(is_plain, types.args)):
                sides = args
            else:
                sides = [self.equal_form(a, t) for a, t in zip(args, types.args, strict=True)]
            return self._strict(
                f"{sides[0].text} {_OPERATORS[call.function]} {sides[1].text}", sides
            )
        one = None if function.one is None else function.one(types)
        if one is unchanged:
            return args[0]
        if one is not None:
            text = f"{source.constant(one)}({', '.join(each.text for each in args)})"
            return self._strict(text, args) if function.strict else Value(source.assign(text), True)
        return self._by_kernel(call, args)

    def _in_list(self, call: Call, row: Row) -> Value:
        value = self.write(call.args[0], row)
        array = call.args[1]
        assert isinstance(array, Literal), array
        elements = frozenset(each for each in array.value if each is not None)
        operator = "in" if call.function == "eq_any" else "not in"
        if not array.value:
            return Value("False" if call.function == "eq_any" else "True", False)
        found = f"{value.text} {operator} {self._source.constant(elements)}"
        if len(elements) == len(array.value) or None not in array.value:
            return self._strict(found, [value])
        decided = "True" if call.function == "eq_any" else "False"
        text = f"{decided} if {value.text} in {self._source.constant(elements)} else None"
        return Value(self._source.assign(text), True)

    def _in_array(self, decided: bool, value: Value, array: Value) -> Value:
        """Write whether a value is in an array that is known when the program runs."""
        source = self._source
        found = source.assign("None")
        given = [f"{each.text} is not None" for each in (value, array) if each.nullable]
        with source.block(f"if {' and '.join(given) or True}:"):
            source.line(f"if {value.text} in {array.text}: {found} = {decided}")
            source.line(f"elif None not in {array.text}: {found} = {not decided}")
        with source.block(f"elif {array.text} == ():"):
            source.line(f"{found} = {not decided}")
        return Value(found, True)

    def _strict(self, text: str, args: Sequence[Value]) -> Value:
        """Assign an expression, None if one of `args` is."""
        missing = [f"{each.text} is None" for each in args if each.nullable]
        if missing:
            text = f"None if {' or '.join(dict.fromkeys(missing))} else {text}"
        return Value(self._source.assign(text), bool(missing))

    def _by_kernel(self, call: Call, args: Sequence[Value]) -> Value:
        self.kernel_calls += 1
        function = scalar_function(call.function)
        given = ", ".join(each.text for each in args)
        text = f"{self._source.constant(_kernel_call(call))}({given})"
        if function.strict:
            missing = [f"{each.text} is None" for each in args if each.nullable]
            if missing:
                text = f"None if {' or '.join(dict.fromkeys(missing))} else {text}"
        return Value(self._source.assign(text), True)


def name_of_call(number: int) -> str:
    """Return the name under which a program is given the result of a call with side effects."""
    return f"call:{number}"


class _Nested:
    """Blocks that are entered one within the other, and left together."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._entered: list[Any] = []

    def __enter__(self) -> "_Nested":
        return self

    def enter(self, head: str) -> None:
        """Put what follows into a block."""
        block = self._source.block(head)
        block.__enter__()
        self._entered.append(block)

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if kind is None:
            for block in reversed(self._entered):
                block.__exit__(None, None, None)


def _is_in_plain_array(call: Call) -> bool:
    """Whether a value is compared with elements that are equal in Python where they are in SQL."""
    value, array = map(type_of, call.args)
    element = array.element
    if element is None or array.name != "array":
        return False
    return is_plain(value) and element.name == value.name


def _kernel_call(call: Call) -> Callable[..., Datum]:
    """Return a function of data that runs the kernel of a call; it raises DataError."""
    function, types = scalar_function(call.function), signature(call)

    def compute(*data: Datum) -> Datum:
        arrays = [to_array([datum], type) for datum, type in zip(data, types.args, strict=True)]
        values, errors = apply(function, types, arrays)
        if errors is not None and errors.null_count == 0:
            raise DataError.parse(errors[0].as_py())
        return from_array(values, types.result)[0]

    return compute


def identity(value: Value, type: SqlType) -> str:
    """Return an expression that Python finds equal for identical values only: zeros have signs."""
    return f"repr({value.text})" if _has_floats(type) else value.text


def _has_floats(type: SqlType) -> bool:
    return is_float(type) or (type.element is not None and _has_floats(type.element))
