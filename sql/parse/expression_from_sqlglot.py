"""Convert sqlglot's expressions to our syntax tree; see `from_sqlglot.py` for queries."""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NoReturn

from sqlglot import exp

from foreshore.errors import FeatureNotSupported, SyntaxError_, UndefinedParameter
from foreshore.identifiers import cut, fold
from foreshore.interruptible import REQUESTS, safepoint
from foreshore.sql import ast
from foreshore.sql.ast.constant_list import ConstantList
from foreshore.sql.ast.form_rows import FormRows
from foreshore.sql.parse.grammar import nodes
from foreshore.sql.parse.grammar.base import MAX_CHAIN, too_deep
from foreshore.sql.parse.grammar.word_classes import NOT_COLUMN
from foreshore.sql.parse.long_lists import Lists
from foreshore.sql.parse.string_constants import decode_escapes, decode_unicode, escaped_pieces

_TOKEN = re.compile(r"""\w+|"[^"]*"|'[^']*'|\S""")
_SPECIAL = frozenset(("coalesce", "nullif", "greatest", "least"))


class ExpressionConverter(ABC):
    """Convert the expressions of one text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lists: Lists = {}  # the rests of long lists that no node has yet

    @abstractmethod
    def query(self, node: exp.Expr) -> ast.Query:
        """Convert a whole query, of a subquery in an expression."""

    # --- helpers

    def at(self, node: exp.Expr) -> int:
        """Return the offset for errors about `node`."""
        meta = node.meta
        at = meta.get("at")
        if at is None:
            at = meta.get("start")
        if at is None:
            at = meta.get("first")
        if at is None:
            at = min((self.at(child) for child in node.iter_expressions()), default=0)
            meta["first"] = at  # a node above asks again; "at" says that the text has the node
        return int(at)

    def start(self, node: exp.Expr) -> int:
        """Return the offset where `node` starts."""
        at = self.at(node)
        first = node.args.get("this")
        return min(at, self.start(first)) if isinstance(first, exp.Expr) else at

    def refuse(self, what: str, node: exp.Expr) -> NoReturn:
        """Raise 0A000."""
        raise FeatureNotSupported(f"{what} is not supported", position=self.at(node) + 1)

    def unexpected(self, node: exp.Expr) -> NoReturn:
        """Raise a syntax error at `node`."""
        at = self.at(node)
        token = _TOKEN.match(self.text, at)
        near = token.group() if token else ""
        raise SyntaxError_(f'syntax error at or near "{near}"', position=at + 1)

    def name(self, identifier: exp.Expr) -> str:
        """Return a name, folded unless quoted, and cut to 63 bytes."""
        name = str(identifier.this)
        return cut(name) if identifier.args.get("quoted") else fold(name)

    # --- expressions

    def all(self, each: list[exp.Expr]) -> tuple[ast.Expression, ...]:
        """Convert several expressions."""
        return tuple(map(self.expression, each))

    def maybe(self, node: exp.Expr | None) -> ast.Expression | None:
        """Convert an expression, or None."""
        return None if node is None else self.expression(node)

    def expression(self, node: exp.Expr) -> ast.Expression:
        """Convert an expression."""
        if REQUESTS:
            safepoint()
        name = f"_{type(node).__name__.lower()}"
        convert: Callable[[Any], ast.Expression] | None = getattr(self, name, None)
        if convert is None:
            return self.unexpected(node)
        return convert(node)

    def _column(self, node: exp.Column) -> ast.Expression:
        parts = [node.args[key] for key in ("catalog", "db", "table", "this") if node.args.get(key)]
        at = self.at(parts[0])
        if len(parts) > 1 and not isinstance(parts[0], exp.Identifier):
            return self._column_of(parts)
        if isinstance(parts[-1], exp.Star):
            return self._star_of(node, tuple(map(self.name, parts[:-1])), at)
        if len(parts) > 1 and not isinstance(parts[-1], exp.Identifier):
            return self._call_in_schema(parts[:-1], parts[-1])
        if len(parts) == 1 and isinstance(parts[0], exp.Identifier):
            name = self.name(parts[0])
            if not parts[0].args.get("quoted") and name in NOT_COLUMN:
                return self.unexpected(parts[0])
        return ast.ColumnRef(tuple(map(self.name, parts)), at)

    def _call_in_schema(self, schema: list[exp.Expr], node: exp.Expr) -> ast.Expression:
        """Convert a call with OVER, FILTER or WITHIN GROUP, of which the last is outermost."""
        around, call = None, node
        while isinstance(call, nodes.Over | exp.Filter | exp.WithinGroup):
            around, call = call, call.this
        if around is None or not isinstance(call, exp.Anonymous):
            return self.unexpected(node)
        left = schema[0]
        for part in schema[1:]:
            left = exp.Dot(this=left, expression=part)
        dot = exp.Dot(this=left, expression=call)
        dot.meta["at"] = self.at(schema[0])
        around.set("this", dot)
        return self.expression(node)

    def _column_of(self, parts: list[exp.Expr]) -> ast.Expression:
        """Return the column of a call's record without parentheses, as Materialize accepts it."""
        found = self.expression(parts[0])
        for part in parts[1:]:
            name = None if isinstance(part, exp.Star) else self.name(part)
            found = ast.Field(found, name, self.at(part))
        return found

    def _star(self, node: exp.Star) -> ast.Expression:
        if any(node.args.values()):
            return self.unexpected(node)
        return self._star_of(node, (), self.at(node))

    def _star_of(self, node: exp.Expr, qualifier: tuple[str, ...], at: int) -> ast.Star:
        excluded = tuple((self.name(e), self.at(e)) for e in node.meta.get("excluded", ()))
        replaced = tuple(
            (self.name(name), self.expression(value), self.at(name))
            for value, name in node.meta.get("replaced", ())
        )
        return ast.Star(qualifier, at, excluded, replaced)

    def _literal(self, node: exp.Literal) -> ast.Expression:
        if node.is_string:
            return ast.String(str(node.this), self.at(node))
        return ast.Number(str(node.this), self.at(node))

    def _string(self, node: exp.Expr) -> ast.Expression:
        return ast.String(str(node.this), self.at(node))

    _rawstring = _national = _heredoc = _string

    def _bytestring(self, node: exp.Expr) -> ast.Expression:
        at = self.at(node)
        pieces = escaped_pieces(self.text, at)
        return self._string(node) if pieces is None else ast.String(decode_escapes(pieces, at), at)

    def _unicodestring(self, node: exp.Expr) -> ast.Expression:
        at, escape = self.at(node), node.args.get("escape")
        mark = str(escape.this) if isinstance(escape, exp.Expr) else "\\"
        return ast.String(decode_unicode(str(node.this), mark, at), at)

    def _concat(self, node: exp.Concat) -> ast.Expression:
        # string constants on successive lines are one constant
        return ast.String("".join(str(e.this) for e in node.expressions), self.at(node))

    def _bitstring(self, node: exp.Expr) -> ast.Expression:
        return ast.Bits("b" + str(node.this), self.at(node))

    def _hexstring(self, node: exp.Expr) -> ast.Expression:
        return ast.Bits("x" + str(node.this), self.at(node))

    def _boolean(self, node: exp.Boolean) -> ast.Expression:
        return ast.Boolean(bool(node.this), self.at(node))

    def _null(self, node: exp.Null) -> ast.Expression:
        return ast.Null(self.at(node))

    def _parameter(self, node: exp.Parameter) -> ast.Expression:
        number = node.this
        if not isinstance(number, exp.Literal) or not str(number.this).isdigit():
            return self.unexpected(node)
        if len(number.this) > 9:
            raise UndefinedParameter(
                f"there is no parameter ${number.this}", position=self.at(node) + 1
            )
        return ast.ParameterRef(int(number.this), self.at(node))

    def _var(self, node: exp.Var) -> ast.Expression:
        if str(node.this).lower() == "default":
            return ast.Default(self.at(node))
        return self.unexpected(node)

    def _paren(self, node: exp.Paren) -> ast.Expression:
        return self.expression(node.this)

    def _tuple(self, node: exp.Tuple) -> ast.Expression:
        return ast.Row(self.all(node.expressions), self.at(node))

    def _rowof(self, node: nodes.RowOf) -> ast.Expression:
        return ast.Row(self.all(node.expressions), self.at(node), named=True)

    def _operator(self, node: exp.Operator) -> ast.Expression:
        operator, at = str(node.args["operator"]), self.at(node)
        left, right = self.maybe(node.args.get("this")), self.expression(node.expression)
        if left is None and operator in ("+", "-") and isinstance(right, ast.Number):
            # A constant with its sign, so that -2147483648 and -(-1) are integers.
            digits = right.text.lstrip("+-")
            is_negative = right.text.startswith("-") != (operator == "-")
            sign = "-" if is_negative else "+" if operator == "+" else ""
            return ast.Number(f"{sign}{digits}", at)
        return ast.Operation(operator, left, right, at)

    def _or(self, node: exp.Or) -> ast.Expression:
        return ast.Connective("or", self.all(node.expressions), self.at(node))

    def _and(self, node: exp.And) -> ast.Expression:
        return ast.Connective("and", self.all(node.expressions), self.at(node))

    def _not(self, node: exp.Not) -> ast.Expression:
        return ast.Not(self.expression(node.this), self.at(node))

    def _is(self, node: exp.Is) -> ast.Expression:
        what, negated = node.args["what"], node.args["negated"]
        return ast.Is(self.expression(node.this), what, negated, self.at(node))

    def _nullsafeeq(self, node: exp.NullSafeEQ) -> ast.Expression:
        left, right = self.expression(node.this), self.expression(node.expression)
        return ast.IsDistinct(left, right, node.args["negated"], self.at(node))

    def _like(self, node: exp.Like) -> ast.Expression:
        return ast.Like(
            node.args["kind"],
            self.expression(node.this),
            self.expression(node.expression),
            self.maybe(node.args.get("escape")),
            node.args["negated"],
            self.at(node),
        )

    def _between(self, node: exp.Between) -> ast.Expression:
        return ast.Between(
            self.expression(node.this),
            self.expression(node.args["low"]),
            self.expression(node.args["high"]),
            node.args["symmetric"],
            node.args["negated"],
            self.at(node),
        )

    def _in(self, node: exp.In) -> ast.Expression:
        left, negated, at = self.expression(node.this), node.args["negated"], self.at(node)
        query, found = node.args.get("query"), node.expressions
        if query is None and len(found) == 1 and isinstance(found[0], exp.Subquery):
            query = found[0]  # IN ((SELECT ...)) with any number of parentheses
        if query is not None:
            return ast.InQuery(left, self.query(query), negated, at)
        items = self.all(node.expressions)
        first = items[0].arg if isinstance(items[0], ast.CastTo) else items[0]
        return ast.InList(left, items, negated, at, self.rest_at(getattr(first, "at", -1)))

    def rest_at(self, at: int) -> ConstantList | FormRows | None:
        """Return what was taken out of a long list whose first row, or value, is at an offset."""
        return self.lists.pop(at, None) if self.lists else None

    def _quantified(self, node: nodes.Quantified) -> ast.Expression:
        right = node.expression
        is_query = isinstance(right, exp.Query | exp.Values)
        content = self.query(right) if is_query else self.expression(right)
        return ast.Quantified(
            self.expression(node.this), node.args["operator"], node.args["kind"], content,
            self.at(node),
        )  # fmt: skip

    def _cast(self, node: exp.Cast) -> ast.Expression:
        spelling = node.args["to"]
        at = spelling.meta.get("cast_at", self.at(node))
        return ast.CastTo(self.expression(node.this), self.type(spelling), at)

    def type(self, node: exp.Expr) -> ast.TypeName:
        """Convert a type."""
        if isinstance(node, nodes.ContainerSpelling):
            args, key = node.args, node.args.get("key")
            return ast.TypeName(
                (node.this,),
                (),
                args.get("dimensions") or 0,
                self.at(node),
                item=self.type(args["item"]),
                key=None if key is None else self.type(key),
            )
        assert isinstance(node, nodes.TypeSpelling), node
        args = node.args
        return ast.TypeName(
            tuple(args["name"]),
            tuple(args.get("modifiers") or ()),
            args.get("dimensions") or 0,
            self.at(node),
            args.get("fields"),
        )

    def _case(self, node: exp.Case) -> ast.Expression:
        branches = tuple(
            (self.expression(branch.this), self.expression(branch.args["true"]))
            for branch in node.args["ifs"]
        )
        otherwise = self.maybe(node.args.get("default"))
        return ast.CaseWhen(self.maybe(node.args.get("this")), branches, otherwise, self.at(node))

    def _select(self, node: exp.Expr) -> ast.Expression:
        return ast.Subquery("scalar", self.query(node), self.at(node))

    _union = _except = _intersect = _values = _select

    def _subquery(self, node: exp.Subquery) -> ast.Expression:
        return ast.Subquery("scalar", self.query(node), self.at(node))

    def _exists(self, node: exp.Exists) -> ast.Expression:
        return ast.Subquery("exists", self.query(node.this), self.at(node))

    def _arrayagg(self, node: exp.ArrayAgg) -> ast.Expression:
        return ast.Subquery("array", self.query(node.this), self.at(node))

    def _array(self, node: exp.Array) -> ast.Expression:
        return ast.ArrayOf(self.all(node.expressions), self.at(node))

    def _container(self, node: nodes.Container) -> ast.Expression:
        query = node.args.get("query")
        if query is not None:
            return ast.Subquery(node.this, self.query(query), self.at(node))
        return ast.ArrayOf(self.all(node.expressions), self.at(node), node.this)

    def _bracket(self, node: exp.Bracket) -> ast.Expression:
        return ast.Subscript(
            self.expression(node.this),
            self.maybe(node.args.get("lower")),
            self.maybe(node.args.get("upper")),
            node.args["sliced"],
            self.at(node),
        )

    def _collate(self, node: exp.Collate) -> ast.Expression:
        return ast.Collate(self.expression(node.this), tuple(node.args["name"]), self.at(node))

    def _sqlvalue(self, node: nodes.SqlValue) -> ast.Expression:
        return ast.SqlValue(node.this, node.args.get("precision"), self.at(node))

    def _keywordcall(self, node: nodes.KeywordCall) -> ast.Expression:
        return ast.FunctionCall(
            ("pg_catalog", node.this), self.all(node.expressions), self.at(node)
        )

    def _anonymous(self, node: exp.Anonymous) -> ast.Expression:
        return self._call(node, (), self.at(node))

    def _call(self, node: exp.Anonymous, schema: tuple[str, ...], at: int) -> ast.Expression:
        name = node.this
        last = self.name(name) if isinstance(name, exp.Identifier) else str(name).lower()
        given = node.expressions[0] if node.expressions else nodes.CallArguments(expressions=[])
        args = given.expressions
        if not schema and last in _SPECIAL and not isinstance(name, exp.Identifier):
            kind: Any = last
            if not args or (last == "nullif" and len(args) != 2):
                return self.unexpected(node)
            return ast.Special(kind, self.all(args), at)
        if not schema and last == "grouping":
            if not args or given.args.get("distinct") or given.args.get("order"):
                return self.unexpected(node)
            return ast.GroupingCall(self.all(args), at)
        star = len(args) == 1 and isinstance(args[0], exp.Star)
        order = given.args.get("order")
        return ast.FunctionCall(
            (*schema, last),
            () if star else self.all(args),
            at,
            star=star,
            distinct=bool(given.args.get("distinct")),
            variadic=bool(given.args.get("variadic")),
            names=tuple(map(self.name, given.args.get("names") or ())),
            order_by=self.order(order) if order is not None else (),
        )

    def _dot(self, node: exp.Dot) -> ast.Expression:
        right = node.expression
        parts: list[exp.Expr] = []
        left: exp.Expr = node.this
        while isinstance(left, exp.Dot):
            parts.append(left.expression)
            left = left.this
        if len(parts) > MAX_CHAIN:
            raise too_deep()
        parts.append(left)
        parts.reverse()
        if all(isinstance(part, exp.Identifier) for part in parts):
            names = tuple(map(self.name, parts))
            if isinstance(right, exp.Anonymous):
                return self._call(right, names, self.at(node))
            if isinstance(right, exp.Identifier):
                return ast.ColumnRef((*names, self.name(right)), self.at(node))
            if isinstance(right, exp.Star):
                return self._star_of(node, names, self.at(node))
        arg = self.expression(node.this)
        if isinstance(right, exp.Star):
            if "excluded" in node.meta:
                message = "* EXCLUDE and * REPLACE of a record are not supported"
                raise FeatureNotSupported(message, position=self.at(node) + 1)
            return ast.Field(arg, None, self.at(node))
        if isinstance(right, exp.Identifier):
            return ast.Field(arg, self.name(right), self.at(node))
        return self.unexpected(right)

    def _filter(self, node: exp.Filter) -> ast.Expression:
        call = self.expression(node.this)
        if not isinstance(call, ast.FunctionCall):
            return self.unexpected(node)
        call.filter = self.expression(node.expression.this)
        return call

    def _over(self, node: nodes.Over) -> ast.Expression:
        call = self.expression(node.this)
        if not isinstance(call, ast.FunctionCall):
            return self.unexpected(node)
        call.over = self.window_definition(node.args["window"])
        return call

    def window_definition(self, node: nodes.WindowSpelling) -> ast.WindowDefinition:
        """Convert the definition of a window."""
        base, frame, order = (node.args.get(key) for key in ("base", "frame", "order"))
        return ast.WindowDefinition(
            None if base is None else self.name(base),
            self.all(node.args.get("partition") or []),
            self.order(order) if order is not None else (),
            None if frame is None else self._frame(frame),
            self.at(node),
            0 if base is None else self.at(base),
            bare=bool(node.args.get("bare")),
        )

    def _frame(self, node: nodes.FrameSpelling) -> ast.FrameClause:
        bounds = [
            ast.FrameBound(side, self.maybe(offset), at) for side, offset, at in node.args["bounds"]
        ]
        return ast.FrameClause(node.args["unit"], bounds[0], bounds[1], node.args["exclude"])

    def _withingroup(self, node: exp.WithinGroup) -> ast.Expression:
        call = self.expression(node.this)
        if not isinstance(call, ast.FunctionCall):
            return self.unexpected(node)
        for given, what in (
            (call.order_by, "multiple ORDER BY clauses"),
            (call.distinct, "DISTINCT"),
            (call.variadic, "VARIADIC"),
        ):
            if given:
                both = "" if what.startswith("multiple") else "use "
                raise SyntaxError_(
                    f"cannot {both}{what} with WITHIN GROUP", position=self.at(node) + 1
                )
        call.within_group = self.order(node.expression)
        return call

    def order(self, order: exp.Order) -> tuple[ast.SortKey, ...]:
        """Convert ORDER BY."""
        keys = []
        for key in order.expressions:
            if not isinstance(key, exp.Ordered):
                return self.unexpected(key)
            keys.append(
                ast.SortKey(
                    self.expression(key.this),
                    bool(key.args.get("desc")),
                    bool(key.args.get("nulls_first")),
                    self.start(key.this),
                )
            )
        return tuple(keys)
