"""Our sqlglot dialect: PostgreSQL's queries and expressions as PostgreSQL reads them.

sqlglot reads many dialects into one tree, and on the way gives some things a common form that
PostgreSQL tells apart. This subclass keeps what was written:

- every call stays a call by its name with its arguments in order (no function is known), but for
  those that the standard spells with key words;
- operators bind as in PostgreSQL's grammar, from loosest to tightest OR, AND, NOT, IS, comparison,
  BETWEEN IN LIKE, any other operator, + -, * / %, ^, AT TIME ZONE, COLLATE, sign; and each is an
  `exp.Operator` with its spelling;
- types keep their names and modifiers;
- each node knows the offset of the token that an error would point to (`meta["at"]`).

What PostgreSQL does not take is a syntax error at the token where sqlglot stops.
"""

import re
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from sqlglot import exp
from sqlglot.dialects.postgres import Postgres
from sqlglot.tokens import Token, TokenType

from foreshore.errors import FeatureNotSupported, StatementTooComplex, SyntaxError_
from foreshore.sql.keywords import NEEDS_AS, NOT_COLUMN, RESERVED

OR, AND, NOT, IS, COMPARISON, RANGE, OTHER = range(1, 8)
TERM, FACTOR, POWER, ZONE, COLLATE, SIGN, OPERAND = range(8, 15)

# Deep enough for anything people or tools write, shallow enough for recursion over the tree.
MAX_DEPTH = 120
MAX_CHAIN = 200
# sqlglot takes some twenty calls a level. Python's own calls do not use up the process's stack.
sys.setrecursionlimit(max(sys.getrecursionlimit(), 6_000))

_COMPARISONS = frozenset(("<", ">", "=", "<=", ">=", "<>", "!="))
_ARITHMETIC = {"+": TERM, "-": TERM, "*": FACTOR, "/": FACTOR, "%": FACTOR, "^": POWER}
_OPERATOR = re.compile(r"[~!@#^&|`?+\-*/%<>=]+\Z")
# Tokens whose text may look like an operator but is a value.
_VALUES = frozenset(
    (
        TokenType.STRING, TokenType.IDENTIFIER, TokenType.HEREDOC_STRING, TokenType.BYTE_STRING,
        TokenType.NATIONAL_STRING, TokenType.UNICODE_STRING, TokenType.BIT_STRING,
        TokenType.HEX_STRING, TokenType.NUMBER,
    )
)  # fmt: skip
_STRINGS = frozenset(
    (
        TokenType.STRING, TokenType.HEREDOC_STRING, TokenType.BYTE_STRING,
        TokenType.NATIONAL_STRING, TokenType.UNICODE_STRING,
    )
)  # fmt: skip
_NOT_WORDS = frozenset((*_VALUES, TokenType.PARAMETER))
_INTERVAL_FIELDS = ("year", "month", "day", "hour", "minute", "second")
_TYPE_WORDS = frozenset(
    """
    int integer smallint bigint real float double decimal dec numeric boolean bit character char
    varchar nchar national timestamp time interval
    """.split()
)
_ONE_WORD_TYPES = {
    "int": "int4",
    "integer": "int4",
    "smallint": "int2",
    "bigint": "int8",
    "real": "float4",
    "boolean": "bool",
}


def too_deep() -> StatementTooComplex:
    """Return the error of a statement that is nested too deeply, in PostgreSQL's words."""
    return StatementTooComplex(
        "stack depth limit exceeded",
        hint=f"Expressions and queries may be nested at most {MAX_DEPTH} levels deep.",
    )


class TypeSpelling(exp.Expression):
    """A type as written: name parts, modifiers, dimensions, and an interval's fields."""

    arg_types = {"name": True, "modifiers": False, "dimensions": False, "fields": False}


class Quantified(exp.Expression):
    """`left operator ANY|ALL (right)`."""

    arg_types = {"this": True, "operator": True, "kind": True, "expression": True}


class SqlValue(exp.Expression):
    """CURRENT_DATE and its kin."""

    arg_types = {"this": True, "precision": False}


class KeywordCall(exp.Expression):
    """A call that the standard spells with key words, as the function PostgreSQL calls."""

    arg_types = {"this": True, "expressions": True}


class CallArguments(exp.Expression):
    """What stands in the parentheses of a call by name."""

    arg_types = {"expressions": False, "distinct": False, "variadic": False, "order": False}


class RowOf(exp.Expression):
    """ROW(...)."""

    arg_types = {"expressions": False}


