"""Paths into JSON documents: the syntax of PostgreSQL's jsonpath.

    >>> shown(parse('$.a[*] ? (@.b > 1).c'))
    '$."a"[*]?(@."b" > 1)."c"'

A path is a tree of `Node`s; its datum is its text in the one form that `shown` gives.
"""

import re
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache

from foreshore.digits import is_digits
from foreshore.errors import (
    FeatureNotSupported,
    InvalidTextRepresentation,
    StatementTooComplex,
    SyntaxError_,
)
from foreshore.json_text import format_json

COMPARISONS = frozenset(("==", "!=", "<", ">", "<=", ">="))
PREDICATES = COMPARISONS | {"&&", "||", "!", "is unknown", "exists", "starts with", "like_regex"}
METHODS = frozenset("abs size type floor double ceiling keyvalue".split())
UNBOUNDED = -1  # the level `last` of `.**{}`
MAX_DEPTH = 50


@dataclass(frozen=True, slots=True)
class Node:
    """A part of a path.

    kind       args                              value
    literal                                      a constant
    variable                                     a name
    $ @ last
    path       the item that is taken apart, then accessors
    key                                          a name
    .* [*]
    [          pairs: first, last or None        flat
    **                                           levels (first, last)
    ?          a predicate
    method     the template of .datetime()       a name
    + - * / %  one or two operands
    PREDICATES the operands                      the pattern and flags of like_regex
    """

    kind: str
    args: tuple["Node | None", ...] = ()
    value: object = None

    @property
    def is_predicate(self) -> bool:
        """Return whether the node is a condition."""
        return self.kind in PREDICATES


@dataclass(frozen=True, slots=True)
class Path:
    """A whole path."""

    strict: bool
    root: Node


