"""Parse COPY."""

from foreshore.sql import ast
from foreshore.sql.ast import CopyOption
from foreshore.sql.parse.cursors import CursorParser
from foreshore.sql.parse.lexer import STRING


class CopyingParser(CursorParser):
    """Parse COPY, of a table or of a statement that returns rows."""

    def copy(self) -> ast.CopyStatement:
        """Parse COPY."""
        at = self.expect("copy").start
        old = [CopyOption("format", "binary", at)] if self.accept("binary") else []
        columns, span = None, (at, at)
        source: ast.CopySource
        if self.accept_symbol("("):
            start = self.token.start
            source = self._source()
            span = (start, self.last_end)
            self.expect_symbol(")")
        else:
            source = self.table_name()
            if self.at_symbol("("):
                columns = self.in_parentheses(self.name_at)
        is_from = self.accept("from")
        if is_from and not isinstance(source, ast.TableRef):
            self.fail(self.tokens[self.index - 1])
        if not is_from:
            self.expect("to")
        url: str | None = None
        if self.token.kind == STRING:
            url = self.string()
        elif not self.accept("stdin") and not self.accept("stdout"):
            self.unsupported("COPY with a program")
        self.accept("with")
        if self.at_symbol("("):
            options = (*old, *self.in_parentheses(self._copy_option))
        else:
            options = (*old, *self._old_options())
        where = self.expression() if is_from and self.accept("where") else None
        return ast.CopyStatement(source, columns, is_from, options, at, span, url, where)

    def _source(self) -> ast.CopySource:
        if self.at_word("subscribe"):
            return self.subscribe()
        if self.at_word("insert", "update", "delete"):
            return self.change()
        return self.select_statement()

    def _copy_option(self) -> CopyOption:
        at = self.token.start
        name = self.label()
        if name == "max" and self.accept("file"):
            self.expect("size")
            name = "max_file_size"
        if name == "aws" and self.accept("connection"):
            self.accept_symbol("=")
            return CopyOption("aws_connection", "", at, self.table_name())
        self.accept_symbol("=")
        if self.accept_symbol("*"):
            return CopyOption(name, "*", at)
        if self.at_symbol("("):
            return CopyOption(name, self.in_parentheses(self.name), at)
        if self.at_symbol(",") or self.at_symbol(")"):
            return CopyOption(name, "true", at)
        return CopyOption(name, self.advance().value, at)

    def _old_options(self) -> list[CopyOption]:
        """Parse options without parentheses, as before PostgreSQL 9."""
        options: list[CopyOption] = []
        while not self.at_end() and not self.at_word("where"):
            token = self.token
            name = self.label()
            found: str | tuple[str, ...]
            match name:
                case "binary" | "csv":
                    name, found = "format", name
                case "header" | "freeze":
                    found = "true"
                case "delimiter" | "delimiters" | "null" | "quote" | "escape" | "encoding":
                    self.accept("as")
                    name, found = name.removesuffix("s"), self.string()
                case "force" if self.accept("quote"):
                    name = "force_quote"
                    found = "*" if self.accept_symbol("*") else self.list_of(self.name)
                case "force":
                    name = "force_not_null" if self.accept("not") else "force_null"
                    self.expect("null")
                    found = self.list_of(self.name)
                case _:
                    self.fail(token)
            options.append(CopyOption(name, found, token.start))
        return options
