"""Parse statements about row-level security: policies, and what ALTER TABLE says of it."""

from typing import cast

from foreshore.errors import SyntaxError_
from foreshore.policy import PolicyCommand
from foreshore.role_options import RoleName
from foreshore.sql import ast
from foreshore.sql.parse.lexer import QUOTED, WORD
from foreshore.sql.parse.roles import RoleParser

_COMMANDS = ("all", "select", "insert", "update", "delete")
_ACTIONS = ("enable", "disable", "force", "no force")


class PolicyParser(RoleParser):
    """Parse statements about policies."""

    def _create_policy(self) -> ast.StatementSyntax:
        name, table = self._policy_name()
        permissive, command = True, "all"
        if self.accept("as"):
            if self.token.kind not in (WORD, QUOTED) or self.token.value not in (
                "permissive",
                "restrictive",
            ):
                at = self.token.start
                raise SyntaxError_(
                    f'unrecognized row security option "{self.token.value}"',
                    hint="Only PERMISSIVE or RESTRICTIVE policies are supported currently.",
                    position=at + 1,
                )
            permissive = self.advance().value == "permissive"
        if self.accept("for"):
            if not self.at_word(*_COMMANDS):
                self.fail()
            command = self.advance().value
        roles = self._policy_roles() or ()
        using, check = self._policy_expressions()
        return ast.CreatePolicyStatement(
            name, table, cast(PolicyCommand, command), permissive, roles, using, check
        )

    def _alter_policy(self) -> ast.StatementSyntax:
        name, table = self._policy_name()
        if self.accept("rename", "to"):
            return ast.AlterPolicyStatement(name, table, self.name(), None, None, None)
        roles = self._policy_roles()
        using, check = self._policy_expressions()
        return ast.AlterPolicyStatement(name, table, None, roles, using, check)

    def _drop_policy(self) -> ast.StatementSyntax:
        if_exists = self.accept("if", "exists")
        name, table = self._policy_name()
        if not self.accept("cascade"):
            self.accept("restrict")
        return ast.DropPolicyStatement(name, table, if_exists)

    def _comment_on_policy(self) -> ast.StatementSyntax:
        name, table = self._policy_name()
        self.expect("is")
        text = None if self.accept("null") else self.string()
        return ast.CommentPolicyStatement(name, table, text)

    def _policy_name(self) -> tuple[str, ast.TableRef]:
        name = self.name()
        self.expect("on")
        return name, self.table_name()

    def _policy_roles(self) -> tuple[RoleName, ...] | None:
        return self.list_of(self.role_name) if self.accept("to") else None

    def _policy_expressions(
        self,
    ) -> tuple[ast.PolicyExpression | None, ast.PolicyExpression | None]:
        using = self._policy_expression() if self.accept("using") else None
        check = self._policy_expression() if self.accept("with", "check") else None
        return using, check

    def _policy_expression(self) -> ast.PolicyExpression:
        self.expect_symbol("(")
        start = self.token.start
        self.expression()
        found = ast.PolicyExpression(self.text[start : self.last_end], start)
        self.expect_symbol(")")
        return found

    def _at_row_security(self) -> bool:
        """Return whether an action of ALTER TABLE is about row-level security."""
        return any(
            self.at_words(*action.split(), "row", "level", "security") for action in _ACTIONS
        )

    def _row_security(self, table: ast.TableRef, if_exists: bool) -> ast.StatementSyntax:
        actions = self.list_of(self._row_security_action)
        return ast.RowSecurityStatement(table, actions, if_exists)  # type: ignore[arg-type]

    def _row_security_action(self) -> str:
        for action in _ACTIONS:
            if self.accept(*action.split(), "row", "level", "security"):
                return action
        self.unsupported("ALTER TABLE of row-level security together with other actions")