class Foreshore(Postgres):
    """PostgreSQL for reading, with nothing normalised."""

    INDEX_OFFSET = 0

    class Tokenizer(Postgres.Tokenizer):
        KEYWORDS = {
            **{
                word: type
                for word, type in Postgres.Tokenizer.KEYWORDS.items()
                if type not in (TokenType.COMMAND, TokenType.HINT)
                and (" " not in word or word in ("GROUP BY", "ORDER BY", "PARTITION BY"))
            },
            **{
                operator: TokenType.DAT
                for operator in (
                    "!~", "!~*", "!~~", "!~~*", "~~", "~~*", "~*", "~", "|/", "||/", "@>", "<@",
                    "?|", "?&", "#-", "@?", "@@", "&&", "<<", ">>", "->", "->>", "#>", "#>>", "||",
                    "<->", "-|-", "&<", "&>", "^@", "!!",
                )
            },
            "!=": TokenType.NEQ,
        }  # fmt: skip
        COMMANDS: set[TokenType] = set()
        HEREDOC_STRINGS: list[str] = []
        SINGLE_TOKENS = {**Postgres.Tokenizer.SINGLE_TOKENS, "$": TokenType.PARAMETER}

    class Parser(Postgres.Parser):
        FUNCTIONS: dict[str, Callable[..., Any]] = {}
        NO_PAREN_FUNCTIONS: dict[TokenType, Any] = {}
        NO_PAREN_FUNCTION_PARSERS: dict[str, Callable[..., Any]] = {
            "CASE": lambda self: self._parse_case(),
        }
        FUNCTION_PARSERS: dict[str, Callable[..., Any]] = {
            word: lambda self, word=word: self._keyword_call(word)
            for word in ("cast", "extract", "substring", "position", "trim", "overlay")
        }
        FUNCTION_PARSERS = {word.upper(): parse for word, parse in FUNCTION_PARSERS.items()}

        depth = 0

        # --- errors and positions

        def raise_error(self, message: str, token: Token | None = None) -> NoReturn:
            """Raise PostgreSQL's syntax error at the token at hand."""
            self.fail(self._curr)

        def fail(self, token: Token | None) -> NoReturn:
            """Raise PostgreSQL's syntax error at `token`; None: at the end."""
            if not token:
                raise SyntaxError_("syntax error at end of input", position=len(self.sql) + 1)
            near = self.sql[token.start : token.end + 1]
            raise SyntaxError_(f'syntax error at or near "{near}"', position=token.start + 1)

        def unsupported(self, what: str, at: int) -> NoReturn:
            """Raise 0A000 for something that PostgreSQL has."""
            raise FeatureNotSupported(f"{what} is not supported", position=at + 1)

        def start_at(self, sql: str, tokens: list[Token], index: int) -> None:
            """Make `tokens[index]` the token at hand."""
            self.reset()
            self.sql = sql
            self._tokens = tokens
            self._tokens_size = len(tokens)
            self._index = index - 1
            self.depth = 0
            self._advance()

        def position(self) -> int:
            """Return the index of the token at hand."""
            return self._index if self._curr else self._tokens_size

        # --- productions that a statement is made of

        def parse_query(self) -> exp.Expr | None:
            """Parse a query, WITH and ORDER BY and all."""
            return self._parse_statement()

        def parse_level(self, level: int) -> exp.Expr:
            """Parse an expression whose loosest operator is of `level` or tighter."""
            return self._need(level)

        def parse_spelling(self) -> exp.Expr:
            """Parse a type."""
            return self._spelling()

        def parse_target(self) -> exp.Expr | None:
            """Parse an item of a select list."""
            return self._parse_expression()

        def parse_from_item(self) -> exp.Expr | None:
            """Parse an item of FROM with the joins that follow it, up to a comma."""
            item = self._parse_table()
            while item is not None and self._curr and self._curr.text != ",":
                join = self._parse_join()
                if join is None:
                    break
                item.append("joins", join)
            return item

        def parse_with(self) -> exp.Expr | None:
            """Parse WITH and its queries."""
            return self._parse_with()

        # --- expressions

        def _parse_assignment(self) -> exp.Expr | None:
            return self._level(0)

        def _parse_disjunction(self) -> exp.Expr | None:
            return self._level(0)

        def _parse_bitwise(self) -> exp.Expr | None:
            return self._level(OTHER)

        def _parse_term(self, parse_mod: bool = True) -> exp.Expr | None:
            return self._level(TERM)

        def _parse_unary(self) -> exp.Expr | None:
            return self._level(SIGN)

        def _level(self, level: int) -> exp.Expr | None:
            """Parse an expression whose loosest operator is of `level` or tighter."""
            self.depth += 1
            if self.depth > MAX_DEPTH:
                raise too_deep()
            left = self._prefix()
            if left is not None:
                left = self._rest(left, level)
            self.depth -= 1
            return left

        def _need(self, level: int) -> exp.Expr:
            found = self._level(level)
            if found is None:
                self.fail(self._curr)
            return found

        def _word(self, *words: str) -> bool:
            """Whether the tokens at hand are these key words one after the other."""
            for ahead, word in enumerate(words):
                index = self._index + ahead
                if index >= len(self._tokens):
                    return False
                token = self._tokens[index]
                if token.token_type in _NOT_WORDS or token.text.lower() != word:
                    return False
            return True

        def _take(self, *words: str) -> bool:
            if not self._word(*words):
                return False
            self._advance(len(words))
            return True

        def _operator_here(self) -> str | None:
            token = self._curr
            if not token or token.token_type in _VALUES or not _OPERATOR.match(token.text):
                return None
            return token.text

        def _prefix(self) -> exp.Expr | None:
            token = self._curr
            if not token:
                return None
            if self._take("not"):
                return _at(exp.Not(this=self._need(NOT)), token)
            operator = self._operator_here()
            if operator is not None:
                if operator == "*":
                    self._advance()
                    return _at(exp.Star(), token)
                if operator in _COMPARISONS:
                    self.fail(token)
                self._advance()
                level = SIGN if operator in ("+", "-") else OTHER + 1
                return _at(exp.Operator(operator=operator, expression=self._need(level)), token)
            if self._word("operator") and self._next and self._next.text == "(":
                name = self._qualified_operator()
                return _at(exp.Operator(operator=name, expression=self._need(OTHER + 1)), token)
            operand = self._parse_type()
            if operand is not None and "at" not in operand.meta:
                operand.meta["at"] = token.start
            return operand

        def _rest(self, left: exp.Expr, level: int) -> exp.Expr:
            """Parse the operators that follow `left`."""
            chain = 0
            compared = False
            while self._curr:
                operator = self._operator_here()
                if operator is not None:
                    strength = _ARITHMETIC.get(operator, OTHER)
                    if operator in _COMPARISONS:
                        strength = COMPARISON
                    if strength < level:
                        return left
                    token = self._curr
                    if strength == COMPARISON:
                        if compared:
                            self.fail(token)
                        compared = True
                    self._advance()
                    left = self._infix(left, operator, strength, token)
                else:
                    step = self._word_operator(left, level)
                    if step is None:
                        return left
                    left = step
                    compared = False
                chain += 1
                if chain > MAX_CHAIN:
                    raise too_deep()
            return left

        def _infix(self, left: exp.Expr, operator: str, strength: int, token: Token) -> exp.Expr:
            operator = "<>" if operator == "!=" else operator
            if self._next and self._next.text == "(":
                for word, kind in (("any", "any"), ("some", "any"), ("all", "all")):
                    if self._take(word):
                        return self._quantified(left, operator, kind, token)
            right = self._need(strength + 1)
            return _at(exp.Operator(this=left, operator=operator, expression=right), token)

        def _quantified(self, left: exp.Expr, operator: str, kind: str, token: Token) -> exp.Expr:
            self._match_l_paren()
            content = self._query_or_none() or self._need(0)
            self._match_r_paren()
            return _at(
                Quantified(this=left, operator=operator, kind=kind, expression=content), token
            )

        def _query_or_none(self) -> exp.Expr | None:
            if self._word("select") or self._word("with") or self._word("values"):
                return self._parse_select()
            if self._curr and self._curr.text == "(":
                index = self._index
                while self._curr and self._curr.text == "(":
                    self._advance()
                is_query = self._word("select") or self._word("with") or self._word("values")
                self._retreat(index)
                return self._parse_select() if is_query else None
            return None

        def _qualified_operator(self) -> str:
            self._advance(2)
            while self._next and self._next.text == ".":
                if self._curr.text.lower() != "pg_catalog":
                    self.unsupported(f"operators of schema {self._curr.text}", self._curr.start)
                self._advance(2)
            operator = self._operator_here()
            if operator is None:
                self.fail(self._curr)
            self._advance()
            self._match_r_paren()
            return operator

        def _word_operator(self, left: exp.Expr, level: int) -> exp.Expr | None:
            """Parse an operator that is a key word; None if none that binds so tightly follows."""
            token = self._curr
            if token.token_type in _NOT_WORDS:
                return None
            word = token.text.lower()
            if word in ("or", "and"):
                strength = OR if word == "or" else AND
                if strength < level:
                    return None
                args = [left]
                while self._take(word):
                    args.append(self._need(strength + 1))
                kind = exp.Or if word == "or" else exp.And
                return _at(kind(expressions=args), token)
            if word == "is" and level <= IS:
                return self._is(left)
            if word in ("isnull", "notnull") and level <= IS:
                self._advance()
                return _at(exp.Is(this=left, what="null", negated=word == "notnull"), token)
            if word == "not":
                following = self._next.text.lower() if self._next else ""
                if level > RANGE or following not in ("between", "in", "like", "ilike", "similar"):
                    return None
                self._advance()
                return self._range(left, True, token)
            if word in ("between", "in", "like", "ilike", "similar") and level <= RANGE:
                return self._range(left, False, token)
            if word == "overlaps" and level <= RANGE:
                self.unsupported("OVERLAPS", token.start)
            if word == "operator" and level <= OTHER and self._next and self._next.text == "(":
                return self._infix(left, self._qualified_operator(), OTHER, token)
            if word == "at" and level <= ZONE and self._take("at", "time", "zone"):
                zone = self._need(ZONE + 1)
                return _at(KeywordCall(this="timezone", expressions=[zone, left]), token)
            if word == "collate" and level <= COLLATE:
                self._advance()
                return _at(exp.Collate(this=left, name=self._names()), token)
            return None

        def _is(self, left: exp.Expr) -> exp.Expr:
            token = self._curr
            self._advance()
            negated = self._take("not")
            if self._take("distinct"):
                if not self._take("from"):
                    self.fail(self._curr)
                right = self._need(IS + 1)
                return _at(exp.NullSafeEQ(this=left, expression=right, negated=negated), token)
            for what in ("null", "true", "false", "unknown"):
                if self._take(what):
                    return _at(exp.Is(this=left, what=what, negated=negated), token)
            self.fail(self._curr)

        def _range(self, left: exp.Expr, negated: bool, token: Token) -> exp.Expr:
            if self._take("between"):
                symmetric = self._take("symmetric")
                if not symmetric:
                    self._take("asymmetric")
                low = self._need(RANGE + 1)
                if not self._take("and"):
                    self.fail(self._curr)
                return _at(
                    exp.Between(
                        this=left, low=low, high=self._need(RANGE + 1), symmetric=symmetric,
                        negated=negated,
                    ),
                    token,
                )  # fmt: skip
            if self._take("in"):
                self._match_l_paren()
                query = self._query_or_none()
                if query is not None and self._curr and self._curr.text == ")":
                    self._match_r_paren()
                    return _at(exp.In(this=left, query=query, negated=negated), token)
                items = [query] if query is not None else [self._need(0)]
                while self._match(TokenType.COMMA):
                    items.append(self._need(0))
                self._match_r_paren()
                return _at(exp.In(this=left, expressions=items, negated=negated), token)
            word = self._curr.text.lower()
            self._advance()
            if word == "similar" and not self._take("to"):
                self.fail(self._curr)
            if word != "similar" and self._next and self._next.text == "(":
                for quantifier, kind in (("any", "any"), ("some", "any"), ("all", "all")):
                    if self._take(quantifier):
                        operator = ("!" if negated else "") + ("~~*" if word == "ilike" else "~~")
                        return self._quantified(left, operator, kind, token)
            pattern = self._need(RANGE + 1)
            escape = self._need(RANGE + 1) if self._take("escape") else None
            return _at(
                exp.Like(this=left, expression=pattern, escape=escape, kind=word, negated=negated),
                token,
            )

        # --- operands

        def _parse_type(
            self, parse_interval: bool = True, fallback_to_identifier: bool = False
        ) -> exp.Expr | None:
            token = self._curr
            if not token:
                return None
            constant = self._typed_constant()
            if constant is not None:
                return self._parse_column_ops(constant)
            if token.token_type not in _NOT_WORDS:
                value = self._sql_value()
                if value is not None:
                    return self._parse_column_ops(value)
                if self._take("default"):
                    return _at(exp.Var(this="default"), token)
                if self._next and self._next.text == "(":
                    if self._word("row"):
                        self._advance(2)
                        items = [] if self._curr and self._curr.text == ")" else self._list()
                        self._match_r_paren()
                        return self._parse_column_ops(_at(RowOf(expressions=items), token))
                    if self._word("exists"):
                        self._advance(2)
                        query = self._query_or_none()
                        if query is None:
                            self.fail(self._curr)
                        self._match_r_paren()
                        return _at(exp.Exists(this=query), token)
                    if self._word("array"):
                        self._advance(2)
                        query = self._query_or_none()
                        if query is None:
                            self.fail(token)
                        self._match_r_paren()
                        return self._parse_column_ops(_at(exp.ArrayAgg(this=query), token))
                if self._word("array") and self._next and self._next.text == "[":
                    self._advance()
                    return self._parse_column_ops(self._array(token))
                lowered = token.text.lower()
                if lowered in RESERVED and lowered not in ("case", "true", "false", "null", "cast"):
                    return None
            return self._parse_column()

        def _parse_function_args(self, alias: bool = False) -> list[exp.Expr]:
            distinct = variadic = False
            args: list[exp.Expr] = []
            if self._curr and self._curr.text == "*" and self._next and self._next.text == ")":
                self._advance()
                args.append(exp.Star())
            elif not (self._curr and self._curr.text == ")"):
                distinct = self._take("distinct")
                if not distinct:
                    self._take("all")
                while True:
                    variadic = self._take("variadic")
                    if self._next and self._next.text in ("=>", ":="):
                        self.unsupported("named notation for arguments", self._curr.start)
                    args.append(self._need(0))
                    if not self._match(TokenType.COMMA):
                        break
            order = self._parse_order()
            return [
                CallArguments(expressions=args, distinct=distinct, variadic=variadic, order=order)
            ]

        def _list(self) -> list[exp.Expr]:
            items = [self._need(0)]
            while self._match(TokenType.COMMA):
                items.append(self._need(0))
            return items

        def _array(self, token: Token) -> exp.Expr:
            self._match(TokenType.L_BRACKET)
            items: list[exp.Expr] = []
            if not (self._curr and self._curr.text == "]"):
                while True:
                    inner = self._curr
                    items.append(
                        self._array(inner) if inner and inner.text == "[" else self._need(0)
                    )
                    if not self._match(TokenType.COMMA):
                        break
            if not self._match(TokenType.R_BRACKET):
                self.fail(self._curr)
            return _at(exp.Array(expressions=items), token)

        def _parse_bracket(self, this: exp.Expr | None = None) -> exp.Expr | None:
            """Parse subscripts and slices, as written."""
            if this is None:
                return None
            while self._curr and self._curr.token_type == TokenType.L_BRACKET:
                token = self._curr
                self._advance()
                lower = upper = None
                if not self._match(TokenType.COLON, advance=False):
                    lower = self._need(0)
                sliced = bool(self._match(TokenType.COLON))
                if sliced and not (self._curr and self._curr.text == "]"):
                    upper = self._need(0)
                if not self._match(TokenType.R_BRACKET):
                    self.fail(self._curr)
                this = _at(exp.Bracket(this=this, lower=lower, upper=upper, sliced=sliced), token)
            return this

        def _parse_dcolon(self) -> exp.Expr | None:
            token = self._prev
            spelling = self._spelling()
            spelling.meta["cast_at"] = token.start
            return spelling

        def _parse_types(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
            return self._spelling()

        def _sql_value(self) -> exp.Expr | None:
            token = self._curr
            word = token.text.lower()
            if word not in _SQL_VALUES:
                return None
            self._advance()
            precision = None
            if self._curr and self._curr.text == "(":
                if word == "current_schema":
                    self._advance()
                    self._match_r_paren()
                elif word in _WITH_PRECISION:
                    (precision,) = self._integers()
                else:
                    self.fail(self._curr)
            return _at(SqlValue(this=word, precision=precision), token)

        def _keyword_call(self, word: str) -> exp.Expr:
            """Parse the arguments of a function that the standard spells with key words."""
            token = self._tokens[self._index - 2]
            args: list[exp.Expr]
            match word:
                case "cast":
                    arg = self._need(0)
                    if not self._take("as"):
                        self.fail(self._curr)
                    return _at(exp.Cast(this=arg, to=self._spelling()), token)
                case "extract":
                    field = self._curr
                    if not field or not (
                        field.token_type in _STRINGS or field.text.replace("_", "").isalnum()
                    ):
                        self.fail(field)
                    self._advance()
                    if not self._take("from"):
                        self.fail(self._curr)
                    name = exp.Literal.string(
                        field.text if field.token_type in _STRINGS else field.text.lower()
                    )
                    args = [_at(name, field), self._need(0)]
                case "position":
                    needle = self._need(OTHER)
                    if not self._take("in"):
                        self.fail(self._curr)
                    args = [self._need(OTHER), needle]
                case "substring":
                    args = self._substring(token)
                case "overlay":
                    args = [self._need(0)]
                    if self._take("placing"):
                        args.append(self._need(0))
                        if not self._take("from"):
                            self.fail(self._curr)
                        args.append(self._need(0))
                        if self._take("for"):
                            args.append(self._need(0))
                    else:
                        while self._match(TokenType.COMMA):
                            args.append(self._need(0))
                case _:
                    word, args = self._trim()
            return _at(KeywordCall(this=word, expressions=args), token)

        def _substring(self, token: Token) -> list[exp.Expr]:
            args = [self._need(0)]
            if self._word("from") or self._word("for"):
                start: exp.Expr = _at(exp.Literal.number(1), token)
                length = None
                for _ in range(2):
                    if self._take("from"):
                        start = self._need(0)
                    elif self._take("for"):
                        length = self._need(0)
                return [*args, start] if length is None else [*args, start, length]
            if self._take("similar"):
                args.append(self._need(0))
                if not self._take("escape"):
                    self.fail(self._curr)
                return [*args, self._need(0)]
            while self._match(TokenType.COMMA):
                args.append(self._need(0))
            return args

        def _trim(self) -> tuple[str, list[exp.Expr]]:
            function = "btrim"
            for side, name in (("both", "btrim"), ("leading", "ltrim"), ("trailing", "rtrim")):
                if self._take(side):
                    function = name
                    break
            characters: list[exp.Expr] = []
            if not self._word("from"):
                characters = self._list()
            if self._take("from"):
                return function, self._list() + characters
            return function, characters

        # --- queries

        def _parse_select(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
            token = self._curr
            self.depth += 1
            if self.depth > MAX_DEPTH:
                raise too_deep()
            query = super()._parse_select(*args, **kwargs)
            self.depth -= 1
            if query is not None and "at" not in query.meta:
                query.meta["at"] = token.start
            return query

        def _parse_join(self, *args: Any, **kwargs: Any) -> exp.Join | None:
            token = self._curr
            join = super()._parse_join(*args, **kwargs)
            return None if join is None else _at(join, token)

        def _parse_derived_table_values(self, *args: Any, **kwargs: Any) -> exp.Values | None:
            if self._curr and self._curr.text == "(" and self._is_combined():
                return None  # (VALUES ... UNION ...): a query like any other
            return super()._parse_derived_table_values(*args, **kwargs)

        def _is_combined(self) -> bool:
            """Whether a set operation stands right within the parentheses that open here."""
            depth = 0
            for token in self._tokens[self._index :]:
                depth += (token.text == "(") - (token.text == ")")
                if depth == 0:
                    return False
                if depth == 1 and token.text.lower() in ("union", "except", "intersect"):
                    return True
            return False

        # --- aliases and FROM

        def _parse_alias(self, this: Any, explicit: bool = False) -> Any:
            """Parse `[AS] label` behind an item of a select list."""
            if this is None or not self._curr or self._at_clause_of_ours():
                return this
            token = self._curr
            explicit = self._take("as")
            label = self._curr
            if not label:
                self.fail(None)
            quoted = label.token_type == TokenType.IDENTIFIER
            if not quoted and (not _is_word(label) or (not explicit and _first(label) in NEEDS_AS)):
                if explicit:
                    self.fail(label)
                return this
            self._advance()
            alias = exp.Identifier(this=label.text, quoted=quoted)
            return _at(exp.Alias(this=this, alias=_at(alias, label)), token)

        def _at_clause_of_ours(self) -> bool:
            """Whether AS OF time or UP TO time comes, which is no alias."""
            if self._word("up", "to"):
                return True
            if not self._word("as", "of"):
                return False
            after = self._tokens[self._index + 2 : self._index + 3]
            return bool(after) and after[0].text.lower() not in (",", ")", ";", "from", "where")

        def _parse_table_alias(self, alias_tokens: Any = None) -> exp.TableAlias | None:
            """Parse `[AS] alias [(columns)]`."""
            if not self._curr or self._at_clause_of_ours():
                return None
            explicit = self._take("as")
            token = self._curr
            quoted = bool(token) and token.token_type == TokenType.IDENTIFIER
            if not token or not (quoted or (_is_word(token) and _first(token) not in NOT_COLUMN)):
                if explicit:
                    self.fail(token)
                return None
            self._advance()
            alias = exp.TableAlias(this=_at(exp.Identifier(this=token.text, quoted=quoted), token))
            if self._match(TokenType.L_PAREN):
                columns = []
                while True:
                    column = self._curr
                    if not column or not (
                        _is_word(column) or column.token_type == TokenType.IDENTIFIER
                    ):
                        self.fail(column)
                    self._advance()
                    if self._curr and self._curr.text not in (",", ")"):
                        self.unsupported("a column definition list", self._curr.start)
                    quoted = column.token_type == TokenType.IDENTIFIER
                    columns.append(_at(exp.Identifier(this=column.text, quoted=quoted), column))
                    if not self._match(TokenType.COMMA):
                        break
                self._match_r_paren()
                alias.set("columns", columns)
            return _at(alias, token)

        def _parse_lateral(self) -> exp.Expr | None:
            """Parse LATERAL before a query or a function."""
            token = self._curr
            if not self._take("lateral"):
                return None
            if self._curr and self._curr.text == "(":
                query = self._parse_select(table=True, parse_subquery_alias=False)
                if query is None:
                    self.fail(self._curr)
                lateral = _at(exp.Lateral(this=query), token)
                lateral.set("alias", self._parse_table_alias())
                return lateral
            return self._parse_table()

        def _parse_unnest(self, with_alias: bool = True) -> exp.Expr | None:
            return None  # a function like any other

        # --- types

        def _typed_constant(self) -> exp.Expr | None:
            """Parse `type 'constant'`; None, and nothing taken, if that is not what stands here."""
            token = self._curr
            if token.token_type in _VALUES and token.token_type != TokenType.IDENTIFIER:
                return None
            word = token.text.lower()
            index = self._index
            following = self._next
            if word == "interval" and token.token_type != TokenType.IDENTIFIER:
                self._advance()
                modifiers = self._integers() if self._curr and self._curr.text == "(" else []
                if self._curr and self._curr.token_type in _STRINGS:
                    constant = self._parse_primary()
                    spelling = TypeSpelling(
                        name=["interval"], modifiers=modifiers, dimensions=0,
                        fields=self._interval_fields(),
                    )  # fmt: skip
                    return _at(exp.Cast(this=constant, to=_at(spelling, token)), token)
            elif word in _TYPE_WORDS and token.token_type != TokenType.IDENTIFIER:
                if self._string_after_type():
                    spelling = self._spelling()
                    return _at(exp.Cast(this=self._parse_primary(), to=spelling), token)
            elif (
                following
                and following.token_type in _STRINGS
                and (token.token_type == TokenType.IDENTIFIER or word not in RESERVED)
                and _is_word(token)
            ):
                self._advance()
                name = token.text if token.token_type == TokenType.IDENTIFIER else word
                spelling = _at(TypeSpelling(name=[name], modifiers=[], dimensions=0), token)
                return _at(exp.Cast(this=self._parse_primary(), to=spelling), token)
            self._retreat(index)
            return None

        def _string_after_type(self) -> bool:
            """Whether a type of more than one word may start here and a string follows it."""
            words = _TYPE_WORDS | {"precision", "varying", "with", "without", "zone"}
            for ahead, token in enumerate(self._tokens[self._index : self._index + 12]):
                if token.token_type in _STRINGS:
                    return ahead > 0
                if not (
                    token.text.lower() in words
                    or token.token_type == TokenType.NUMBER
                    or token.text in ("(", ")", ",")
                ):
                    return False
            return False

        def _integers(self) -> list[int]:
            self._match_l_paren()
            numbers = []
            while True:
                negative = self._match(TokenType.DASH)
                if not (self._curr and self._curr.text.isdigit()):
                    self.fail(self._curr)
                numbers.append(-int(self._curr.text) if negative else int(self._curr.text))
                self._advance()
                if not self._match(TokenType.COMMA):
                    break
            self._match_r_paren()
            return numbers

        def _names(self) -> list[str]:
            """Return a dotted name."""
            names = []
            while True:
                token = self._curr
                if not token or not (_is_word(token) or token.token_type == TokenType.IDENTIFIER):
                    self.fail(token)
                if token.token_type == TokenType.IDENTIFIER:
                    names.append(token.text)
                else:
                    word = token.text.lower()
                    if not names and word in RESERVED:
                        self.fail(token)
                    names.append(word)
                self._advance()
                if not self._match(TokenType.DOT):
                    return names

        def _spelling(self) -> exp.Expr:
            """Parse a type."""
            token = self._curr
            if not token:
                self.fail(None)
            word = token.text.lower()
            if word in _TYPE_WORDS and token.token_type != TokenType.IDENTIFIER:
                spelling = self._standard_type(word, token)
            else:
                if word == "setof":
                    self.unsupported("SETOF", token.start)
                names = self._names()
                modifiers = self._integers() if self._curr and self._curr.text == "(" else []
                spelling = TypeSpelling(name=names, modifiers=modifiers, dimensions=0)
            dimensions = 0
            while self._curr and self._curr.text == "[":
                index = self._index
                self._advance()
                if self._curr and self._curr.token_type == TokenType.NUMBER:
                    self._advance()
                if not (self._curr and self._curr.text == "]"):
                    self._retreat(index)
                    break
                self._advance()
                dimensions += 1
            if self._take("array"):
                dimensions = 1
                if self._match(TokenType.L_BRACKET):
                    self._advance(2)
            spelling.set("dimensions", dimensions)
            return _at(spelling, token)

        def _standard_type(self, word: str, token: Token) -> exp.Expr:
            self._advance()
            modifiers: list[int] = []
            fields = None
            if word in _ONE_WORD_TYPES:
                name = _ONE_WORD_TYPES[word]
            else:
                match word:
                    case "double":
                        if not self._take("precision"):
                            self.fail(self._curr)
                        name = "float8"
                    case "float":
                        digits = self._integers() if self._curr and self._curr.text == "(" else [53]
                        name = "float4" if digits[0] <= 24 else "float8"
                    case "decimal" | "dec" | "numeric":
                        name = "numeric"
                        if self._curr and self._curr.text == "(":
                            modifiers = self._integers()
                    case "timestamp" | "time":
                        if self._curr and self._curr.text == "(":
                            modifiers = self._integers()
                        zoned = self._take("with", "time", "zone")
                        if not zoned:
                            self._take("without", "time", "zone")
                        name = word + ("tz" if zoned else "")
                    case "interval":
                        if self._curr and self._curr.text == "(":
                            modifiers = self._integers()
                        fields = self._interval_fields()
                        name = "interval"
                    case "bit":
                        self.unsupported("type bit", token.start)
                    case _:
                        name, modifiers = self._character_type(word)
            return TypeSpelling(name=[name], modifiers=modifiers, dimensions=0, fields=fields)

        def _character_type(self, word: str) -> tuple[str, list[int]]:
            if word == "national" and not (self._take("character") or self._take("char")):
                self.fail(self._curr)
            varying = word == "varchar" or self._take("varying")
            given = self._curr and self._curr.text == "("
            modifiers = self._integers() if given else ([] if varying else [1])
            return ("varchar" if varying else "bpchar"), modifiers

        def _interval_fields(self) -> str | None:
            first = self._field()
            if first is None:
                return None
            if not self._take("to"):
                return first
            last = self._field()
            if last is None:
                self.fail(self._curr)
            return f"{first} to {last}"

        def _field(self) -> str | None:
            for field in _INTERVAL_FIELDS:
                if self._take(field):
                    if field == "second" and self._curr and self._curr.text == "(":
                        self._integers()
                    return field
            return None


_SQL_VALUES = frozenset(
    """
    current_date current_time current_timestamp localtime localtimestamp current_role current_user
    session_user user current_catalog current_schema
    """.split()
)
_WITH_PRECISION = frozenset(("current_time", "current_timestamp", "localtime", "localtimestamp"))


class DollarQuoting(Foreshore):
    """The same for texts with dollar-quoted strings.

    Apart, because sqlglot's tokenizer looks for the end of one behind every `$1,`.
    """

    class Tokenizer(Foreshore.Tokenizer):
        HEREDOC_STRINGS = Postgres.Tokenizer.HEREDOC_STRINGS
        SINGLE_TOKENS = Postgres.Tokenizer.SINGLE_TOKENS


FORESHORE = Foreshore()
_DOLLAR_QUOTING = DollarQuoting()
_DOLLAR_QUOTE = re.compile(r"\$(?:[A-Za-z_]\w*)?\$")


def tokenize(text: str) -> list[Token]:
    """Return sqlglot's tokens of `text`; raises sqlglot's TokenError."""
    dialect = _DOLLAR_QUOTING if _DOLLAR_QUOTE.search(text) else FORESHORE
    return dialect.tokenize(text)


Parser = Foreshore.Parser


def new_parser() -> Parser:
    """Return a parser for one text; `start_at` sets it to work."""
    return Parser(dialect=FORESHORE)


def _first(token: Token) -> str:
    """Return the key word that a token is or (ORDER BY) starts with."""
    return token.text.split()[0].lower()


def _is_word(token: Token) -> bool:
    return token.token_type not in _NOT_WORDS and (token.text[0].isalpha() or token.text[0] == "_")


def _at(node: Any, token: Token) -> Any:
    node.meta["at"] = token.start
    return node
