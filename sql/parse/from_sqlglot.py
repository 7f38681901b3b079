"""Convert sqlglot's queries to our syntax tree; `expression_from_sqlglot.py` has expressions.

These two modules are the only ones that know both trees. Syntax that sqlglot accepts and PostgreSQL
does not is rejected here with PostgreSQL's messages.
"""

from collections.abc import Callable
from typing import Any

from sqlglot import exp

from foreshore.errors import FeatureNotSupported
from foreshore.sql import ast
from foreshore.sql.ast.form_rows import FormRows
from foreshore.sql.parse.auto_cdc import column_names, sequence_columns
from foreshore.sql.parse.expression_from_sqlglot import ExpressionConverter
from foreshore.sql.parse.grammar import nodes
from foreshore.sql.parse.grammar.with_clause import MUTUALLY
from foreshore.sql.parse.time_windows import time_window

_ISOLATION = "transaction_isolation"
_SIDES = {"": "inner", "LEFT": "left", "RIGHT": "right", "FULL": "full"}


class Converter(ExpressionConverter):
    """Convert queries with their expressions."""

    def __init__(self, text: str, parse_statement: Callable[[str], ast.StatementSyntax]) -> None:
        """Convert trees of `text`; `parse_statement` parses the SHOW statements of FROM."""
        super().__init__(text)
        self._parse_statement = parse_statement

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
            _has_ties(limit),
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
            if options is not None and options.args.get("percent"):
                return self.unexpected(limit)
            count = limit.args.get("count")
            return ast.Number("1", self.at(limit)) if count is None else self.expression(count)
        value = limit.expression
        if isinstance(value, exp.Column) and value.sql().lower() == "all":
            return ast.Null(self.at(value))
        return self.expression(value)

    def with_clause(
        self, with_: exp.With | None
    ) -> tuple[tuple[ast.CommonTable, ...], bool | ast.MutualRecursion]:
        """Convert WITH."""
        if with_ is None:
            return (), False
        tables = []
        for cte in with_.expressions:
            if not isinstance(cte.this, exp.Query):
                raise FeatureNotSupported(
                    "WITH clause containing a data-modifying statement must be at the top level",
                    position=self.at(cte.args["alias"]) + 1,
                )
            alias = cte.args["alias"]
            columns = tuple(map(self.name, alias.args.get("columns") or ()))
            types = tuple(map(self.type, cte.meta.get("types", ())))
            name, query = self.name(alias.this), self.query(cte.this)
            search, cycle = self._search(cte), self._cycle(cte)
            at = self.at(alias)
            tables.append(ast.CommonTable(name, columns, query, at, types, search, cycle))
        if MUTUALLY in with_.meta:
            return tuple(tables), ast.MutualRecursion(*with_.meta[MUTUALLY])
        return tuple(tables), bool(with_.args.get("recursive"))

    def _search(self, cte: exp.Expr) -> ast.SearchClause | None:
        if "search" not in cte.meta:
            return None
        kind, columns, name, at = cte.meta["search"]
        named = tuple((self.name(each), self.at(each)) for each in columns)
        return ast.SearchClause(kind, named, self.name(name), at)

    def _cycle(self, cte: exp.Expr) -> ast.CycleClause | None:
        if "cycle" not in cte.meta:
            return None
        columns, mark, values, path, at = cte.meta["cycle"]
        named = tuple((self.name(each), self.at(each)) for each in columns)
        constants: list[ast.Expression] = [ast.Boolean(True, at), ast.Boolean(False, at)]
        value, default = map(self.expression, values) if values else constants
        return ast.CycleClause(named, self.name(mark), value, default, self.name(path), at)

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
                return ast.Values(rows, self.at(node), self._more_rows(node.expressions[0]))
            case exp.Select():
                return self._select_body(node)
        return self.unexpected(node)

    def _more_rows(self, row: exp.Expr) -> FormRows | None:
        """Return all rows of long VALUES, of which this is the first."""
        rest = self.rest_at(row.meta.get("open", -1))
        return rest if isinstance(rest, FormRows) else None

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
        for key in ("kind", "hint", "laterals", "pivots", "match", "connect",
                    "sample", "cluster", "distribute", "sort", "settings", "format", "options",
                    "prewhere", "operation_modifiers", "exclude"):  # fmt: skip
            if node.args.get(key):
                return self.refuse(f"SELECT ... {key.upper()}", node)
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
        group = node.args.get("group")
        qualify = node.args.get("qualify")
        return ast.Select(
            distinct,
            tuple(map(self.target, node.expressions)),
            tuple(items),
            self.expression(where.this) if where is not None else None,
            self._group(group),
            self.expression(having.this) if having is not None else None,
            self.at(node),
            self._into(node.args.get("into")),
            is_table=_has_implied_star(node),
            windows=tuple(map(self._named_window, node.args.get("windows") or ())),
            qualify=self.expression(qualify.this) if qualify is not None else None,
            distinct_groups=group is not None and bool(group.args.get("distinct")),
            groups_all=group is not None and bool(group.args.get("all")),
        )

    def _named_window(self, node: nodes.NamedWindow) -> ast.NamedWindow:
        name: exp.Expr = node.this
        definition = self.window_definition(node.args["window"])
        return ast.NamedWindow(self.name(name), definition, self.at(name))

    def _into(self, node: exp.Into | None) -> ast.IntoTable | None:
        if node is None:
            return None
        name = tuple(node.args["name"])
        table = ast.TableRef(name, None, (), self.at(node), node.args["end"])
        return ast.IntoTable(table, bool(node.args.get("temporary")))

    def _group(self, group: exp.Group | None) -> tuple[ast.Expression | ast.GroupingSets, ...]:
        if group is None:
            return ()
        return tuple(map(self._grouping_element, group.expressions))

    def _grouping_element(self, node: exp.Expr) -> ast.Expression | ast.GroupingSets:
        if not isinstance(node, nodes.GroupingSets):
            return self.expression(node)
        elements = tuple(map(self._grouping_element, node.expressions))
        return ast.GroupingSets(node.args["kind"], elements, self.at(node))

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
        if method.upper() == "ASOF":
            return self._asof(left, right, join)
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
            named = join.args.get("using_alias")
            using_alias = None if named is None else self.name(named)
            return ast.JoinRef(
                left, right, sort, False, columns, None, None, (), at, using_alias=using_alias
            )
        on = join.args.get("on")
        if on is None:
            return self.unexpected(join)
        return ast.JoinRef(left, right, sort, False, None, self.expression(on), None, (), at)

    def _asof(self, left: ast.FromItem, right: ast.FromItem, join: exp.Join) -> ast.JoinRef:
        parts = [join.args.get("match_condition"), join.args.get("on")]
        conditions = tuple(self.expression(part) for part in parts if part is not None)
        on: ast.Expression = conditions[0]
        if len(conditions) > 1:
            on = ast.Connective("and", conditions, 0)
        kind: Any = "left" if join.args.get("side") else "inner"
        return ast.JoinRef(left, right, kind, False, None, on, None, (), self.at(join), asof=True)

    def _table_alias(self, node: exp.Expr) -> tuple[str | None, tuple[str, ...]]:
        alias = node.args.get("alias")
        if alias is None:
            return None, ()
        if not isinstance(alias, exp.TableAlias):
            return self.name(alias), ()
        columns = []
        for column in alias.args.get("columns") or ():
            if isinstance(column, nodes.ColumnSpelling):
                if not isinstance(node, exp.Table):
                    return self.refuse("a column definition list here", column)
                column = column.this
            columns.append(self.name(column))
        return (self.name(alias.this) if alias.this else None), tuple(columns)

    def _definitions(self, node: exp.Expr) -> tuple[tuple[str, ast.TypeName], ...]:
        """Return the columns of a column definition list."""
        alias = node.args.get("alias")
        columns = alias.args.get("columns") if isinstance(alias, exp.TableAlias) else None
        found = [each for each in columns or () if isinstance(each, nodes.ColumnSpelling)]
        return tuple((self.name(each.this), self.type(each.args["kind"])) for each in found)

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
                    self._definitions(node),
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
            case nodes.TimeWindow():
                return self._time_window(node, alias, columns)
            case nodes.AutoCdc():
                return self._auto_cdc(node, alias, columns)
            case nodes.Shown():
                return ast.SubqueryRef(self._shown(node), alias, columns, False, at)
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

    def _time_window(
        self, node: nodes.TimeWindow, alias: str | None, columns: tuple[str, ...]
    ) -> ast.TimeWindowRef:
        partition, names = node.args.get("partition") or [], node.args["names"]
        args = list(zip(names, self.all(node.expressions), strict=True))
        return time_window(
            ast.TimeWindowRef(
                node.args["kind"],
                self.from_item(node.args["input"]),
                ast.Null(self.at(node)),
                self.all(partition),
                {},
                alias,
                columns,
                self.at(node),
            ),
            args,
        )

    def _auto_cdc(
        self, node: nodes.AutoCdc, alias: str | None, columns: tuple[str, ...]
    ) -> ast.AutoCdcRef:
        def choice(name: str) -> ast.ColumnChoice | None:
            found = node.args.get(name)
            if found is None:
                return None
            names = column_names(self.all(found.expressions))
            return ast.ColumnChoice(names, found.args["excluded"])

        deletes, stored = node.args.get("deletes"), node.args.get("stored")
        return ast.AutoCdcRef(
            self.from_item(node.args["input"]),
            bool(node.args.get("snapshots")),
            self.all(node.args["keys"]),
            sequence_columns(self.all(node.args["sequence"])),
            None if deletes is None else self.expression(deletes),
            choice("ignores"),
            choice("columns"),
            choice("tracked"),
            stored is not None and stored.name == "2",
            alias,
            columns,
            self.at(node),
        )

    def _shown(self, node: nodes.Shown) -> ast.Query | ast.ShowStatement:
        """Return the query of a SHOW statement in FROM."""
        start, end, at = node.args["start"], node.args["end"], self.at(node)
        match self._parse_statement(" " * start + self.text[start:end]):  # with offsets of the text
            case ast.ShowStatement() as shown:
                return shown
            case ast.ShowVariableStatement(name=name) if name != "all":
                name = name.replace(" ", "_").replace("transaction_isolation_level", _ISOLATION)
                call = ast.FunctionCall(("current_setting",), (ast.String(name, at),), at)
                target = ast.Target(call, name, at)
                return ast.Query(ast.Select(None, (target,), (), None, (), None, at), at)
        return self.refuse("this SHOW as a subquery", node)

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


def _has_ties(limit: exp.Expr | None) -> bool:
    """Return whether the limit is FETCH FIRST ... WITH TIES."""
    options = limit.args.get("limit_options") if limit is not None else None
    return options is not None and bool(options.args.get("with_ties"))


def _is_comma(join: exp.Join) -> bool:
    keys = ("kind", "side", "method", "on", "using")
    return not any(join.args.get(key) for key in keys)
