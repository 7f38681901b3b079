"""The shape of a statement: its text with parameters in the place of literals.

Clients of the simple protocol write values into the text, so a text hardly comes again, but its
shape does. A plan of the shape, with the values as arguments, may stand for one of the text where
that is certain to mean the same (`means_the_same`): in rows of VALUES, and in a change or a look-up
of rows by comparisons and sums of columns, where the binder treats a literal as a parameter of its
type. A number is declared as int4, int8 or numeric; a string has the type that its place, or a
cast, gives it, as the literal has.

    UPDATE t SET n = n + -7 WHERE k = 5      UPDATE t SET n = n + $1 WHERE k = $2
"""

import re
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from foreshore.sql import ast
from foreshore.sql.ast.expressions import nodes_of

LONGEST = 4096  # characters of a text
MOST_VALUES = 64
MOST_SHAPES = 1024
OFTEN = 2  # a shape is looked at when its text comes again

# A quoted name, a string, or digits. That it begins with one set makes the search for it fast.
_LITERAL = re.compile(
    r"""["'0-9](?:(?<=")[^"]*+"|(?<=')(?:[^']++|'')*+'|(?<=[0-9])[0-9]{0,17}+(?:\.[0-9]{1,17}+)?+(?![\w.]))"""
)
_LEFT = re.compile(r"--|/\*|\$|\\")  # comments, parameters, other quotes: such a text has no shape
_IN_WORDS = "_."  # or in a number with a point
_BEFORE_SIGN = frozenset("-=(,+*<>")
_INT4, _INT8, _NUMERIC, _UNKNOWN = 23, 20, 1700, 0
_SAFE_NUMBERS = range(-(1 << 31), 1 << 31)
_COMPARISONS = frozenset(("=", "<", ">", "<=", ">=", "<>", "!="))
_SUMS = frozenset("+-*")

# Types to which each number above can be cast, as the parser names them.
_WIDE = frozenset(("int8", "bigint", "numeric", "decimal", "float8", "double precision"))

Value: TypeAlias = int | str  # of a number with a point its text, of a string what is in it


class Shape(NamedTuple):
    """A text with parameters, the oids of their types (0: to be inferred), and their values."""

    text: str
    oids: tuple[int, ...]
    values: list[Value]


def shape_of(text: str) -> Shape | None:
    """Return the shape of a text that has literals; None if it is not looked for one."""
    if len(text) > LONGEST or _LEFT.search(text) is not None:
        return None
    parts: list[str] = []
    oids: list[int] = []
    values: list[Value] = []
    end = 0
    for found in _LITERAL.finditer(text):
        literal, start = found[0], found.start()
        first = literal[0]
        if first == '"':
            continue
        if first == "'":
            oids.append(_UNKNOWN)
            values.append(literal[1:-1].replace("''", "'"))
        else:
            before = text[start - 1 : start]
            if before.isalnum() or before in _IN_WORDS:
                continue
            is_negative = before == "-" and _is_sign(text, start - 1)
            start -= is_negative
            if "." in literal:
                oids.append(_NUMERIC)
                values.append(_decimal(f"-{literal}" if is_negative else literal))
            else:
                number = -int(literal) if is_negative else int(literal)
                oids.append(_INT4 if number in _SAFE_NUMBERS else _INT8)
                values.append(number)
        parts += (text[end:start], f"${len(values)}")
        end = found.end()
    if not 0 < len(values) <= MOST_VALUES:
        return None
    parts.append(text[end:])
    return Shape("".join(parts), tuple(oids), values)


def _decimal(text: str) -> str:
    """Return a number with a point as numeric shows it."""
    whole, _, fraction = text.lstrip("-").partition(".")
    is_zero = not whole.strip("0") and not fraction.strip("0")
    sign = "-" if text[0] == "-" and not is_zero else ""
    return f"{sign}{whole.lstrip('0') or '0'}.{fraction}"


def _is_sign(text: str, at: int) -> bool:
    """Whether the minus there is no operator: one, a comma or a parenthesis is before it."""
    before = at - 2 if text[at - 1 : at] == " " else at - 1
    return before >= 0 and text[before] in _BEFORE_SIGN


class Shapes:
    """The shapes last seen, and which of them may stand for their texts."""

    def __init__(self) -> None:
        # How often a shape was seen; True and False are the verdict about it.
        self._seen: OrderedDict[str, int | bool] = OrderedDict()

    def stands(self, shape: Shape) -> bool:
        """Whether a shape is known to stand for its texts."""
        return self._seen.get(shape.text) is True

    def is_due(self, shape: Shape) -> bool:
        """Note a text of a shape without verdict; return whether one is to be given."""
        seen = self._seen.get(shape.text, 0)
        if isinstance(seen, bool):
            return False
        self._note(shape, seen + 1)
        return seen + 1 >= OFTEN

    def decide(self, shape: Shape, verdict: bool) -> None:
        """Keep whether a shape may stand for its texts."""
        self._note(shape, verdict)

    def _note(self, shape: Shape, seen: int | bool) -> None:
        self._seen[shape.text] = seen
        self._seen.move_to_end(shape.text)
        if len(self._seen) > MOST_SHAPES:
            self._seen.popitem(last=False)


