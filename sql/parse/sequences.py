"""Parse CREATE SEQUENCE, ALTER SEQUENCE and sequence options."""

from typing import Any

from foreshore.errors import SyntaxError_
from foreshore.sql import ast
from foreshore.sql.parse.lexer import NUMBER
from foreshore.sql.parse.query import QueryParser

_OPTIONS = ("as", "increment", "minvalue", "maxvalue", "start", "restart", "cache", "cycle")
SET_OPTIONS = (*_OPTIONS, "no", "owned", "sequence")  # first words of options
# options that SET does not accept for identity columns
NOT_OF_IDENTITY = ("as", "restart", "owned by")


def add_option(options: ast.SequenceOptions, name: str, value: Any, at: int) -> None:
    """Add an option with its offset; raise an error if it was given before."""
    if name in options.given:
        raise SyntaxError_("conflicting or redundant options", position=at + 1)
    options.given[name], options.at[name] = value, at


class SequenceParser(QueryParser):
    """Parse CREATE SEQUENCE, ALTER SEQUENCE and the options of identity columns."""

    def _create_sequence(self, temporary: bool) -> ast.StatementSyntax:
        if_not_exists = self.accept("if", "not", "exists")
        return ast.CreateSequenceStatement(
            self.table_name(), self._sequence_options(), if_not_exists, temporary
        )

    def _sequence_options(self) -> ast.SequenceOptions:
        """Parse any number of options."""
        options = ast.SequenceOptions({}, {})
        while True:
            at = self.token.start
            found = self._sequence_option()
            if found is None:
                return options
            add_option(options, *found, at)

    def _sequence_option(self) -> tuple[str, Any] | None:
        if self.accept("owned"):
            self.expect("by")
            return "owned by", () if self.accept("none") else self.dotted()
        if self.accept("sequence", "name"):
            return "sequence name", self.table_name()
        if self.accept("no"):
            if not self.at_word("minvalue", "maxvalue", "cycle"):
                self.fail()
            name = self.advance().value
            return name, False if name == "cycle" else None
        if not self.at_word(*_OPTIONS):
            return None
        name = self.advance().value
        match name:
            case "as":
                return name, self.type_name()
            case "cycle":
                return name, True
            case "restart":
                with_ = self.accept("with")
                signed = self.at_symbol("-") or self.at_symbol("+")
                if not (with_ or signed or self.token.kind == NUMBER):
                    return name, None
            case "increment":
                self.accept("by")
            case "start":
                self.accept("with")
        return name, self._signed_integer()

    def _signed_integer(self) -> int:
        negative = self.accept_symbol("-")
        if not negative:
            self.accept_symbol("+")
        number = self.integer()
        return -number if negative else number
