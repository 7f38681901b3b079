"""The grammar of expressions: operators with PostgreSQL's precedence, operands, calls."""

from collections.abc import Callable
from typing import Any, ClassVar, NoReturn

from sqlglot import exp
from sqlglot.tokens import Token, TokenType

from foreshore.errors import SyntaxError_
from foreshore.keywords import RESERVED
from foreshore.sql.parse.grammar.base import (
    AND,
    COLLATE,
    COMPARISON,
    FACTOR,
    IS,
    MAX_CHAIN,
    MAX_DEPTH,
    NOT,
    NOT_WORDS,
    OR,
    OTHER,
    POWER,
    RANGE,
    SIGN,
    STRINGS,
    TERM,
    ZONE,
    located,
    too_deep,
)
from foreshore.sql.parse.grammar.nodes import (
    CallArguments,
    Container,
    KeywordCall,
    Quantified,
    RowOf,
    SqlValue,
)
from foreshore.sql.parse.grammar.types import TypeParser

_COMPARISONS = frozenset(("<", ">", "=", "<=", ">=", "<>", "!="))
_ARITHMETIC = {"+": TERM, "-": TERM, "*": FACTOR, "/": FACTOR, "%": FACTOR, "^": POWER}
_SQL_VALUES = frozenset(
    """
    current_date current_time current_timestamp localtime localtimestamp current_role current_user
    session_user user current_catalog current_schema
    """.split()
)
_WITH_PRECISION = frozenset(("current_time", "current_timestamp", "localtime", "localtimestamp"))


_NORMAL_FORMS = ("nfc", "nfd", "nfkc", "nfkd")
_XML = frozenset(
    """
    xmlconcat xmlelement xmlexists xmlforest xmlparse xmlpi xmlroot xmlserialize xmltable
    """.split()
)


def _link(node: exp.Expr) -> None:
    """Check how many casts, fields and subscripts follow one another up to `node`."""
    below = node.args.get("this")
    if isinstance(node, exp.Column) or not isinstance(below, exp.Expr):
        return
    length = below.meta.get("chain", 0) + 1
    if length > MAX_CHAIN:
        raise too_deep()
    node.meta["chain"] = length


