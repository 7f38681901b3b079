"""Parse INDEX and FAMILY within CREATE TABLE, as CockroachDB writes them, and keys of indexes."""

from foreshore.errors import SyntaxError_
from foreshore.sql import ast
from foreshore.sql.parse.foreign_keys import ForeignKeyParser
from foreshore.sql.parse.lexer import NUMBER, WORD


class TablePartParser(ForeignKeyParser):
    """Parse parts of CREATE TABLE that are neither columns nor constraints."""

    def _at_named_list(self, word: str) -> bool:
        """Whether `word [name] (` follows, and no number: that would be a column called `word`."""
        if not self.at_word(word):
            return False
        opens = 1 if self.peek(1).value == "(" else 2
        return self.peek(opens).value == "(" and self.peek(opens + 1).kind != NUMBER

    def _index_of_table(self) -> tuple[str | None, str]:
        """Parse `INDEX [name] (keys)`; return the name and the text of the keys."""
        self.expect("index")
        name = None if self.at_symbol("(") else self.name()
        start = self.token.start
        self.in_parentheses(self._index_key)
        text = self.text[start : self.last_end]
        if self.at_word("where", "include", "storing", "using", "with"):
            self.unsupported(f"INDEX ... {self.token.value.upper()} in CREATE TABLE")
        return name, text

    def _watermark(self, found: list[ast.WatermarkDefinition]) -> bool:
        """Parse `[CONSTRAINT name] WATERMARK FOR column AS column ...` into `found`, if present."""
        named = self.at_word("constraint") and self.peek(2).value == "watermark"
        if not named and not self.at_words("watermark", "for"):
            return False
        if named:  # as pg_dump writes it
            self.expect("constraint")
            self.name()
        at = self.token.start
        if found:
            raise SyntaxError_("multiple watermarks are specified", position=at + 1)
        self.expect("watermark", "for")
        column = self.name()
        self.expect("as")
        name, name_at = self.name_at()
        if name != column:
            raise SyntaxError_(
                f'the watermark of column "{column}" must be computed from this column',
                position=name_at + 1,
            )
        delay = None
        if self.accept_symbol("-"):
            self.expect("interval")
            delay = self.string()
        idle = marks = None
        if self.accept("idle", "timeout"):
            self.expect("interval")
            idle = self.string()
            marks = self.string() if self.accept("marks") else None
        found.append(ast.WatermarkDefinition(column, delay, at, idle, marks))
        return True

    def _family(self) -> None:
        """Parse `FAMILY [name] (columns)`, CockroachDB's layout of rows, which has no effect."""
        self.expect("family")
        if not self.at_symbol("("):
            self.name()
        self.in_parentheses(self.name_at)

    def _index_column(self) -> tuple[str, int]:
        found = self.name_at()
        self._key_order()
        return found

    def _index_key(self) -> ast.Expression:
        """Parse a key of an index; operator class and sort order are accepted without effect."""
        key = self.expression()
        self._key_order()
        return key

    def _key_order(self) -> None:
        if self.token.kind == WORD and self.token.value.endswith("_ops"):
            self.advance()
        if not self.accept("asc"):
            self.accept("desc")
        if self.accept("nulls") and not self.accept("first"):
            self.expect("last")
