"""Parse foreign keys, as constraints of a column or of a table."""

from foreshore.errors import SyntaxError_
from foreshore.foreign_key import Action
from foreshore.sql import ast
from foreshore.sql.parse.sequences import SequenceParser

Columns = tuple[tuple[str, int], ...]


class ForeignKeyParser(SequenceParser):
    """Parse foreign keys."""

    def _foreign_key(self, name: str | None, column: Columns | None) -> ast.ForeignKeyDefinition:
        """Parse `[FOREIGN KEY (columns)] REFERENCES ...`; `column` has the constraint."""
        at = self.token.start
        if column is None:
            self.expect("foreign", "key")
            columns = self.in_parentheses(self.name_at)
        else:
            columns = column
        self.expect("references")
        table = self.table_name()
        referenced = self.in_parentheses(self.name_at) if self.at_symbol("(") else ()
        found = ast.ForeignKeyDefinition(name, columns, table, referenced, at)
        if self.accept("match"):
            found.match_full = self.accept("full")
            if self.at_word("partial"):
                self.unsupported("MATCH PARTIAL")
            if not found.match_full:
                self.expect("simple")
        while self.accept("on"):
            on_delete = self.accept("delete")
            if not on_delete:
                self.expect("update")
            action = self._action()
            named: Columns = ()
            if self.at_symbol("(") and action.startswith("set"):
                if not on_delete:
                    self.unsupported("a column list with ON UPDATE SET")
                named = self.in_parentheses(self.name_at)
            if on_delete:
                found.on_delete, found.delete_columns = action, named
            else:
                found.on_update = action
        self._constraint_attributes(found, is_table=column is None)
        return found

    def _set_constraints(self) -> ast.SetConstraintsStatement:
        """Parse SET CONSTRAINTS after SET."""
        self.expect("constraints")
        names = () if self.accept("all") else self.list_of(self.table_name)
        deferred = self.accept("deferred")
        if not deferred:
            self.expect("immediate")
        return ast.SetConstraintsStatement(names, deferred)

    def _action(self) -> Action:
        if self.accept("no", "action"):
            return "no action"
        if self.accept("restrict"):
            return "restrict"
        if self.accept("cascade"):
            return "cascade"
        self.expect("set")
        if self.accept("null"):
            return "set null"
        self.expect("default")
        return "set default"

    def _constraint_attributes(self, key: ast.ForeignKeyDefinition, *, is_table: bool) -> None:
        """Parse DEFERRABLE, INITIALLY ... and, of a table's constraint, NOT VALID."""
        not_deferrable = False
        while True:
            at = self.token.start
            if self.accept("not", "deferrable"):
                not_deferrable = True
                if key.deferred:
                    raise SyntaxError_(
                        "constraint declared INITIALLY DEFERRED must be DEFERRABLE", position=at + 1
                    )
            elif self.accept("deferrable"):
                key.deferrable = True
            elif self.accept("initially", "deferred"):
                if not_deferrable:
                    raise SyntaxError_(
                        "constraint declared INITIALLY DEFERRED must be DEFERRABLE", position=at + 1
                    )
                key.deferrable = key.deferred = True
            elif self.accept("initially", "immediate"):
                key.deferred = False
            elif is_table and self.accept("not", "valid"):
                key.valid = False
            else:
                return
