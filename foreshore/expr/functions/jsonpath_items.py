"""The items of a JSON path over a document, in PostgreSQL's semantics.

A path is evaluated lazily, so that `exists` stops at the first item. An item is a JSON value
(`jsontext.loads`) or a `Moment`, which `.datetime()` makes. In lax mode arrays are unwrapped where
an accessor needs their elements, and structural errors are no items; in strict mode they are
errors. An error within a condition makes it unknown.
"""

import math
from collections.abc import Iterator
from datetime import tzinfo
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any, cast

from foreshore import numbers
from foreshore.errors import DatabaseError
from foreshore.expr.functions.jsonpath_moments import Moment, compared, moment_of
from foreshore.expr.functions.jsontext import stored_keys
from foreshore.expr.functions.regex import compile_regex
from foreshore.expr.functions.regex_match import matching
from foreshore.expr.functions.rows import Failure, fail
from foreshore.jsonpath import COMPARISONS, UNBOUNDED, Node, Path

_ARITHMETIC = {
    "+": numbers.added,
    "-": numbers.subtracted,
    "*": numbers.multiplied,
    "/": numbers.divided,
    "%": numbers.remainder,
}
MOST_STEPS = 1_000_000  # some seconds


def items_of(
    path: Path, document: Any, variables: dict[str, Any], zone: tzinfo | None = None
) -> Iterator[Any]:
    """Yield the items of `path`; raises Failure.

    In a `zone` moments of a zone and local ones compare; without one that is an error.
    """
    return _Run(path, document, variables, zone).items(path.root, document)


def any_items(
    path: Path, document: Any, variables: dict[str, Any], zone: tzinfo | None = None
) -> bool:
    """Return whether there are items; in strict mode all are computed, as one may fail."""
    return _Run(path, document, variables, zone).has_items(path.root, document)


_NONE = object()


