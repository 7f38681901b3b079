"""The compiler of linear programs.

Columns are kept as scalars over the input's columns, so Map, Filter and Project only rewrite
scalars. What is put out decides which of them are computed, each once. A scalar that the kernel
knows becomes instructions; any other is given to it, evaluated by the registry's functions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from foreshore.compute.flow import calls
from foreshore.compute.flow.batch import Ints
from foreshore.compute.flow.convert import Form, is_direct, words_of_values
from foreshore.compute.flow.intern import Interner
from foreshore.compute.flow.kernels import opcodes as op
from foreshore.compute.flow.layout import Layout, kind_of, layout_of
from foreshore.compute.flow.memo import Memo
from foreshore.compute.flow.program import Given, Program
from foreshore.datum import to_array
from foreshore.expr.columns import type_of
from foreshore.expr.equality import has_one_form
from foreshore.expr.ir import And, Call, Case, Column, ErrorOf, Literal, Or, Scalar
from foreshore.expr.split import can_fail, columns_used
from foreshore.expr.traversal import operands_of, with_operands
from foreshore.types import INT4, ColumnType

_COMPUTED = (0, 0, -1)  # of an output that is not copied


@dataclass(slots=True)
class Compiler:
    """Compiles one program over rows of `layout`; words are put out in the order of the calls."""

    layout: Layout
    interner: Interner
    sign: int = 1
    columns: list[Scalar] = field(default_factory=list)  # over the input's columns
    texts: list[int] = field(default_factory=list)  # of the words put out
    strings: list[int] = field(default_factory=list)  # words put out that are interned strings
    _outputs: list[tuple[int, ...]] = field(default_factory=list)
    _code: list[tuple[int, ...]] = field(default_factory=list)
    _constants: list[tuple[int, int, int]] = field(default_factory=list)
    _interned: list[int] = field(default_factory=list)  # constants that are numbers of strings
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
                register = self.register(scalar)
                self.emit(op.CHECK, register, self._ports.index(port), to=0)

    def filter(self, predicates: Sequence[Scalar]) -> None:
        """Keep the rows for which all predicates are TRUE, none of which fails."""
        self.filter_resolved([self.resolved(predicate) for predicate in predicates])

    def filter_resolved(self, predicates: Sequence[Scalar]) -> None:
        """Keep the rows for which all resolved predicates are TRUE."""
        for predicate in predicates:
            self.emit(op.FILTER, self.register(predicate), to=0)

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
            word = start + place.word
            if place.kind in ("bytes", "value"):
                self.strings.append(word)
            to = word, place.width, start + mask, bit
            if form == "key" and not is_direct(type_of(scalar)):
                self._outputs.append((self._keyed(scalar), *to, *_COMPUTED))
            else:
                self._put(scalar, to)

    def put_row(self, columns: Sequence[ColumnType]) -> None:
        """Put out the present columns."""
        self.put(columns, self.columns, "row")

    def put_order(self, scalar: Scalar, *, descending: bool, nulls: int) -> None:
        """Put out words that order rows by a resolved scalar; `nulls` is -1: first, or 1: last."""
        register = self.register(scalar)
        self._put_word(self.emit(op.NULL_RANK, register, nulls), 0)
        by_text = 0
        match kind_of(type_of(scalar)):
            case "int":
                parts = [register]
            case "float":
                parts = [self.emit(op.FLOAT_ORDER, register)]
            case "wide":
                parts = [self.emit(op.HIGH, register), self.emit(op.UNSIGNED_LOW, register)]
            case "interval":
                register = self._given_in("key", scalar)
                parts = [register, self.emit(op.HIGH, register)]
            case "bytes" if is_direct(type_of(scalar)):
                parts, by_text = [register], -1 if descending else 1
            case _:
                parts, by_text = [self._given_in("order", scalar)], -1 if descending else 1
        if by_text:
            self.strings.append(len(self.texts))
        for part in parts:
            if descending and not by_text:
                part = self.emit(op.COMPLEMENT, part)
            self._put_word(part, by_text)

    def put_shown(self, scalar: Scalar) -> None:
        """Put out words that order values that are equal but do not look it.

        The order is that of `expr/equality.shown_bytes`.
        """
        type = type_of(scalar)
        match kind_of(type):
            case "float":
                self._put_word(self.emit(op.COMPLEMENT, self.register(scalar)), 0)
            case "interval":
                register = self._given_in("shown", scalar)
                self._put_word(register, 0)
                self._put_word(self.emit(op.HIGH, register), 0)
            case "bytes" if not is_direct(type):  # they are ordered as they are
                self._put_text(self.register(scalar))
            case "value" if type.name == "number":
                scale = Call("number_scale(number)", (scalar,), INT4)
                self._put_word(self.register(scale), 0)
            case "value" if not has_one_form(type):
                self._put_text(self._given_in("shown", scalar))

    def _put_text(self, register: int) -> None:
        self.strings.append(len(self.texts))
        self._put_word(register, 1)

    def put_scalar(self, scalar: Scalar, width: int) -> None:
        """Put out one or two words of a resolved scalar, 0 for NULL."""
        self._put(scalar, (len(self.texts), width, 0, -1))
        self.texts += [0] * width

    def _put(self, scalar: Scalar, to: tuple[int, int, int, int]) -> None:
        """Put a resolved scalar out to a word, of a width, with a mask word and bit."""
        if isinstance(scalar, Column):
            place = self.layout.places[scalar.index]
            if place.width == to[1]:  # it is copied
                mask, bit = divmod(place.bit, 64) if place.bit >= 0 else (0, -1)
                self._outputs.append((-1, *to, place.word, mask, bit))
                return
        self._outputs.append((self.register(scalar), *to, *_COMPUTED))

    def _put_word(self, register: int, text: int) -> None:
        self._outputs.append((register, len(self.texts), 1, 0, -1, *_COMPUTED))
        self.texts.append(text)

    def program(self) -> Program:
        """Return the program."""
        pinned = np.array(self._interned, np.int64)
        if self._interned:
            self.interner.pin(pinned)
        return Program(
            self.layout,
            np.array(self._code, np.int64).reshape(-1, 6),
            np.array(self._constants, np.int64).reshape(-1, 3),
            pinned,
            tuple(self._given),
            np.array(self._outputs, np.int64).reshape(-1, 8),
            np.array(self.texts, np.int64),
            np.array(self.strings, np.int64),
            self.sign,
            self._count,
            tuple(self._ports),
            self._picked(),
        )

    def _picked(self) -> Ints | None:
        """Return the input's words that come out, if they are all that the program gives."""
        words = [0] * len(self.texts)
        seen = 0
        for register, word, width, _, bit, source, _, null in self._outputs:
            if register >= 0 or null >= 0 or bit >= 0:
                return None
            words[word : word + width] = range(source, source + width)
            seen += width
        return np.array(words, np.int64) if seen == len(words) and not self._code else None

    # --- scalars

    def emit(
        self, code: int, a: int = 0, b: int = 0, c: int = 0, d: int = 0, *, to: int = -1
    ) -> int:
        """Append an instruction; return the register of its result."""
        if to < 0:
            to, self._count = self._count, self._count + 1
        self._code.append((code, to, a, b, c, d))
        return to

    def register(self, scalar: Scalar) -> int:
        """Return the register of a resolved scalar."""
        found = self._known.get(scalar)
        if found is None:
            found = self._known[scalar] = self._compiled(scalar)
        return found

    def _keyed(self, scalar: Scalar) -> int:
        """Return the register of a resolved scalar in the form of keys."""
        type = type_of(scalar)
        if is_direct(type):
            return self.register(scalar)
        known = (scalar, "key")
        found = self._known.get(known)
        if found is None:
            if kind_of(type) == "float":
                found = self.emit(op.FLOAT_KEY, self.register(scalar))
            else:
                found = self._given_in("key", scalar)
            self._known[known] = found
        return found

    def _given_in(self, form: Form, scalar: Scalar) -> int:
        used = columns_used(scalar)
        place = self.layout.places[next(iter(used))] if len(used) == 1 else None
        if place is None or place.kind != "bytes":
            self._given.append(Given(scalar, form))
        else:
            self._given.append(Given(scalar, form, Memo(), place))
        return self.emit(op.GIVEN, len(self._given) - 1)

    def constant(self, low: int, high: int, third: int = 0) -> int:
        """Return the place of two words; the third is 1 for a NULL, or means what is said there."""
        self._constants.append((low, high, third))
        return len(self._constants) - 1

    def _compiled(self, scalar: Scalar) -> int:
        match scalar:
            case Column(index=index):
                place = self.layout.places[index]
                mask, bit = divmod(place.bit, 64) if place.bit >= 0 else (0, -1)
                return self.emit(op.LOAD, place.word, mask, bit, place.width)
            case Literal(value=None):
                return self.emit(op.CONSTANT, self.constant(0, 0, 1))
            case Literal(value=value, type=type):
                parts = words_of_values(to_array([value], type), type, "row", self.interner)
                low = int(parts[0][0])
                if kind_of(type) in ("bytes", "value"):
                    self._interned.append(low)
                high = int(parts[1][0]) if len(parts) == 2 else low >> 63
                return self.emit(op.CONSTANT, self.constant(low, high))
            case And(args=args) | Or(args=args) if args:
                code = op.AND if isinstance(scalar, And) else op.OR
                register = self.register(args[0])
                for arg in args[1:]:
                    register = self.emit(code, register, self.register(arg))
                return register
            case Case(branches=branches, otherwise=otherwise):
                register = self.register(otherwise)
                for condition, value in reversed(branches):
                    chosen = self.register(value)
                    register = self.emit(op.SELECT, self.register(condition), chosen, register)
                return register
            case ErrorOf(expr=expr):
                return self.emit(op.ERROR_OF, self.register(expr))
            case Call(function=function, args=args):
                known = calls.register_of(self, function, args, scalar.type)
                if known is not None:
                    return known
        return self._given_in("row", scalar)
