"""Syntax of statements about network policies."""

from foreshore.sql.ast.expressions import Syntax


class NetworkPolicyStatement(Syntax):
    """CREATE NETWORK POLICY, or ALTER ... SET (RULES ...); rules are names with options."""

    name: str
    rules: tuple[tuple[str, dict[str, str]], ...]
    creates: bool
