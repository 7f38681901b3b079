"""The grammar of AUTO_CDC in FROM: the present rows, or their history, of a feed of changes.

    AUTO_CDC(TABLE feed KEYS (id) SEQUENCE BY (ts, lsn) APPLY AS DELETE WHEN op = 'd')
    AUTO_CDC(SNAPSHOTS OF TABLE copies KEYS (id) SEQUENCE BY taken_at STORED AS SCD TYPE 2)

The relation is a name or a query in parentheses, and may have an alias. KEYS and SEQUENCE BY come
first; the other clauses stand in any order. `auto_cdc` without KEYS is a function's name.
"""

from sqlglot import exp
from sqlglot.tokens import TokenType

from foreshore.sql.parse.grammar.base import located
from foreshore.sql.parse.grammar.nodes import AutoCdc, ColumnChoice
from foreshore.sql.parse.grammar.time_windows import TimeWindowParser

NAME = "auto_cdc"


class AutoCdcParser(TimeWindowParser):
    """Parse AUTO_CDC and its clauses."""

    _before_keys = False  # whether KEYS (...) ends what is being parsed

    def auto_cdc(self) -> exp.Expr | None:
        """Parse AUTO_CDC(...); None if it is not here."""
        token = self._curr
        if not (self._word(NAME) and self._next and self._next.text == "("):
            return None
        index = self._index
        self._advance(2)
        snapshots = self._take("snapshots", "of")
        if not (snapshots or self._word("table") or self._at_relation_with_keys()):
            self._retreat(index)
            return None
        self._take("table")
        before, self._before_keys = self._before_keys, True
        try:
            input = self._parse_table()
        finally:
            self._before_keys = before
        found = located(AutoCdc(input=input, snapshots=snapshots), token)
        if not self._take("keys"):
            self.fail(self._curr)
        self._match_l_paren()
        found.set("keys", self._list())
        self._match_r_paren()
        if not self._sequence_by():
            self.fail(self._curr)
        found.set("sequence", self._list())
        while not self._match(TokenType.R_PAREN):
            self._clause(found)
        found.set("alias", self._parse_table_alias())
        return found

    def at_keys(self) -> bool:
        """Return whether KEYS or SEQUENCE BY follows, which is no alias there."""
        if not (self._before_keys and self._next):
            return False
        return self._word("keys") or (self._word("sequence") and self._next.text.lower() == "by")

    def _at_relation_with_keys(self) -> bool:
        """Return whether KEYS ( follows the relation, before the parenthesis that ends it all."""
        depth = 0
        for index in range(self._index, len(self._tokens) - 1):
            text = self._tokens[index].text.lower()
            if depth == 0 and text == "keys" and self._tokens[index + 1].text == "(":
                return index > self._index
            depth += (text == "(") - (text == ")")
            if depth < 0:
                return False
        return False

    def _sequence_by(self) -> bool:
        if not self._word("sequence"):
            return False
        self._advance()
        return self._take("by")

    def _clause(self, found: AutoCdc) -> None:
        """Parse one of the clauses after SEQUENCE BY."""
        token = self._curr
        if self._take("apply", "as", "delete", "when"):
            name, value = "deletes", self._need(0)
        elif self._take("ignore", "null", "updates"):
            name, value = "ignores", self._choice() if self._take("on") else _everything()
        elif self._take("columns"):
            name, value = "columns", self._choice()
        elif self._take("track", "history", "on"):
            name, value = "tracked", self._choice()
        elif self._take("stored", "as", "scd", "type"):
            kind = self._curr
            if not kind or kind.text not in ("1", "2"):
                self.fail(kind)
            self._advance()
            name, value = "stored", exp.Literal.number(kind.text)
        else:
            self.fail(token)
        if found.args.get(name) is not None:
            self.fail(token)
        found.set(name, value)

    def _choice(self) -> exp.Expr:
        """Parse `(a, b)`, `a, b`, `*` or `* EXCEPT (a, b)`."""
        if self._match(TokenType.STAR):
            if not (self._take("except") or self._take("exclude")):
                return _everything()
            return ColumnChoice(expressions=self._columns_of_choice(), excluded=True)
        return ColumnChoice(expressions=self._columns_of_choice(), excluded=False)

    def _columns_of_choice(self) -> list[exp.Expr]:
        if not self._match(TokenType.L_PAREN):
            return self._list()
        columns = self._list()
        self._match_r_paren()
        return columns


def _everything() -> ColumnChoice:
    return ColumnChoice(expressions=[], excluded=True)
