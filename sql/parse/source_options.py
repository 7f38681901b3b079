"""Parse the options of sources."""

from foreshore.sql import ast
from foreshore.sql.parse.clusters import ClusterParser


class SourceOptionParser(ClusterParser):
    """Parse `(option, ...)`, each some words and a value."""

    def _words(self) -> str:
        """Parse the words before a parenthesis, FOR, EXPOSE, WITH or the end."""
        words = [self.label()]
        while not (self.at_end() or self.at_symbol("(") or self.at_word("for", "expose", "with")):
            words.append(self.label())
        return " ".join(words)

    def _source_options(self) -> tuple[ast.SourceOption, ...]:
        """Parse `(option, ...)` if it is there."""
        return self.in_parentheses(self._source_option) if self.at_symbol("(") else ()

    def _iceberg(self, at: int) -> ast.IcebergSyntax:
        """Parse a table of a catalog, after ICEBERG CATALOG CONNECTION."""
        connection, options = self.table_name(), self._source_options()
        aws = self.table_name() if self.accept("using", "aws", "connection") else None
        return ast.IcebergSyntax(connection, options, aws, at)

    def _source_option(self) -> ast.SourceOption:
        """Parse `WORDS [=] value`, `WORDS [=] (name, ...)` or the same in brackets."""
        at = self.token.start
        words = [self.label()]
        while not (self._at_value() or self._at_option_end()):
            words.append(self.label())
        self.accept_symbol("=")
        value: str | tuple[str, ...] | None = None
        if self.at_symbol("("):
            value = self.in_parentheses(self._listed)
        elif self.accept_symbol("["):
            value = self.list_of(self._listed)
            self.expect_symbol("]")
        elif not self._at_option_end():
            value = self._option_value()
        return ast.SourceOption(" ".join(words), value, at)

    def _at_value(self) -> bool:
        return self.at_literal() or any(map(self.at_symbol, "=([-."))

    def _at_option_end(self) -> bool:
        return self.at_symbol(",") or self.at_symbol(")")

    def _option_value(self) -> str:
        """Parse a value, which may be a negative number, or one that begins with a point."""
        sign = "-" if self.accept_symbol("-") else ""
        begins = "0." if self.accept_symbol(".") else ""  # as in .5
        return f"{sign}{begins}{self.advance().value}"

    def _listed(self) -> str:
        """Parse a number or a reference."""
        is_value = self.at_literal() or self.at_symbol("-")
        return self._option_value() if is_value else self._reference()

    def _reference(self) -> str:
        return ".".join(self.dotted())
