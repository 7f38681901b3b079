"""Expressions, by the precedence of PostgreSQL's grammar.

    OR · AND · NOT · IS · < > = <= >= <> · BETWEEN IN LIKE SIMILAR · other operators · + - · * / % · ^
    · AT TIME ZONE · COLLATE · unary + - · [] · ::

from loosest to tightest. Comparisons do not associate; all else does to the left. What the standard
spells with key words (EXTRACT, SUBSTRING, TRIM, AT TIME ZONE, ...) becomes the call that PostgreSQL
makes of it.
"""

from abc import abstractmethod
from typing import Literal as OneOf

from foreshore.sql import ast
from foreshore.sql.cursor import Cursor, too_deep
from foreshore.sql.keywords import COL_NAME, NOT_COLUMN, RESERVED
from foreshore.sql.lexer import NUMBER, OPERATOR, PARAMETER, QUOTED, STRING, WORD

OR, AND, NOT, IS, COMPARISON, RANGE, OTHER, TERM, FACTOR, POWER, ZONE, COLLATE, SIGN = range(1, 14)

_COMPARISONS = frozenset(("<", ">", "=", "<=", ">=", "<>"))
_ARITHMETIC = {"+": TERM, "-": TERM, "*": FACTOR, "/": FACTOR, "%": FACTOR, "^": POWER}
_RANGE_WORDS = frozenset(("between", "in", "like", "ilike", "similar"))
_QUERY_WORDS = frozenset(("select", "values", "with", "table"))
_MAX_CHAIN = 200

_SQL_VALUES = frozenset(
    [
        "current_date",
        "current_time",
        "current_timestamp",
        "localtime",
        "localtimestamp",
        "current_role",
        "current_user",
        "session_user",
        "user",
        "current_catalog",
        "current_schema",
    ]
)
_WITH_PRECISION = frozenset(("current_time", "current_timestamp", "localtime", "localtimestamp"))
_SPECIAL = frozenset(("coalesce", "nullif", "greatest", "least"))
_SYNTAX_TYPES = frozenset(
    [
        "int",
        "integer",
        "smallint",
        "bigint",
        "real",
        "float",
        "double",
        "decimal",
        "dec",
        "numeric",
        "boolean",
        "bit",
        "character",
        "char",
        "varchar",
        "nchar",
        "national",
        "timestamp",
        "time",
        "interval",
    ]
)
_NAMED_TYPES = {
    "int": "int4",
    "integer": "int4",
    "smallint": "int2",
    "bigint": "int8",
    "real": "float4",
    "boolean": "bool",
}
_INTERVAL_FIELDS = ("year", "month", "day", "hour", "minute", "second")