# --- whether a shape means what its text does -----------------------------------------------


def means_the_same(text: ast.StatementSyntax, shape: ast.StatementSyntax, given: Shape) -> bool:
    """Whether the trees of a text and of its shape differ by literals in allowed places only."""
    places = _places(shape, given.oids)
    if sorted(each.number for each in places) != list(range(1, len(given.values) + 1)):
        return False
    inside = [each for each in nodes_of((shape,)) if isinstance(each, ast.ParameterRef)]
    if len(inside) != len(places):
        return False
    return _match(text, shape, given)


def _match(text: object, shape: object, given: Shape) -> bool:
    """Whether two trees are the same but for offsets, and for literals where one has parameters."""
    if isinstance(shape, ast.ParameterRef):
        value = given.values[shape.number - 1]
        if given.oids[shape.number - 1] == _UNKNOWN:
            return isinstance(text, ast.String) and text.value == value
        if not isinstance(text, ast.Number):
            return False
        return (_decimal(text.text) if isinstance(value, str) else text.text) == str(value)
    if type(text) is not type(shape):
        return False
    if isinstance(shape, tuple | list):
        assert isinstance(text, tuple | list)
        return len(text) == len(shape) and all(
            _match(a, b, given) for a, b in zip(text, shape, strict=True)
        )
    if isinstance(shape, ast.Syntax):
        return all(
            _match(getattr(text, name), getattr(shape, name), given)
            for name in shape.__struct_fields__
        )
    # Offsets differ; other integers are never where a parameter could be.
    return text == shape or (isinstance(shape, int) and not isinstance(shape, bool))


def _places(statement: ast.StatementSyntax, oids: Sequence[int]) -> list[ast.ParameterRef]:
    """Return the parameters of a statement that are where literals are treated alike."""
    found = _Places(oids)
    match statement:
        case ast.UpdateStatement(from_=(), ctes=()):
            found.assigned(statement.assignments)
            found.compared(statement.where)
        case ast.DeleteStatement(using=(), ctes=()):
            found.compared(statement.where)
        case ast.InsertStatement(
            source=ast.Query(body=ast.Values(rows=rows, more=None)), ctes=(), on_conflict=conflict
        ):
            for row in rows:
                for cell in row:
                    found.literal(cell)
            if conflict is not None and conflict.assignments is not None:
                found.assigned(conflict.assignments)
                found.compared(conflict.where)
        case ast.SelectStatement(query=ast.Query(body=ast.Select() as select)):
            found.compared(select.where)
        case _:
            pass
    return found.parameters


class _Places:
    """The parameters, with these oids, that are where literals are treated alike."""

    def __init__(self, oids: Sequence[int]) -> None:
        self.parameters: list[ast.ParameterRef] = []
        self._oids = oids

    def literal(self, expr: ast.Expression | None) -> bool:
        """Add a parameter, which may be cast; return whether `expr` is one."""
        parameter = expr.arg if isinstance(expr, ast.CastTo) else expr
        if not isinstance(parameter, ast.ParameterRef):
            return False
        if isinstance(expr, ast.CastTo) and not self._is_plain_cast(expr.type, parameter):
            return False
        self.parameters.append(parameter)
        return True

    def _is_plain_cast(self, type: ast.TypeName, parameter: ast.ParameterRef) -> bool:
        """Whether a literal is cast as a parameter is, and a number can be cast."""
        plain = (len(type.name), type.modifiers, type.dimensions, type.fields, type.item)
        if plain != (1, (), 0, None, None):
            return False
        number = parameter.number
        is_string = 0 < number <= len(self._oids) and self._oids[number - 1] == _UNKNOWN
        return is_string or type.name[0] in _WIDE

    def assigned(self, assignments: Sequence[ast.Assignment]) -> None:
        """Add the parameters that columns are set to, or those in sums with columns."""
        for each in assignments:
            if not (each.multiple or each.subscripts or self.literal(each.value)):
                self._sum(each.value)

    def compared(self, expr: ast.Expression | ast.CurrentOf | None) -> None:
        """Add those that are compared with columns, in comparisons that all have to hold."""
        match expr:
            case ast.Connective(kind="and", args=args):
                for each in args:
                    self.compared(each)
            case ast.Operation(operator=operator, left=left, right=right) if (
                operator in _COMPARISONS
            ):
                if isinstance(left, ast.ColumnRef):
                    self.literal(right)
                elif isinstance(right, ast.ColumnRef):
                    self.literal(left)
            case _:
                pass

    def _sum(self, expr: ast.Expression | None) -> None:
        """Add those of sums and products, in each of which the other operand has a column."""
        if not isinstance(expr, ast.Operation) or expr.operator not in _SUMS:
            return
        left, right = expr.left, expr.right
        if _has_column(left) and self.literal(right):
            self._sum(left)
        elif _has_column(right) and self.literal(left):
            self._sum(right)


def _has_column(expr: ast.Expression | None) -> bool:
    """Whether an operand is a column, or a sum with one."""
    if isinstance(expr, ast.Operation) and expr.operator in _SUMS and expr.left is not None:
        return _has_column(expr.left) or _has_column(expr.right)
    return isinstance(expr, ast.ColumnRef)
