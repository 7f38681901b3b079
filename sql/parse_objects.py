"""Statements about objects: CREATE, DROP, ALTER ... RENAME, COMMENT ON, SHOW."""

from typing import Literal as OneOf

from foreshore.sql import ast
from foreshore.sql.grammar.base import IS
from foreshore.sql.lexer import NUMBER, QUOTED, STRING, WORD
from foreshore.sql.parse_query import QueryParser

_KINDS = (
    ("materialized", "view"),
    ("cluster", "replica"),
    ("cluster",),
    ("table",),
    ("view",),
    ("index",),
    ("schema",),
    ("database",),
)
_VERBS = frozenset(("create", "drop", "alter", "show", "comment", "on"))
_CONSTRAINTS = frozenset(("primary", "unique", "check", "references", "foreign", "exclude"))
_SHOWN = (
    ("materialized", "views"),
    ("cluster", "replicas"),
    ("tables",),
    ("views",),
    ("indexes",),
    ("clusters",),
    ("columns",),
    ("objects",),
    ("databases",),
    ("schemas",),
)


class ObjectParser(QueryParser):
    """Parses statements about objects."""

    # --- CREATE

    def create(self) -> ast.StatementSyntax:
        """Parse CREATE."""
        at = self.expect("create").start
        or_replace = self.accept("or", "replace")
        if self.at_word("temporary", "temp", "local", "global", "unlogged"):
            self.unsupported("CREATE TEMPORARY or UNLOGGED")
        if self.accept("materialized"):
            self.expect("view")
            return self._create_view(or_replace, materialized=True)
        if self.accept("view"):
            return self._create_view(or_replace, materialized=False)
        if or_replace:
            if self.at_word("function", "procedure", "rule", "trigger", "aggregate", "language"):
                self.unsupported(f"CREATE {self.token.value.upper()}")
            self.fail()
        if self.accept("table"):
            return self._create_table()
        if self.at_word("unique") and self.peek().value == "index":
            self.unsupported("a unique index")
        if self.at_words("default", "index"):
            self.advance()
            return self._create_index(at, default=True)
        if self.at_word("index"):
            return self._create_index(at, default=False)
        if self.at_word("database", "schema"):
            return self._create_namespace()
        if self.accept("cluster", "replica"):
            cluster = self.name()
            self.expect_symbol(".")
            return ast.CreateReplicaStatement(cluster, self.label(), self._options(), at)
        if self.accept("cluster"):
            return self._create_cluster(at)
        if self.token.kind == WORD:
            self.unsupported(f"CREATE {self.token.value.upper()}")
        self.fail()

    def _if_not_exists(self) -> bool:
        return self.accept("if", "not", "exists")

    def _create_namespace(self) -> ast.StatementSyntax:
        token = self.advance()
        if_not_exists = self._if_not_exists()
        at = self.token.start
        name = self.dotted()
        kind: OneOf["database", "schema"] = "database" if token.value == "database" else "schema"
        if self.at_word("authorization", "with", "owner", "template", "encoding"):
            self.unsupported(f"CREATE {kind.upper()} with options")
        return ast.CreateNamespaceStatement(kind, name, if_not_exists, at)

    def _create_view(self, or_replace: bool, *, materialized: bool) -> ast.StatementSyntax:
        if_not_exists = self._if_not_exists()
        name = self.table_name()
        columns = self.in_parentheses(self.name) if self.at_symbol("(") else ()
        cluster = self._in_cluster()
        if self.accept("with"):
            self.unsupported("options of a view")
        self.expect("as")
        at = self.token.start
        query = self.query()
        end = self.last_end
        if self.at_word("with"):
            self.accept("with", "data")
            if self.at_word("with"):
                self.unsupported("WITH NO DATA or CHECK OPTION")
        return ast.CreateViewStatement(
            name, columns, query, materialized, cluster, or_replace, if_not_exists, at, end
        )

    def _in_cluster(self) -> str | None:
        return self.name() if self.accept("in", "cluster") else None

    def _create_index(self, at: int, *, default: bool) -> ast.StatementSyntax:
        self.expect("index")
        self.accept("concurrently")
        if_not_exists = self._if_not_exists()
        name = None
        if not self.at_word("on", "in"):
            name = self.name()
        cluster = self._in_cluster()
        self.expect("on")
        on = self.table_name()
        if self.accept("using"):
            self.name()
        keys: tuple[ast.Expression, ...] = ()
        keys_at = keys_end = self.last_end
        if not default:
            keys_at = self.token.start
            keys = self.in_parentheses(self._index_key)
            keys_end = self.last_end
        elif self.at_symbol("("):
            self.fail()
        if self.at_word("where", "include", "with"):
            self.unsupported(f"CREATE INDEX ... {self.token.value.upper()}")
        return ast.CreateIndexStatement(
            name, on, keys, default, cluster, if_not_exists, at, keys_at, keys_end
        )

    def _index_key(self) -> ast.Expression:
        key = self.expression()
        if self.at_word("asc", "desc", "nulls"):
            self.unsupported("an order of an index's key")
        if self.token.kind == WORD and self.token.value.endswith("_ops"):
            self.advance()
        return key

    # --- CREATE TABLE

    def _create_table(self) -> ast.StatementSyntax:
        if_not_exists = self._if_not_exists()
        name = self.table_name()
        if self.at_word("as") or (self.at_symbol("(") and self._names_then_as()):
            self.unsupported("CREATE TABLE AS")
        if self.at_words("partition", "of") or self.at_word("of"):
            self.unsupported("CREATE TABLE OF")
        self._refused: tuple[str, int] | None = None
        columns: list[ast.ColumnDefinition] = []
        self.expect_symbol("(")
        while not self.at_symbol(")"):
            if self.at_word("constraint") or self.at_word(*_CONSTRAINTS):
                self._table_constraint()
            elif self.at_word("like"):
                self.unsupported("LIKE in CREATE TABLE")
            else:
                columns.append(self._column())
            if not self.accept_symbol(","):
                break
        self.expect_symbol(")")
        if self.at_words("with") and self.peek(2).value == "fillfactor":
            # How full to leave pages that we do not have.
            self.advance()
            self._options()
        if self.at_word("inherits", "partition", "using", "with", "without", "on", "tablespace"):
            self.unsupported(f"CREATE TABLE ... {self.token.value.upper()}")
        return ast.CreateTableStatement(name, tuple(columns), if_not_exists, self._refused)

    def _names_then_as(self) -> bool:
        ahead = 1
        while self.peek(ahead).kind in (WORD, QUOTED) and self.peek(ahead + 1).value == ",":
            ahead += 2
        return (
            self.peek(ahead).kind in (WORD, QUOTED)
            and self.peek(ahead + 1).value == ")"
            and self.peek(ahead + 2).value == "as"
        )

    def _column(self) -> ast.ColumnDefinition:
        name, at = self.name_at()
        column = ast.ColumnDefinition(name, self.type_name(), False, None, at)
        while not self.at_symbol(",") and not self.at_symbol(")"):
            if self.accept("constraint"):
                self.name()
            token = self.token
            if self.accept("not"):
                self.expect("null")
                column.not_null = True
            elif self.accept("null"):
                continue
            elif self.accept("default"):
                column.default = self.expression(IS)
            elif self.accept("collate"):
                self.any_name()
            elif self.at_word(*_CONSTRAINTS):
                self._refuse(token.value, token.start)
                self._skip_constraint()
            elif self.at_word("generated"):
                self.unsupported("a generated column")
            else:
                self.fail()
        return column

    def _table_constraint(self) -> None:
        if self.accept("constraint"):
            self.name()
        if not self.at_word(*_CONSTRAINTS):
            self.fail()
        self._refuse(self.token.value, self.token.start)
        self._skip_constraint()

    def _refuse(self, word: str, at: int) -> None:
        if self._refused is None:
            names = {
                "primary": "PRIMARY KEY",
                "references": "FOREIGN KEY",
                "foreign": "FOREIGN KEY",
            }
            self._refused = names.get(word, word.upper()), at

    def _skip_constraint(self) -> None:
        """Pass over a constraint that is refused anyway, to the comma or parenthesis behind it."""
        depth = 0
        while not self.at_end():
            if depth == 0 and (self.at_symbol(",") or self.at_symbol(")")):
                return
            if self.at_symbol("("):
                depth += 1
            elif self.at_symbol(")"):
                depth -= 1
            self.advance()
        self.fail()

    # --- clusters

    def _options(self) -> dict[str, str]:
        """Parse `NAME [=] value, ...`, in parentheses or not."""
        if self.at_symbol("("):
            return dict(self.in_parentheses(self._option))
        if self.at_end():
            return {}
        return dict(self.list_of(self._option))

    def _option(self) -> tuple[str, str]:
        words = [self.label()]
        while self.token.kind == WORD and not self.at_symbol("=") and self.peek(0).value not in (
            "true", "false", "on", "off",
        ):  # fmt: skip
            words.append(self.label())
        name = " ".join(words)
        self.accept_symbol("=")
        if self.at_symbol("("):
            self.fail()
        if self.token.kind not in (STRING, NUMBER, WORD, QUOTED):
            if len(words) > 1 and not self.at_symbol("("):
                # `SIZE embedded`: the value was taken for a second word.
                return " ".join(words[:-1]), words[-1]
            self.fail()
        return name, self.advance().value

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
        return ast.CreateClusterStatement(name, self._options(), None, if_not_exists, at)

    def _replica(self) -> tuple[str, dict[str, str]]:
        return self.name(), self._options()

    # --- DROP, ALTER

    def _kind(self) -> str:
        for words in _KINDS:
            if self.accept(*words):
                return " ".join(words)
        if self.token.kind == WORD:
            before = self.tokens[max(self.index - 2, 0) : self.index]
            verb = " ".join(each.value.upper() for each in before if each.value in _VERBS)
            self.unsupported(f"{verb} {self.token.value.upper()}")
        self.fail()

    def comment(self) -> ast.StatementSyntax:
        """Parse COMMENT ON."""
        self.expect("comment", "on")
        kind = (
            "column" if self.accept("column") else "role" if self.accept("role") else self._kind()
        )
        name = self.table_name()
        self.expect("is")
        return ast.CommentStatement(kind, name, None if self.accept("null") else self.string())

    def drop(self) -> ast.StatementSyntax:
        """Parse DROP."""
        self.expect("drop")
        if self.at_word("owned"):
            self.unsupported("DROP OWNED")
        kind = self._kind()
        self.accept("concurrently")
        if_exists = self.accept("if", "exists")
        names = self.list_of(self.table_name)
        cascade = self.accept("cascade")
        if not cascade:
            self.accept("restrict")
        return ast.DropStatement(kind, names, if_exists, cascade)

    def alter(self) -> ast.StatementSyntax:
        """Parse ALTER ... RENAME TO."""
        self.expect("alter")
        kind = self._kind()
        if_exists = self.accept("if", "exists")
        name = self.table_name()
        if not self.accept("rename"):
            words = self.token.value.upper() if self.token.kind == WORD else ""
            self.unsupported(f"ALTER {kind.upper()} ... {words}".rstrip(" ."))
        if not self.accept("to"):
            self.unsupported("renaming a column")
        return ast.RenameStatement(kind, name, self.name(), if_exists)

    # --- SHOW

    def show(self) -> ast.StatementSyntax:
        """Parse SHOW."""
        at = self.expect("show").start
        if self.accept("create"):
            kind = self._kind()
            return ast.ShowCreateStatement(kind, self.table_name())
        for words in _SHOWN:
            if self.at_words(*words) and (
                self.peek(len(words)).kind == "end"
                or self.peek(len(words)).value in (";", "from", "in", "like", "where", "on")
            ):
                self.accept(*words)
                return self._show_objects(" ".join(words), at)
        if self.accept("time", "zone"):
            return ast.ShowVariableStatement("timezone")
        if self.accept("transaction", "isolation", "level"):
            return ast.ShowVariableStatement("transaction_isolation")
        if self.accept("session", "authorization"):
            return ast.ShowVariableStatement("session_authorization")
        parts = [self.label()]
        while self.accept_symbol("."):
            parts.append(self.label())
        return ast.ShowVariableStatement(".".join(parts).lower())

    def _show_objects(self, what: str, at: int) -> ast.StatementSyntax:
        statement = ast.ShowStatement(what, (), None, None, at)
        while True:
            if self.accept("in", "cluster"):
                statement.in_cluster = self.name()
            elif self.accept("from") or self.accept("in"):
                statement.within = self.dotted()
            elif self.accept("on"):
                statement.on = self.dotted()
            else:
                break
        if self.accept("like"):
            statement.like = self.string()
        elif self.accept("where"):
            statement.where = self.expression()
        return statement