class OperatorParser(TypeParser):
    """Parse operators, from loosest to tightest."""

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

    def _prefix(self) -> exp.Expr | None:
        token = self._curr
        if not token:
            return None
        if self._take("not"):
            return located(exp.Not(this=self._need(NOT)), token)
        operator = self._operator_here()
        if operator is not None:
            if operator == "*":
                self._advance()
                return located(exp.Star(), token)
            if operator in _COMPARISONS:
                self.fail(token)
            self._advance()
            level = SIGN if operator in ("+", "-") else OTHER + 1
            return located(exp.Operator(operator=operator, expression=self._need(level)), token)
        if self._word("operator") and self._next and self._next.text == "(":
            name = self._qualified_operator()
            return located(exp.Operator(operator=name, expression=self._need(OTHER + 1)), token)
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
        return located(exp.Operator(this=left, operator=operator, expression=right), token)

    def _quantified(self, left: exp.Expr, operator: str, kind: str, token: Token) -> exp.Expr:
        self._match_l_paren()
        content = self._query_or_none() or self._need(0)
        self._match_r_paren()
        return located(
            Quantified(this=left, operator=operator, kind=kind, expression=content), token
        )

    def _query_or_none(self) -> exp.Expr | None:
        if self._begins_query():
            return self._parse_select()
        if self._curr and self._curr.text == "(":
            index = self._index
            while self._curr and self._curr.text == "(":
                self._advance()
            is_query = self._begins_query()
            self._retreat(index)
            if is_query:
                query = self._parse_select(nested=True, parse_subquery_alias=False)
                query = self._parse_set_operations(query)
                if self._curr and self._curr.text != ",":
                    query = self._parse_query_modifiers(query)
                if self._curr and self._curr.text == ")":
                    return query
                self._retreat(index)  # an expression that begins with a subquery
        return None

    def _begins_query(self) -> bool:
        return any(map(self._word, ("select", "with", "values", "table")))

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
        """Parse a key-word operator; None if none that binds so tightly follows."""
        token = self._curr
        if token.token_type in NOT_WORDS:
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
            return located(kind(expressions=args), token)
        if word == "is" and level <= IS:
            return self._is(left)
        if word in ("isnull", "notnull") and level <= IS:
            self._advance()
            return located(exp.Is(this=left, what="null", negated=word == "notnull"), token)
        if word == "not":
            following = self._next.text.lower() if self._next else ""
            if level > RANGE or following not in ("between", "in", "like", "ilike", "similar"):
                return None
            self._advance()
            return self._range(left, True, token)
        if word == "similar" and self._next and self._next.text.lower() != "to":
            return None  # substring(text SIMILAR pattern ESCAPE escape)
        if word in ("between", "in", "like", "ilike", "similar") and level <= RANGE:
            return self._range(left, False, token)
        if word == "overlaps" and level <= RANGE and isinstance(left, exp.Tuple | RowOf):
            self._advance()
            right = self._need(RANGE + 1)
            sides = (left, right)
            for side, which in zip(sides, ("left", "right"), strict=True):
                if not isinstance(side, exp.Tuple | RowOf) or len(side.expressions) != 2:
                    raise SyntaxError_(
                        f"wrong number of parameters on {which} side of OVERLAPS expression",
                        position=token.start + 1,
                    )
            ends = [end for side in sides for end in side.expressions]
            return located(KeywordCall(this="overlaps", expressions=ends), token)
        if word == "operator" and level <= OTHER and self._next and self._next.text == "(":
            return self._infix(left, self._qualified_operator(), OTHER, token)
        if word == "at" and level <= ZONE and self._take("at", "time", "zone"):
            zone = self._need(ZONE + 1)
            return located(KeywordCall(this="timezone", expressions=[zone, left]), token)
        if word == "collate" and level <= COLLATE:
            self._advance()
            return located(exp.Collate(this=left, name=self._names()), token)
        return None

    def _is(self, left: exp.Expr) -> exp.Expr:
        token = self._curr
        self._advance()
        negated = self._take("not")
        if self._take("distinct"):
            if not self._take("from"):
                self.fail(self._curr)
            right = self._need(IS + 1)
            return located(exp.NullSafeEQ(this=left, expression=right, negated=negated), token)
        for what in ("null", "true", "false", "unknown"):
            if self._take(what):
                return located(exp.Is(this=left, what=what, negated=negated), token)
        form = self._field(_NORMAL_FORMS)
        if self._take("normalized"):
            args = [left, located(exp.Literal.string(form or "nfc"), token)]
            call = located(KeywordCall(this="is_normalized", expressions=args), token)
            return located(exp.Not(this=call), token) if negated else call
        self.fail(self._curr)

    def _range(self, left: exp.Expr, negated: bool, token: Token) -> exp.Expr:
        if self._take("between"):
            symmetric = self._take("symmetric")
            if not symmetric:
                self._take("asymmetric")
            low = self._need(RANGE + 1)
            if not self._take("and"):
                self.fail(self._curr)
            return located(
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
                return located(exp.In(this=left, query=query, negated=negated), token)
            items = [query] if query is not None else [self._need(0)]
            while self._match(TokenType.COMMA):
                items.append(self._need(0))
            self._match_r_paren()
            return located(exp.In(this=left, expressions=items, negated=negated), token)
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
        return located(
            exp.Like(this=left, expression=pattern, escape=escape, kind=word, negated=negated),
            token,
        )


class ExpressionParser(OperatorParser):
    """Parse operands: constants, names, calls, parentheses."""

    FUNCTIONS: ClassVar[dict[str, Callable[..., Any]]] = {}
    NO_PAREN_FUNCTIONS: ClassVar[dict[TokenType, Any]] = {}
    NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., Any]]] = {
        "CASE": lambda self: self._parse_case(),
    }
    FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., Any]]] = {
        word.upper(): lambda self, word=word: self._keyword_call(word)
        for word in (
            *("cast", "extract", "substring", "position", "trim", "overlay"),
            *_XML,
        )
    }

    def _parse_type(
        self, parse_interval: bool = True, fallback_to_identifier: bool = False
    ) -> exp.Expr | None:
        token = self._curr
        if not token:
            return None
        constant = self._typed_constant()
        if constant is not None:
            return self._parse_column_ops(constant)
        if token.token_type not in NOT_WORDS:
            value = self._sql_value()
            if value is not None:
                return self._parse_column_ops(value)
            if self._take("default"):
                return located(exp.Var(this="default"), token)
            if self._next and self._next.text == "(":
                if self._word("row"):
                    self._advance(2)
                    items = [] if self._curr and self._curr.text == ")" else self._list()
                    self._match_r_paren()
                    return self._parse_column_ops(located(RowOf(expressions=items), token))
                if self._word("exists"):
                    self._advance(2)
                    query = self._query_or_none()
                    if query is None:
                        self.fail(self._curr)
                    self._match_r_paren()
                    return located(exp.Exists(this=query), token)
                if self._word("list") or self._word("map"):
                    value = self._container_of_query(token)
                    if value is not None:
                        return self._parse_column_ops(value)
                if self._word("array"):
                    self._advance(2)
                    query = self._query_or_none()
                    if query is None:
                        self.fail(token)
                    self._match_r_paren()
                    return self._parse_column_ops(located(exp.ArrayAgg(this=query), token))
            if self._word("array") and self._next and self._next.text == "[":
                self._advance()
                return self._parse_column_ops(self._array(token))
            if self._next and self._next.text == "[" and token.token_type != TokenType.IDENTIFIER:
                lowered = token.text.lower()
                if lowered in ("list", "map"):
                    self._advance()
                    return self._parse_column_ops(self._container(lowered, token))
            lowered = token.text.lower()
            if lowered in RESERVED and lowered not in ("case", "true", "false", "null", "cast"):
                return None
        return self._parse_column()

    def _parse_function_args(self, alias: bool = False) -> list[exp.Expr]:
        distinct = variadic = False
        args: list[exp.Expr] = []
        names: list[exp.Expr] = []
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
                    names.append(self._argument_name())
                elif names:
                    self.positional_after_named(self._curr)
                args.append(self._need(0))
                if not self._match(TokenType.COMMA):
                    break
        order = self._parse_order()
        given = CallArguments(
            expressions=args, distinct=distinct, variadic=variadic, order=order, names=names
        )
        return [given]

    def _argument_name(self) -> exp.Expr:
        """Parse `name =>`."""
        name = self._parse_id_var()
        if name is None:
            self.fail(self._curr)
        self._advance()
        return name

    def positional_after_named(self, token: Token | None) -> NoReturn:
        """Raise the error of an argument by place after one by name."""
        raise SyntaxError_(
            "positional argument cannot follow named argument",
            position=None if token is None else token.start + 1,
        )

    def _array(self, token: Token) -> exp.Expr:
        self._match(TokenType.L_BRACKET)
        items: list[exp.Expr] = []
        if not (self._curr and self._curr.text == "]"):
            while True:
                inner = self._curr
                items.append(self._array(inner) if inner and inner.text == "[" else self._need(0))
                if not self._match(TokenType.COMMA):
                    break
        if not self._match(TokenType.R_BRACKET):
            self.fail(self._curr)
        return located(exp.Array(expressions=items), token)

    def _container(self, kind: str, token: Token) -> exp.Expr:
        """Parse the items of LIST[...] or MAP[...]; brackets within are of the same kind."""
        self._match(TokenType.L_BRACKET)
        items: list[exp.Expr] = []
        if not (self._curr and self._curr.text == "]"):
            while True:
                if kind == "map":
                    items.append(self._need(0))
                    if not (self._curr and self._curr.text == "=>"):
                        self.fail(self._curr)
                    self._advance()
                inner = self._curr
                nested = inner and inner.text == "["
                items.append(self._container(kind, inner) if nested else self._need(0))
                if not self._match(TokenType.COMMA):
                    break
        if not self._match(TokenType.R_BRACKET):
            self.fail(self._curr)
        return located(Container(this=kind, expressions=items), token)

    def _container_of_query(self, token: Token) -> exp.Expr | None:
        """Parse `LIST(query)` or `MAP(query)`; None if it is a call."""
        index = self._index
        self._advance(2)
        query = self._query_or_none()
        if query is None or not (self._curr and self._curr.text == ")"):
            self._retreat(index)
            return None
        self._match_r_paren()
        return located(Container(this=token.text.lower(), query=query), token)

    def _parse_bracket(self, this: exp.Expr | None = None) -> exp.Expr | None:
        """Parse subscripts and slices as written, after an operand or what follows one."""
        if this is None:
            return None
        _link(this)
        if self._curr and self._curr.token_type == TokenType.L_BRACE:
            self.fail(self._curr)  # the caller takes braces for brackets, and asks until they go
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
            this = located(exp.Bracket(this=this, lower=lower, upper=upper, sliced=sliced), token)
            _link(this)
        return this

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
        return located(SqlValue(this=word, precision=precision), token)

    def _parse_case(self) -> exp.Expr:
        case = exp.Case(this=None if self._word("when") else self._need(0), ifs=[])
        while self._take("when"):
            condition = self._need(0)
            if not self._take("then"):
                self.fail(self._curr)
            case.append("ifs", exp.If(this=condition, true=self._need(0)))
        if case.args["ifs"] and self._take("else"):
            case.set("default", self._need(0))
        if not case.args["ifs"] or not self._take("end"):
            self.fail(self._curr)
        return case

    def _keyword_call(self, word: str) -> exp.Expr:
        """Parse a function that the standard spells with key words, up to its parenthesis."""
        call = self._arguments_by_words(word)
        if not self._match(TokenType.R_PAREN, advance=False):
            self.fail(self._curr)
        return call

    def _arguments_by_words(self, word: str) -> exp.Expr:
        token = self._tokens[self._index - 2]
        args: list[exp.Expr]
        match word:
            case "cast":
                arg = self._need(0)
                if not self._take("as"):
                    self.fail(self._curr)
                return located(exp.Cast(this=arg, to=self._spelling()), token)
            case "extract":
                field = self._curr
                if not field or not (
                    field.token_type in STRINGS or field.text.replace("_", "").isalnum()
                ):
                    self.fail(field)
                self._advance()
                if not self._take("from"):
                    self.fail(self._curr)
                name = exp.Literal.string(
                    field.text if field.token_type in STRINGS else field.text.lower()
                )
                args = [located(name, field), self._need(0)]
            case "position":
                needle = self._need(OTHER)
                if not self._take("in"):
                    self.fail(self._curr)
                args = [self._need(OTHER), needle]
            case "substring":
                args = self._substring(token)
            case _ if word in _XML:
                self.unsupported("type xml", token.start)
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
        return located(KeywordCall(this=word, expressions=args), token)

    def _substring(self, token: Token) -> list[exp.Expr]:
        args = [self._need(0)]
        if self._word("from") or self._word("for"):
            start: exp.Expr = located(exp.Literal.number(1), token)
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
