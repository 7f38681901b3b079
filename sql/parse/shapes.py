"""The shape of a statement: its text with marks in the place of literals.

Clients of the simple protocol write values into the text, so a text hardly comes again, but its
shape does. A mark tells the class of its literal, which decides how it is bound:

    SELECT b + 1.50 FROM t WHERE k = 'x'      SELECT b + $2 FROM t WHERE k = $s

`$i` is an int4, `$l` an int8, `$2` a number with two digits after the point, `$s` a string; a long
list of int4 or of strings is one literal, `$i*` or `$s*`, however long it is (`long_lists.py`). A
number that its sign makes one of another class, and what is no plain literal, stays as written. So
texts of one shape have the same syntax tree but for these values: `with_parameters` puts parameters
in their places. What else has to hold for a plan to be good for all of them is told by
`sql/shape_plans.py`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec

from foreshore.errors import DatabaseError
from foreshore.sql import ast
from foreshore.sql.ast.constant_list import OF_PARAMETER, ConstantList, integers, unquoted
from foreshore.sql.ast.form_rows import FormRows
from foreshore.sql.parse.long_lists import FEWEST, Lists, take_out
from foreshore.sql.parse.parse import Statement
from foreshore.sql.parse.string_constants import decode_escapes

LONGEST = 16_384  # characters of a text
LONGEST_KEY = 4096
MOST_VALUES = 256

# Of a number with a point its digits, of a string what is in it; of a long list all its values.
One: TypeAlias = int | str
Value: TypeAlias = One | tuple[One, ...]

# A quoted name, a string, one with escapes from its quote on, or digits; or a quote or `$` that
# begins none of them. That it begins with one set makes the search for it fast.
_PLAIN = (
    r"""["'0-9$](?:(?<=")[^"]*+"|(?P<escaped>(?<=[^\w.$&][eE]')(?:[^'\\]++|\\[\s\S]|'')*+')"""
    r"""|(?<=')(?<![^\w.$&][eE]')(?:[^']++|'')*+'"""
    r"""|(?<=[0-9])[0-9]{0,18}+(?:\.[0-9]{1,17}+)?+(?![\w.])|(?<=["'$]))"""
)
_LITERAL = re.compile(_PLAIN)
# The same, and comments; or the beginning of one that has others within.
_COMMENTED = re.compile(
    rf"(?:--[^\r\n]*+|/\*(?:[^*/]++|\*(?!/)|/(?!\*))*+\*/)|/\*|{_PLAIN}", re.DOTALL
)
_COMMENT_ENDS = re.compile(r"/\*|\*/")
_ANYTHING = re.compile(r"[\s\S]*+")
# Before a quote: a string of another kind, such as B'' or U&''.
_IN_WORDS = frozenset("_.$&")
_EDGES = frozenset((1 << 31, 1 << 63))  # a sign decides their class
_INT4_END, _INT8_END = 1 << 31, 1 << 63
_COMPARISONS = frozenset(("=", "<", ">", "<=", ">=", "<>", "!="))
_BEFORE_NUMBER = re.compile(r"[-+(\s]*")


class Shape(NamedTuple):
    """A text with marks, and the values and places of its literals."""

    key: str
    values: list[Value]
    starts: list[int]


def shape_of(text: str, start: int = 0, end: int | None = None) -> Shape | None:
    """Return the shape of a text, or of a range of it; None if it has none."""
    if end is None:
        end = len(text)
    if end - start > LONGEST:
        return None
    parts = ["\0"]  # so it is no text
    values: list[Value] = []
    starts: list[int] = []
    done = start
    has_comments = text.find("--", start, end) >= 0 or text.find("/*", start, end) >= 0
    matches = _with_comments(text, start, end) if has_comments else None
    lists: Lists = {}
    if not has_comments and text.count(",", start, end) >= FEWEST - 1:
        short, lists = take_out(text, start, end)
        if any(isinstance(each, FormRows) for each in lists.values()):
            return None
        text = text[:start] + short + text[end:]
    for found in _LITERAL.finditer(text, start, end) if matches is None else matches:
        literal, at = found[0], found.start()
        first = literal[0]
        before = text[at - 1] if at > start else " "
        if first == "'" and found["escaped"] is not None:
            try:
                value = decode_escapes([literal[1:-1]], at)
            except DatabaseError:
                return None
            mark, at = "$s", at - 1
            values.append(value)
        elif first == "'":
            if before.isalnum() or before in _IN_WORDS or len(literal) == 1 or before > "\x7f":
                return None
            mark, value = "$s", literal[1:-1]
            if "'" in value:
                value = value.replace("''", "'")
            values.append(value)
        elif first == '"':
            if len(literal) == 1:
                return None
            continue
        elif first == "$":
            return None
        elif first in "-/":
            if literal == "/*":
                return None
            parts += (text[done:at], " ")
            done = found.end()
            continue
        elif before.isalnum() or before in _IN_WORDS or before > "\x7f":
            continue
        elif "." in literal:
            mark = f"${len(literal) - 1 - literal.index('.')}"
            values.append(literal)
        else:
            number = int(literal)
            if number >= _INT4_END:
                if number in _EDGES or number > _INT8_END:
                    continue
                mark = "$l"
            else:
                mark = "$i"
            values.append(number)
        parts += (text[done:at], mark)
        starts.append(at)
        done = found.end()
        if lists and (rest := lists.pop(at, None)) is not None:
            assert isinstance(rest, ConstantList), rest
            more = _rest_of(rest, mark)
            if more is None:
                return None
            values[-1] = (_first(values[-1]), *more)
            parts.append("*")
            done = rest.end
    if len(values) > MOST_VALUES or lists:
        return None
    parts.append(text[done:end])
    key = "".join(parts)
    return Shape(key, values, starts) if len(key) <= LONGEST_KEY else None


