"""Parse CREATE TYPE and ALTER TYPE."""

from typing import Literal

from foreshore.errors import SyntaxError_
from foreshore.sql import ast
from foreshore.sql.parse.query import QueryParser


class TypeDefinitionParser(QueryParser):
    """Parse the definitions of types."""

    def _create_type(self) -> ast.StatementSyntax:
        name = self.table_name()
        if not self.accept("as"):
            self.unsupported("CREATE TYPE without AS")
        if self.at_symbol("("):
            self.expect_symbol("(")
            columns = () if self.at_symbol(")") else self.list_of(self._composite_column)
            self.expect_symbol(")")
            return ast.CreateStructuredStatement(name, "record", columns)
        if self.accept("list"):
            return self._container(name, "list", ("element",))
        if self.accept("map"):
            return self._container(name, "map", ("key", "value"))
        if not self.accept("enum"):
            self.unsupported("CREATE TYPE of anything but ENUM, LIST, MAP and columns")
        self.expect_symbol("(")
        labels = () if self.at_symbol(")") else self.list_of(self._label)
        self.expect_symbol(")")
        return ast.CreateEnumStatement(name, labels)

    def _composite_column(self) -> tuple[str, ast.TypeName]:
        return self.name(), self.type_name()

    def _container(
        self, name: ast.TableRef, kind: Literal["list", "map"], parts: tuple[str, ...]
    ) -> ast.CreateStructuredStatement:
        """Parse `(ELEMENT TYPE = t)` or `(KEY TYPE = text, VALUE TYPE = t)`."""
        given: dict[str, ast.TypeName] = {}
        self.expect_symbol("(")
        while not self.at_symbol(")"):
            part = next((each for each in parts if self.accept(each, "type")), None)
            if part is None:
                options = " or ".join(each.upper() for each in parts)
                raise SyntaxError_(
                    f"Expected one of {options}, found {self.token.value}",
                    position=self.token.start + 1,
                )
            self.accept_symbol("=")
            given[part] = self.type_name()
            if not self.accept_symbol(","):
                break
        self.expect_symbol(")")
        for part in reversed(parts):
            if part not in given:
                raise SyntaxError_(f"{part.upper()} TYPE option is required")
        return ast.CreateStructuredStatement(
            name, kind, (("", given[parts[-1]]),), given.get("key")
        )

    def _label(self) -> tuple[str, int]:
        at = self.token.start
        return self.string(), at

    def _alter_type(self, name: ast.TableRef) -> ast.StatementSyntax:
        if self.accept("rename", "value"):
            renamed = self.string()
            self.expect("to")
            return ast.AlterEnumStatement(name, self.string(), renamed)
        if not self.accept("add", "value"):
            self.unsupported("ALTER TYPE but ADD VALUE, RENAME VALUE and RENAME TO")
        if_not_exists = self.accept("if", "not", "exists")
        label = self.string()
        before = self.accept("before")
        beside = self.string() if before or self.accept("after") else None
        return ast.AlterEnumStatement(name, label, None, if_not_exists, beside, before)
