"""Parse statements about network policies.

CREATE NETWORK POLICY office (RULES (
here (ACTION = 'allow', DIRECTION = 'ingress', ADDRESS = '192.0.2.0/24')
))
"""

from foreshore.errors import SyntaxError_
from foreshore.sql import ast
from foreshore.sql.parse.query import QueryParser

_OPTIONS = ("action", "direction", "address")


class NetworkPolicyParser(QueryParser):
    """Parse CREATE and ALTER NETWORK POLICY."""

    def create_network_policy(self) -> ast.StatementSyntax:
        """Parse CREATE NETWORK POLICY after these words."""
        name = self.name()
        return ast.NetworkPolicyStatement(name, self.policy_rules(), True)

    def policy_rules(self) -> tuple[tuple[str, dict[str, str]], ...]:
        """Parse the rules of a policy, in parentheses."""
        self.expect_symbol("(")
        self.expect("rules")
        self.accept_symbol("=")
        self.expect_symbol("(")
        rules = () if self.at_symbol(")") else self.list_of(self._policy_rule)
        self.expect_symbol(")")
        self.expect_symbol(")")
        return rules

    def _policy_rule(self) -> tuple[str, dict[str, str]]:
        name, options = self.name(), dict[str, str]()
        for option, value, at in self.in_parentheses(self._rule_option):
            if option in options:
                raise SyntaxError_("conflicting or redundant options", position=at + 1)
            options[option] = value
        return name, options

    def _rule_option(self) -> tuple[str, str, int]:
        at = self.token.start
        if not self.at_word(*_OPTIONS):
            self.fail()
        option = self.advance().value
        self.accept_symbol("=")
        return option, self.string(), at
