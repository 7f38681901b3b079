"""The grammar of queries and FROM items, and entry points for statement parsers."""

from typing import Any

from sqlglot import exp
from sqlglot.tokens import Token, TokenType

from foreshore.sql.parse.grammar.base import MAX_DEPTH, first_word, is_word, located, too_deep
from foreshore.sql.parse.grammar.hints import HintParser
from foreshore.sql.parse.grammar.nodes import ColumnSpelling, GroupingSets, Shown
from foreshore.sql.parse.grammar.stars import is_star
from foreshore.sql.parse.grammar.word_classes import AFTER_ALIAS, NEEDS_AS, NOT_COLUMN

# Clauses that SELECT has and VALUES has not.
_OF_SELECT = frozenset(
    (
        TokenType.WHERE, TokenType.GROUP_BY, TokenType.HAVING, TokenType.QUALIFY, TokenType.WINDOW,
    )
)  # fmt: skip


class Parser(HintParser):
    """Parse PostgreSQL's queries from a given token on."""

    # A locking clause after the last operand applies to the whole set operation.
    SET_OP_MODIFIERS = {*HintParser.SET_OP_MODIFIERS, "locks"}  # noqa: RUF012 - sqlglot's own

    # --- entry points for statements

    def parse_query(self) -> exp.Expr | None:
        """Parse a query with its WITH and ORDER BY."""
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

    # --- queries

    def _parse_statement(self) -> exp.Expr | None:
        """Parse a query; VALUES may have a WITH, like SELECT."""
        statement = super()._parse_statement()
        if not isinstance(statement, exp.Values):
            return statement
        modifiers = {key: statement.args.pop(key, None) for key in ("order", "limit", "offset")}
        query = exp.Select(expressions=[exp.Star()], from_=exp.From(this=statement), **modifiers)
        query.meta.update(statement.meta)
        return query

    def _parse_select(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
        token = self._curr
        if token and token.token_type == TokenType.FROM:  # queries may begin with FROM in DuckDB
            return None
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise too_deep()
        query = super()._parse_select(*args, **kwargs)
        self.depth -= 1
        if query is not None and "at" not in query.meta:
            query.meta["at"] = token.start
        return query

    def _parse_query_modifiers(self, this: Any) -> Any:
        """Parse the clauses after FROM; joins are allowed only directly after it."""
        if isinstance(this, exp.Select | exp.SetOperation | exp.Values):
            token = self._curr
            if isinstance(this, exp.Values) and self._match_set(_OF_SELECT, advance=False):
                self.fail(token)
            without = this.meta.get("modified") or not this.args.get("from_")
            if without and (self._begins_join() or self._parse_join() is not None):
                self.fail(token)
            this.meta["modified"] = True
        query = super()._parse_query_modifiers(this)
        if isinstance(this, exp.Select) and self._take_hints():
            query = super()._parse_query_modifiers(query)
        return query

    def _parse_csv(self, parse_method: Any, *args: Any, **kwargs: Any) -> list[Any]:
        """Parse a comma-separated list; a trailing comma is an error."""
        items: list[Any] = []
        item = parse_method()
        while item is not None:
            items.append(item)
            if not self._match(TokenType.COMMA):
                break
            item = parse_method()
            if item is None:
                self.fail(self._curr)
        return items

    def _parse_into(self) -> exp.Into | None:
        """Parse `INTO [[LOCAL | GLOBAL] TEMP[ORARY] | UNLOGGED] [TABLE] name`."""
        if not self._take("into"):
            return None
        temporary = any(
            self._take(*scope, word)
            for word in ("temporary", "temp")
            for scope in ((), ("local",), ("global",))
        )
        if not temporary:
            self._take("unlogged")
        self._take("table")
        token = self._curr
        name = self._names()
        into = exp.Into(temporary=temporary)
        into.set("name", name)
        into.set("end", self._prev.end + 1)
        return located(into, token)

    def _parse_group(self, *args: Any, **kwargs: Any) -> exp.Group | None:
        """Parse GROUP BY [ALL | DISTINCT] with ROLLUP, CUBE and GROUPING SETS."""
        token = self._curr
        if not self._match(TokenType.GROUP_BY):
            return None
        distinct = self._take("distinct")
        if not distinct and self._take("all") and self._at_end_of_list():
            return located(exp.Group(expressions=[], all=True), token)
        group = exp.Group(expressions=self._grouping_elements())
        group.set("distinct", distinct)
        return located(group, token)

    def _grouping_elements(self) -> list[exp.Expr]:
        elements = [self._grouping_element()]
        while self._match(TokenType.COMMA):
            elements.append(self._grouping_element())
        return elements

    def _grouping_element(self) -> exp.Expr:
        """Parse an expression, `()`, or grouping sets with their elements."""
        token = self._curr
        following = self._next.text if self._next else ""
        if token and token.text == "(" and following == ")":
            self._advance(2)
            return located(GroupingSets(kind="sets", expressions=[]), token)
        for kind in ("rollup", "cube"):
            if following == "(" and self._take(kind):
                return self._grouping_of(kind, token)
        if self._take("grouping", "sets"):
            return self._grouping_of("sets", token)
        return self._need(0)

    def _grouping_of(self, kind: str, token: Token) -> exp.Expr:
        self._match_l_paren()
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise too_deep()
        elements = self._grouping_elements() if kind == "sets" else self._list()
        self.depth -= 1
        self._match_r_paren()
        return located(GroupingSets(kind=kind, expressions=elements), token)

    def _parse_limit(self, this: Any = None, *args: Any, **kwargs: Any) -> Any:
        token = self._curr
        if this is None and self._take("limit", "all"):
            return located(exp.Limit(expression=located(exp.Null(), token)), token)
        limit = super()._parse_limit(this, *args, **kwargs)
        if isinstance(limit, exp.Fetch) and self._prev.text.lower() not in ("only", "ties"):
            self.fail(self._curr)
        return limit

    def _parse_locks(self) -> list[exp.Lock]:
        """Parse FOR UPDATE and similar clauses, with OF and the wait policy."""
        locks = []
        while self._word("for"):
            token = self._curr
            if self._take("for", "read", "only"):  # of cursors; it locks nothing
                continue
            for strength in ("UPDATE", "NO KEY UPDATE", "SHARE", "KEY SHARE"):
                if self._take("for", *strength.lower().split()):
                    break
            else:
                self._advance()
                self.fail(self._curr)
            lock = located(exp.Lock(update=strength.endswith("UPDATE")), token)
            lock.set("strength", f"FOR {strength}")
            lock.set("of", self._locked_names() if self._take("of") else [])
            skip = self._take("skip", "locked")
            lock.set("wait", "skip" if skip else "error" if self._take("nowait") else "block")
            locks.append(lock)
        return locks

    def _locked_names(self) -> list[tuple[list[str], int]]:
        names = []
        while True:
            token = self._curr
            names.append((self._names(), token.start if token else 0))
            if not self._match(TokenType.COMMA):
                return names

    def _at_asof(self) -> bool:
        """Return whether `ASOF [LEFT | INNER] JOIN` is here; `asof` may also be an alias."""
        words = ("join", "left", "inner")
        return self._word("asof") and any(self._word("asof", word) for word in words)

    def _parse_asof(self) -> exp.Join:
        """Parse `ASOF [LEFT] JOIN item [MATCH_CONDITION (condition)] [ON condition]`."""
        token = self._curr
        self._advance()
        is_left = self._take("left", "outer") or self._take("left")
        if not is_left:
            self._take("inner")
        if not self._take("join"):
            self.fail(self._curr)
        join = located(exp.Join(this=self._parse_table(), method="ASOF"), token)
        join.set("side", "LEFT" if is_left else None)
        if self._word("match_condition"):
            self._advance()
            self._match_l_paren()
            join.set("match_condition", self._need(0))
            self._match_r_paren()
        elif not self._word("on"):
            if self._word("using"):
                self.unsupported("ASOF JOIN with USING", self._curr.start)
            self.fail(self._curr)
        if self._take("on"):
            join.set("on", self._need(0))
        return join

    def _begins_join(self) -> bool:
        """Return whether JOIN, with the words before it, is here."""
        index = self._index
        self._parse_join_parts()
        found = self._match(TokenType.JOIN)
        self._retreat(index)
        return found

    def _parse_join(self, *args: Any, **kwargs: Any) -> exp.Join | None:
        """Parse a comma, or JOIN, with an item of FROM; joins may come before its condition."""
        if self._at_asof():
            return self._parse_asof()
        token, index = self._curr, self._index
        if self._match(TokenType.COMMA, advance=False):
            join = super()._parse_join(*args, **kwargs)
            return None if join is None else located(join, token)
        method, side, kind = self._parse_join_parts()
        if not self._match(TokenType.JOIN):
            self._retreat(index)
            return None
        item = self._parse_table()
        if item is None:
            self.fail(self._curr)
        join = located(exp.Join(this=item), token)
        for part, given in (("method", method), ("side", side), ("kind", kind)):
            if given:
                join.set(part, given.text.upper())
        if join.kind != "CROSS" and join.method != "NATURAL":
            self._join_condition(join)
        return join

    def _join_condition(self, join: exp.Join) -> None:
        while not self._match_set((TokenType.ON, TokenType.USING), advance=False):
            inner = None if self._match(TokenType.COMMA, advance=False) else self._parse_join()
            if inner is None:
                self.fail(self._curr)
            join.this.append("joins", inner)
        if self._match(TokenType.ON):
            join.set("on", self._need(0))
            return
        self._advance()
        join.set("using", self._parse_using_identifiers())
        if self._word("as") and not self._at_time_clause():
            self._advance()
            name = self._curr
            if not name or not (is_word(name) or name.token_type == TokenType.IDENTIFIER):
                self.fail(name)
            self._advance()
            quoted = name.token_type == TokenType.IDENTIFIER
            join.set("using_alias", located(exp.Identifier(this=name.text, quoted=quoted), name))

    def _parse_using_identifiers(self) -> list[exp.Expr]:
        if not self._match(TokenType.L_PAREN, advance=False):
            self.fail(self._curr)
        names = super()._parse_using_identifiers()
        if not names:
            self.fail(self._prev)
        return names

    def _parse_derived_table_values(self, *args: Any, **kwargs: Any) -> exp.Values | None:
        is_derived = bool(self._curr) and self._curr.text == "("
        if is_derived and self._is_combined():
            return None  # (VALUES ... UNION ...) is an ordinary query
        values = super()._parse_derived_table_values(*args, **kwargs)
        if values is not None and not is_derived and values.args.get("alias") is not None:
            self.fail(self._prev)
        return values

    def _parse_value(self, values: bool = True) -> exp.Tuple | None:
        """Parse a row of VALUES, or what DISTINCT ON has in parentheses."""
        if not self._match(TokenType.L_PAREN, advance=False):
            self.fail(self._curr)
        start = self._curr.start
        row = super()._parse_value(values)
        if row is not None:
            if not row.expressions:
                self.fail(self._prev)
            row.meta["open"] = start
        return row

    def _is_combined(self) -> bool:
        """Return whether a set operation follows directly within the parentheses that open here."""
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
        """Parse `[AS] label` after an item of a select list."""
        if this is None or not self._curr or self._at_time_clause():
            return this
        if isinstance(this, exp.Subquery) and self._at_view_check():
            return this
        if is_star(this):
            return self.star_without(this)
        token = self._curr
        explicit = self._take("as")
        label = self._curr
        if not label:
            self.fail(None)
        quoted = label.token_type == TokenType.IDENTIFIER
        if not quoted and (not is_word(label) or (not explicit and first_word(label) in NEEDS_AS)):
            if explicit:
                self.fail(label)
            return this
        self._advance()
        alias = exp.Identifier(this=label.text, quoted=quoted)
        return located(exp.Alias(this=this, alias=located(alias, label)), token)

    def _at_time_clause(self) -> bool:
        """Return whether AS OF time or UP TO time follows, which is not an alias."""
        if self._word("up", "to"):
            return True
        if not self._word("as", "of"):
            return False
        after = self._tokens[self._index + 2 : self._index + 3]
        return bool(after) and after[0].text.lower() not in (",", ")", ";", "from", "where")

    def _at_view_check(self) -> bool:
        """Return whether a check of a view follows its parenthesized query, and no alias."""
        if not self._word("constraint"):
            return False
        after = self._tokens[self._index + 2 : self._index + 3]
        return (
            self._word("constraint", "assert", "not")
            or self._word("constraint", "assertion")
            or (bool(after) and after[0].text.lower() == "expect")
        )

    def _parse_table_alias(self, alias_tokens: Any = None) -> exp.TableAlias | None:
        """Parse `[AS] alias [(columns)]`."""
        if not self._curr or self._at_time_clause() or self._at_qualify() or self._at_hints():
            return None
        if self._curr.token_type == TokenType.PARTITION_BY or self._at_asof() or self.at_keys():
            return None
        if self._word("match_condition") and self._next and self._next.text == "(":
            return None
        explicit = self._take("as")
        token = self._curr
        quoted = bool(token) and token.token_type == TokenType.IDENTIFIER
        if explicit and token and token.text == "(" and not quoted:
            self._advance()
            unnamed = exp.TableAlias(columns=self._alias_columns())
            return located(unnamed, token)
        if not token or not (quoted or (is_word(token) and first_word(token) not in NOT_COLUMN)):
            if explicit:
                self.fail(token)
            return None
        self._advance()
        alias = exp.TableAlias(this=located(exp.Identifier(this=token.text, quoted=quoted), token))
        if self._match(TokenType.L_PAREN):
            alias.set("columns", self._alias_columns())
        return located(alias, token)

    def _alias_columns(self) -> list[exp.Expr]:
        """Parse the names of columns up to a parenthesis, or a column definition list."""
        columns: list[exp.Expr] = []
        while True:
            column = self._curr
            if not column or not (is_word(column) or column.token_type == TokenType.IDENTIFIER):
                self.fail(column)
            self._advance()
            quoted = column.token_type == TokenType.IDENTIFIER
            name: exp.Expr = located(exp.Identifier(this=column.text, quoted=quoted), column)
            if self._curr and self._curr.text not in (",", ")"):
                name = located(ColumnSpelling(this=name, kind=self._spelling()), column)
            columns.append(name)
            if not self._match(TokenType.COMMA):
                break
        self._match_r_paren()
        return columns

    def _parse_table(self, *args: Any, **kwargs: Any) -> Any:
        token, following = self._curr, self._next
        if token and token.text == "(" and following and first_word(following) == "show":
            shown = self._shown(token)
            if shown is not None:
                return shown
        return self.time_window() or self.auto_cdc() or super()._parse_table(*args, **kwargs)

    def _shown(self, token: Token) -> Shown | None:
        """Parse `(SHOW ...) [alias]`; None if it is a join whose first item is named `show`."""
        depth, index = 0, self._index
        while True:
            if index == len(self._tokens):
                return None
            word = self._tokens[index].text.lower()
            depth += (word == "(") - (word == ")")
            if depth == 0:
                break
            if word == "join" or (word in ("as", ",") and index == self._index + 2):
                return None
            index += 1
        if index == self._index + 2:  # (show)
            return None
        self._advance(index - self._index)
        end = self._curr.start
        self._match_r_paren()
        shown = located(Shown(start=token.start + 1, end=end), token)
        shown.set("alias", self._parse_table_alias())
        return shown

    def _at_qualify(self) -> bool:
        """Return whether QUALIFY with its condition follows; `qualify` may also be an alias."""
        if not self._word("qualify") or not self._next:
            return False
        following = self._next
        if following.text in (",", ")", ";", "("):
            return False
        return not is_word(following) or first_word(following) not in AFTER_ALIAS

    def _parse_lateral(self) -> Any:
        """Parse LATERAL before a query or a function."""
        token = self._curr
        if not self._take("lateral"):
            return None
        if self._curr and self._curr.text == "(":
            query = self._parse_select(table=True, parse_subquery_alias=False)
            if query is None:
                self.fail(self._curr)
            lateral = located(exp.Lateral(this=query), token)
            lateral.set("alias", self._parse_table_alias())
            return lateral
        return self._parse_table()

    def _parse_unnest(self, with_alias: bool = True) -> None:
        return None  # an ordinary function
