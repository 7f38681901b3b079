"""Parse INSERT, UPDATE, DELETE and MERGE."""

from typing import Literal as OneOf
from typing import TypeAlias

from foreshore.sql import ast
from foreshore.sql.parse.lexer import END, OPERATOR, PUNCTUATION, QUOTED, WORD
from foreshore.sql.parse.objects import ObjectParser

Change: TypeAlias = (
    ast.InsertStatement | ast.UpdateStatement | ast.DeleteStatement | ast.MergeStatement
)
CHANGES = ("insert", "update", "delete", "merge")


class ChangeParser(ObjectParser):
    """Parse statements that change rows."""

    def change(self) -> Change:
        """Parse INSERT, UPDATE, DELETE or MERGE."""
        match self.token.value:
            case "insert":
                return self._insert()
            case "update":
                return self._update()
            case "delete":
                return self._delete()
            case _:
                return self._merge()

    # --- WITH

    def with_changes(self) -> bool:
        """Return whether one of the queries of the WITH that begins here changes rows."""
        depth, index = 0, self.index
        while (token := self.tokens[index]).kind != END and token.value != ";":
            if token.kind in (PUNCTUATION, OPERATOR):
                depth += {"(": 1, ")": -1}.get(token.value, 0)
            elif depth == 1 and token.kind == WORD and token.value in CHANGES:
                before, opening = self.tokens[index - 2], self.tokens[index - 1]
                if opening.value == "(" and before.value in ("as", "materialized"):
                    return True
            elif depth == 0 and token.value in ("select", "values", "table", *CHANGES):
                return False
            index += 1
        return False

    def changing_with(self) -> tuple[tuple[ast.CommonTable | ast.ChangingTable, ...], bool]:
        """Parse a WITH some queries of which change rows."""
        self.expect("with")
        recursive = self.accept("recursive")
        return self.list_of(self._query_of_with), recursive

    def _query_of_with(self) -> ast.CommonTable | ast.ChangingTable:
        name, at = self.name_at()
        columns = self.in_parentheses(self.name) if self.at_symbol("(") else ()
        self.expect("as")
        if self.accept("not"):
            self.expect("materialized")
        else:
            self.accept("materialized")
        self.expect_symbol("(")
        found: ast.CommonTable | ast.ChangingTable
        if self.at_word(*CHANGES):
            found = ast.ChangingTable(name, columns, self.change(), at)
        else:
            found = ast.CommonTable(name, columns, self.query(), at)
        self.expect_symbol(")")
        return found

    def after_changes(
        self, ctes: tuple[ast.CommonTable | ast.ChangingTable, ...], recursive: bool
    ) -> Change | ast.SelectStatement:
        """Parse the statement that follows a WITH some queries of which change rows."""
        if self.at_word(*CHANGES):
            statement = self.change()
            statement.ctes, statement.recursive = ctes, recursive
            return statement
        query = self.query()
        query.ctes, query.recursive = (*ctes, *query.ctes), recursive
        return ast.SelectStatement(query, self.as_of())

    # --- statements

    def _returning(self) -> tuple[ast.Target, ...]:
        return self.list_of(self.target) if self.accept("returning") else ()

    def _insert(self) -> ast.InsertStatement:
        self.expect("insert", "into")
        table = self.table_name()
        if self.accept("as"):
            table.alias = self.name()
        columns = None
        if self.at_symbol("(") and not (
            self.peek().kind == WORD and self.peek().value in ("select", "values", "with", "table")
        ) and self.peek().value != "(":  # fmt: skip
            columns = self.in_parentheses(self.name_at)
        overriding: OneOf["system", "user"] | None = None
        if self.accept("overriding"):
            overriding = "user" if self.at_word("user") else "system"
            self.expect(overriding, "value")
        source = None
        if not self.accept("default", "values"):
            source = self.query()
        as_of = self.as_of()
        conflict = self._on_conflict() if self.at_words("on", "conflict") else None
        returning = self._returning()
        return ast.InsertStatement(table, columns, source, returning, conflict, overriding, as_of)

    def _on_conflict(self) -> ast.OnConflict:
        at = self.expect("on", "conflict").start
        columns: tuple[tuple[str, int], ...] = ()
        constraint = None
        if self.at_symbol("("):
            columns = self.in_parentheses(self._conflict_column)
            if self.at_word("where"):
                self.unsupported("ON CONFLICT (...) WHERE")
        elif self.accept("on", "constraint"):
            constraint = self.name_at()
        self.expect("do")
        if self.accept("nothing"):
            return ast.OnConflict(columns, constraint, None, None, at)
        self.expect("update", "set")
        assignments = self.list_of(self._assignment)
        where = self.expression() if self.accept("where") else None
        return ast.OnConflict(columns, constraint, assignments, where, at)

    def _conflict_column(self) -> tuple[str, int]:
        if self.at_symbol("(") or self.peek().value == "(":
            self.unsupported("an expression as the target of ON CONFLICT")
        return self.name_at()

    def _changed_table(self) -> ast.TableRef:
        self.accept("only")
        table = self.table_name()
        self.accept_symbol("*")
        if (
            self.accept("as")
            or self.token.kind == QUOTED
            or (
                self.token.kind == WORD
                and self.token.value not in ("set", "using", "where")
                and not self.at_end()
                and not self.at_word("returning")
            )
        ):
            table.alias = self.name()
        return table

    def _update(self) -> ast.UpdateStatement:
        self.expect("update")
        table = self._changed_table()
        self.expect("set")
        assignments = self.list_of(self._assignment)
        from_ = self.list_of(self.from_item) if self.accept("from") else ()
        where = self._where()
        return ast.UpdateStatement(table, assignments, from_, where, self._returning())

    def _assignment(self) -> ast.Assignment:
        at = self.token.start
        multiple = self.at_symbol("(")
        columns = self.in_parentheses(self.name_at) if multiple else (self.name_at(),)
        subscripts = []
        while not multiple and self.at_symbol("["):
            subscripts.append(self._place())
        if self.at_symbol("."):
            self.unsupported("assigning to a field of a column")
        self.expect_symbol("=")
        return ast.Assignment(columns, self.expression(), multiple, at, tuple(subscripts))

    def _place(self) -> ast.Place:
        at = self.expect_symbol("[").start
        lower = None if self.at_symbol(":") else self.expression()
        is_slice = self.accept_symbol(":")
        upper = None if not is_slice or self.at_symbol("]") else self.expression()
        self.expect_symbol("]")
        return ast.Place(lower, upper, is_slice, at)

    def _delete(self) -> ast.DeleteStatement:
        self.expect("delete", "from")
        table = self._changed_table()
        using = self.list_of(self.from_item) if self.accept("using") else ()
        where = self._where()
        return ast.DeleteStatement(table, using, where, self._returning())

    def _where(self) -> ast.Expression | ast.CurrentOf | None:
        if not self.accept("where"):
            return None
        if self.at_words("current", "of"):
            self.expect("current", "of")
            return ast.CurrentOf(*self.name_at())
        return self.expression()

    def _merge(self) -> ast.MergeStatement:
        self.expect("merge", "into")
        table = self._changed_table()
        self.expect("using")
        source = self.from_item()
        self.expect("on")
        condition = self.expression()
        clauses = [self._merge_clause()]
        while self.at_word("when"):
            clauses.append(self._merge_clause())
        returning = self._returning()
        return ast.MergeStatement(table, source, condition, tuple(clauses), returning)

    def _merge_clause(self) -> ast.MergeClause:
        at = self.expect("when").start
        matched = not self.accept("not")
        self.expect("matched")
        condition = self.expression() if self.accept("and") else None
        self.expect("then")
        action: ast.MergeUpdate | ast.MergeDelete | ast.MergeInsert | ast.MergeNothing
        if self.accept("do", "nothing"):
            action = ast.MergeNothing()
        elif matched and self.accept("update"):
            self.expect("set")
            action = ast.MergeUpdate(self.list_of(self._assignment))
        elif matched and self.accept("delete"):
            action = ast.MergeDelete()
        elif not matched and self.at_word("insert"):
            action = self._merge_insert()
        else:
            self.fail()
        return ast.MergeClause(matched, condition, action, at)

    def _merge_insert(self) -> ast.MergeInsert:
        at = self.expect("insert").start
        columns = self.in_parentheses(self.name_at) if self.at_symbol("(") else None
        if self.at_word("overriding"):
            self.unsupported("OVERRIDING")
        if self.accept("default", "values"):
            return ast.MergeInsert(columns, None, at)
        self.expect("values")
        return ast.MergeInsert(columns, self.in_parentheses(self.expression), at)