_TOKEN = re.compile(
    r"""\s+|/\*.*?\*/
    |(?P<string>"(?:[^"\\]|\\.)*")
    |(?P<variable>\$(?:"(?:[^"\\]|\\.)*"|[^\s?%$.\[\]{}()|&!=<>@\#,*:\-+/\\"]+))
    |(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
    |(?P<symbol>&&|\|\||==|!=|<>|<=|>=|\*\*|[?%$.\[\]{}()|&!=<>@\#,*:\-+/])
    |(?P<word>(?:[^\s?%$.\[\]{}()|&!=<>@\#,*:\-+/\\"]|\\.)+)
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(u\{[0-9a-fA-F]{1,6}\}|u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)", re.DOTALL)
_ESCAPED = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    value: str
    start: int
    end: int


def _unescaped(text: str) -> str:
    def one(match: re.Match[str]) -> str:
        code = match[1]
        if len(code) > 1:
            digits = code[2:-1] if code[1] == "{" else code[1:]
            number = int(digits, 16)
            if number == 0:
                raise InvalidTextRepresentation(
                    "unsupported Unicode escape sequence",
                    sqlstate="22P05",
                    detail="\\u0000 cannot be converted to text.",
                )
            return chr(number)
        return _ESCAPED.get(code, code)

    text = _ESCAPE.sub(one, text)
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _tokens(text: str) -> list[_Token]:
    found: list[_Token] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise _near(text[at])
        kind = match.lastgroup
        if kind is not None:
            value = match[kind]
            if kind == "string":
                value = _unescaped(value[1:-1])
            elif kind == "variable":
                value = _unescaped(value[2:-1] if value[1] == '"' else value[1:])
            elif kind == "word":
                value = _unescaped(value)
            after = text[match.end() : match.end() + 1]
            if kind == "number" and (after.isalpha() or after == "_"):
                raise SyntaxError_(
                    f'trailing junk after numeric literal at or near "{match[kind]}{after}" '
                    "of jsonpath input"
                )
            found.append(_Token(kind, value, at, match.end()))
        at = match.end()
    found.append(_Token("end", "", len(text), len(text)))
    return found


def _too_deep() -> StatementTooComplex:
    return StatementTooComplex("jsonpath is nested too deeply")


def _near(text: str) -> SyntaxError_:
    return SyntaxError_(f'syntax error at or near "{text}" of jsonpath input')


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = _tokens(text)
        self.at = 0
        self.depth = 0
        self.filters = 0  # filters around
        self.subscripts = 0

    @property
    def token(self) -> _Token:
        return self.tokens[self.at]

    def fail(self) -> SyntaxError_:
        if self.token.kind == "end":
            return SyntaxError_("syntax error at end of jsonpath input")
        return _near(self.text[self.token.start : self.token.end])

    def symbol(self, *symbols: str) -> str | None:
        """Consume one of `symbols` if it follows, and return it."""
        token = self.token
        if token.kind == "symbol" and token.value in symbols:
            self.at += 1
            return token.value
        return None

    def word(self, *words: str) -> str | None:
        """Consume one of the key words if it follows, and return it."""
        token = self.token
        if token.kind != "word" or token.value.lower() not in words:
            return None
        if token.value.lower() in ("true", "false", "null") and not token.value.islower():
            return None
        self.at += 1
        return token.value.lower()

    def expect(self, symbol: str) -> None:
        if self.symbol(symbol) is None:
            raise self.fail()

    # --- levels of operators, the loosest first

    def whole(self) -> Path:
        mode = self.word("strict", "lax")
        root = self.disjunction()
        if self.token.kind != "end":
            raise self.fail()
        return Path(mode == "strict", root)

    def disjunction(self) -> Node:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise _too_deep()
        left = self.conjunction()
        while self._condition_before("||", left):
            left = Node("||", (left, self.needed(self.conjunction())))
        self.depth -= 1
        return left

    def conjunction(self) -> Node:
        left = self.comparison()
        while self._condition_before("&&", left):
            left = Node("&&", (left, self.needed(self.comparison())))
        return left

    def _condition_before(self, symbol: str, left: Node) -> bool:
        if self.token.kind == "symbol" and self.token.value == symbol:
            if not left.is_predicate:
                raise self.fail()
            self.at += 1
            return True
        return False

    def needed(self, node: Node) -> Node:
        if not node.is_predicate:
            raise self.fail()
        return node

    def comparison(self) -> Node:
        if self.symbol("!"):
            if self.token.value not in ("(", "exists"):
                raise self.fail()
            return Node("!", (self.needed(self.primary_condition()),))
        left = self.sum()
        if left.is_predicate:
            return left
        if operator := self.symbol("==", "!=", "<>", "<", ">", "<=", ">="):
            right = self.sum()
            if right.is_predicate:
                raise self.fail()
            return Node("!=" if operator == "<>" else operator, (left, right))
        if self.word("starts"):
            if not self.word("with") or self.token.kind not in ("string", "variable"):
                raise self.fail()
            return Node("starts with", (left, self.primary()))
        if self.word("like_regex"):
            return self._like_regex(left)
        return left

    def primary_condition(self) -> Node:
        if self.word("exists"):
            return self._exists()
        self.expect("(")
        inner = self.disjunction()
        self.expect(")")
        return inner

    def _exists(self) -> Node:
        self.expect("(")
        inner = self.disjunction()
        if inner.is_predicate:
            raise self.fail()
        self.expect(")")
        return Node("exists", (inner,))

    def _like_regex(self, left: Node) -> Node:
        pattern, flags = self._string(), ""
        if self.word("flag"):
            flags = self._string()
        for flag in flags:
            if flag not in "ismxq":
                raise SyntaxError_(
                    "invalid input syntax for type jsonpath",
                    detail=f'Unrecognized flag character "{flag}" in LIKE_REGEX predicate.',
                )
        if "x" in flags and "q" not in flags:
            raise FeatureNotSupported(
                'XQuery "x" flag (expanded regular expressions) is not implemented'
            )
        return Node("like_regex", (left,), (pattern, flags))

    def _string(self) -> str:
        if self.token.kind != "string":
            raise self.fail()
        self.at += 1
        return self.tokens[self.at - 1].value

    def sum(self) -> Node:
        left = self.product()
        while not left.is_predicate and (operator := self.symbol("+", "-")):
            left = Node(operator, (left, self._operand(self.product())))
        return left

    def product(self) -> Node:
        left = self.unary()
        while not left.is_predicate and (operator := self.symbol("*", "/", "%")):
            left = Node(operator, (left, self._operand(self.unary())))
        return left

    def _operand(self, node: Node) -> Node:
        if node.is_predicate:
            raise self.fail()
        return node

    def unary(self) -> Node:
        if operator := self.symbol("+", "-"):
            self.depth += 1
            if self.depth > MAX_DEPTH:
                raise _too_deep()
            operand = self._operand(self.unary())
            self.depth -= 1
            if operand.kind == "literal" and isinstance(operand.value, Decimal):
                value = operand.value.copy_negate() if operator == "-" else operand.value
                return Node("literal", (), value)
            return Node(operator, (operand,))
        return self.path()

    # --- accessors

    def path(self) -> Node:
        item = self.primary()
        accessors: list[Node] = []
        while (accessor := self._accessor()) is not None:
            accessors.append(accessor)
        if not accessors:
            return item
        return Node("path", (item, *accessors))

    def primary(self) -> Node:
        token = self.token
        if token.kind in ("string", "number", "variable"):
            self.at += 1
            if token.kind == "variable":
                return Node("variable", (), token.value)
            value = token.value if token.kind == "string" else _number(token.value)
            return Node("literal", (), value)
        if self.symbol("$"):
            return Node("$")
        if self.symbol("@"):
            if not self.filters:
                raise SyntaxError_("@ is not allowed in root expressions")
            return Node("@")
        if self.symbol("("):
            inner = self.disjunction()
            self.expect(")")
            if inner.is_predicate and self.word("is"):
                if not self.word("unknown"):
                    raise self.fail()
                return Node("is unknown", (inner,))
            return inner
        if word := self.word("true", "false", "null", "last", "exists"):
            if word == "exists":
                return self._exists()
            if word == "last":
                if not self.subscripts:
                    raise SyntaxError_("LAST is allowed only in array subscripts")
                return Node("last")
            return Node("literal", (), {"true": True, "false": False, "null": None}[word])
        raise self.fail()

    def _accessor(self) -> Node | None:
        if self.symbol("["):
            return self._subscripts()
        if self.symbol("?"):
            self.expect("(")
            self.filters += 1
            condition = self.needed(self.disjunction())
            self.filters -= 1
            self.expect(")")
            return Node("?", (condition,))
        if not self.symbol("."):
            return None
        if self.symbol("*"):
            return Node(".*")
        if self.symbol("**"):
            return Node("**", (), self._levels())
        token = self.token
        if token.kind not in ("word", "string"):
            raise self.fail()
        self.at += 1
        is_call = token.kind == "word" and self.token.value == "(" and self.token.kind == "symbol"
        if not is_call:
            return Node("key", (), token.value)
        return self._method(token.value.lower())

    def _method(self, name: str) -> Node:
        if name not in METHODS and name != "datetime":
            raise self.fail()
        self.expect("(")
        template: tuple[Node, ...] = ()
        if name == "datetime" and self.token.kind == "string":
            template = (Node("literal", (), self._string()),)
        self.expect(")")
        return Node("method", template, name)

    def _subscripts(self) -> Node:
        if self.symbol("*"):
            self.expect("]")
            return Node("[*]")
        self.subscripts += 1
        pairs: list[Node | None] = []
        while True:
            pairs.append(self._operand(self.sum()))
            pairs.append(self._operand(self.sum()) if self.word("to") else None)
            if not self.symbol(","):
                break
        self.subscripts -= 1
        self.expect("]")
        return Node("[", tuple(pairs))

    def _levels(self) -> tuple[int, int]:
        if not self.symbol("{"):
            return 0, UNBOUNDED
        first = self._level()
        last = self._level() if self.word("to") else first
        self.expect("}")
        return first, last

    def _level(self) -> int:
        if self.word("last"):
            return UNBOUNDED
        if self.token.kind != "number" or not is_digits(self.token.value):
            raise self.fail()
        self.at += 1
        return int(self.tokens[self.at - 1].value)


def _number(text: str) -> Decimal:
    from foreshore.numbers import bounded

    return bounded(Decimal(text))


@lru_cache(maxsize=1024)
def parse(text: str) -> Path:
    """Return the path of a text; raises SyntaxError_."""
    if not text.strip():
        raise InvalidTextRepresentation(f'invalid input syntax for type jsonpath: "{text}"')
    try:
        return _Parser(text).whole()
    except RecursionError:
        raise _too_deep() from None


# --- text -------------------------------------------------------------------------------------

_LEVELS = {"||": 0, "&&": 1, **dict.fromkeys(COMPARISONS, 2), "starts with": 2}
_LEVELS |= {"like_regex": 2, "+": 3, "-": 3, "*": 4, "/": 4, "%": 4}
_UNARY, _TIGHT = 5, 6


def shown(path: Path) -> str:
    """Return PostgreSQL's text of a path; raises StatementTooComplex."""
    try:
        return ("strict " if path.strict else "") + _shown(path.root, True)
    except RecursionError:
        raise _too_deep() from None


def _level(node: Node) -> int:
    if node.kind in ("+", "-") and len(node.args) == 1:
        return _UNARY
    return _LEVELS.get(node.kind, _TIGHT)


def _operand_text(node: Node | None, around: Node) -> str:
    assert node is not None
    return _shown(node, _level(node) <= _level(around))


def _shown(node: Node, bracketed: bool) -> str:
    match node:
        case Node(kind="literal", value=value):
            return format_json(value)
        case Node(kind="variable", value=name):
            return "$" + format_json(name)
        case Node(kind="$" | "@" | "last" as kind):
            return kind
        case Node(kind="path", args=(item, *accessors)):
            assert item is not None
            first = _shown(item, True)
            is_number = item.kind == "literal" and isinstance(item.value, Decimal)
            if is_number or item.kind in ("!", "is unknown", "exists"):
                first = f"({first})"
            return first + "".join(_accessor(each) for each in accessors if each is not None)
        case Node(kind="!", args=(inner,)):
            assert inner is not None
            return f"!({_shown(inner, False)})"
        case Node(kind="is unknown", args=(inner,)):
            assert inner is not None
            return f"({_shown(inner, False)}) is unknown"
        case Node(kind="exists", args=(inner,)):
            assert inner is not None
            return f"exists ({_shown(inner, False)})"
        case Node(kind="like_regex", args=(inner,), value=(pattern, str(flags))):
            text = f"{_operand_text(inner, node)} like_regex {format_json(pattern)}"
            if flags:
                text += f' flag "{"".join(f for f in "ismxq" if f in flags)}"'
        case Node(kind=kind, args=(one,)):
            text = kind + _operand_text(one, node)
        case Node(kind=kind, args=(left, right)):
            text = f"{_operand_text(left, node)} {kind} {_operand_text(right, node)}"
        case _:
            raise AssertionError(node)
    return f"({text})" if bracketed else text


def _accessor(node: Node) -> str:
    match node:
        case Node(kind="key", value=name):
            return "." + format_json(name)
        case Node(kind=".*" | "[*]" as kind):
            return kind
        case Node(kind="**", value=(first, last)):
            if (first, last) == (0, UNBOUNDED):
                return ".**"
            words = ["last" if each == UNBOUNDED else str(each) for each in (first, last)]
            return f".**{{{words[0]}}}" if first == last else f".**{{{' to '.join(words)}}}"
        case Node(kind="[", args=args):
            parts = []
            for first, last in zip(args[::2], args[1::2], strict=True):
                assert first is not None
                text = _shown(first, False)
                parts.append(text if last is None else f"{text} to {_shown(last, False)}")
            return f"[{','.join(parts)}]"
        case Node(kind="?", args=(condition,)):
            assert condition is not None
            return f"?({_shown(condition, False)})"
        case Node(kind="method", args=args, value=name):
            template = "".join(format_json(each.value) for each in args if each is not None)
            return f".{name}({template})"
        case _:
            raise AssertionError(node)