def type_name(value: Any) -> str:
    """Return the name of an item's type."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case Decimal():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case dict():
            return "object"
        case _:
            return str(value.type_name)


class _Run:
    """The evaluation of one path over one document."""

    def __init__(
        self, path: Path, document: Any, variables: dict[str, Any], zone: tzinfo | None
    ) -> None:
        self.zone = zone
        self.lax = not path.strict
        self.root = document
        self.variables = variables
        self.forgiving = self.lax  # whether structural errors are no errors
        self.current: list[Any] = []
        self.sizes: list[int] = []
        self.steps = 0

    # --- items

    def items(self, node: Node, value: Any) -> Iterator[Any]:
        """Yield the items of an expression or condition; `value` is what `@` and `$` start from."""
        match node.kind:
            case "literal":
                yield node.value
            case "variable":
                if node.value not in self.variables:
                    raise fail("42704", f'could not find jsonpath variable "{node.value}"')
                yield self.variables[str(node.value)]
            case "$":
                yield self.root
            case "@":
                yield self.current[-1]
            case "last":
                yield Decimal(self.sizes[-1] - 1)
            case "path":
                first, *accessors = cast(tuple[Node, ...], node.args)
                for each in self.items(first, value):
                    yield from self.accessed(accessors, each)
            case "+" | "-" | "*" | "/" | "%" if len(node.args) == 2:
                yield self._arithmetic(node, value)
            case "+" | "-":
                yield from self._signed(node, value)
            case _:
                yield self.condition(node, value)

    def has_items(self, node: Node, value: Any) -> bool:
        """Return whether an expression has items; in lax mode, no more than needed are computed."""
        if not self.lax:
            return len(list(self.items(node, value))) > 0
        if node.kind in ("+", "-") and len(node.args) == 1:
            return any(isinstance(each, Decimal) for each in self._unwrapped(node.args[0], value))
        return next(self.items(node, value), _NONE) is not _NONE

    def _unwrapped(self, node: Node | None, value: Any) -> Iterator[Any]:
        """Yield the items of an operand; in lax mode arrays among them by their elements."""
        assert node is not None
        for each in self.items(node, value):
            if self.lax and isinstance(each, list):
                yield from each
            else:
                yield each

    def _arithmetic(self, node: Node, value: Any) -> Decimal:
        operands = []
        for side, operand in zip(("left", "right"), node.args, strict=True):
            found = list(self._unwrapped(operand, value))
            if len(found) != 1 or not isinstance(found[0], Decimal):
                raise fail(
                    "22038",
                    f"{side} operand of jsonpath operator {node.kind} "
                    "is not a single numeric value",
                )
            operands.append(found[0])
        try:
            return _ARITHMETIC[node.kind](*operands)
        except ZeroDivisionError:
            raise fail("22012", "division by zero") from None
        except DatabaseError as error:
            raise fail(error.sqlstate, error.message) from None

    def _signed(self, node: Node, value: Any) -> Iterator[Any]:
        for each in self._unwrapped(node.args[0], value):
            if not isinstance(each, Decimal):
                raise fail(
                    "2203B",
                    f"operand of unary jsonpath operator {node.kind} is not a numeric value",
                )
            yield numbers.negated(each) if node.kind == "-" else each

    # --- accessors

    def accessed(self, accessors: list[Node], start: Any) -> Iterator[Any]:
        """Yield what accessors find in a value, one after the other.

        A step takes constant time: what is underway is a stack, and not generators in each other.
        """
        underway: list[Iterator[tuple[Any, bool]]] = [iter([(start, self.lax)])]
        try:
            while underway:
                found = next(underway[-1], None)
                if found is None:
                    underway.pop()
                    continue
                self._count_step()
                value, unwrap = found
                if len(underway) > len(accessors):
                    yield value
                else:
                    underway.append(self._step(accessors[len(underway) - 1], value, unwrap))
        finally:
            while underway:  # the last one first, as each changes how the later ones run
                underway.pop()

    def _count_step(self) -> None:
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise fail("54000", "jsonpath takes too many steps")

    def _step(self, node: Node, value: Any, unwrap: bool) -> Iterator[tuple[Any, bool]]:
        """Yield what one accessor finds, and whether the next one unwraps arrays."""
        match node.kind:
            case "[*]":
                yield from self._elements(value)
            case "[":
                yield from self._subscripted(node, value)
            case "**":
                yield from self._levels(node, value)
            case "method" if node.value in ("type", "size"):
                yield self._measured(node, value), self.lax
            case _ if unwrap and isinstance(value, list):
                for element in value:
                    yield from self._step(node, element, False)
            case "key":
                yield from self._member(node, value)
            case ".*":
                yield from self._members(value)
            case "?":
                assert node.args[0] is not None
                self.current.append(value)
                try:
                    holds = self.condition(node.args[0], value)
                finally:
                    self.current.pop()
                if holds is True:
                    yield value, self.lax
            case _:
                for item in self._method(node, value):
                    yield item, self.lax

    def _member(self, node: Node, value: Any) -> Iterator[tuple[Any, bool]]:
        if isinstance(value, dict):
            if node.value in value:
                yield value[node.value], self.lax
            elif not self.forgiving:
                raise fail("2203A", f'JSON object does not contain key "{node.value}"')
        elif not self.forgiving:
            raise fail("2203A", "jsonpath member accessor can only be applied to an object")

    def _members(self, value: Any) -> Iterator[tuple[Any, bool]]:
        if isinstance(value, dict):
            for key in stored_keys(value):
                yield value[key], self.lax
        elif not self.forgiving:
            raise fail(
                "2203C", "jsonpath wildcard member accessor can only be applied to an object"
            )

    def _elements(self, value: Any) -> Iterator[tuple[Any, bool]]:
        if isinstance(value, list):
            for element in value:
                yield element, self.lax
        elif self.lax:
            yield value, self.lax
        elif not self.forgiving:
            raise fail("22039", "jsonpath wildcard array accessor can only be applied to an array")

    def _subscripted(self, node: Node, value: Any) -> Iterator[tuple[Any, bool]]:
        if not isinstance(value, list) and not self.lax:
            if not self.forgiving:
                raise fail("22039", "jsonpath array accessor can only be applied to an array")
            return
        elements = value if isinstance(value, list) else [value]
        for first, last in zip(node.args[::2], node.args[1::2], strict=True):
            self.sizes.append(len(elements))
            try:
                start = self._index(first, value)
                end = start if last is None else self._index(last, value)
            finally:
                self.sizes.pop()
            outside = start < 0 or start > end or end >= len(elements)
            if outside and not self.forgiving:
                raise fail("22033", "jsonpath array subscript is out of bounds")
            for place in range(max(start, 0), min(end, len(elements) - 1) + 1):
                yield elements[place], self.lax

    def _index(self, node: Node | None, value: Any) -> int:
        assert node is not None
        found = list(self.items(node, value))
        if len(found) != 1 or not isinstance(found[0], Decimal):
            raise fail("22033", "jsonpath array subscript is not a single numeric value")
        index = int(found[0])
        if not -(2**31) <= index < 2**31:
            raise fail("22033", "jsonpath array subscript is out of integer range")
        return index

    def _levels(self, node: Node, value: Any) -> Iterator[tuple[Any, bool]]:
        first, last = cast(tuple[int, int], node.value)
        for found in self._below(value, first, last):
            before, self.forgiving = self.forgiving, True
            try:
                yield found, self.lax
            finally:
                self.forgiving = before

    def _below(self, value: Any, first: int, last: int) -> Iterator[Any]:
        """Yield the values of levels `first` to `last` below a value, each before those in it."""
        leaves_only = first == UNBOUNDED and last == UNBOUNDED
        underway = [(value, 0)]
        while underway:
            self._count_step()
            value, level = underway.pop()
            is_leaf = not isinstance(value, dict | list)
            if (is_leaf if leaves_only else level >= first >= 0) and (level > 0 or first == 0):
                yield value
            if is_leaf or (last != UNBOUNDED and level >= last):
                continue
            inner = value if isinstance(value, list) else [value[k] for k in stored_keys(value)]
            underway.extend((each, level + 1) for each in reversed(inner))

    # --- methods

    def _measured(self, node: Node, value: Any) -> Any:
        if node.value == "type":
            return type_name(value)
        if isinstance(value, list):
            return Decimal(len(value))
        if not self.lax and not self.forgiving:
            raise fail("22039", "jsonpath item method .size() can only be applied to an array")
        return Decimal(1)

    def _method(self, node: Node, value: Any) -> Iterator[Any]:
        match node.value:
            case "abs" | "floor" | "ceiling":
                if not isinstance(value, Decimal):
                    raise fail(
                        "22036",
                        f"jsonpath item method .{node.value}() "
                        "can only be applied to a numeric value",
                    )
                if node.value == "abs":
                    yield value.copy_abs()
                else:
                    rounding = ROUND_FLOOR if node.value == "floor" else ROUND_CEILING
                    yield numbers.cut(value, 0, rounding)
            case "double":
                yield _double(value)
            case "datetime":
                template = node.args[0].value if node.args and node.args[0] else None
                yield moment_of(value, None if template is None else str(template))
            case _:
                yield from self._key_values(value)

    def _key_values(self, value: Any) -> Iterator[Any]:
        if not isinstance(value, dict):
            raise fail("2203C", "jsonpath item method .keyvalue() can only be applied to an object")
        if value is not self.root:
            raise fail("0A000", ".keyvalue() of an object within a document is not supported")
        for key in stored_keys(value):
            yield {"id": Decimal(0), "key": key, "value": value[key]}

    # --- conditions

    def condition(self, node: Node, value: Any) -> bool | None:
        """Return the truth of a condition, None if it is unknown."""
        match node.kind:
            case "&&":
                left = self._part(node, 0, value)
                if left is False:
                    return False
                right = self._part(node, 1, value)
                return left if right is True else right
            case "||":
                left = self._part(node, 0, value)
                if left is True:
                    return True
                right = self._part(node, 1, value)
                return left if right is False else right
            case "!":
                inner = self._part(node, 0, value)
                return None if inner is None else not inner
            case "is unknown":
                return self._part(node, 0, value) is None
            case "exists":
                return self._exists(node, value)
            case _:
                return self._predicate(node, value)

    def _part(self, node: Node, place: int, value: Any) -> bool | None:
        part = node.args[place]
        assert part is not None
        return self.condition(part, value)

    def _exists(self, node: Node, value: Any) -> bool | None:
        assert node.args[0] is not None
        try:
            return self.has_items(node.args[0], value)
        except Failure as failure:
            _must_be_unknown(failure)
            return None

    def _predicate(self, node: Node, value: Any) -> bool | None:
        """Return whether a test holds for any pair of items of its operands."""
        try:
            lefts = list(self._unwrapped(node.args[0], value))
            rights: list[Any] = [None]
            if len(node.args) > 1:
                assert node.args[1] is not None
                if node.kind in COMPARISONS:
                    rights = list(self._unwrapped(node.args[1], value))
                else:
                    rights = list(self.items(node.args[1], value))
        except Failure as failure:
            _must_be_unknown(failure)
            return None
        found = unknown = False
        for left in lefts:
            for right in rights:
                self._count_step()
                holds = _tested(node, left, right, self.zone)
                if holds is None:
                    if not self.lax:
                        return None
                    unknown = True
                elif holds:
                    if self.lax:
                        return True
                    found = True
        return True if found else None if unknown else False


def _must_be_unknown(failure: Failure) -> None:
    """Raise an error again unless it makes a condition unknown."""
    if failure.text[:5] in ("0A000", "42704", "54000", "54001", "57014"):
        raise failure


def _tested(node: Node, left: Any, right: Any, zone: tzinfo | None) -> bool | None:
    if node.kind in COMPARISONS:
        return _compare(node.kind, left, right, zone)
    if not isinstance(left, str):
        return None
    if node.kind == "starts with":
        return left.startswith(right) if isinstance(right, str) else None
    pattern, flags = cast(tuple[str, str], node.value)
    options = "i" if "i" in flags else ""
    options += "q" if "q" in flags else _about_newlines(pattern, flags, left)
    return matching(compile_regex(pattern, options), left).matches()


def _about_newlines(pattern: str, flags: str, text: str) -> str:
    """Return the option for XQuery's flags: `s`, `.` matches newlines; `m`, `^` begins each line.

    Options that differ in one of the two are not supported, but matter to few texts.
    """
    if "\n" not in text:
        return ""
    if ("s" in flags) == ("m" in flags) and ("^" in pattern or "$" in pattern):
        raise fail("0A000", "like_regex with ^ or $ over text of several lines is not supported")
    return "" if "s" in flags else "n"


def _compare(operator: str, left: Any, right: Any, zone: tzinfo | None) -> bool | None:
    kinds = (type_name(left), type_name(right))
    moments = isinstance(left, Moment) and isinstance(right, Moment)
    if kinds[0] != kinds[1] and not moments:
        return operator == "!=" if None in (left, right) else None
    if isinstance(left, list | dict):
        return None
    if left is None:
        order = 0
    elif moments:
        found = compared(left, right, zone)
        if found is None:
            return None
        order = found
    else:
        order = (left > right) - (left < right)
    match operator:
        case "==":
            return order == 0
        case "!=":
            return order != 0
        case "<":
            return order < 0
        case ">":
            return order > 0
        case "<=":
            return order <= 0
        case _:
            return order >= 0


def _double(value: Any) -> Decimal:
    if isinstance(value, Decimal):
        if math.isinf(float(value)):
            raise fail(
                "22036",
                "numeric argument of jsonpath item method .double() "
                "is out of range for type double precision",
            )
        return value
    if not isinstance(value, str):
        raise fail(
            "22036",
            "jsonpath item method .double() can only be applied to a string or numeric value",
        )
    from foreshore.text import parse_text
    from foreshore.types import FLOAT8

    try:
        number = cast(float, parse_text(value, FLOAT8))
    except DatabaseError:
        number = math.nan
    if not math.isfinite(number):
        raise fail(
            "22036",
            "string argument of jsonpath item method .double() "
            "is not a valid representation of a double precision number",
        )
    return numbers.bounded(Decimal(f"{number:.15g}"))
