"""Parse the options of a materialized view: REFRESH, TARGET LAG, RETAIN HISTORY, and others."""

from foreshore.errors import InvalidParameterValue, SyntaxError_
from foreshore.sql import ast
from foreshore.sql.parse.expectations import ExpectationParser

_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


class RefreshParser(ExpectationParser):
    """Parse WITH (...) of CREATE MATERIALIZED VIEW, and REFRESH MATERIALIZED VIEW."""

    def _view_options(
        self, not_null: list[tuple[str, int]], emits: list[int], errors: list[str]
    ) -> tuple[
        ast.Retain | None, ast.MemoryLimit | None, ast.RefreshOptions | None, ast.Hydrate | None
    ]:
        """Parse `WITH (option, ...)` of a materialized view, if present.

        Columns of ASSERT NOT NULL are added to `not_null`, the offset of EMIT to `emits`, what
        ON ERROR says to `errors`.
        """
        if not (self.at_word("with") and self.peek().value == "("):
            return None, None, None, None
        self.advance()
        at = self.token.start
        retain: list[ast.Retain] = []
        limits: list[ast.MemoryLimit] = []
        refreshes: list[ast.RefreshOption] = []
        policies: list[str] = []
        modes: list[ast.Hydrate] = []

        def option() -> None:
            if self.at_word("assert"):
                not_null.append(self._asserted())
            elif self.at_word("on"):
                errors.append(self._error_policy())
            elif self.accept("on_error"):  # as pg_dump writes it
                errors.append(self._policy_of_errors())
            elif self.at_word("emit"):
                emits.append(self.token.start)
                self.expect("emit", "on", "window", "close")
            elif self.at_word("emit_on_window_close"):  # as pg_dump writes it
                start = self.token.start
                if self._boolean_option("emit_on_window_close"):
                    emits.append(start)
            elif self.at_word("retain"):
                retain.append(self._retain())
            elif self.at_word("memory"):
                limits.append(self._memory_limit())
            elif self.at_word("hydrate"):
                modes.append(self._hydrate())
            elif self.accept("refresh", "policy"):
                self.accept_symbol("=")
                policies.append(self.advance().value.lower())
            elif self.at_word("refresh"):
                refreshes.append(self._refresh())
            elif self.at_words("target", "lag") or self.at_word("freshness"):
                if self.advance().value == "target":
                    self.advance()
                self.accept_symbol("=")
                start = self.token.start
                interval = None if self.accept("downstream") else self.string()
                refreshes.append(ast.RefreshOption("lag", interval, None, start))
            else:
                self.unsupported(f"WITH ({self.token.value})")

        self.in_parentheses(option)
        if any(len(each) > 1 for each in (retain, limits, policies, modes, emits, errors)):
            raise SyntaxError_("conflicting or redundant options", position=at + 1)
        found = None
        if refreshes or policies:
            found = ast.RefreshOptions(tuple(refreshes), next(iter(policies), None), at)
        return next(iter(retain), None), next(iter(limits), None), found, next(iter(modes), None)

    def _boolean_option(self, name: str) -> bool:
        """Parse `name [= boolean]`; return its value."""
        self.expect(name)
        if not self.accept_symbol("="):
            return True
        text = self.advance().value.lower()
        if text not in _TRUE + _FALSE:
            raise InvalidParameterValue(f'invalid value for boolean option "{name}": {text}')
        return text in _TRUE

    def _refresh(self) -> ast.RefreshOption:
        """Parse `REFRESH [=] ON COMMIT | AT CREATION | AT time | EVERY '...' [ALIGNED TO time]`."""
        self.expect("refresh")
        self.accept_symbol("=")
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
