"""Parse what is expected of the rows of views.

    CREATE VIEW v (a, b, CONSTRAINT positive EXPECT (a > 0) ON VIOLATION DROP ROW) AS ...
    CREATE MATERIALIZED VIEW v WITH (ASSERT NOT NULL = a, ON ERROR = SKIP) AS ...

A kept statement has them after the query:

    CREATE VIEW v AS ... CONSTRAINT positive EXPECT (a > 0) ON VIOLATION DROP ROW
    CREATE VIEW v AS ... CONSTRAINT ASSERT NOT NULL (a)
    CREATE MATERIALIZED VIEW a AS ... CONSTRAINT ASSERTION
    CREATE MATERIALIZED VIEW v AS ... CONSTRAINT ON ERROR SKIP
"""

from typing import Literal as OneOf

from msgspec.structs import replace

from foreshore.errors import FeatureNotSupported
from foreshore.sql import ast
from foreshore.sql.parse.tables import TableParser


class ExpectationParser(TableParser):
    """Parse expectations, and columns that must not be NULL."""

    def _view_columns(self) -> tuple[tuple[str, ...], list[ast.Expectation]]:
        """Parse `(column, ..., CONSTRAINT name EXPECT ..., ...)`, if present."""
        columns: list[str] = []
        expectations: list[ast.Expectation] = []

        def item() -> None:
            if self.at_word("constraint"):
                expectations.append(self._expectation())
            elif expectations:
                self.fail()
            else:
                columns.append(self.name())

        if self.at_symbol("("):
            self.in_parentheses(item)
        return tuple(columns), expectations

    def _checks_after_query(
        self,
        expectations: list[ast.Expectation],
        options: ast.ViewChecks,
        *,
        materialized: bool,
    ) -> ast.ViewChecks:
        """Parse the checks that follow the query; return them, and those of columns and options."""
        expectations += options.expectations
        not_null = [*options.not_null]
        assertion, skips = options.assertion, options.skip_errors
        while self.at_word("constraint"):
            if self.at_words("constraint", "assertion") and self.peek(2).value != "expect":
                self.accept("constraint", "assertion")
                assertion = True
            elif self.accept("constraint", "assert", "not", "null"):
                not_null += self.in_parentheses(self.name_at)
            elif materialized and self.accept("constraint", "on", "error", "skip"):
                skips = True
            else:
                expectations.append(self._expectation())
        return ast.ViewChecks(tuple(expectations), tuple(not_null), assertion, skips)

    def _create_assertion(self) -> ast.CreateViewStatement:
        """Parse CREATE ASSERTION name [IN CLUSTER cluster] CHECK (NOT EXISTS (query))."""
        name = self.table_name()
        cluster = self.name() if self.accept("in", "cluster") else None
        self.expect("check")
        self.expect_symbol("(")
        if not self.at_words("not", "exists"):
            raise FeatureNotSupported(
                "this condition of an assertion is not supported",
                hint="Write CHECK (NOT EXISTS (SELECT ...)), with the rows that must not exist.",
                position=self.token.start + 1,
            )
        self.accept("not", "exists")
        self.expect_symbol("(")
        at = self.token.start
        query = self.query()
        end = self.last_end
        self.expect_symbol(")")
        self.expect_symbol(")")
        checks = ast.ViewChecks(assertion=True)
        return ast.CreateViewStatement(
            name, (), query, True, cluster, False, False, at, end, checks=checks
        )

    def _expectation(self) -> ast.Expectation:
        """Parse CONSTRAINT name EXPECT (condition) [ON VIOLATION action]."""
        self.expect("constraint")
        name, at = self.name_at()
        self.expect("expect")
        self.expect_symbol("(")
        start = self.token.start
        condition = self.expression()
        end = self.last_end
        self.expect_symbol(")")
        action: OneOf["fail", "drop row", "warn"] = "warn"
        if self.accept("on", "violation"):
            if self.accept("drop", "row"):
                action = "drop row"
            elif self.accept("fail"):
                self.accept("update")
                action = "fail"
            else:
                self.expect("warn")
        return ast.Expectation(name, condition, action, at, start, end)

    def expectation_alone(self) -> ast.Expectation:
        """Parse an expectation that is a text of its own."""
        found = self._expectation()
        return replace(found, text=self.text[found.start : found.end])

    def _error_policy(self) -> str:
        """Parse ON ERROR [=] FAIL | SKIP."""
        self.expect("on", "error")
        return self._policy_of_errors()

    def _policy_of_errors(self) -> str:
        """Parse [=] FAIL | SKIP."""
        self.accept_symbol("=")
        if self.at_word("null"):
            raise FeatureNotSupported(
                "ON ERROR = NULL is not supported",
                hint="SKIP leaves rows with errors out; FAIL, the default, makes reads fail.",
                position=self.token.start + 1,
            )
        if self.accept("skip"):
            return "skip"
        self.expect("fail")
        return "fail"

    def _alter_error_policy(self, view: ast.TableRef, if_exists: bool) -> ast.ErrorPolicyStatement:
        """Parse SET (ON ERROR = FAIL | SKIP), or RESET (ON ERROR)."""
        resets = self.accept("reset")
        if not resets:
            self.expect("set")

        def option() -> str:
            if not self.accept("on_error"):
                self.expect("on", "error")
            return "fail" if resets else self._policy_of_errors()

        (policy,) = self.in_parentheses(option)
        return ast.ErrorPolicyStatement(view, policy == "skip", if_exists)

    def _asserted(self) -> tuple[str, int]:
        """Parse ASSERT NOT NULL [=] column."""
        self.expect("assert", "not", "null")
        self.accept_symbol("=")
        return self.name_at()
