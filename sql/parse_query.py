"""Queries: SELECT, VALUES, set operations, FROM and its joins, WITH."""

from typing import Literal as OneOf

from foreshore.sql import ast
from foreshore.sql.keywords import NEEDS_AS, NOT_COLUMN
from foreshore.sql.lexer import QUOTED, WORD
from foreshore.sql.parse_expression import ExpressionParser

_Body = ast.Select | ast.Values | ast.SetOperation | ast.Query
_MAX_SET_OPERATIONS = 200


class QueryParser(ExpressionParser):
    """Parses queries."""

    def query(self) -> ast.Query:
        """Parse a query, WITH and ORDER BY and all."""
        self.enter()
        at = self.token.start
        ctes, recursive = self.with_clause()
        result = self._tail(ast.Query(self._unions(self._term()), at, ctes, recursive))
        self.depth -= 1
        return result

    def query_rest(self, first: ast.Query) -> ast.Query:
        """Parse set operations, ORDER BY and LIMIT that follow the parenthesised query `first`."""
        body = self._unions(self._intersections(first))
        if body is first and not self.at_word("order", "limit", "offset", "fetch"):
            return first
        return self._tail(ast.Query(body, first.at))

    def with_clause(self) -> tuple[tuple[ast.CommonTable, ...], bool]:
        """Parse WITH, if it comes."""
        if not self.accept("with"):
            return (), False
        if self.at_words("mutually", "recursive"):
            self.unsupported("WITH MUTUALLY RECURSIVE")
        recursive = self.accept("recursive")
        return self.list_of(self._common_table), recursive

    def _common_table(self) -> ast.CommonTable:
        name, at = self.name_at()
        columns = self.in_parentheses(self.name) if self.at_symbol("(") else ()
        self.expect("as")
        if self.accept("not"):
            self.expect("materialized")
        else:
            self.accept("materialized")
        self.expect_symbol("(")
        if self.at_word("insert", "update", "delete"):
            self.unsupported("a data-modifying statement in WITH")
        query = self.query()
        self.expect_symbol(")")
        return ast.CommonTable(name, columns, query, at)

    def _tail(self, query: ast.Query) -> ast.Query:
        """Parse ORDER BY, LIMIT, OFFSET, FETCH FIRST, in the orders that PostgreSQL takes."""
        query.order_by = self.order_by()
        while True:
            if query.limit is None and self.at_word("limit"):
                self.advance()
                if self.accept("all"):
                    query.limit = ast.Null(self.token.start)
                else:
                    query.limit = self.expression()
                if self.at_symbol(","):
                    self.fail()
            elif query.offset is None and self.at_word("offset"):
                self.advance()
                query.offset = self.expression()
                if not self.accept("rows"):
                    self.accept("row")
            elif query.limit is None and self.at_word("fetch"):
                query.limit = self._fetch_first()
            else:
                break
        if self.at_word("for") and self.peek().value in ("update", "share", "no", "key"):
            self.unsupported("SELECT FOR UPDATE/SHARE")
        if (
            isinstance(query.body, ast.Query)
            and not query.ctes
            and not query.order_by
            and query.limit is None
            and query.offset is None
        ):
            return query.body
        return query

    def _fetch_first(self) -> ast.Expression:
        self.expect("fetch")
        if not self.accept("first"):
            self.expect("next")
        count: ast.Expression = ast.Number("1", self.token.start)
        if not self.at_word("row", "rows"):
            count = self.expression(8)
        if not self.accept("rows"):
            self.expect("row")
        if self.at_words("with", "ties"):
            self.unsupported("FETCH FIRST ... WITH TIES")
        self.expect("only")
        return count

    def order_by(self) -> tuple[ast.SortKey, ...]:
        """Parse ORDER BY, if it comes."""
        if not self.accept("order"):
            return ()
        self.expect("by")
        return self.list_of(self._sort_key)

    def _sort_key(self) -> ast.SortKey:
        at = self.token.start
        expr = self.expression()
        descending = False
        if self.accept("using"):
            operator = self.advance().value
            if operator not in ("<", ">"):
                self.unsupported("ORDER BY USING", at)
            descending = operator == ">"
        elif self.accept("desc"):
            descending = True
        else:
            self.accept("asc")
        nulls_first = None
        if self.accept("nulls"):
            nulls_first = self.accept("first")
            if not nulls_first:
                self.expect("last")
        return ast.SortKey(expr, descending, nulls_first, at)

    # --- set operations

    def _term(self) -> _Body:
        return self._intersections(self._simple())

    def _intersections(self, left: _Body) -> _Body:
        count = 0
        while self.at_word("intersect"):
            self.advance()
            all_ = self._all()
            left = ast.SetOperation("intersect", all_, (left, self._simple()), self.token.start)
            count = self._count(count)
        return left

    def _unions(self, left: _Body) -> _Body:
        count = 0
        while self.at_word("union", "except"):
            token = self.advance()
            all_ = self._all()
            right = self._term()
            if (
                token.value == "union"
                and isinstance(left, ast.SetOperation)
                and left.kind == "union"
                and left.all == all_
            ):
                left = ast.SetOperation("union", all_, (*left.inputs, right), left.at)
            else:
                kind: OneOf["union", "except"] = "union" if token.value == "union" else "except"
                left = ast.SetOperation(kind, all_, (left, right), token.start)
                count = self._count(count)
        return left

    def _count(self, count: int) -> int:
        if count >= _MAX_SET_OPERATIONS:
            self.enter()
        return count + 1

    def _all(self) -> bool:
        if self.accept("all"):
            return True
        self.accept("distinct")
        return False

    def _simple(self) -> _Body:
        token = self.token
        if self.at_symbol("("):
            content = self.parenthesised()
            if not isinstance(content, ast.Query):
                self.fail(token)
            return content
        if self.at_word("values"):
            self.advance()
            return ast.Values(
                self.list_of(lambda: self.in_parentheses(self.expression)), token.start
            )
        if self.accept("table"):
            table = self._table_ref()
            star = ast.Target(ast.Star((), token.start), None, token.start)
            return ast.Select(None, (star,), (table,), None, (), None, token.start)
        if self.at_word("select"):
            return self._select()
        self.fail()

    # --- SELECT

    def _select(self) -> ast.Select:
        at = self.expect("select").start
        distinct: OneOf[True] | tuple[ast.Expression, ...] | None = None
        if self.accept("distinct"):
            distinct = True
            if self.accept("on"):
                distinct = self.in_parentheses(self.expression)
        else:
            self.accept("all")
        targets: tuple[ast.Target, ...] = ()
        if not self._ends_targets():
            targets = self.list_of(self.target)
        if self.at_word("into"):
            self.unsupported("SELECT INTO")
        from_: tuple[ast.FromItem, ...] = ()
        if self.accept("from"):
            from_ = self.list_of(self.from_item)
        where = self.expression() if self.accept("where") else None
        group_by: tuple[ast.Expression, ...] = ()
        if self.accept("group"):
            self.expect("by")
            if not self.accept("distinct"):
                self.accept("all")
            group_by = self.list_of(self._group_item)
        having = self.expression() if self.accept("having") else None
        if self.at_word("window"):
            self.unsupported("WINDOW")
        return ast.Select(distinct, targets, from_, where, group_by, having, at)

    def _ends_targets(self) -> bool:
        return (
            self.at_end()
            or self.at_symbol(")")
            or self.at_word(
                "from", "where", "group", "having", "order", "limit", "offset", "union", "except",
                "intersect", "into", "fetch", "for",
            )
        )  # fmt: skip

    def _group_item(self) -> ast.Expression:
        if (self.at_word("rollup", "cube") and self.peek().value == "(") or self.at_words(
            "grouping", "sets"
        ):
            self.unsupported(f"GROUP BY {self.token.value.upper()}")
        if self.at_symbol("(") and self.peek().value == ")":
            self.unsupported("GROUP BY ()")
        return self.expression()

    def target(self) -> ast.Target:
        """Parse an item of a select list."""
        at = self.token.start
        if self.accept_symbol("*"):
            return ast.Target(ast.Star((), at), None, at)
        expr = self.expression()
        if self.at_words("as", "of") and self.peek(2).value not in (",", "", ";", ")", "from"):
            return ast.Target(expr, None, at)
        if self.accept("as"):
            return ast.Target(expr, self.label(), at)
        if self.token.kind == QUOTED or (
            self.token.kind == WORD and self.token.value not in NEEDS_AS
        ):
            return ast.Target(expr, self.advance().value, at)
        return ast.Target(expr, None, at)

    # --- FROM

    def from_item(self) -> ast.FromItem:
        """Parse an item of FROM with the joins that follow it."""
        return self._joins(self._from_primary())

    def _joins(self, left: ast.FromItem) -> ast.FromItem:
        count = 0
        while self._at_join():
            left = self._join(left)
            count += 1
            if count > _MAX_SET_OPERATIONS:
                self.enter()
        return left

    def _at_join(self) -> bool:
        return self.at_word("join", "inner", "left", "right", "full", "cross", "natural")

    def _join(self, left: ast.FromItem) -> ast.FromItem:
        at = self.token.start
        if self.accept("cross"):
            self.expect("join")
            right = self._from_primary()
            return ast.JoinRef(left, right, "cross", False, None, None, None, (), at)
        natural = self.accept("natural")
        kind: OneOf["inner", "left", "right", "full"] = "inner"
        for word in ("left", "right", "full"):
            if self.accept(word):
                kind = word
                self.accept("outer")
                break
        else:
            self.accept("inner")
        self.expect("join")
        right = self._from_primary()
        if natural:
            return ast.JoinRef(left, right, kind, True, None, None, None, (), at)
        self.enter()
        while self._at_join():
            right = self._join(right)
        self.depth -= 1
        if self.accept("using"):
            columns = self.in_parentheses(self.name_at)
            alias = self.name() if self.accept("as") else None
            return ast.JoinRef(left, right, kind, False, columns, None, alias, (), at)
        self.expect("on")
        return ast.JoinRef(left, right, kind, False, None, self.expression(), None, (), at)

    def _from_primary(self) -> ast.FromItem:
        at = self.token.start
        lateral = self.accept("lateral")
        if self.at_symbol("("):
            content = self._from_parenthesised()
            if isinstance(content, ast.Query):
                return self._subquery(content, lateral, at)
            if lateral:
                self.fail(self.tokens[self.index - 1])
            alias, columns = self.alias()
            if alias is not None:
                if not isinstance(content, ast.JoinRef):
                    self.fail(self.tokens[self.index - 1])
                content.alias, content.columns = alias, columns
            return content
        if self.at_words("rows", "from") and self.peek(2).value == "(":
            self.accept("rows", "from")
            return self._function_alias(self.in_parentheses(self._function), at)
        if not lateral and not self._at_function():
            return self._table_ref()
        return self._function_alias((self._function(),), at)

    def _at_function(self) -> bool:
        ahead = 0
        while self.peek(ahead + 1).value == "." and self.peek(ahead + 1).kind == "punctuation":
            ahead += 2
        token = self.peek(ahead)
        return token.kind in (WORD, QUOTED) and (
            self.peek(ahead + 1).value == "(" and self.peek(ahead + 1).kind == "punctuation"
        )

    def _function(self) -> ast.Expression:
        token = self.token
        expr = self._primary()
        if not isinstance(expr, ast.FunctionCall | ast.SqlValue | ast.Special | ast.CastTo):
            self.fail(token)
        return expr

    def _function_alias(self, calls: tuple[ast.Expression, ...], at: int) -> ast.FromItem:
        ordinality = self.accept("with", "ordinality")
        alias, columns = self.alias()
        return ast.FunctionRef(calls, alias, columns, ordinality, at)

    def _subquery(self, query: ast.Query, lateral: bool, at: int) -> ast.FromItem:
        alias, columns = self.alias()
        return ast.SubqueryRef(query, alias, columns, lateral, at)

    def _from_parenthesised(self) -> ast.FromItem | ast.Query:
        """Parse `( ... )` in FROM: a query, or items joined."""
        self.enter()
        self.expect_symbol("(")
        content: ast.FromItem | ast.Query
        if self.at_word("select", "values", "with") or self.at_word("table"):
            content = self.query()
        elif self.at_symbol("("):
            at = self.token.start
            inner = self._from_parenthesised()
            if isinstance(inner, ast.Query):
                inner = self.query_rest(inner)
                content = (
                    inner if self.at_symbol(")") else self._joins(self._subquery(inner, False, at))
                )
            else:
                alias, columns = self.alias()
                if alias is not None and isinstance(inner, ast.JoinRef):
                    inner.alias, inner.columns = alias, columns
                content = self._joins(inner)
        else:
            content = self.from_item()
        self.expect_symbol(")")
        self.depth -= 1
        return content

    def _table_ref(self) -> ast.FromItem:
        self.accept("only")
        table = self.table_name()
        self.accept_symbol("*")
        table.alias, table.columns = self.alias()
        if self.at_word("tablesample"):
            self.unsupported("TABLESAMPLE")
        return table

    def table_name(self) -> ast.TableRef:
        """Parse the name of an item."""
        at = self.token.start
        name = self.dotted()
        return ast.TableRef(name, None, (), at, self.last_end)

    def alias(self) -> tuple[str | None, tuple[str, ...]]:
        """Parse `[AS] alias [(columns)]`, if it comes."""
        if self.at_words("as", "of") or self.at_words("up", "to"):
            return None, ()
        if self.accept("as"):
            alias = self.name()
        elif self.token.kind == QUOTED or (
            self.token.kind == WORD and self.token.value not in NOT_COLUMN
        ):
            alias = self.advance().value
        else:
            return None, ()
        if not self.at_symbol("("):
            return alias, ()
        if self.peek(2).value not in (",", ")"):
            self.unsupported("a column definition list", self.peek().start)
        return alias, self.in_parentheses(self.name)
