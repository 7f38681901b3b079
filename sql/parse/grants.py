"""Parse GRANT, REVOKE and ALTER DEFAULT PRIVILEGES."""

from foreshore.errors import SyntaxError_
from foreshore.role_options import RoleName
from foreshore.sql import ast
from foreshore.sql.parse.functions import FunctionParser
from foreshore.sql.parse.lexer import QUOTED, WORD

PRIVILEGES = frozenset(
    "select insert update delete truncate references trigger usage create connect temporary temp"
    " execute createrole createdb createcluster createnetworkpolicy".split()
)
# The words for kinds of objects, with those for all of them in a schema.
_KINDS = {
    "table": "table",
    "sequence": "sequence",
    "database": "database",
    "schema": "schema",
    "cluster": "cluster",
    "domain": "domain",
    "type": "type",
    "function": "function",
    "procedure": "function",
    "routine": "function",
    "secret": "secret",
    "connection": "connection",
    "system": "system",
}
_PLURALS = {
    "tables": "table",
    "sequences": "sequence",
    "functions": "function",
    "procedures": "function",
    "routines": "function",
    "types": "type",
    "schemas": "schema",
    "databases": "database",
    "clusters": "cluster",
    "secrets": "secret",
    "connections": "connection",
}
_IN_SCHEMAS = ("tables", "sequences", "functions", "procedures", "routines")
_UNSUPPORTED = ("language", "tablespace", "large", "foreign", "parameter")


class GrantParser(FunctionParser):
    """Parse statements about rights."""

    def grant_or_revoke(self) -> ast.StatementSyntax:
        """Parse GRANT or REVOKE."""
        grants = self.advance().value == "grant"
        option = False
        if not grants:
            option = self.accept("grant", "option", "for")
            if not option and self.accept("admin", "option", "for"):
                return self._membership(grants, self.list_of(self.role_name), True)
        start = self.mark()
        items = self._privileges()
        if not self.at_word("on"):
            self.go_back(start)
            return self._membership(grants, self.list_of(self.role_name), False)
        privileges = self._checked(items)
        self.expect("on")
        if self.accept("all"):
            return self._on_all(grants, privileges, option)
        if self.at_word(*_UNSUPPORTED) and self.peek().kind in (WORD, QUOTED):
            self.unsupported(f"GRANT ... ON {self.token.value.upper()}")
        kind, names = "table", tuple[ast.TableRef, ...]()
        functions: tuple[ast.FunctionName, ...] = ()
        if self.token.kind == WORD and self.token.value in _KINDS and self._names_follow():
            kind = _KINDS[self.advance().value]
        if kind == "function":
            functions = self.list_of(self._function_name)
        elif kind != "system":
            names = self.list_of(self.table_name)
        return self._grantees(grants, privileges, kind, names, functions, False, option)

    def _names_follow(self) -> bool:
        """Return whether the word before a name is that of a kind, and no name itself."""
        if self.token.value == "system":
            return self.peek().value in ("to", "from")
        return self.peek().kind in (WORD, QUOTED) and self.peek().value not in ("to", "from")

    def _privileges(self) -> tuple[tuple[str | None, tuple[str, ...], int], ...]:
        """Parse a list of privileges, or of what may be roles."""
        if self.at_word("all"):
            at = self.advance().start
            self.accept("privileges")
            columns = self.in_parentheses(self.name) if self.at_symbol("(") else ()
            return ((None, columns, at),)
        return self.list_of(self._privilege)

    def _privilege(self) -> tuple[str | None, tuple[str, ...], int]:
        at = self.token.start
        name = self.label()
        return name, (self.in_parentheses(self.name) if self.at_symbol("(") else ()), at

    def _checked(
        self, items: tuple[tuple[str | None, tuple[str, ...], int], ...]
    ) -> tuple[ast.PrivilegeSyntax, ...]:
        for name, _, _ in items:
            if name is not None and name not in PRIVILEGES:
                raise SyntaxError_(f'unrecognized privilege type "{name}"')
        return tuple(
            ast.PrivilegeSyntax(
                None if name is None else "TEMPORARY" if name == "temp" else name.upper(), columns
            )
            for name, columns, _ in items
        )

    def _on_all(
        self, grants: bool, privileges: tuple[ast.PrivilegeSyntax, ...], option: bool
    ) -> ast.StatementSyntax:
        if not self.at_word(*_IN_SCHEMAS):
            if self.at_word(*_PLURALS):
                self.unsupported(f"GRANT ... ON ALL {self.token.value.upper()}")
            self.fail()
        kind = _PLURALS[self.advance().value]
        self.expect("in", "schema")
        schemas = self.list_of(self.table_name)
        return self._grantees(grants, privileges, kind, schemas, (), True, option)

    def _grantees(
        self,
        grants: bool,
        privileges: tuple[ast.PrivilegeSyntax, ...],
        kind: str,
        names: tuple[ast.TableRef, ...],
        functions: tuple[ast.FunctionName, ...],
        in_schemas: bool,
        option: bool,
    ) -> ast.GrantStatement:
        self.expect("to" if grants else "from")
        grantees = self.list_of(self._grantee)
        cascade = False
        if grants and self.accept("with", "grant", "option"):
            option = True
        granted_by = self._granted_by()
        if not grants:
            cascade = self.accept("cascade")
            if not cascade:
                self.accept("restrict")
        return ast.GrantStatement(
            grants, privileges, kind, names, functions, in_schemas, grantees, option, cascade,
            granted_by,
        )  # fmt: skip

    def _grantee(self) -> RoleName:
        self.accept("group")
        return self.role_name()

    def _granted_by(self) -> RoleName | None:
        return self.role_name() if self.accept("granted", "by") else None

    def _membership(
        self, grants: bool, roles: tuple[RoleName, ...], option: bool
    ) -> ast.StatementSyntax:
        self.expect("to" if grants else "from")
        members = self.list_of(self._grantee)
        if grants and self.accept("with", "admin", "option"):
            option = True
        granted_by = self._granted_by()
        if not grants and not self.accept("cascade"):
            self.accept("restrict")
        tag = "GRANT ROLE" if grants else "REVOKE ROLE"
        return ast.GrantRoleStatement(grants, roles, members, option, granted_by, tag)

    def default_privileges(self) -> ast.StatementSyntax:
        """Parse ALTER DEFAULT PRIVILEGES from its second word on."""
        self.expect("default", "privileges")
        roles: tuple[RoleName, ...] = ()
        schemas: tuple[str, ...] = ()
        while True:
            if self.accept("for"):
                if not self.accept("role"):
                    self.expect("user")
                roles = self.list_of(self.role_name)
            elif self.accept("in", "schema"):
                schemas = self.list_of(self.name)
            else:
                break
        if not self.at_word("grant", "revoke"):
            self.fail()
        grants = self.advance().value == "grant"
        option = not grants and self.accept("grant", "option", "for")
        privileges = self._checked(self._privileges())
        self.expect("on")
        if not self.at_word(*_PLURALS):
            self.fail()
        kind = _PLURALS[self.advance().value]
        grant = self._grantees(grants, privileges, kind, (), (), False, option)
        return ast.DefaultPrivilegesStatement(roles, schemas, grant)
