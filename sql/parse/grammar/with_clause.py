"""The grammar of WITH MUTUALLY RECURSIVE, Materialize's form of recursion.

WITH MUTUALLY RECURSIVE (RETURN AT RECURSION LIMIT 10)
reached (a int, b int) AS (SELECT ...), ...
"""

from typing import Any

from sqlglot import exp
from sqlglot.tokens import TokenType

from foreshore.sql.parse.grammar.base import is_word, located
from foreshore.sql.parse.grammar.windows import WindowParser

MUTUALLY = "mutually"  # in the `meta` of a WITH: its limit, and whether to reach it is an error


class WithParser(WindowParser):
    """Parse WITH."""

    def _parse_recursive_with_search(self) -> None:
        """Return nothing: `_parse_cte` has parsed SEARCH and CYCLE, which belong to one query."""

    def _parse_cte(self) -> exp.CTE | exp.FunctionSpecification | None:
        """Parse a query of WITH with its SEARCH and CYCLE, which are kept as `meta`."""
        cte = super()._parse_cte()
        if cte is not None and self._word("search"):
            cte.meta["search"] = self._search()
        if cte is not None and self._word("cycle"):
            cte.meta["cycle"] = self._cycle()
        return cte

    def _search(self) -> tuple[str, list[exp.Expr], exp.Expr, int]:
        """Parse SEARCH DEPTH | BREADTH FIRST BY column, ... SET column."""
        at = self._curr.start
        self._advance()
        kind = "depth" if self._take("depth") else "breadth"
        if kind == "breadth" and not self._take("breadth"):
            self.fail(self._curr)
        if not self._take("first", "by"):
            self.fail(self._curr)
        columns = self._identifiers()
        return kind, columns, self._after("set"), at

    def _cycle(self) -> tuple[list[exp.Expr], exp.Expr, list[exp.Expr], exp.Expr, int]:
        """Parse CYCLE column, ... SET column [TO value DEFAULT value] USING column."""
        at = self._curr.start
        self._advance()
        columns = self._identifiers()
        mark = self._after("set")
        values: list[exp.Expr] = []
        if self._take("to"):
            values.append(self._need(0))
            if not self._take("default"):
                self.fail(self._curr)
            values.append(self._need(0))
        return columns, mark, values, self._after("using"), at

    def _after(self, word: str) -> exp.Expr:
        if not self._take(word):
            self.fail(self._curr)
        found: exp.Expr = self._identifier()
        return found

    def _identifiers(self) -> list[exp.Expr]:
        names = [self._identifier()]
        while self._match(TokenType.COMMA):
            names.append(self._identifier())
        return names

    def _parse_with(self, skip_with_token: bool = False) -> exp.With | None:
        """Parse WITH and its queries."""
        if skip_with_token or not self._take("with", "mutually", "recursive"):
            with_: exp.With | None = super()._parse_with(skip_with_token)
            return with_
        options = self._recursion_options()
        queries = [self._typed_query()]
        while self._match(TokenType.COMMA):
            queries.append(self._typed_query())
        found = exp.With(expressions=queries, recursive=True)
        found.meta[MUTUALLY] = options
        return found

    def _recursion_options(self) -> tuple[int | None, bool]:
        """Parse `([RETURN AT | ERROR AT] RECURSION LIMIT n)`, if it is there."""
        if not self._match(TokenType.L_PAREN):
            return None, True
        returns = self._take("return", "at")
        if not returns:
            self._take("error", "at")
        if not self._take("recursion", "limit"):
            self.fail(self._curr)
        self._match(TokenType.EQ)
        token = self._curr
        if not (token and token.token_type == TokenType.NUMBER and token.text.isdigit()):
            self.fail(token)
        if not 1 <= int(token.text) < 1 << 31:
            self.unsupported(f"a recursion limit of {token.text}", token.start)
        self._advance()
        self._match_r_paren()
        return int(token.text), not returns

    def _typed_query(self) -> exp.CTE:
        """Parse `name (column type, ...) AS (query)`."""
        alias = exp.TableAlias(this=self._identifier())
        located(alias, self._tokens[self._index - 1])
        columns, types = [], []
        self._match_l_paren()
        while True:
            columns.append(self._identifier())
            types.append(self._spelling())
            if not self._match(TokenType.COMMA):
                break
        self._match_r_paren()
        alias.set("columns", columns)
        if not self._take("as"):
            self.fail(self._curr)
        query = exp.CTE(this=self._parse_wrapped(self._parse_statement), alias=alias)
        query.meta["types"] = types
        return query

    def _identifier(self) -> Any:
        token = self._curr
        quoted = bool(token) and token.token_type == TokenType.IDENTIFIER
        if not token or not (quoted or is_word(token)):
            self.fail(token)
        self._advance()
        return located(exp.Identifier(this=token.text, quoted=quoted), token)
