"""Hints of Materialize behind GROUP BY and HAVING, which say how large groups are.

    SELECT a, max(b) FROM t GROUP BY a OPTIONS (AGGREGATE INPUT GROUP SIZE = 1000)

They are read and have no effect: operators here adapt to the sizes of groups by themselves.
"""

from sqlglot.tokens import TokenType

from foreshore.sql.parse.grammar.stars import StarParser

_HINTS = (
    ("aggregate", "input", "group", "size"),
    ("distinct", "on", "input", "group", "size"),
    ("limit", "input", "group", "size"),
    ("expected", "group", "size"),
)
_FIRST = {words[0] for words in _HINTS}


class HintParser(StarParser):
    """Parse the hints of a query."""

    def _at_hints(self) -> bool:
        """Return whether hints come next, and not an alias `options` with names of columns."""
        if not self._word("options") or self._index + 3 >= len(self._tokens):
            return False
        opening, first, second = self._tokens[self._index + 1 : self._index + 4]
        is_hint = first.text.lower() in _FIRST and second.text.lower() in ("input", "on", "group")
        return opening.text == "(" and is_hint

    def _take_hints(self) -> bool:
        """Parse `OPTIONS (hint = number, ...)` if it comes next."""
        if not self._at_hints():
            return False
        self._advance(2)
        while True:
            if not any(self._take(*words) for words in _HINTS):
                self.fail(self._curr)
            self._match(TokenType.EQ)
            if not (self._curr and self._curr.token_type == TokenType.NUMBER):
                self.fail(self._curr)
            if not self._curr.text.isdecimal():
                self.fail(self._curr)
            self._advance()
            if not self._match(TokenType.COMMA):
                break
        self._match_r_paren()
        return True
