"""The compiler of linear programs.

Columns are kept as scalars over the input's columns, so Map, Filter and Project only rewrite
scalars. What is put out decides which of them are computed, each once. A scalar that the kernel
knows becomes instructions; any other is given to it, evaluated by the registry's functions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from foreshore.compute.flow.batch import Ints
from foreshore.compute.flow.convert import Form, is_direct, words_of_values
from foreshore.compute.flow.intern import Interner
from foreshore.compute.flow.kernels import vm
from foreshore.compute.flow.layout import Layout, kind_of, layout_of
from foreshore.compute.flow.program import Given, Program, Registers
from foreshore.expr.datum import to_array
from foreshore.expr.functions.arithmetic import WIDTHS
from foreshore.expr.functions.decimals import LIMIT, OVERFLOW, scale_of
from foreshore.expr.functions.parts import unit_of
from foreshore.expr.functions.rows import out_of_range
from foreshore.expr.ir import (
    And,
    Call,
    Case,
    Column,
    ErrorOf,
    Literal,
    Or,
    Scalar,
    operands_of,
    type_of,
    with_operands,
)
from foreshore.expr.split import can_fail
from foreshore.types import ColumnType, SqlType

_COMPARISONS = {
    "eq": (vm.EQUAL, False),
    "ne": (vm.NOT_EQUAL, False),
    "lt": (vm.LESS, False),
    "le": (vm.LESS_OR_EQUAL, False),
    "gt": (vm.LESS, True),
    "ge": (vm.LESS_OR_EQUAL, True),
}
_ARITHMETIC = {"add": vm.ADD, "subtract": vm.SUBTRACT, "multiply": vm.MULTIPLY}
_SIGN = -(1 << 63)


class NotOrderable(Exception):
    """Values of a type have no order in words yet."""


@dataclass(slots=True)
class Compiler:
    """Compiles one program over rows of `layout`; words are put out in the order of the calls."""

    layout: Layout
    interner: Interner
    sign: int = 1
    columns: list[Scalar] = field(default_factory=list)  # over the input's columns
    texts: list[int] = field(default_factory=list)  # of the words put out
    _outputs: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    _code: list[tuple[int, ...]] = field(default_factory=list)
    _constants: list[tuple[int, int, int]] = field(default_factory=list)
    _given: list[Given] = field(default_factory=list)
    _known: dict[object, int] = field(default_factory=dict)  # registers
    _count: int = 0
    _ports: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Begin with the input's columns."""
        self.columns = [
            Column(i, place.type, place.bit >= 0) for i, place in enumerate(self.layout.places)
        ]

    # --- the plan

    def map(self, scalars: Sequence[Scalar]) -> None:
        """Append columns."""
        for scalar in scalars:
            self.columns.append(self.resolved(scalar))

    def check(self, scalars: Sequence[Scalar], port: int) -> None:
        """Drop the rows for which one of the resolved scalars fails; note its error."""
        for scalar in scalars:
            if can_fail(scalar):
                if port not in self._ports:
                    self._ports.append(port)
                register = self._register(scalar)
                self._emit(vm.CHECK, register, self._ports.index(port), to=0)

    def filter(self, predicates: Sequence[Scalar]) -> None:
        """Keep the rows for which all predicates are TRUE, none of which fails."""
        self.filter_resolved([self.resolved(predicate) for predicate in predicates])

    def filter_resolved(self, predicates: Sequence[Scalar]) -> None:
        """Keep the rows for which all resolved predicates are TRUE."""
        for predicate in predicates:
            self._emit(vm.FILTER, self._register(predicate), to=0)

    def project(self, outputs: Sequence[int]) -> None:
        """Pick columns."""
        self.columns = [self.columns[i] for i in outputs]

    def resolved(self, scalar: Scalar) -> Scalar:
        """Return a scalar over the present columns as one over the input's."""
        if isinstance(scalar, Column):
            return self.columns[scalar.index]
        operands = operands_of(scalar)
        if not operands:
            return scalar
        return with_operands(scalar, tuple(map(self.resolved, operands)))

    # --- what comes out

    def put(self, columns: Sequence[ColumnType], scalars: Sequence[Scalar], form: Form) -> None:
        """Put out resolved scalars, which have the types of `columns`, in their layout."""
        layout = layout_of(tuple(columns))
        start = len(self.texts)
        self.texts += [0] * layout.words
        for scalar, place in zip(scalars, layout.places, strict=True):
            mask, bit = divmod(place.bit, 64) if place.bit >= 0 else (0, -1)
            register = self._keyed(scalar) if form == "key" else self._register(scalar)
            word = start + place.word
            self._outputs.append((register, word, place.width, start + mask, bit))

    def put_row(self, columns: Sequence[ColumnType]) -> None:
        """Put out the present columns."""
        self.put(columns, self.columns, "row")

    def put_order(self, scalar: Scalar, *, descending: bool, nulls: int) -> None:
        """Put out words that order rows by a resolved scalar; `nulls` is -1 for NULLs first, or 1.

        Raises NotOrderable.
        """
        register = self._register(scalar)
        self._put_word(self._emit(vm.NULL_RANK, register, nulls), 0)
        by_text = 0
        match kind_of(type_of(scalar)):
            case "int":
                parts = [register]
            case "float":
                parts = [self._emit(vm.FLOAT_ORDER, register)]
            case "wide":
                parts = [self._emit(vm.HIGH, register), self._emit(vm.UNSIGNED_LOW, register)]
            case "interval":
                register = self._given_in("key", scalar)
                parts = [register, self._emit(vm.HIGH, register)]
            case "bytes" if type_of(scalar).name != "jsonb":
                parts, by_text = [register], -1 if descending else 1
            case _:
                raise NotOrderable(type_of(scalar).name)
        for part in parts:
            if descending and not by_text:
                part = self._emit(vm.COMPLEMENT, part)
            self._put_word(part, by_text)

    def put_zero_signs(self, scalar: Scalar) -> None:
        """Put out a word by which 0.0 comes before -0.0, for floats that are equal."""
        if kind_of(type_of(scalar)) == "float":
            self._put_word(self._emit(vm.COMPLEMENT, self._register(scalar)), 0)

    def put_scalar(self, scalar: Scalar, width: int) -> None:
        """Put out one or two words of a resolved scalar, 0 for NULL."""
        self._outputs.append((self._register(scalar), len(self.texts), width, 0, -1))
        self.texts += [0] * width

    def _put_word(self, register: int, text: int) -> None:
        self._outputs.append((register, len(self.texts), 1, 0, -1))
        self.texts.append(text)

    def program(self) -> Program:
        """Return the program."""
        return Program(
            self.layout,
            np.array(self._code, np.int64).reshape(-1, 6),
            np.array(self._constants, np.int64).reshape(-1, 3),
            tuple(self._given),
            np.array(self._outputs, np.int64).reshape(-1, 5),
            np.array(self.texts, np.int64),
            self.sign,
            Registers(max(self._count, 1)),
            tuple(self._ports),
            self._picked(),
        )

    def _picked(self) -> Ints | None:
        """Return the input's words that come out, if they are all that the program gives."""
        loads = {to: (a, c, d) for code, to, a, _, c, d in self._code if code == vm.LOAD}
        if len(loads) != len(self._code):
            return None
        words = [0] * len(self.texts)
        seen = 0
        for register, word, width, _, bit in self._outputs:
            first, null, loaded = loads[register]
            if null >= 0 or bit >= 0 or loaded != width:
                return None
            words[word : word + width] = range(first, first + width)
            seen += width
        return np.array(words, np.int64) if seen == len(words) else None

    # --- scalars

    def _emit(
        self, code: int, a: int = 0, b: int = 0, c: int = 0, d: int = 0, *, to: int = -1
    ) -> int:
        if to < 0:
            to, self._count = self._count, self._count + 1
        self._code.append((code, to, a, b, c, d))
        return to

    def _register(self, scalar: Scalar) -> int:
        """Return the register of a resolved scalar."""
        found = self._known.get(scalar)
        if found is None:
            found = self._known[scalar] = self._compiled(scalar)
        return found

    def _keyed(self, scalar: Scalar) -> int:
        """Return the register of a resolved scalar in the form of keys."""
        type = type_of(scalar)
        if is_direct(type):
            return self._register(scalar)
        known = (scalar, "key")
        found = self._known.get(known)
        if found is None:
            if kind_of(type) == "float":
                found = self._emit(vm.FLOAT_KEY, self._register(scalar))
            else:
                found = self._given_in("key", scalar)
            self._known[known] = found
        return found

    def _given_in(self, form: Form, scalar: Scalar) -> int:
        self._given.append(Given(scalar, form))
        return self._emit(vm.GIVEN, len(self._given) - 1)

    def _constant(self, low: int, high: int, *, null: bool = False) -> int:
        """Return the place of a constant."""
        self._constants.append((low, high, int(null)))
        return len(self._constants) - 1

    def _compiled(self, scalar: Scalar) -> int:
        match scalar:
            case Column(index=index):
                place = self.layout.places[index]
                mask, bit = divmod(place.bit, 64) if place.bit >= 0 else (0, -1)
                return self._emit(vm.LOAD, place.word, mask, bit, place.width)
            case Literal(value=None):
                return self._emit(vm.CONSTANT, self._constant(0, 0, null=True))
            case Literal(value=value, type=type):
                parts = words_of_values(to_array([value], type), type, "row", self.interner)
                low = int(parts[0][0])
                high = int(parts[1][0]) if len(parts) == 2 else low >> 63
                return self._emit(vm.CONSTANT, self._constant(low, high))
            case And(args=args) | Or(args=args) if args:
                code = vm.AND if isinstance(scalar, And) else vm.OR
                register = self._register(args[0])
                for arg in args[1:]:
                    register = self._emit(code, register, self._register(arg))
                return register
            case Case(branches=branches, otherwise=otherwise):
                register = self._register(otherwise)
                for condition, value in reversed(branches):
                    chosen = self._register(value)
                    register = self._emit(vm.SELECT, self._register(condition), chosen, register)
                return register
            case ErrorOf(expr=expr):
                return self._emit(vm.ERROR_OF, self._register(expr))
            case Call(function=function, args=args):
                known = self._call(function, args, scalar.type)
                if known is not None:
                    return known
        return self._given_in("row", scalar)

    def _call(self, function: str, args: tuple[Scalar, ...], type: SqlType) -> int | None:
        """Return the register of a function's value, None if the kernel does not know it."""
        types = [type_of(arg) for arg in args]
        if function in _COMPARISONS:
            return self._comparison(function, args, types)
        match function:
            case "is_distinct" | "is_not_distinct" if _same_form(types) and is_direct(types[0]):
                register = self._emit(vm.DISTINCT, *map(self._register, args))
                return register if function == "is_distinct" else self._emit(vm.NOT, register)
            case "not":
                return self._emit(vm.NOT, self._register(args[0]))
            case "is_null":
                return self._emit(vm.IS_NULL, self._register(args[0]))
            case "is_not_null":
                return self._emit(vm.IS_NOT_NULL, self._register(args[0]))
            case "coalesce":
                register = self._register(args[-1])
                for arg in reversed(args[:-1]):
                    register = self._emit(vm.COALESCE, self._register(arg), register)
                return register
            case "high_part(numeric)" | "low_part(numeric)":
                scale = scale_of(types[0])
                unit = self._constant(*_words(unit_of(scale) * 10**scale))
                code = vm.HIGH_PART if function == "high_part(numeric)" else vm.LOW_PART
                return self._emit(code, self._register(args[0]), unit)
            case "is_true":
                false = self._emit(vm.CONSTANT, self._constant(0, 0))
                return self._emit(vm.COALESCE, self._register(args[0]), false)
            case "cast(int2,int4)" | "cast(int2,int8)" | "cast(int4,int8)":
                return self._register(args[0])
        stem = function.partition("(")[0]
        if stem in _ARITHMETIC and len(args) == 2:
            return self._arithmetic(_ARITHMETIC[stem], args, types, type)
        return None

    def _comparison(
        self, function: str, args: tuple[Scalar, ...], types: list[SqlType]
    ) -> int | None:
        code, swapped = _COMPARISONS[function]
        if not _same_form(types):
            return None
        kind = kind_of(types[0])
        a, b = (self._register(arg) for arg in (reversed(args) if swapped else args))
        if kind == "float":
            a, b = self._emit(vm.FLOAT_ORDER, a), self._emit(vm.FLOAT_ORDER, b)
        elif kind == "bytes" and code in (vm.LESS, vm.LESS_OR_EQUAL):
            if types[0].name == "jsonb":
                return None
            order = self._emit(vm.TEXT_ORDER, a, b)
            return self._emit(code, order, self._emit(vm.CONSTANT, self._constant(0, 0)))
        elif not is_direct(types[0]) or (kind == "uuid" and code in (vm.LESS, vm.LESS_OR_EQUAL)):
            return None
        return self._emit(code, a, b)

    def _arithmetic(
        self, code: int, args: tuple[Scalar, ...], types: list[SqlType], type: SqlType
    ) -> int | None:
        """Return the register of a sum, difference or product of whole numbers or numerics."""
        if all(each == types[0] == type and each.name in WIDTHS for each in types):
            bound = 1 << (WIDTHS[type.name] - 1)
            error = self.interner.number(out_of_range(type).encode())
            least, greatest = -bound, bound - 1
            a, b = (self._register(arg) for arg in args)
        elif type.name == "numeric" and all(each.name == "numeric" for each in types):
            scales = [scale_of(each) for each in types]
            if code == vm.MULTIPLY:
                if sum(scales) != scale_of(type):
                    return None
                by = [0, 0]
            else:
                by = [scale_of(type) - scale for scale in scales]
            if any(not 0 <= each <= 18 for each in by):
                return None
            error = self.interner.number(OVERFLOW.encode())
            least, greatest = 1 - LIMIT, LIMIT - 1
            a, b = (
                self._scaled(self._register(arg), each, error)
                for arg, each in zip(args, by, strict=True)
            )
        else:
            return None
        result = self._emit(code, a, b, error)
        first, last = (self._constant(*_words(each)) for each in (least, greatest))
        return self._emit(vm.RANGE, result, first, last, error)

    def _scaled(self, register: int, by: int, error: int) -> int:
        if not by:
            return register
        unit = self._emit(vm.CONSTANT, self._constant(10**by, 0))
        return self._emit(vm.MULTIPLY, register, unit, error)


def _same_form(types: list[SqlType]) -> bool:
    """Whether values of two types are equal exactly if their words are (but for key forms)."""
    a, b = types
    if a.name == b.name == "numeric":
        return scale_of(a) == scale_of(b)
    return a.name == b.name or (
        kind_of(a) == kind_of(b) == "bytes" and "jsonb" not in (a.name, b.name)
    )


def _words(value: int) -> tuple[int, int]:
    """Return the low and the high word of an integer of 128 bits."""
    low = value & ((1 << 64) - 1)
    return low - (1 << 64) if low >> 63 else low, value >> 64
