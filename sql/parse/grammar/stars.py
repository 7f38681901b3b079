"""The grammar of `*` without some columns, and of ALL in GROUP BY and ORDER BY.

SELECT * EXCLUDE (a, b) REPLACE (lower(c) AS c) FROM t      EXCEPT is EXCLUDE
SELECT a, count(*) FROM t GROUP BY ALL ORDER BY ALL DESC
"""

from typing import Any

from sqlglot import exp
from sqlglot.tokens import TokenType

from foreshore.sql.parse.grammar.auto_cdc import AutoCdcParser
from foreshore.sql.parse.grammar.base import first_word, is_word, located

_QUERIES = ("select", "values", "with", "table", "(")
_AFTER_LIST = frozenset(
    "having order limit offset fetch union intersect except window qualify for on as up".split()
)


def is_star(node: Any) -> bool:
    """Return whether a node is `*` or `t.*`."""
    return (
        isinstance(node, exp.Star)
        or (isinstance(node, exp.Column | exp.Dot) and isinstance(node.args.get("this"), exp.Star))
        or (isinstance(node, exp.Dot) and isinstance(node.expression, exp.Star))
    )


class StarParser(AutoCdcParser):
    """Parse what follows a star, and ALL."""

    def _parse_star_ops(self) -> exp.Expr | None:
        """Leave what follows a qualified star to `star_without`."""
        return exp.Star()

    def star_without(self, star: exp.Expr) -> exp.Expr:
        """Parse EXCLUDE (columns) and REPLACE (expression AS column, ...) after a star."""
        excluded: list[exp.Expr] = []
        replaced: list[tuple[exp.Expr, exp.Expr]] = []
        if self._word("exclude") or (self._word("except") and not self._at_query_in_parentheses()):
            self._advance()
            if self._match(TokenType.L_PAREN):
                excluded = self._identifiers()
                self._match_r_paren()
            else:
                excluded = [self._identifier()]
        if self._word("replace") and self._next and self._next.text == "(":
            self._advance(2)
            while True:
                value = self._need(0)
                replaced.append((value, self._after("as")))
                if not self._match(TokenType.COMMA):
                    break
            self._match_r_paren()
        if excluded or replaced:
            star.meta["excluded"], star.meta["replaced"] = excluded, replaced
        return star

    def _at_query_in_parentheses(self) -> bool:
        """Return whether EXCEPT is the set operation, before a query."""
        if not (self._next and self._next.text == "("):
            return True
        after = self._tokens[self._index + 2 : self._index + 3]
        return not after or after[0].text.lower() in _QUERIES

    def _at_end_of_list(self) -> bool:
        """Return whether a list of expressions has ended."""
        token = self._curr
        if not token or token.text in (")", ";", ","):
            return True
        return is_word(token) and first_word(token) in _AFTER_LIST

    def _parse_ordered(self, *args: Any, **kwargs: Any) -> exp.Ordered | None:
        if not self._word("all"):
            ordered: exp.Ordered | None = super()._parse_ordered(*args, **kwargs)
            return ordered
        return super()._parse_ordered(self._all_columns)

    def _all_columns(self) -> exp.Expr:
        token = self._curr
        self._advance()
        everything: exp.Expr = located(exp.Star(), token)
        return everything
