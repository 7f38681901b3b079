"""Parse DECLARE, FETCH, MOVE and CLOSE."""

from foreshore.errors import InvalidCursorDefinition
from foreshore.sql import ast
from foreshore.sql.parse.explain import ExplainParser
from foreshore.sql.parse.lexer import NUMBER

# Directions of a fixed place: how it is counted, and the count.
_PLACES: dict[str, tuple[ast.Direction, int]] = {
    "next": ("forward", 1),
    "prior": ("backward", 1),
    "first": ("absolute", 1),
    "last": ("absolute", -1),
}


class CursorParser(ExplainParser):
    """Parse statements about cursors."""

    def declare(self) -> ast.DeclareStatement:
        """Parse DECLARE."""
        self.expect("declare")
        name = self.name()
        options: set[str] = set()
        while not self.at_word("cursor"):
            if self.accept("no", "scroll"):
                options.add("no scroll")
            elif self.at_word("binary", "scroll", "insensitive", "asensitive"):
                options.add(self.advance().value)
            else:
                self.fail()
        self.advance()
        for one, other in (("scroll", "no scroll"), ("insensitive", "asensitive")):
            if one in options and other in options:
                raise InvalidCursorDefinition(
                    f"cannot specify both {one.upper()} and {other.upper()}"
                )
        hold = self.accept("with", "hold")
        if not hold:
            self.accept("without", "hold")
        self.expect("for")
        query = self.subscribe() if self.at_word("subscribe") else self.select_statement()
        return ast.DeclareStatement(name, hold, query, frozenset(options))

    def select_statement(self) -> ast.SelectStatement:
        """Parse a query, perhaps with AS OF."""
        query = self.query()
        return ast.SelectStatement(query, self.as_of())

    def fetch(self) -> ast.FetchStatement:
        """Parse FETCH or MOVE."""
        move = self.advance().value == "move"
        direction, count = self._direction()
        if not self.accept("from"):
            self.accept("in")
        name = self.name()
        timeout = None
        if self.accept("with"):
            self.expect_symbol("(")
            self.expect("timeout")
            self.accept_symbol("=")
            timeout = self.advance().value
            self.expect_symbol(")")
        return ast.FetchStatement(name, count, timeout, move, direction)

    def _direction(self) -> tuple[ast.Direction, int | None]:
        """Parse where a FETCH goes: how it is counted, and how many rows (None: all)."""
        if self.at_word(*_PLACES) and not self._is_name():
            return _PLACES[self.advance().value]
        direction: ast.Direction = "forward"
        count = 1
        if self.at_word("absolute", "relative") and not self._is_name():
            direction = "absolute" if self.advance().value == "absolute" else "relative"
            return direction, self._signed()
        if self.at_word("forward", "backward") and not self._is_name():
            direction = "backward" if self.advance().value == "backward" else "forward"
        if self.at_word("all") and not self._is_name():
            self.advance()
            return direction, None
        if self.token.kind == NUMBER or self.at_symbol("-") or self.at_symbol("+"):
            count = self._signed()
        if count < 0:
            return ("forward" if direction == "backward" else "backward"), -count
        return direction, count

    def _is_name(self) -> bool:
        """Whether the current word is the cursor's name, as the statement ends with it."""
        start = self.mark()
        self.advance()
        ends = self.at_end() or self.at_word("with")
        self.go_back(start)
        return ends

    def _signed(self) -> int:
        negative = self.accept_symbol("-")
        if not negative:
            self.accept_symbol("+")
        number = self.integer()
        return -number if negative else number

    def close_cursor(self) -> ast.CloseStatement:
        """Parse CLOSE."""
        self.expect("close")
        return ast.CloseStatement(None if self.accept("all") else self.name())