class ExpressionParser(Cursor):
    """Parses expressions and types."""

    @abstractmethod
    def query(self) -> ast.Query:
        """Parse a query."""

    @abstractmethod
    def query_rest(self, first: ast.Query) -> ast.Query:
        """Parse what follows the parenthesised query `first`, if it is part of a larger one."""

    @abstractmethod
    def order_by(self) -> tuple[ast.SortKey, ...]:
        """Parse ORDER BY, if it comes."""

    # --- operators

    def expression(self, level: int = 0) -> ast.Expression:
        """Parse an expression whose loosest operator is of `level` or tighter."""
        self.enter()
        result = self._rest(self._prefix(), level)
        self.depth -= 1
        return result

    def _prefix(self) -> ast.Expression:
        token = self.token
        if token.kind == WORD and token.value == "not":
            self.advance()
            return ast.Not(self.expression(NOT), token.start)
        if token.kind == OPERATOR and token.value not in _COMPARISONS:
            if token.value == "*":
                self.fail()
            self.advance()
            if token.value in "+-":
                sign = token.value
                if self.token.kind == NUMBER:
                    number = self._number_operand(sign, token.start)
                    if number is not None:
                        return number
                return ast.Operation(sign, None, self.expression(SIGN), token.start)
            return ast.Operation(token.value, None, self.expression(OTHER + 1), token.start)
        if token.kind == WORD and token.value == "operator" and self.peek().value == "(":
            operator = self._qualified_operator()
            return ast.Operation(operator, None, self.expression(OTHER + 1), token.start)
        indirect = token.kind in (QUOTED, PARAMETER) or self.at_symbol("(")
        operand = self._primary()
        return self._postfix(operand, indirect or isinstance(operand, ast.ColumnRef))

    def _number_operand(self, sign: str, at: int) -> ast.Expression | None:
        """Return a signed constant, as PostgreSQL folds the sign, or None if a cast binds first."""
        after = self.peek()
        if after.value in ("::", "["):
            return None
        number = self.advance()
        return ast.Number(number.value if sign == "+" else "-" + number.value, at)

    def _rest(self, left: ast.Expression, level: int) -> ast.Expression:
        """Parse the operators that follow `left`."""
        chain = 0
        compared = False
        while True:
            token = self.token
            if token.kind == OPERATOR:
                operator = token.value
                strength = _ARITHMETIC.get(operator, OTHER)
                if operator in _COMPARISONS:
                    strength = COMPARISON
                if strength < level:
                    return left
                if strength == COMPARISON:
                    if compared:
                        self.fail()
                    compared = True
                self.advance()
                left = self._infix(left, operator, strength, token.start)
            elif token.kind == WORD:
                step = self._word_operator(left, level)
                if step is None:
                    return left
                left = step
                compared = False
            else:
                return left
            chain += 1
            if chain > _MAX_CHAIN:
                raise too_deep()

    def _infix(self, left: ast.Expression, operator: str, strength: int, at: int) -> ast.Expression:
        if self.at_word("any", "some", "all") and self.peek().value == "(":
            kind = "all" if self.advance().value == "all" else "any"
            return self._quantified(left, operator, kind, at)
        return ast.Operation(operator, left, self.expression(strength + 1), at)

    def _quantified(
        self, left: ast.Expression, operator: str, kind: str, at: int
    ) -> ast.Expression:
        content = self.parenthesised()
        assert kind in ("any", "all")
        return ast.Quantified(left, operator, "all" if kind == "all" else "any", content, at)

    def _qualified_operator(self) -> str:
        self.expect("operator")
        self.expect_symbol("(")
        while self.token.kind in (WORD, QUOTED):
            schema = self.label()
            if schema != "pg_catalog":
                self.unsupported(f"operators of schema {schema}")
            self.expect_symbol(".")
        if self.token.kind != OPERATOR:
            self.fail()
        operator = self.advance().value
        self.expect_symbol(")")
        return operator

    def _word_operator(self, left: ast.Expression, level: int) -> ast.Expression | None:
        """Parse an operator that is a key word; None if none that binds so tightly follows."""
        token = self.token
        at = token.start
        match token.value:
            case "or" | "and" as word:
                strength = OR if word == "or" else AND
                if strength < level:
                    return None
                args = [left]
                while self.accept(word):
                    args.append(self.expression(strength + 1))
                return ast.Connective("or" if word == "or" else "and", tuple(args), at)
            case "is":
                return self._is(left) if level <= IS else None
            case "isnull" | "notnull":
                if level > IS:
                    return None
                self.advance()
                return ast.Is(left, "null", token.value == "notnull", at)
            case "not":
                if level > RANGE or self.peek().value not in _RANGE_WORDS:
                    return None
                self.advance()
                return self._range(left, True, at)
            case "between" | "in" | "like" | "ilike" | "similar":
                return self._range(left, False, at) if level <= RANGE else None
            case "overlaps":
                if level > RANGE:
                    return None
                self.unsupported("OVERLAPS")
            case "operator":
                if level > OTHER or self.peek().value != "(":
                    return None
                operator = self._qualified_operator()
                return self._infix(left, operator, OTHER, at)
            case "at":
                if level > ZONE or not self.at_words("at", "time", "zone"):
                    return None
                self.accept("at", "time", "zone")
                zone = self.expression(ZONE + 1)
                return ast.FunctionCall(("pg_catalog", "timezone"), (zone, left), at)
            case "collate":
                if level > COLLATE:
                    return None
                self.advance()
                return ast.Collate(left, self._any_name(), at)
            case _:
                return None

    def _any_name(self) -> tuple[str, ...]:
        parts = [self.name_or_function()]
        while self.accept_symbol("."):
            parts.append(self.label())
        return tuple(parts)

    def _is(self, left: ast.Expression) -> ast.Expression:
        at = self.expect("is").start
        negated = self.accept("not")
        if self.accept("distinct"):
            self.expect("from")
            return ast.IsDistinct(left, self.expression(IS + 1), negated, at)
        for what in ("null", "true", "false", "unknown"):
            if self.accept(what):
                return ast.Is(left, what, negated, at)
        if self.at_word("document", "normalized", "nfc", "nfd", "nfkc", "nfkd"):
            self.unsupported(f"IS {self.token.value.upper()}")
        self.fail()

    def _range(self, left: ast.Expression, negated: bool, at: int) -> ast.Expression:
        word = self.advance().value
        match word:
            case "between":
                symmetric = self.accept("symmetric")
                if not symmetric:
                    self.accept("asymmetric")
                low = self.expression(RANGE + 1)
                self.expect("and")
                high = self.expression(RANGE + 1)
                return ast.Between(left, low, high, symmetric, negated, at)
            case "in":
                if not self.at_symbol("("):
                    self.fail()
                content = self.parenthesised(many=True)
                if isinstance(content, ast.Query):
                    return ast.InQuery(left, content, negated, at)
                assert isinstance(content, ast.Row)
                return ast.InList(left, content.items, negated, at)
            case "similar":
                self.expect("to")
        if word != "similar" and self.at_word("any", "some", "all") and self.peek().value == "(":
            kind = "all" if self.advance().value == "all" else "any"
            operator = ("!" if negated else "") + ("~~*" if word == "ilike" else "~~")
            return self._quantified(left, operator, kind, at)
        pattern = self.expression(RANGE + 1)
        escape = self.expression(RANGE + 1) if self.accept("escape") else None
        kind_: dict[str, OneOf["like", "ilike", "similar"]] = {
            "like": "like",
            "ilike": "ilike",
            "similar": "similar",
        }
        return ast.Like(kind_[word], left, pattern, escape, negated, at)

    # --- parentheses

    def parenthesised(self, *, many: bool = False) -> ast.Expression | ast.Query:
        """Parse `( ... )`: a query, one expression, or (always, if `many`) a Row of expressions.

        A parenthesis may open a query or an expression, and several in a row either; deciding only
        when the innermost is closed keeps this linear.
        """
        self.enter()
        at = self.expect_symbol("(").start
        inner = self._content()
        if isinstance(inner, ast.Query):
            if self.accept_symbol(")"):
                self.depth -= 1
                return inner
            inner = self._rest(self._postfix(ast.Subquery("scalar", inner, inner.at)), 0)
        items = [inner]
        while self.accept_symbol(","):
            items.append(self.expression())
        self.expect_symbol(")")
        self.depth -= 1
        if many or len(items) > 1:
            return ast.Row(tuple(items), at)
        return inner

    def _content(self) -> ast.Expression | ast.Query:
        if self.at_word(*_QUERY_WORDS) and not (
            self.token.value in ("values", "table") and self.peek().value in (")", ",", ".")
        ):
            return self.query()
        if not self.at_symbol("("):
            return self.expression()
        at = self.token.start
        inner = self.parenthesised()
        if isinstance(inner, ast.Query):
            whole = self.query_rest(inner)
            if self.at_symbol(")"):
                return whole
            inner = ast.Subquery("scalar", whole, at)
        return self._rest(self._postfix(inner), 0)

    # --- operands

    def _postfix(self, operand: ast.Expression, indirect: bool = True) -> ast.Expression:
        """Parse casts behind `operand`, and if it may have them, subscripts and field selections."""
        chain = 0
        while True:
            at = self.token.start
            if self.accept_symbol("::"):
                operand = ast.CastTo(operand, self.type_name(), at)
                indirect = False
            elif indirect and self.at_symbol("["):
                operand = self._subscript(operand)
            elif indirect and self.at_symbol("."):
                self.advance()
                if self.accept_symbol("*"):
                    operand = ast.Field(operand, None, at)
                else:
                    operand = ast.Field(operand, self.label(), at)
            else:
                return operand
            chain += 1
            if chain > _MAX_CHAIN:
                raise too_deep()

    def _subscript(self, operand: ast.Expression) -> ast.Expression:
        at = self.expect_symbol("[").start
        lower = upper = None
        if not self.at_symbol(":"):
            lower = self.expression()
        sliced = self.accept_symbol(":")
        if sliced and not self.at_symbol("]"):
            upper = self.expression()
        self.expect_symbol("]")
        return ast.Subscript(operand, lower, upper, sliced, at)

    def _primary(self) -> ast.Expression:
        token = self.token
        match token.kind:
            case "word":
                return self._word()
            case "number":
                self.advance()
                return ast.Number(token.value, token.start)
            case "string":
                self.advance()
                return ast.String(token.value, token.start)
            case "parameter":
                self.advance()
                return ast.ParameterRef(int(token.value), token.start)
            case "quoted":
                return self._named()
            case "bits":
                self.advance()
                return ast.Bits(token.value, token.start)
        if self.at_symbol("("):
            if self.peek().value == ")":
                self.fail(self.peek())
            content = self.parenthesised()
            if isinstance(content, ast.Query):
                return ast.Subquery("scalar", content, token.start)
            return content
        self.fail()

    def _word(self) -> ast.Expression:
        token = self.token
        word, at = token.value, token.start
        following = self.peek()
        if word in ("true", "false"):
            self.advance()
            return ast.Boolean(word == "true", at)
        if word == "null":
            self.advance()
            return ast.Null(at)
        if word == "case":
            return self._case()
        if word == "array":
            self.advance()
            if self.at_symbol("["):
                return self._array()
            content = self.parenthesised()
            if not isinstance(content, ast.Query):
                self.fail(token)
            return ast.Subquery("array", content, at)
        if word in _SQL_VALUES:
            return self._sql_value()
        if word == "default":
            self.advance()
            return ast.Default(at)
        if following.value == "(" and following.kind == "punctuation":
            special = self._special(word, at)
            if special is not None:
                return special
        if word in _SYNTAX_TYPES or following.kind == STRING:
            constant = self._typed_constant()
            if constant is not None:
                return constant
        if word in RESERVED:
            self.fail()
        return self._named()

    def _typed_constant(self) -> ast.Expression | None:
        """Parse `type 'constant'`; None, and nothing taken, if that is not what stands here."""
        start = self.index
        token = self.token
        if token.value in RESERVED:
            return None
        if token.value == "interval":
            self.advance()
            modifiers: tuple[int, ...] = ()
            if self.at_symbol("(") and self.peek().kind == NUMBER:
                modifiers = self.in_parentheses(self.integer)
            if self.token.kind == STRING:
                constant = self._primary()
                type_ = ast.TypeName(
                    ("interval",), modifiers, 0, token.start, self._interval_fields()
                )
                return ast.CastTo(constant, type_, token.start)
        elif token.value not in _SYNTAX_TYPES:
            self.advance()
            constant = self._primary()
            return ast.CastTo(
                constant, ast.TypeName((token.value,), (), 0, token.start), token.start
            )
        elif self._type_then_string():
            type_ = self.type_name()
            return ast.CastTo(self._primary(), type_, token.start)
        self._reset(start)
        return None

    def _type_then_string(self) -> bool:
        """Whether a type of more than one word may start here and a string follows it."""
        ahead = 0
        while ahead < 12:
            token = self.peek(ahead)
            if token.kind == STRING:
                return ahead > 0
            words = _SYNTAX_TYPES | {"precision", "varying", "with", "without", "zone"}
            if not (
                (token.kind == WORD and token.value in words)
                or token.kind == NUMBER
                or token.value in ("(", ")", ",")
            ):
                return False
            ahead += 1
        return False

    def _reset(self, index: int) -> None:
        self.index = index
        self.token = self.tokens[index]

    def _array(self) -> ast.Expression:
        at = self.expect_symbol("[").start
        items: tuple[ast.Expression, ...] = ()
        if not self.at_symbol("]"):
            items = self.list_of(
                lambda: self._array() if self.at_symbol("[") else self.expression()
            )
        self.expect_symbol("]")
        return ast.ArrayOf(items, at)

    def _case(self) -> ast.Expression:
        at = self.expect("case").start
        operand = None if self.at_word("when") else self.expression()
        branches = []
        while self.accept("when"):
            condition = self.expression()
            self.expect("then")
            branches.append((condition, self.expression()))
        if not branches:
            self.fail()
        otherwise = self.expression() if self.accept("else") else None
        self.expect("end")
        return ast.CaseWhen(operand, tuple(branches), otherwise, at)

    def _sql_value(self) -> ast.Expression:
        token = self.advance()
        precision = None
        if self.at_symbol("("):
            if token.value == "current_schema":
                self.advance()
                self.expect_symbol(")")
            elif token.value in _WITH_PRECISION:
                (precision,) = self.in_parentheses(self.integer)
            else:
                self.fail()
        return ast.SqlValue(token.value, precision, token.start)

    def _special(self, word: str, at: int) -> ast.Expression | None:
        """Parse what looks like a call of `word` but has a syntax of its own."""
        if word == "exists":
            self.advance()
            content = self.parenthesised()
            if not isinstance(content, ast.Query):
                self.fail(self.tokens[self.index - 1])
            return ast.Subquery("exists", content, at)
        if word in _SPECIAL:
            self.advance()
            args = self.in_parentheses(self.expression)
            if word == "nullif" and len(args) != 2:
                self.fail(self.tokens[self.index - 1])
            kinds: dict[str, OneOf["coalesce", "nullif", "greatest", "least"]] = {
                "coalesce": "coalesce",
                "nullif": "nullif",
                "greatest": "greatest",
                "least": "least",
            }
            return ast.Special(kinds[word], args, at)
        if word == "row":
            self.advance()
            self.expect_symbol("(")
            items: tuple[ast.Expression, ...] = ()
            if not self.at_symbol(")"):
                items = self.list_of(self.expression)
            self.expect_symbol(")")
            return ast.Row(items, at)
        if word not in ("cast", "extract", "substring", "position", "trim", "overlay", "grouping"):
            return None
        self.advance()
        self.expect_symbol("(")
        result = self._key_word_call(word, at)
        self.expect_symbol(")")
        return result

    def _key_word_call(self, word: str, at: int) -> ast.Expression:
        match word:
            case "cast":
                arg = self.expression()
                self.expect("as")
                return ast.CastTo(arg, self.type_name(), at)
            case "extract":
                field_at = self.token.start
                field = self.string() if self.token.kind == STRING else self.label()
                self.expect("from")
                args: list[ast.Expression] = [ast.String(field, field_at), self.expression()]
            case "position":
                needle = self.expression(OTHER)
                self.expect("in")
                args = [self.expression(OTHER), needle]
            case "substring":
                args = [self.expression()]
                if self.at_word("from", "for"):
                    start: ast.Expression = ast.Number("1", at)
                    length = None
                    for _ in range(2):
                        if self.accept("from"):
                            start = self.expression()
                        elif self.accept("for"):
                            length = self.expression()
                    args += [start] if length is None else [start, length]
                elif self.accept("similar"):
                    args.append(self.expression())
                    self.expect("escape")
                    args.append(self.expression())
                else:
                    while self.accept_symbol(","):
                        args.append(self.expression())
            case "overlay":
                args = [self.expression()]
                if self.accept("placing"):
                    args.append(self.expression())
                    self.expect("from")
                    args.append(self.expression())
                    if self.accept("for"):
                        args.append(self.expression())
                else:
                    while self.accept_symbol(","):
                        args.append(self.expression())
            case "trim":
                return self._trim(at)
            case _:
                self.unsupported("GROUPING", at)
        return ast.FunctionCall(("pg_catalog", word), tuple(args), at)

    def _trim(self, at: int) -> ast.Expression:
        function = "btrim"
        if self.at_word("both", "leading", "trailing"):
            side = self.advance().value
            function = {"both": "btrim", "leading": "ltrim", "trailing": "rtrim"}[side]
        characters: tuple[ast.Expression, ...] = ()
        if not self.at_word("from"):
            characters = self.list_of(self.expression)
        if self.accept("from"):
            args = self.list_of(self.expression) + characters
        else:
            args = characters
        return ast.FunctionCall(("pg_catalog", function), args, at)

    def _named(self) -> ast.Expression:
        """Parse a column reference or a function call."""
        token = self.token
        at = token.start
        if token.kind == WORD and token.value in NOT_COLUMN and self.peek().value not in ("(", "."):
            self.fail()
        parts = [self.name_or_function()]
        while self.at_symbol("."):
            self.advance()
            if self.accept_symbol("*"):
                return ast.Star(tuple(parts), at)
            parts.append(self.label())
        if self.at_symbol("("):
            if len(parts) == 1 and token.kind == WORD and token.value in COL_NAME:
                self.fail()
            return self._call(tuple(parts), at)
        if self.token.kind == STRING and len(parts) > 1:
            return ast.CastTo(self._primary(), ast.TypeName(tuple(parts), (), 0, at), at)
        return ast.ColumnRef(tuple(parts), at)

    def _call(self, name: tuple[str, ...], at: int) -> ast.Expression:
        self.expect_symbol("(")
        call = ast.FunctionCall(name, (), at)
        if self.accept_symbol("*"):
            call.star = True
        elif not self.at_symbol(")"):
            call.distinct = self.accept("distinct")
            if not call.distinct:
                self.accept("all")
            args = []
            while True:
                call.variadic = self.accept("variadic")
                if self.peek().value in ("=>", ":=") and self.token.kind in (WORD, QUOTED):
                    self.unsupported("named notation for arguments")
                args.append(self.expression())
                if not self.accept_symbol(","):
                    break
            call.args = tuple(args)
            call.order_by = self.order_by()
        self.expect_symbol(")")
        if self.at_words("within", "group"):
            self.unsupported("WITHIN GROUP")
        if self.at_word("filter") and self.peek().value == "(":
            self.advance()
            self.expect_symbol("(")
            self.expect("where")
            call.filter = self.expression()
            self.expect_symbol(")")
        if self.at_word("over") and (
            self.peek().value == "(" or self.peek().kind in (WORD, QUOTED)
        ):
            self.unsupported("calling a window function (OVER)")
        return call

    # --- types

    def type_name(self) -> ast.TypeName:
        """Parse a type."""
        token = self.token
        if token.kind == WORD and token.value in _SYNTAX_TYPES:
            type_ = self._syntax_type()
        else:
            if token.kind == WORD and token.value == "setof":
                self.unsupported("SETOF")
            name = self._any_name()
            modifiers: tuple[int, ...] = ()
            if self.at_symbol("("):
                modifiers = self.in_parentheses(self._modifier)
            type_ = ast.TypeName(name, modifiers, 0, token.start)
        while self.at_symbol("[") and (
            self.peek().value == "]" or (self.peek().kind == NUMBER and self.peek(2).value == "]")
        ):
            self.advance()
            if self.token.kind == NUMBER:
                self.integer()
            self.expect_symbol("]")
            type_.dimensions += 1
        if self.accept("array"):
            type_.dimensions = 1
            if self.accept_symbol("["):
                self.integer()
                self.expect_symbol("]")
        return type_

    def _modifier(self) -> int:
        negative = self.accept_symbol("-")
        value = self.integer()
        return -value if negative else value

    def _syntax_type(self) -> ast.TypeName:
        token = self.advance()
        word, at = token.value, token.start
        modifiers: tuple[int, ...] = ()
        if word in _NAMED_TYPES:
            return ast.TypeName((_NAMED_TYPES[word],), (), 0, at)
        match word:
            case "double":
                self.expect("precision")
                return ast.TypeName(("float8",), (), 0, at)
            case "float":
                if self.at_symbol("("):
                    modifiers = self.in_parentheses(self.integer)
                return ast.TypeName(
                    ("float4" if modifiers and modifiers[0] <= 24 else "float8",), (), 0, at
                )
            case "decimal" | "dec" | "numeric":
                if self.at_symbol("("):
                    modifiers = self.in_parentheses(self._modifier)
                return ast.TypeName(("numeric",), modifiers, 0, at)
            case "timestamp" | "time":
                if self.at_symbol("("):
                    modifiers = self.in_parentheses(self.integer)
                zoned = self.accept("with", "time", "zone")
                if not zoned:
                    self.accept("without", "time", "zone")
                return ast.TypeName((word + ("tz" if zoned else ""),), modifiers, 0, at)
            case "interval":
                if self.at_symbol("("):
                    modifiers = self.in_parentheses(self.integer)
                return ast.TypeName(("interval",), modifiers, 0, at, self._interval_fields())
            case "bit":
                self.unsupported("type bit", at)
            case "national":
                if not self.accept("character"):
                    self.expect("char")
        varying = word == "varchar" or self.accept("varying")
        if self.at_symbol("("):
            modifiers = self.in_parentheses(self.integer)
        if varying:
            return ast.TypeName(("varchar",), modifiers, 0, at)
        return ast.TypeName(("bpchar",), modifiers or (1,), 0, at)

    def _interval_fields(self) -> str | None:
        if not self.at_word(*_INTERVAL_FIELDS):
            return None
        fields = self.advance().value
        if self.accept("to"):
            if not self.at_word(*_INTERVAL_FIELDS):
                self.fail()
            fields += " to " + self.advance().value
        if fields.endswith("second") and self.at_symbol("("):
            self.in_parentheses(self.integer)
        return fields
