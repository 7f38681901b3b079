"""Parse the options of tables and indexes, and what options have in common.

An option is written in words, as in RETAIN HISTORY FOR '1 day', or as pg_dump writes it, as in
retain_history='1 day'.
"""

from typing import NamedTuple

from foreshore.errors import InvalidParameterValue, SyntaxError_
from foreshore.sql import ast
from foreshore.sql.parse.lexer import NUMBER, QUOTED, STRING, WORD
from foreshore.sql.parse.table_parts import TablePartParser

_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
_OF_TABLES = ("retain", "retain_history", "append", "append_only", "fillfactor")
_OF_INDEXES = ("retain", "retain_history", "memory", "memory_limit", "hydrate", "cluster")


class IndexOptions(NamedTuple):
    """The options of an index that are given."""

    retain: ast.Retain | None
    memory_limit: ast.MemoryLimit | None
    hydrate: ast.Hydrate | None
    cluster: str | None


class RelationOptionParser(TablePartParser):
    """Parse options of tables and indexes."""

    def _table_options(self) -> tuple[ast.Retain | None, bool]:
        """Parse `WITH (RETAIN HISTORY FOR 'interval', APPEND ONLY)` of a table, if present.

        Also returns whether the table is append-only. `fillfactor` has no effect.
        """
        if not (self.at_word("with") and self.peek(2).value in _OF_TABLES):
            return None, False
        self.advance()
        retained: list[ast.Retain] = []
        append_only = False
        said: set[str] = set()

        def option() -> None:
            nonlocal append_only
            token = self.token
            name = token.value.partition("_")[0]
            if name in said:
                raise SyntaxError_("conflicting or redundant options", position=token.start + 1)
            said.add(name)
            if token.value == "fillfactor":
                self._option()
            elif token.value == "append":
                self.expect("append", "only")
                append_only = True
            elif token.value == "append_only":  # as pg_dump writes it
                append_only = self._boolean_option("append_only")
            elif token.value in ("retain", "retain_history"):
                retained.append(self._retain())
            else:
                self.unsupported(f"WITH ({token.value})")

        self.in_parentheses(option)
        return next(iter(retained), None), append_only

    def _retain_options(self) -> ast.Retain:
        """Parse `(RETAIN HISTORY [=] FOR 'interval')`."""
        found: list[ast.Retain] = []

        def option() -> None:
            if found:
                at = self.token.start + 1
                raise SyntaxError_("conflicting or redundant options", position=at)
            found.append(self._retain())

        self.in_parentheses(option)
        return found[0]

    def _index_options(self) -> IndexOptions:
        """Parse `WITH (RETAIN HISTORY FOR ..., MEMORY LIMIT = ..., HYDRATE = ...)`, if present."""
        retained: list[ast.Retain] = []
        limits: list[ast.MemoryLimit] = []
        modes: list[ast.Hydrate] = []
        clusters: list[str] = []

        def option() -> None:
            at = self.token.start
            if self.at_word("memory", "memory_limit"):
                limits.append(self._memory_limit())
            elif self.at_word("hydrate"):
                modes.append(self._hydrate())
            elif self.at_word("cluster"):
                clusters.append(self._option_in_cluster())
            else:
                retained.append(self._retain())
            if any(len(each) > 1 for each in (retained, limits, modes, clusters)):
                raise SyntaxError_("conflicting or redundant options", position=at + 1)

        if self.at_word("with") and self.peek(2).value in _OF_INDEXES:
            self.advance()
            self.in_parentheses(option)
        return IndexOptions(
            next(iter(retained), None),
            next(iter(limits), None),
            next(iter(modes), None),
            next(iter(clusters), None),
        )

    def _hydrate(self) -> ast.Hydrate:
        self.expect("hydrate")
        self.accept_symbol("=")
        at = self.token.start
        return ast.Hydrate(self._option_text(), at)

    def _memory_limit(self) -> ast.MemoryLimit:
        if not self.accept("memory_limit"):  # as pg_dump writes it
            self.expect("memory", "limit")
        self.accept_symbol("=")
        at = self.token.start
        return ast.MemoryLimit(self.string(), at)

    def _retain(self) -> ast.Retain:
        if self.accept("retain_history"):  # as pg_dump writes it
            self.expect_symbol("=")
        else:
            self.expect("retain", "history")
            self.accept_symbol("=")
            self.expect("for")
        at = self.token.start
        return ast.Retain(self.string(), at)

    def _option_in_cluster(self) -> str:
        """Parse `cluster = name`, as pg_dump writes IN CLUSTER."""
        self.expect("cluster")
        self.expect_symbol("=")
        return self._option_text()

    def _option_text(self) -> str:
        """Return a value of an option: pg_dump puts a name into quotes only where it must."""
        return self.string() if self.token.kind == STRING else self.name()

    def _boolean_option(self, name: str) -> bool:
        """Parse `name [= boolean]`; return its value."""
        self.expect(name)
        if not self.accept_symbol("="):
            return True
        text = self.advance().value.lower()
        if text not in _TRUE + _FALSE:
            raise InvalidParameterValue(f'invalid value for boolean option "{name}": {text}')
        return text in _TRUE

    def _options(self) -> dict[str, str]:
        """Parse `NAME [=] value, ...`, in parentheses or not."""
        if self.at_symbol("("):
            return dict(self.in_parentheses(self._option))
        if self.at_end():
            return {}
        return dict(self.list_of(self._option))

    def _option(self) -> tuple[str, str]:
        words = [self.label()]
        while self.token.kind == WORD and not self.at_symbol("=") and self.peek(0).value not in (
            "true", "false", "on", "off",
        ):  # fmt: skip
            words.append(self.label())
        name = " ".join(words)
        self.accept_symbol("=")
        if self.at_symbol("("):
            self.fail()
        if self.token.kind not in (STRING, NUMBER, WORD, QUOTED):
            if len(words) > 1 and not self.at_symbol("("):
                # `SIZE embedded`: the value was read as a second word of the name.
                return " ".join(words[:-1]), words[-1]
            self.fail()
        return name, self.advance().value