def _rest_of(rest: ConstantList, mark: str) -> Sequence[int | str] | None:
    """Return the values of a long list but for the first, which has a mark; None: none for all."""
    if mark == "$i":
        return integers(rest.texts)
    if mark == "$s" and all(text[0] == "'" for text in rest.texts):
        return list(map(unquoted, rest.texts))
    return None


def _with_comments(text: str, start: int, end: int) -> Iterator[re.Match[str]]:
    """Yield literals and comments, of which each is a whole one or the beginning of the last."""
    while (found := _COMMENTED.search(text, start, end)) is not None:
        if found[0] == "/*":
            found = _nested_comment(text, found.start(), end) or found
        yield found
        start = found.end()


def _nested_comment(text: str, start: int, end: int) -> re.Match[str] | None:
    """Return a comment that has others within; None if it does not end."""
    depth = 0
    for found in _COMMENT_ENDS.finditer(text, start, end):
        depth += 1 if found[0] == "/*" else -1
        if not depth:
            return _ANYTHING.match(text, start, found.end())
    return None


def only_statement(text: str) -> tuple[int, int]:
    """Return the range of a text of one statement, without blanks and a semicolon around it."""
    end = len(text.rstrip())
    if end and text[end - 1] == ";":
        end = len(text[: end - 1].rstrip())
    return len(text) - len(text.lstrip()), end


class Taken(NamedTuple):
    """A literal in whose place there is a parameter: which one of the text, and how it is read.

    The parameter of a long list is its first value; see `LiteralParameters.list_of`.
    """

    literal: int
    is_string: bool
    is_negative: bool = False

    def of(self, values: Sequence[Value]) -> One:
        """Return the value of a text: its number with the sign."""
        value = _first(values[self.literal])
        if not self.is_negative:
            return value
        return -value if isinstance(value, int) else f"-{value}"


def _first(value: Value) -> One:
    return value[0] if isinstance(value, tuple) else value


def places_of(syntax: Statement, shape: Shape) -> dict[int, Taken]:
    """Return the literals of a text in whose places parameters may stand, by their offsets.

    These are the constants of expressions; in
    ORDER BY, GROUP BY and DISTINCT ON a constant of its own is the number of a column, and a
    comparison of two constants, such as `1 = 0`, decides which rows are read at all.
    """
    by_start = {start: number for number, start in enumerate(shape.starts)}
    found: dict[int, Taken] = {}
    for node in _constants(syntax.ast):
        if isinstance(node, ast.String):
            number = by_start.get(node.at)
            if number is not None and node.value == _first(shape.values[number]):
                found[node.at] = Taken(number, is_string=True)
            continue
        before = _BEFORE_NUMBER.match(syntax.whole, node.at)
        number = by_start.get(node.at if before is None else before.end())
        if number is None or not isinstance(node, ast.Number):
            continue
        value, digits = _first(shape.values[number]), node.text.lstrip("+-")
        if digits == value or (digits.isdigit() and int(digits) == value):
            found[node.at] = Taken(number, False, node.text[0] == "-")
    return found


def _constants(tree: object) -> Iterator[ast.String | ast.Number]:
    """Yield the numbers and strings in a tree that are no numbers of columns."""
    if isinstance(tree, tuple | list):
        for each in tree:
            yield from _constants(each)
    elif isinstance(tree, ast.String | ast.Number):
        yield tree
    elif isinstance(tree, ast.Syntax):
        if _compares_constants(tree):
            return
        for name in tree.__struct_fields__:
            value = getattr(tree, name)
            if name in ("rows", "items") and isinstance(getattr(tree, "more", None), FormRows):
                continue  # the other rows have literals of their own
            if not _names_columns(tree, name):
                yield from _constants(value)
            elif isinstance(value, tuple):
                yield from _constants([each for each in value if not _is_constant(each)])
            elif not _is_constant(value):
                yield from _constants(value)


_COLUMN_NUMBERS = {
    ast.SortKey: "expr",
    ast.GroupingSets: "elements",
}


def _names_columns(tree: ast.Syntax, name: str) -> bool:
    """Whether a constant in a field of a node is the number of a column."""
    if isinstance(tree, ast.Select):
        return name in ("group_by", "distinct")
    return _COLUMN_NUMBERS.get(type(tree)) == name


def _compares_constants(tree: ast.Syntax) -> bool:
    if not isinstance(tree, ast.Operation) or tree.operator not in _COMPARISONS:
        return False
    return _is_constant(tree.left) and _is_constant(tree.right)


def _is_constant(tree: object) -> bool:
    return isinstance(tree, ast.String | ast.Number)


def with_parameters(tree: Any, places: Mapping[int, Taken], chosen: Sequence[Taken]) -> Any:
    """Return a tree with a parameter for each of the chosen literals, numbered in their order."""
    numbers = {taken: number for number, taken in enumerate(chosen, 1)}

    def replaced(node: Any) -> Any:
        if isinstance(node, tuple):
            return tuple([replaced(each) for each in node])
        if isinstance(node, list):
            return [replaced(each) for each in node]
        if isinstance(node, ast.String | ast.Number):
            number = numbers.get(places[node.at]) if node.at in places else None
            return node if number is None else ast.ParameterRef(number, node.at)
        if not isinstance(node, ast.Syntax):
            return node
        fields = {
            name: replaced(getattr(node, name))
            for name in node.__struct_fields__
            if isinstance(getattr(node, name), tuple | list | ast.Syntax)
        }
        if isinstance(node, ast.InList) and node.more is not None and fields["items"] != node.items:
            fields["more"] = OF_PARAMETER
        return msgspec.structs.replace(node, **fields)

    return replaced(tree)
