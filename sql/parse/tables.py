"""Parse CREATE TABLE and ALTER TABLE with columns and constraints, TRUNCATE and LOCK TABLE."""

from typing import Literal as OneOf

from foreshore.errors import SyntaxError_
from foreshore.sql import ast
from foreshore.sql.parse.collations import check_collation
from foreshore.sql.parse.grammar.base import IS
from foreshore.sql.parse.lexer import QUOTED, WORD
from foreshore.sql.parse.relation_options import RelationOptionParser
from foreshore.sql.parse.sequences import NOT_OF_IDENTITY, SET_OPTIONS, add_option
from foreshore.sql.parse.tuning import column_tuning, table_tuning

_CONSTRAINTS = frozenset(("primary", "unique", "check", "references", "foreign", "exclude"))

LIKE_PROPERTIES = (
    "comments", "compression", "constraints", "defaults", "generated", "identity", "indexes",
    "statistics", "storage",
)  # fmt: skip

# Modes of LOCK TABLE; a longer mode precedes its prefix.
_LOCK_MODES = (
    "access share",
    "access exclusive",
    "row share",
    "row exclusive",
    "share update exclusive",
    "share row exclusive",
    "share",
    "exclusive",
)


class TableParser(RelationOptionParser):
    """Parse CREATE TABLE and ALTER TABLE."""

    # --- CREATE TABLE

    def _if_not_exists(self) -> bool:
        return self.accept("if", "not", "exists")

    def _create_source_table(
        self,
        name: ast.TableRef,
        columns: tuple[str, ...] | None,
        declared: tuple[ast.ColumnDefinition, ...],
        if_not_exists: bool,
        watermark: ast.WatermarkDefinition | None = None,
    ) -> ast.StatementSyntax:
        """Parse `FROM SOURCE ...` after the name of a table; the parser of sources does."""
        raise NotImplementedError

    def _create_webhook(self, name: ast.TableRef, if_not_exists: bool) -> ast.StatementSyntax:
        """Parse what follows `FROM WEBHOOK`; the parser of sources does."""
        raise NotImplementedError

    def _create_table(self, temporary: bool) -> ast.StatementSyntax:
        if_not_exists = self._if_not_exists()
        name = self.table_name()
        if self.at_word("as", "on") or (self.at_symbol("(") and self._names_then("as", "on")):
            return self._create_table_as(name, if_not_exists, temporary)
        if self.accept("from", "webhook"):
            return self._create_webhook(name, if_not_exists)
        if self.at_words("from", "source"):
            return self._create_source_table(name, None, (), if_not_exists)
        if self.at_symbol("(") and self._names_then("from"):
            columns_there = self.in_parentheses(self.name)
            return self._create_source_table(name, columns_there, (), if_not_exists)
        if self.at_words("partition", "of") or self.at_word("of"):
            self.unsupported("CREATE TABLE OF")
        columns: list[ast.ColumnDefinition | ast.LikeTable] = []
        constraints: list[ast.TableConstraint] = []
        indexes: list[tuple[str | None, str]] = []
        watermarks: list[ast.WatermarkDefinition] = []
        self.expect_symbol("(")
        while not self.at_symbol(")"):
            if self._watermark(watermarks):
                pass
            elif self._at_named_list("index"):
                indexes.append(self._index_of_table())
            elif self._at_named_list("family"):
                self._family()
            elif self.at_word("constraint") or self.at_word(*_CONSTRAINTS):
                constraints.append(self._table_constraint())
            elif self.at_word("like"):
                columns.append(self._like())
            else:
                columns.append(self._column(name, constraints))
            if not self.accept_symbol(","):
                break
            if self.at_symbol(")"):
                self.fail()
        self.expect_symbol(")")
        if self.at_words("from", "source"):
            declared = tuple(c for c in columns if isinstance(c, ast.ColumnDefinition))
            if constraints or indexes or len(declared) < len(columns):
                self.unsupported("a constraint on a table of a source", name.at)
            watermark = next(iter(watermarks), None)
            return self._create_source_table(name, None, declared, if_not_exists, watermark)
        retain, append_only = self._table_options()
        on_commit = self._on_commit()
        if self.at_word("inherits", "partition", "using", "with", "without", "tablespace"):
            self.unsupported(f"CREATE TABLE ... {self.token.value.upper()}")
        foreign = tuple(each for each in constraints if isinstance(each, ast.ForeignKeyDefinition))
        own = tuple(each for each in constraints if isinstance(each, ast.ConstraintDefinition))
        return ast.CreateTableStatement(
            name, tuple(columns), own, if_not_exists, retain, temporary, on_commit, foreign,
            tuple(indexes), append_only, next(iter(watermarks), None),
        )  # fmt: skip

    def _like(self) -> ast.LikeTable:
        """Parse `LIKE table [INCLUDING | EXCLUDING property] ...`."""
        self.expect("like")
        table = self.table_name()
        including: frozenset[str] = frozenset()
        while self.at_word("including", "excluding"):
            adds = self.advance().value == "including"
            if not self.at_word("all", *LIKE_PROPERTIES):
                self.fail()
            word = self.advance().value
            found = frozenset(LIKE_PROPERTIES if word == "all" else (word,))
            including = including | found if adds else including - found
        return ast.LikeTable(table, including)

    def _on_commit(self) -> ast.OnCommit | None:
        if not self.accept("on", "commit"):
            return None
        if self.accept("drop"):
            return "drop"
        preserve = self.accept("preserve")
        if not preserve:
            self.expect("delete")
        self.expect("rows")
        return "preserve rows" if preserve else "delete rows"

    def _create_table_as(
        self, name: ast.TableRef, if_not_exists: bool, temporary: bool
    ) -> ast.StatementSyntax:
        columns = self.in_parentheses(self.name) if self.at_symbol("(") else ()
        on_commit = self._on_commit()
        self.expect("as")
        if self.at_word("execute"):
            self.unsupported("CREATE TABLE AS EXECUTE")
        query = self.query()
        as_of = self.as_of()
        with_data = True
        if self.accept("with"):
            with_data = not self.accept("no")
            self.expect("data")
        return ast.CreateTableAsStatement(
            name, columns, query, with_data, if_not_exists, temporary, on_commit, as_of
        )

    def _names_then(self, *words: str) -> bool:
        """Return whether a list of names in parentheses follows, and one of the words."""
        ahead = 1
        while self.peek(ahead).kind in (WORD, QUOTED) and self.peek(ahead + 1).value == ",":
            ahead += 2
        return (
            self.peek(ahead).kind in (WORD, QUOTED)
            and self.peek(ahead + 1).value == ")"
            and self.peek(ahead + 2).value in words
        )

    def _column(
        self, table: ast.TableRef, constraints: list[ast.TableConstraint]
    ) -> ast.ColumnDefinition:
        """Parse a column of `table` and add its constraints to `constraints`."""
        name, at = self.name_at()
        column = ast.ColumnDefinition(name, self.type_name(), False, None, at)
        while not (self.at_symbol(",") or self.at_symbol(")") or self.at_end()):
            constraint = self.name() if self.accept("constraint") else None
            token = self.token
            if self.accept("not"):
                self.expect("null")
                column.not_null = True
            elif self.accept("null"):
                column.nullable = True
            elif self.at_word("default"):
                if column.default is not None:
                    raise SyntaxError_(
                        f'multiple default values specified for column "{name}" '
                        f'of table "{table.name[-1]}"',
                        position=token.start + 1,
                    )
                self.advance()
                column.default_at = self.token.start
                column.default, column.default_text = self._expression_with_text(IS)
            elif self.at_word("collate"):
                column.collated_at = self._collation()
            elif self.at_word(*_CONSTRAINTS):
                constraints.append(self._constraint(constraint, ((name, token.start),)))
            elif self.accept("generated"):
                self._generated(column, table, token.start)
            else:
                self.fail()
        return column

    def _collation(self) -> int:
        """Parse COLLATE, which has no effect; return its offset."""
        at = self.token.start
        self.expect("collate")
        check_collation(self.any_name()[-1], at)
        return at

    def _create_domain(self) -> ast.StatementSyntax:
        name = self.table_name()
        self.accept("as")
        value = ast.ColumnDefinition(name.name[-1], self.type_name(), False, None, name.at)
        constraints: list[ast.ConstraintDefinition] = []
        while not self.at_end():
            constraint = self.name() if self.accept("constraint") else None
            if self.accept("not", "null"):
                value.not_null = True
            elif self.accept("null"):
                value.nullable = True
            elif self.at_word("collate"):
                value.collated_at = self._collation()
            elif self.accept("default"):
                value.default_at = self.token.start
                value.default, value.default_text = self._expression_with_text(IS)
            elif self.at_word("check"):
                found = self._constraint(constraint, ())
                assert isinstance(found, ast.ConstraintDefinition), found
                constraints.append(found)
            else:
                self.fail()
        return ast.CreateDomainStatement(name, value, tuple(constraints))

    def _generated(self, column: ast.ColumnDefinition, table: ast.TableRef, start: int) -> None:
        """Parse what follows GENERATED in the definition of a column."""
        mark = self.mark()
        at = self.token.start
        always = self._always()
        self.expect("as")
        if not self.at_symbol("("):
            if column.identity is not None:
                raise SyntaxError_(
                    f'multiple identity specifications for column "{column.name}" '
                    f'of table "{table.name[-1]}"',
                    position=start + 1,
                )
            self.go_back(mark)
            column.identity = self._identity()
            return
        if not always:
            raise SyntaxError_(
                "for a generated column, GENERATED ALWAYS must be specified", position=at + 1
            )
        if column.generated is not None:
            raise SyntaxError_(
                f'multiple generation clauses specified for column "{column.name}" '
                f'of table "{table.name[-1]}"',
                position=at + 1,
            )
        self.expect_symbol("(")
        column.generated_at = self.token.start
        column.generated, column.generated_text = self._expression_with_text()
        self.expect_symbol(")")
        self.expect("stored")

    def _identity(self) -> ast.Identity:
        """Parse `ALWAYS | BY DEFAULT AS IDENTITY [(options)]`."""
        always = self._always()
        self.expect("as", "identity")
        options = ast.SequenceOptions({}, {})
        if self.accept_symbol("("):
            options = self._sequence_options()
            self.expect_symbol(")")
        return ast.Identity(always, options)

    def _always(self) -> bool:
        """Parse `ALWAYS | BY DEFAULT`."""
        always = self.accept("always")
        if not always:
            self.expect("by", "default")
        return always

    def _expression_with_text(self, level: int = 0) -> tuple[ast.Expression, str]:
        """Parse an expression; return it and its text."""
        start = self.token.start
        expression = self.expression(level)
        return expression, self.text[start : self.last_end]

    def _table_constraint(self) -> ast.TableConstraint:
        name = self.name() if self.accept("constraint") else None
        return self._constraint(name, None)

    def _constraint(
        self, name: str | None, column: tuple[tuple[str, int], ...] | None
    ) -> ast.TableConstraint:
        """Parse a constraint, of `column` if it is a column constraint."""
        at = self.token.start
        if self.accept("check"):
            self.expect_symbol("(")
            text_at = self.token.start
            condition, text = self._expression_with_text()
            self.expect_symbol(")")
            found = ast.ConstraintDefinition(
                "check", name, column or (), condition, text, True, at, text_at
            )
            if self.accept("no", "inherit"):
                return found
        elif self.at_word("primary", "unique"):
            primary = self.accept("primary", "key")
            if not primary:
                self.expect("unique")
            is_index = not primary and name is None and column is None and self.accept("index")
            if is_index and not self.at_symbol("("):
                name = self.name()
            distinct = True
            if not primary and self.accept("nulls"):
                distinct = not self.accept("not")
                self.expect("distinct")
            if self.at_words("using", "index"):
                self.unsupported("a constraint USING INDEX")
            one = self._index_column if is_index else self.name_at
            columns = column or self.in_parentheses(one)
            if is_index and self.at_word("where"):
                self.unsupported("a unique index with WHERE")
            if self.at_word("include", "using") or self.at_words("with"):
                self.unsupported(f"{self.token.value.upper()} of a constraint")
            kind: OneOf["primary key", "unique"] = "primary key" if primary else "unique"
            found = ast.ConstraintDefinition(
                kind, name, columns, None, "", distinct, at, is_index=is_index
            )
        elif self.at_word("references", "foreign"):
            return self._foreign_key(name, column)
        elif self.at_word("exclude"):
            self.unsupported("an EXCLUDE constraint")
        else:
            self.fail()
        if self.at_words("not", "valid"):
            self.unsupported("NOT VALID")
        if self.at_word("deferrable") or self.at_words("initially", "deferred"):
            self.unsupported("a deferrable constraint")
        self.accept("not", "deferrable")
        self.accept("initially", "immediate")
        return found

    # --- ALTER TABLE

    def _alter_table(self, name: ast.TableRef, if_exists: bool) -> ast.StatementSyntax:
        if self.accept("rename"):  # cannot be combined with other actions
            return ast.AlterTableStatement(name, (self._renaming(),), if_exists)
        actions = self.list_of(lambda: self._table_action(name))
        return ast.AlterTableStatement(name, actions, if_exists)

    def _renaming(self) -> ast.RenameConstraint | ast.RenameColumn:
        is_constraint = self.accept("constraint")
        if not is_constraint:
            self.accept("column")
        name = self.name()
        self.expect("to")
        to = self.name()
        return ast.RenameConstraint(name, to) if is_constraint else ast.RenameColumn(name, to)

    def _table_action(self, table: ast.TableRef) -> ast.TableAction:
        if self.accept("add"):
            if self.at_word("constraint") or self.at_word(*_CONSTRAINTS):
                return ast.AddConstraint(self._table_constraint())
            self.accept("column")
            if_not_exists = self._if_not_exists()
            constraints: list[ast.TableConstraint] = []
            new = self._column(table, constraints)
            return ast.AddColumn(new, tuple(constraints), if_not_exists)
        if self.accept("drop"):
            is_constraint = self.accept("constraint")
            if not is_constraint:
                self.accept("column")
            if_exists = self.accept("if", "exists")
            name = self.name()
            cascade = self.accept("cascade")
            if not cascade:
                self.accept("restrict")
            if is_constraint:
                return ast.DropConstraint(name, if_exists, cascade=cascade)
            return ast.DropColumn(name, if_exists, cascade)
        if self.accept("validate", "constraint"):
            return ast.ValidateConstraint(self.name())
        if self.accept("alter"):
            self.accept("column")
            return self._column_action(self.name())
        if (tuning := table_tuning(self)) is not None:
            return tuning
        if self.token.kind != WORD:
            self.fail()
        self.unsupported(f"ALTER TABLE ... {self.token.value.upper()}")

    def _column_action(self, column: str) -> ast.TableAction:
        """Parse an action of ALTER COLUMN."""
        if self.accept("set", "not", "null"):
            return ast.SetNotNull(column, True)
        if self.accept("drop", "not", "null"):
            return ast.SetNotNull(column, False)
        if self.accept("drop", "default"):
            return ast.SetDefault(column, None, "", 0)
        if self.accept("set", "default"):
            at = self.token.start
            return ast.SetDefault(column, *self._expression_with_text(), at)
        if self.at_words("set", "data") or self.at_word("type"):
            if self.accept("set"):
                self.expect("data")
            self.expect("type")
            type = self.type_name()
            if self.at_word("collate"):
                self._collation()
            using = self.expression() if self.accept("using") else None
            return ast.AlterColumnType(column, type, using)
        if self.accept("add"):
            self.expect("generated")
            return ast.AddIdentity(column, self._identity())
        if self.accept("drop", "identity"):
            return ast.DropIdentity(column, self.accept("if", "exists"))
        if self.at_word("restart") or (
            self.at_word("set") and self.peek(1).value in ("generated", *SET_OPTIONS)
        ):
            return self._set_identity(column)
        if (tuning := column_tuning(self, column)) is not None:
            return tuning
        self.unsupported(f"ALTER COLUMN ... {self.token.value.upper()}")

    def _set_identity(self, column: str) -> ast.SetIdentity:
        """Parse a sequence of `SET GENERATED ... | SET option | RESTART [WITH n]`."""
        generated: list[bool] = []
        options = ast.SequenceOptions({}, {})
        while self.at_word("set", "restart"):
            is_set = self.accept("set")
            at = self.token.start
            if is_set and self.accept("generated"):
                if generated:
                    raise SyntaxError_("conflicting or redundant options")
                generated.append(self._always())
                continue
            found = self._sequence_option()
            if found is None:
                self.fail()
            if is_set and found[0] in NOT_OF_IDENTITY:
                option = found[0].replace(" ", "_")
                raise SyntaxError_(
                    f'sequence option "{option}" not supported here', position=at + 1
                )
            add_option(options, *found, at)
        return ast.SetIdentity(column, generated[0] if generated else None, options)

    # --- TRUNCATE

    def truncate(self) -> ast.StatementSyntax:
        """Parse TRUNCATE."""
        self.expect("truncate")
        self.accept("table")
        tables = self.list_of(self._truncated_table)
        restart = self.at_word("restart")
        if self.at_word("restart", "continue"):
            self.expect(self.token.value, "identity")
        cascade = self.accept("cascade")
        if not cascade:
            self.accept("restrict")
        return ast.TruncateStatement(tables, restart, cascade)

    def lock(self) -> ast.StatementSyntax:
        """Parse LOCK TABLE."""
        self.expect("lock")
        self.accept("table")
        tables = self.list_of(self._truncated_table)
        mode = "access exclusive"
        if self.accept("in"):
            for each in _LOCK_MODES:
                if self.accept(*each.split()):
                    mode = each
                    break
            else:
                self.fail()
            self.expect("mode")
        return ast.LockTableStatement(tables, mode, self.accept("nowait"))

    def _truncated_table(self) -> ast.TableRef:
        self.accept("only")
        table = self.table_name()
        self.accept_symbol("*")
        return table
