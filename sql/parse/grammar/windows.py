"""The grammar of OVER and WINDOW: definitions of windows and their frames."""

from typing import Any, NoReturn

from sqlglot import exp
from sqlglot.tokens import TokenType

from foreshore.errors import WindowingError
from foreshore.keywords import RESERVED
from foreshore.sql.parse.grammar.base import is_word, located
from foreshore.sql.parse.grammar.expression import ExpressionParser
from foreshore.sql.parse.grammar.nodes import (
    FrameSpelling,
    NamedWindow,
    Over,
    WindowSpelling,
)

_UNITS = ("rows", "range", "groups")
Bound = tuple[str, exp.Expr | None, int]  # the side, the offset, the position


class WindowParser(ExpressionParser):
    """Parse what follows a call, and the WINDOW clause."""

    def _parse_window(self, this: Any, alias: bool = False) -> Any:
        """Parse WITHIN GROUP, FILTER and OVER after a call."""
        if this is None:
            return None
        token = self._curr
        if self._take("within", "group"):
            order = self._parse_wrapped(self._parse_order)
            if order is None:
                self.fail(self._prev)
            this = located(exp.WithinGroup(this=this, expression=order), token)
        if self._word("filter") and self._next and self._next.text == "(":
            self._advance(2)
            if not self._take("where"):
                self.fail(self._curr)
            this = exp.Filter(this=this, expression=exp.Where(this=self._need(0)))
            self._match_r_paren()
        token = self._curr
        if not token or not self._take("over"):
            return this
        if self._curr and self._curr.text == "(":
            window = self._definition()
        else:
            start = self._curr
            window = located(WindowSpelling(base=self._window_name(), bare=True), start)
        return located(Over(this=this, window=window), token)

    def _parse_window_clause(self) -> list[exp.Expr] | None:
        """Parse WINDOW name AS (definition), ..."""
        if not self._take("window"):
            return None
        windows: list[exp.Expr] = []
        while True:
            name = self._window_name()
            if not self._take("as"):
                self.fail(self._curr)
            windows.append(NamedWindow(this=name, window=self._definition()))
            if not self._match(TokenType.COMMA):
                return windows

    def _window_name(self) -> exp.Identifier:
        token = self._curr
        quoted = bool(token) and token.token_type == TokenType.IDENTIFIER
        if not token or not (quoted or (is_word(token) and token.text.lower() not in RESERVED)):
            self.fail(token)
        self._advance()
        name: exp.Identifier = located(exp.Identifier(this=token.text, quoted=quoted), token)
        return name

    def _definition(self) -> exp.Expr:
        token = self._curr
        self._match_l_paren()
        base = None
        if self._curr and (is_word(self._curr) or self._curr.token_type == TokenType.IDENTIFIER):
            clause = self._curr.text.lower().split()[0] if is_word(self._curr) else ""
            if clause not in ("partition", "order", *_UNITS):
                base = self._window_name()
        partition = self._list() if self._match(TokenType.PARTITION_BY) else []
        order = self._parse_order()
        unit = next((unit for unit in _UNITS if self._take(unit)), None)
        frame = None if unit is None else self._frame(unit)
        self._match_r_paren()
        window = WindowSpelling(base=base, partition=partition, order=order, frame=frame)
        return located(window, token)

    # --- frames

    def _frame(self, unit: str) -> FrameSpelling:
        if self._take("between"):
            start = self._bound()
            if not self._take("and"):
                self.fail(self._curr)
            end = self._bound()
            _check_bounds(start, end)
        else:
            start = self._bound()
            if start[0] == "following":
                unbounded = start[1] is None
                _refuse(
                    "frame start cannot be UNBOUNDED FOLLOWING"
                    if unbounded
                    else "frame starting from following row cannot end with current row",
                    start,
                )
            end = ("current", None, start[2])
        return FrameSpelling(unit=unit, bounds=[start, end], exclude=self._exclusion())

    def _bound(self) -> Bound:
        token = self._curr
        at = token.start if token else 0
        if self._take("current", "row"):
            return "current", None, at
        for side in ("preceding", "following"):
            if self._take("unbounded", side):
                return side, None, at
        offset = self._need(0)
        for side in ("preceding", "following"):
            if self._take(side):
                return side, offset, at
        self.fail(self._curr)

    def _exclusion(self) -> str:
        if not self._take("exclude"):
            return "nothing"
        for words in (("current", "row"), ("group",), ("ties",)):
            if self._take(*words):
                return " ".join(words)
        if not self._take("no", "others"):
            self.fail(self._curr)
        return "nothing"


def _check_bounds(start: Bound, end: Bound) -> None:
    if start[0] == "following" and start[1] is None:
        _refuse("frame start cannot be UNBOUNDED FOLLOWING", start)
    if end[0] == "preceding" and end[1] is None:
        _refuse("frame end cannot be UNBOUNDED PRECEDING", end)
    if start[0] == "current" and end[0] == "preceding":
        _refuse("frame starting from current row cannot have preceding rows", end)
    if start[0] == "following" and end[0] != "following":
        _refuse("frame starting from following row cannot have preceding rows", end)


def _refuse(message: str, bound: Bound) -> NoReturn:
    raise WindowingError(message, position=bound[2] + 1)
