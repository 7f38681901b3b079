"""The grammar of TUMBLE, HOP and SESSION in FROM.

    TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1 minute')
    HOP(DATA => TABLE t, TIMECOL => DESCRIPTOR(ts), SLIDE => ..., SIZE => ...)
    SESSION(TABLE t PARTITION BY a, DESCRIPTOR(ts), INTERVAL '10 seconds')
    TUMBLE(t, ts, INTERVAL '1 minute')

They are calls whose first argument is a relation; a quoted name is that of a function.
"""

from typing import Any

from sqlglot import exp
from sqlglot.tokens import TokenType

from foreshore.sql.parse.grammar.base import is_word, located
from foreshore.sql.parse.grammar.nodes import TimeWindow
from foreshore.sql.parse.grammar.with_clause import WithParser

KINDS = ("tumble", "hop", "session")
_QUERIES = ("select", "values", "with", "table", "(")


class TimeWindowParser(WithParser):
    """Parse TUMBLE, HOP and SESSION."""

    def time_window(self) -> exp.Expr | None:
        """Parse a window function over a relation; None if none is here."""
        token = self._curr
        if not (token and self._next and self._next.text == "("):
            return None
        if not any(self._word(kind) for kind in KINDS):
            return None
        index = self._index
        self._advance(2)
        if not self._at_relation():
            self._retreat(index)
            return None
        self._data_name()
        self._take("table")
        found = located(TimeWindow(kind=token.text.lower(), input=self._parse_table()), token)
        if self._match(TokenType.PARTITION_BY):
            found.set("partition", self._partition_columns())
        found.set("names", [])
        found.set("expressions", [])
        while self._match(TokenType.COMMA):
            named = self._next and self._next.text in ("=>", ":=")
            found.args["names"].append(self._argument() if named else None)
            found.append("expressions", self._need(0))
        self._match_r_paren()
        found.set("alias", self._parse_table_alias())
        return found

    def _data_name(self) -> None:
        if self._word("data") and self._next and self._next.text in ("=>", ":="):
            self._advance(2)

    def _argument(self) -> str:
        name = str(self._curr.text).lower()
        self._advance(2)
        return name

    def _at_relation(self) -> bool:
        """Return whether a relation follows: TABLE ..., a query, or a name before a comma."""
        if self._word("data") or self._word("table"):
            return True
        if self._curr and self._curr.text == "(" and self._next:
            return self._next.text.lower() in _QUERIES
        index = self._index
        while index + 1 < len(self._tokens):
            token, following = self._tokens[index], self._tokens[index + 1]
            if not (is_word(token) or token.token_type == TokenType.IDENTIFIER):
                return False
            if following.text != ".":
                return following.text == "," or following.token_type == TokenType.PARTITION_BY
            index += 2
        return False

    def _partition_columns(self) -> list[exp.Expr]:
        """Parse names up to the next argument: `a, b, DESCRIPTOR(ts)`, or `(a, b)`."""
        if self._match(TokenType.L_PAREN):
            columns = self._list()
            self._match_r_paren()
            return columns
        columns = [self._need(0)]
        while self._curr and self._curr.text == "," and not self._at_descriptor():
            self._advance()
            columns.append(self._need(0))
        return columns

    def _at_descriptor(self) -> bool:
        words: Any = [token.text.lower() for token in self._tokens[self._index + 1 :][:3]]
        return words[:1] == ["descriptor"] or words[1:2] in (["=>"], [":="])
