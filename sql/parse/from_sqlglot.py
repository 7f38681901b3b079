"""Convert sqlglot's tree to our syntax tree; the only module that knows both.

Syntax that sqlglot accepts and PostgreSQL does not is rejected here with PostgreSQL's messages.
"""

import re
from collections.abc import Callable
from typing import Any, NoReturn

from sqlglot import exp

from foreshore.errors import FeatureNotSupported, SyntaxError_, UndefinedParameter
from foreshore.sql import ast
from foreshore.sql.parse.grammar import nodes
from foreshore.sql.parse.keywords import NOT_COLUMN
from foreshore.sql.parse.lexer import cut, fold
from foreshore.sql.parse.string_constants import decode_escapes, decode_unicode, escaped_pieces

_TOKEN = re.compile(r"""\w+|"[^"]*"|'[^']*'|\S""")
_SPECIAL = frozenset(("coalesce", "nullif", "greatest", "least"))
_SIDES = {"": "inner", "LEFT": "left", "RIGHT": "right", "FULL": "full"}


class Converter:
    """Convert the nodes of one text."""

    def __init__(self, text: str) -> None:
        self.text = text

    # --- helpers

    def at(self, node: exp.Expr) -> int:
        """Return the offset for errors about `node`."""
        meta = node.meta
        at = meta.get("at")
        if at is None:
            at = meta.get("start")
        if at is None:
            at = min((self.at(child) for child in node.iter_expressions()), default=0)
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
        name = f"_{type(node).__name__.lower()}"
        convert: Callable[[Any], ast.Expression] | None = getattr(self, name, None)
        if convert is None:
            return self.unexpected(node)
        return convert(node)

    def _column(self, node: exp.Column) -> ast.Expression:
        parts = [node.args[key] for key in ("catalog", "db", "table", "this") if node.args.get(key)]
        at = self.at(parts[0])
        if isinstance(parts[-1], exp.Star):
            return ast.Star(tuple(map(self.name, parts[:-1])), at)
        if len(parts) == 1 and isinstance(parts[0], exp.Identifier):
            name = self.name(parts[0])
            if not parts[0].args.get("quoted") and name in NOT_COLUMN:
                return self.unexpected(parts[0])
        return ast.ColumnRef(tuple(map(self.name, parts)), at)

    def _star(self, node: exp.Star) -> ast.Expression:
        if any(node.args.values()):
            return self.unexpected(node)
        return ast.Star((), self.at(node))

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
        return ast.Row(self.all(node.expressions), self.at(node))

    def _operator(self, node: exp.Operator) -> ast.Expression:
        operator, at = str(node.args["operator"]), self.at(node)
        left, right = self.maybe(node.args.get("this")), self.expression(node.expression)
        if left is None and operator in ("+", "-") and isinstance(right, ast.Number):
            # A constant with its sign, so that -2147483648 and -(-1) are integers.
            text = right.text
            if operator == "-":
                text = text.removeprefix("-") if text.startswith("-") else f"-{text}"
            return ast.Number(text, at)
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
        query, items = node.args.get("query"), node.expressions
        if query is None and len(items) == 1 and isinstance(items[0], exp.Subquery):
            query = items[0]  # IN ((SELECT ...)) with any number of parentheses
        if query is not None:
            return ast.InQuery(left, self.query(query), negated, at)
        return ast.InList(left, self.all(node.expressions), negated, at)

    def _quantified(self, node: nodes.Quantified) -> ast.Expression:
        right = node.expression
        is_query = isinstance(right, exp.Query)
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
            return self.refuse("GROUPING", node)
        star = len(args) == 1 and isinstance(args[0], exp.Star)
        order = given.args.get("order")
        return ast.FunctionCall(
            (*schema, last),
            () if star else self.all(args),
            at,
            star=star,
            distinct=bool(given.args.get("distinct")),
            variadic=bool(given.args.get("variadic")),
            order_by=self.order(order) if order is not None else (),
        )

    def _dot(self, node: exp.Dot) -> ast.Expression:
        right = node.expression
        parts: list[exp.Expr] = []
        left: exp.Expr = node.this
        while isinstance(left, exp.Dot):
            parts.append(left.expression)
            left = left.this
        parts.append(left)
        parts.reverse()
        if all(isinstance(part, exp.Identifier) for part in parts):
            names = tuple(map(self.name, parts))
            if isinstance(right, exp.Anonymous):
                return self._call(right, names, self.at(node))
            if isinstance(right, exp.Identifier):
                return ast.ColumnRef((*names, self.name(right)), self.at(node))
            if isinstance(right, exp.Star):
                return ast.Star(names, self.at(node))
        arg = self.expression(node.this)
        if isinstance(right, exp.Star):
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

    def _window(self, node: exp.Window) -> ast.Expression:
        return self.refuse("calling a window function (OVER)", node)

    def _withingroup(self, node: exp.WithinGroup) -> ast.Expression:
        return self.refuse("WITHIN GROUP", node)

    # --- queries

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

    def query(self, node: exp.Expr) -> ast.Query:
        """Convert a whole query."""
        at = self.at(node)
        body = self._body(node, whole=True)
        ctes, recursive = self.with_clause(node.args.get("with_"))
        order = node.args.get("order")
        limit, offset = node.args.get("limit"), node.args.get("offset")
        query = ast.Query(
            body,
            at,
            ctes,
            recursive,
            self.order(order) if order is not None else (),
            self._limit(limit),
            self.expression(offset.expression) if offset is not None else None,
            tuple(map(self._lock, node.args.get("locks") or ())),
        )
        bare = not (ctes or query.order_by or query.limit or query.offset or query.locks)
        if bare and isinstance(body, ast.Query):
            return body
        return query

    def _lock(self, lock: exp.Lock) -> ast.LockingClause:
        names = tuple((tuple(name), at) for name, at in lock.args["of"])
        return ast.LockingClause(lock.args["strength"], names, lock.args["wait"], self.at(lock))

    def _limit(self, limit: exp.Expr | None) -> ast.Expression | None:
        if limit is None:
            return None
        if isinstance(limit, exp.Fetch):
            options = limit.args.get("limit_options")
            if options is not None and options.args.get("with_ties"):
                return self.refuse("FETCH FIRST ... WITH TIES", limit)
            count = limit.args.get("count")
            return ast.Number("1", self.at(limit)) if count is None else self.expression(count)
        value = limit.expression
        if isinstance(value, exp.Column) and value.sql().lower() == "all":
            return ast.Null(self.at(value))
        return self.expression(value)

    def with_clause(self, with_: exp.With | None) -> tuple[tuple[ast.CommonTable, ...], bool]:
        """Convert WITH."""
        if with_ is None:
            return (), False
        tables = []
        for cte in with_.expressions:
            if not isinstance(cte.this, exp.Query):
                return self.refuse("a data-modifying statement in WITH", cte)
            alias = cte.args["alias"]
            columns = tuple(map(self.name, alias.args.get("columns") or ()))
            tables.append(
                ast.CommonTable(
                    self.name(alias.this), columns, self.query(cte.this), self.at(alias)
                )
            )
        return tuple(tables), bool(with_.args.get("recursive"))

    def _body(self, node: exp.Expr, *, whole: bool = False) -> Any:
        """Convert an operand of a set operation, without the modifiers that `query` converts."""
        modifiers = ("order", "limit", "offset", "with_", "locks")
        modified = any(node.args.get(key) for key in modifiers)
        if modified and not whole:
            return self.query(node)
        match node:
            case exp.Subquery():
                for key in ("alias", "pivots", "sample", "joins"):
                    if node.args.get(key):
                        return self.unexpected(node)
                return self._body(node.this)
            case exp.SetOperation():
                return self._set_operation(node)
            case exp.Values():
                rows = tuple(
                    self.all(row.expressions if isinstance(row, exp.Tuple) else [row])
                    for row in node.expressions
                )
                return ast.Values(rows, self.at(node))
            case exp.Select():
                return self._select_body(node)
        return self.unexpected(node)

    def _set_operation(self, node: exp.SetOperation) -> ast.SetOperation:
        kind: Any = {exp.Union: "union", exp.Intersect: "intersect", exp.Except: "except"}[
            type(node)
        ]
        all_ = not node.args.get("distinct")
        if node.args.get("by_name") or node.args.get("on") or node.args.get("side"):
            return self.unexpected(node)
        left = self._body(node.this)
        right = self._body(node.expression)
        if (
            kind == "union"
            and isinstance(left, ast.SetOperation)
            and not isinstance(node.this, exp.Subquery)
            and left.kind == "union"
            and left.all == all_
        ):
            return ast.SetOperation("union", all_, (*left.inputs, right), left.at)
        return ast.SetOperation(kind, all_, (left, right), self.at(node))

    def _select_body(self, node: exp.Select) -> ast.Select | ast.Values:
        values = _only_values(node)
        if values is not None:
            body: ast.Values = self._body(values)
            return body
        for key in ("kind", "hint", "laterals", "pivots", "match", "connect", "qualify",
                    "sample", "cluster", "distribute", "sort", "settings", "format", "options",
                    "prewhere", "operation_modifiers", "exclude"):  # fmt: skip
            if node.args.get(key):
                return self.refuse(f"SELECT ... {key.upper()}", node)
        if node.args.get("windows"):
            return self.refuse("WINDOW", node)
        distinct: Any = None
        if node.args.get("distinct") is not None:
            on = node.args["distinct"].args.get("on")
            distinct = True
            if on is not None:
                distinct = self.all(on.expressions if isinstance(on, exp.Tuple) else [on])
        from_ = node.args.get("from_")
        items: list[ast.FromItem] = []
        if from_ is not None:
            items = [self.from_item(from_.this)]
        for join in node.args.get("joins") or ():
            if _is_comma(join):
                items.append(self.from_item(join.this))
            else:
                items[-1] = self._join(items[-1], join)
        where, having = node.args.get("where"), node.args.get("having")
        return ast.Select(
            distinct,
            tuple(map(self.target, node.expressions)),
            tuple(items),
            self.expression(where.this) if where is not None else None,
            self._group(node.args.get("group")),
            self.expression(having.this) if having is not None else None,
            self.at(node),
            self._into(node.args.get("into")),
            is_table=_has_implied_star(node),
        )

    def _into(self, node: exp.Into | None) -> ast.IntoTable | None:
        if node is None:
            return None
        name = tuple(node.args["name"])
        table = ast.TableRef(name, None, (), self.at(node), node.args["end"])
        return ast.IntoTable(table, bool(node.args.get("temporary")))

    def _group(self, group: exp.Group | None) -> tuple[ast.Expression, ...]:
        if group is None:
            return ()
        for key in ("rollup", "cube", "grouping_sets"):
            if group.args.get(key):
                return self.refuse(f"GROUP BY {key.upper().replace('_', ' ')}", group)
        if not group.expressions:
            return self.refuse("GROUP BY ()", group)
        return self.all(group.expressions)

    def target(self, node: exp.Expr) -> ast.Target:
        """Convert an item of a select list."""
        if isinstance(node, exp.Alias):
            expr = self.expression(node.this)
            return ast.Target(expr, self.name(node.args["alias"]), self.start(node.this))
        return ast.Target(self.expression(node), None, self.start(node))

    # --- FROM

    def from_item(self, node: exp.Expr) -> ast.FromItem:
        """Convert an item of FROM with its joins."""
        item = self._primary(node)
        for join in node.args.get("joins") or ():
            if _is_comma(join):
                return self.unexpected(join)
            item = self._join(item, join)
        return item

    def _join(self, left: ast.FromItem, join: exp.Join) -> ast.FromItem:
        method, kind = (join.args.get("method") or ""), (join.args.get("kind") or "")
        side = join.args.get("side") or ""
        at = self.at(join)
        right = self.from_item(join.this)
        if kind.upper() == "CROSS":
            return ast.JoinRef(left, right, "cross", False, None, None, None, (), at)
        if kind.upper() not in ("", "INNER", "OUTER") or method.upper() not in ("", "NATURAL"):
            return self.unexpected(join)
        sort: Any = _SIDES[side.upper()]
        if method.upper() == "NATURAL":
            return ast.JoinRef(left, right, sort, True, None, None, None, (), at)
        using = join.args.get("using")
        if using:
            columns = tuple(
                (self.name(c.this if isinstance(c, exp.Column) else c), self.at(c)) for c in using
            )
            return ast.JoinRef(left, right, sort, False, columns, None, None, (), at)
        on = join.args.get("on")
        if on is None:
            return self.unexpected(join)
        return ast.JoinRef(left, right, sort, False, None, self.expression(on), None, (), at)

    def _table_alias(self, node: exp.Expr) -> tuple[str | None, tuple[str, ...]]:
        alias = node.args.get("alias")
        if alias is None:
            return None, ()
        if not isinstance(alias, exp.TableAlias):
            return self.name(alias), ()
        columns = []
        for column in alias.args.get("columns") or ():
            if not isinstance(column, exp.Identifier):
                return self.refuse("a column definition list", column)
            columns.append(self.name(column))
        return (self.name(alias.this) if alias.this else None), tuple(columns)

    def _primary(self, node: exp.Expr) -> ast.FromItem:
        alias, columns = self._table_alias(node)
        at = self.at(node)
        if node.args.get("sample"):
            return self.refuse("TABLESAMPLE", node)
        match node:
            case exp.Table() if isinstance(node.this, exp.Identifier):
                parts = [node.args[k] for k in ("catalog", "db", "this") if node.args.get(k)]
                end = int(parts[-1].meta.get("end", at)) + 1
                return ast.TableRef(
                    tuple(map(self.name, parts)), alias, columns, self.at(parts[0]), end
                )
            case exp.Table():
                rows_from = node.args.get("rows_from")
                calls = rows_from if rows_from else [node]
                return ast.FunctionRef(
                    tuple(map(self._function, calls)),
                    alias,
                    columns,
                    bool(node.args.get("ordinality")),
                    at,
                )
            case exp.Subquery():
                inner = node.this
                if _is_query(inner):
                    query = self.query(
                        node
                        if any(node.args.get(k) for k in ("order", "limit", "offset"))
                        else inner
                    )
                    return ast.SubqueryRef(query, alias, columns, False, at)
                item = self.from_item(inner)
                if alias is not None and isinstance(item, ast.JoinRef):
                    item.alias, item.columns = alias, columns
                return item
            case exp.Paren():
                return self.from_item(node.this)
            case exp.Lateral():
                inner = node.this
                if isinstance(inner, exp.Subquery):
                    return ast.SubqueryRef(self.query(inner.this), alias, columns, True, at)
                return ast.FunctionRef(
                    (self.expression(inner),), alias, columns,
                    bool(node.args.get("ordinality")), at,
                )  # fmt: skip
            case exp.Unnest():
                call = ast.FunctionCall(("unnest",), self.all(node.expressions), at)
                return ast.FunctionRef((call,), alias, columns, bool(node.args.get("offset")), at)
            case exp.Values():
                return ast.SubqueryRef(self.query(node), alias, columns, False, at)
        return self.unexpected(node)

    def _function(self, node: exp.Expr) -> ast.Expression:
        if isinstance(node, exp.Table):
            schema = tuple(self.name(node.args[k]) for k in ("catalog", "db") if node.args.get(k))
            inner = node.this
            if schema and isinstance(inner, exp.Anonymous):
                return self._call(inner, schema, self.at(node))
            return self.expression(inner)
        return self.expression(node)


def _only_values(node: exp.Select) -> exp.Values | None:
    """Return the VALUES that sqlglot wraps in a SELECT as operand of a set operation."""
    from_ = node.args.get("from_")
    if from_ is None or not isinstance(from_.this, exp.Values):
        return None
    alias = from_.this.args.get("alias")
    if alias is not None and "at" in alias.meta:  # an alias written in the text
        return None
    return from_.this if _has_implied_star(node) else None


def _has_implied_star(node: exp.Select) -> bool:
    """Return whether the select list is an implied star, as for VALUES or TABLE."""
    targets = node.expressions
    return len(targets) == 1 and isinstance(targets[0], exp.Star) and "at" not in targets[0].meta


def _is_query(node: exp.Expr) -> bool:
    """Return whether parentheses in FROM contain a query, not joined items."""
    if isinstance(node, exp.Subquery):
        return not (node.args.get("joins") or node.args.get("alias")) and _is_query(node.this)
    return isinstance(node, exp.Select | exp.SetOperation | exp.Values)


def _is_comma(join: exp.Join) -> bool:
    return not any(join.args.get(key) for key in ("kind", "side", "method", "on", "using"))
