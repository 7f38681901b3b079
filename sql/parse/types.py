"""Parse CREATE TYPE and ALTER TYPE."""

from foreshore.sql import ast
from foreshore.sql.parse.query import QueryParser


class TypeDefinitionParser(QueryParser):
    """Parse the definitions of types."""

    def _create_type(self) -> ast.StatementSyntax:
        name = self.table_name()
        if not self.accept("as", "enum"):
            self.unsupported("CREATE TYPE of anything but an enum")
        self.expect_symbol("(")
        labels = () if self.at_symbol(")") else self.list_of(self._label)
        self.expect_symbol(")")
        return ast.CreateEnumStatement(name, labels)

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
