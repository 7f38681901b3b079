"""Parse the options of views: REFRESH, TARGET LAG, RETAIN HISTORY, ASSERT NOT NULL, and others.

pg_dump writes an option as name='value', such as retain_history='1 day' or refresh='AT CREATION'.
"""

import msgspec
from msgspec.structs import replace

from foreshore.errors import SyntaxError_
from foreshore.sql import ast
from foreshore.sql.parse.expectations import ExpectationParser
from foreshore.sql.parse.lexer import STRING

_REPEATED = frozenset(("assert", "assert_not_null", "expect", "refresh", "lag"))


class ViewOptions(msgspec.Struct, kw_only=True):
    """The options of a view that are given; `at` is where they begin."""

    at: int
    retain: ast.Retain | None = None
    memory_limit: ast.MemoryLimit | None = None
    refresh: ast.RefreshOptions | None = None
    hydrate: ast.Hydrate | None = None
    emit_at: int | None = None
    cluster: str | None = None
    security_invoker: bool = False
    partition_by: tuple[tuple[str, int], ...] = ()  # columns with their offsets
    checks: ast.ViewChecks = msgspec.field(default_factory=ast.ViewChecks)


class RefreshParser(ExpectationParser):
    """Parse WITH (...) of views, and REFRESH MATERIALIZED VIEW."""

    def _view_options(self, *, materialized: bool) -> ViewOptions:
        """Parse `WITH (option, ...)` of a view, if present."""
        found = ViewOptions(at=self.token.start)
        if not self.at_word("with"):
            return found
        if self.peek().value != "(":
            self.unsupported("options of a view")
        self.advance()
        refreshes: list[ast.RefreshOption] = []
        policies: list[str] = []
        said: set[str] = set()

        def option() -> None:
            at = self.token.start
            name = self._check_option(found)
            if materialized and not name:
                name = self._maintained_option(found) or self._schedule(refreshes, policies)
                if not name:
                    self.unsupported(f"WITH ({self.token.value})")
            elif not name:
                found.security_invoker, name = self._security_invoker(), "security_invoker"
            elif not materialized and name not in ("assert_not_null", "expect"):
                self.unsupported("options of a view", at)
            if name in said:
                raise SyntaxError_("conflicting or redundant options", position=at + 1)
            said.update({name} - _REPEATED)

        self.in_parentheses(option)
        if refreshes or policies:
            policy = next(iter(policies), None)
            found.refresh = ast.RefreshOptions(tuple(refreshes), policy, found.at)
        return found

    def _security_invoker(self) -> bool:
        """Parse `security_invoker [= boolean]`."""
        if not self.at_word("security_invoker"):
            self.unsupported("options of a view")
        return self._boolean_option("security_invoker")

    def _check_option(self, found: ViewOptions) -> str:
        """Parse ASSERT NOT NULL, ON ERROR, or a check as pg_dump writes it; return its name."""
        name, checks = self.token.value, found.checks
        if self.at_word("assert"):
            found.checks = replace(checks, not_null=(*checks.not_null, self._asserted()))
        elif self.accept("assert_not_null"):
            self.expect_symbol("=")
            names: tuple[tuple[str, int], ...] = (
                self.within_string(lambda inside: inside.list_of(inside.name_at))
                if self.token.kind == STRING
                else (self.name_at(),)
            )
            found.checks = replace(checks, not_null=(*checks.not_null, *names))
        elif self.accept("expect"):
            self.expect_symbol("=")
            each = self.within_string(lambda inside: inside.expectation_alone())
            found.checks = replace(checks, expectations=(*checks.expectations, each))
        elif self.at_word("assertion"):
            found.checks = replace(checks, assertion=self._boolean_option("assertion"))
        elif self.at_word("on", "on_error"):
            policy = self._policy_of_errors() if self.accept("on_error") else self._error_policy()
            found.checks = replace(checks, skip_errors=policy == "skip")
            return "on_error"
        else:
            return ""
        return name

    def _maintained_option(self, found: ViewOptions) -> str:
        """Parse an option that says where and how a view is maintained; return its name."""
        at = self.token.start
        if self.accept("emit", "on", "window", "close"):
            found.emit_at = at
            return "emit"
        if self.at_word("emit_on_window_close"):  # as pg_dump writes it
            found.emit_at = at if self._boolean_option("emit_on_window_close") else None
            return "emit"
        if self.accept("partition", "by"):
            self.accept_symbol("=")
            found.partition_by = self.in_parentheses(self.name_at)
            return "partition"
        if self.at_word("retain", "retain_history"):
            found.retain = self._retain()
            return "retain"
        if self.at_word("memory", "memory_limit"):
            found.memory_limit = self._memory_limit()
            return "memory"
        if self.at_word("hydrate"):
            found.hydrate = self._hydrate()
            return "hydrate"
        if self.at_word("cluster"):
            found.cluster = self._option_in_cluster()
            return "cluster"
        return ""

    def _schedule(self, refreshes: list[ast.RefreshOption], policies: list[str]) -> str:
        """Parse REFRESH, REFRESH POLICY, TARGET LAG or FRESHNESS; return the option's name."""
        if self.accept("refresh", "policy") or self.accept("refresh_policy"):
            self.accept_symbol("=")
            policies.append(self.advance().value.lower())
            return "policy"
        if self.at_word("refresh"):
            refreshes.append(self._refresh())
            return "refresh"
        if self.at_words("target", "lag") or self.at_word("freshness", "target_lag"):
            if self.advance().value == "target":
                self.advance()
            self.accept_symbol("=")
            start = self.token.start
            interval = None if self.accept("downstream") else self.string()
            refreshes.append(ast.RefreshOption("lag", interval, None, start))
            return "lag"
        return ""

    def _refresh(self) -> ast.RefreshOption:
        """Parse `REFRESH [=] ON COMMIT | AT CREATION | AT time | EVERY '...' [ALIGNED TO time]`."""
        self.expect("refresh")
        self.accept_symbol("=")
        if self.token.kind == STRING:  # as pg_dump writes it
            return self.within_string(lambda inside: inside.schedule_alone())
        return self.schedule_alone()

    def schedule_alone(self) -> ast.RefreshOption:
        """Parse what follows REFRESH."""
        at = self.token.start
        if self.accept("on", "commit"):
            return ast.RefreshOption("commit", None, None, at)
        if self.accept("at", "creation"):
            return ast.RefreshOption("creation", None, None, at)
        if self.accept("at"):
            return ast.RefreshOption("at", None, self.expression(), at)
        self.expect("every")
        at = self.token.start
        interval = self.string()
        aligned = self.expression() if self.accept("aligned", "to") else None
        return ast.RefreshOption("every", interval, aligned, at)

    def refresh_view(self) -> ast.StatementSyntax:
        """Parse REFRESH MATERIALIZED VIEW."""
        self.expect("refresh", "materialized", "view")
        self.accept("concurrently")
        view = self.table_name()
        if self.accept("with"):
            if self.accept("no", "data"):
                self.unsupported("REFRESH MATERIALIZED VIEW ... WITH NO DATA")
            self.expect("data")
        return ast.RefreshViewStatement(view)

    def verify_view(self) -> ast.StatementSyntax:
        """Parse VERIFY MATERIALIZED VIEW."""
        self.expect("verify", "materialized", "view")
        view = self.table_name()
        as_of = self.as_of()
        return ast.VerifyViewStatement(view, as_of, self.name() if self.accept("on") else None)
