"""Parse CREATE CLUSTER, CREATE CLUSTER REPLICA, ALTER CLUSTER and SWAP WITH."""

from typing import Literal as OneOf

from foreshore.sql import ast
from foreshore.sql.parse.tables import TableParser

AUTO_SCALING = "auto scaling strategy"


class ClusterParser(TableParser):
    """Parse statements about clusters."""

    def _create_cluster(self, at: int) -> ast.StatementSyntax:
        if_not_exists = self._if_not_exists()
        name = self.name()
        if self.accept("replicas"):
            replicas = self.in_parentheses(self._replica)
            return ast.CreateClusterStatement(name, {}, replicas, if_not_exists, at)
        if self.at_symbol("(") and self.peek().value == "replicas":
            self.advance()
            self.advance()
            replicas = self.in_parentheses(self._replica)
            self.expect_symbol(")")
            return ast.CreateClusterStatement(name, {}, replicas, if_not_exists, at)
        if self.at_symbol("("):
            given = self.in_parentheses(self._cluster_option)
        else:
            given = () if self.at_end() else self.list_of(self._cluster_option)
        options = {name: value for each in given for name, value in each.items()}
        return ast.CreateClusterStatement(name, options, None, if_not_exists, at)

    def _cluster_option(self) -> dict[str, str]:
        """Parse an option; that of auto scaling gives one for each of its own options, too."""
        if not self.accept("auto", "scaling", "strategy"):
            return dict([self._option()])
        self.accept_symbol("=")
        self.expect_symbol("(")
        self.expect("on", "hydration")
        self.accept_symbol("=")
        options = dict(self.in_parentheses(self._option))
        self.expect_symbol(")")
        return {AUTO_SCALING: "on hydration", **{f"burst {n}": v for n, v in options.items()}}

    def _replica(self) -> tuple[str, dict[str, str]]:
        return self.name(), self._options()

    def _create_replica(self, at: int) -> ast.StatementSyntax:
        cluster = self.name()
        self.expect_symbol(".")
        return ast.CreateReplicaStatement(cluster, self.label(), self._options(), at)

    def _alter_cluster(self, name: ast.TableRef, if_exists: bool) -> ast.StatementSyntax | None:
        """Parse SET (...) [WITH (WAIT ...)] or RESET (...); None: it is neither."""
        at = self.token.start
        if self.at_word("set") and self.peek().value == "(":
            self.advance()
            given = self.in_parentheses(self._set_option)
            options: dict[str, str | None] = {}
            for each in given:
                options |= each
            wait = self._wait() if self.accept("with") else None
            return ast.AlterClusterStatement(name, options, wait, if_exists, at)
        if self.accept("reset"):
            reset = dict.fromkeys(self.in_parentheses(self._option_name))
            return ast.AlterClusterStatement(name, reset, None, if_exists, at)
        return None

    def _set_option(self) -> dict[str, str]:
        if self.at_word("managed") and self.peek().value in (",", ")"):
            return {self.label(): "true"}
        return self._cluster_option()

    def _option_name(self) -> str:
        words = [self.label()]
        while not (self.at_symbol(",") or self.at_symbol(")")):
            words.append(self.label())
        return " ".join(words)

    def _wait(self) -> ast.ClusterWait:
        """Parse `([WAIT] UNTIL READY (TIMEOUT ..., ON TIMEOUT ...))` or `(WAIT FOR ...)`."""
        self.expect_symbol("(")
        at = self.expect("wait").start
        if self.accept("for"):
            self.accept_symbol("=")
            wait = ast.ClusterWait(False, self.string(), "commit", at)
        else:
            self.expect("until", "ready")
            timeout: str | None = None
            on_timeout: OneOf["commit", "rollback"] = "commit"
            self.accept_symbol("=")
            self.expect_symbol("(")
            while True:
                if self.accept("on", "timeout"):
                    self.accept_symbol("=")
                    at_action = self.token
                    action = self.advance().value.lower()
                    if action == "rollback":
                        on_timeout = "rollback"
                    elif action != "commit":
                        self.fail(at_action)
                else:
                    self.expect("timeout")
                    self.accept_symbol("=")
                    timeout = self.string()
                if not self.accept_symbol(","):
                    break
            self.expect_symbol(")")
            if timeout is None:
                self.fail()
            wait = ast.ClusterWait(True, timeout, on_timeout, at)
        self.expect_symbol(")")
        return wait
