"""Parse CREATE, DROP, ALTER, COMMENT ON and SHOW; `tables.py` parses those of tables."""

from typing import Literal as OneOf
from typing import NoReturn

from foreshore.errors import FeatureNotSupported, SyntaxError_
from foreshore.sql import ast
from foreshore.sql.parse.connections import ConnectionParser
from foreshore.sql.parse.grants import GrantParser
from foreshore.sql.parse.instead import INSTEAD
from foreshore.sql.parse.lexer import WORD
from foreshore.sql.parse.metrics import MetricParser
from foreshore.sql.parse.network import NetworkPolicyParser
from foreshore.sql.parse.policies import PolicyParser
from foreshore.sql.parse.query import first_select
from foreshore.sql.parse.refresh import RefreshParser
from foreshore.sql.parse.roles import ROLE_WORDS
from foreshore.sql.parse.subscribe import SubscribeParser
from foreshore.sql.parse.types import TypeDefinitionParser

_KINDS = (
    ("materialized", "view"),
    ("cluster", "replica"),
    ("cluster",),
    ("table",),
    ("view",),
    ("index",),
    ("sequence",),
    ("type",),
    ("domain",),
    ("subscription",),
    ("secret",),
    ("connection",),
    ("source",),
    ("sink",),
    ("metric",),
    ("network", "policy"),
    ("schema",),
    ("database",),
)
_IN_SCHEMAS = frozenset(
    ("table", "view", "materialized view", "sequence", "source", "sink", "metric")
)
_VERBS = frozenset(("create", "drop", "alter", "show", "comment", "on"))
_SHOWN = (
    ("materialized", "views"),
    ("cluster", "replicas"),
    ("tables",),
    ("views",),
    ("indexes",),
    ("subscriptions",),
    ("secrets",),
    ("network", "policies"),
    ("clusters",),
    ("columns",),
    ("objects",),
    ("databases",),
    ("schemas",),
    ("roles",),
    ("role", "membership"),
    ("privileges",),
    ("default", "privileges"),
    ("sources",),
    ("subsources",),
    ("sinks",),
    ("metrics",),
    ("connections",),
    ("types",),
    ("functions",),
    ("sequences",),
    ("assertions",),
    ("tokens",),
)


class ObjectParser(
    ConnectionParser,
    GrantParser,
    NetworkPolicyParser,
    PolicyParser,
    RefreshParser,
    MetricParser,
    SubscribeParser,
    TypeDefinitionParser,
):
    """Parse statements about objects."""

    # --- CREATE

    def create(self) -> ast.StatementSyntax:
        """Parse CREATE."""
        at = self.expect("create").start
        or_replace = self.accept("or", "replace")
        if not or_replace and self.accept("unlogged", "table"):
            return self._create_table(temporary=False)  # kept like any other
        if temporary := self._temporary():
            if self.at_word("recursive"):
                self.unsupported("CREATE RECURSIVE VIEW")
            if not self.at_word("view") and (or_replace or not self.at_word("table", "sequence")):
                self.fail()
        if self.accept("materialized"):
            self.expect("view")
            return self._create_view(or_replace, materialized=True)
        if self.accept("view"):
            return self._create_view(or_replace, materialized=False, temporary=temporary)
        if not or_replace and self.accept("assertion"):
            return self._create_assertion()
        if self.accept("function"):
            return self._create_function(or_replace)
        if self.accept("aggregate"):
            return self._create_aggregate(or_replace)
        if or_replace:
            if self.at_word("language", *INSTEAD):
                self._unsupported_object()
            self.fail()
        if self.accept("table"):
            return self._create_table(temporary)
        if self.accept("policy"):
            return self._create_policy()
        if self.accept("sequence"):
            return self._create_sequence(temporary)
        if self.accept("type"):
            return self._create_type()
        if self.accept("domain"):
            return self._create_domain()
        if self.accept("secret"):
            if_not_exists = self._if_not_exists()
            return ast.CreateSecretStatement(*self._secret(), if_not_exists)
        if self.accept("connection"):
            return self._create_connection()
        if self.accept("source"):
            return self._create_source()
        if self.accept("sink"):
            return self._create_sink()
        if self.accept("metric"):
            return self._create_metric()
        if self.accept("network", "policy"):
            return self.create_network_policy()
        if self.accept("subscription"):
            return self.create_subscription()
        if self.at_words("unique", "index"):
            self.advance()
            return self._create_unique_index(at)
        if self.at_words("default", "index"):
            self.advance()
            return self._create_index(at, default=True)
        if self.at_word("index"):
            return self._create_index(at, default=False)
        if self.at_word("database", "schema"):
            return self._create_namespace()
        if self.accept("cluster", "replica"):
            return self._create_replica(at)
        if self.accept("cluster"):
            return self._create_cluster(at)
        if self.at_word(*ROLE_WORDS):
            return self.create_role()
        if self.accept("token"):
            return self.create_token()
        if self.token.kind == WORD:
            self._unsupported_object()
        self.fail()

    def _unsupported_object(self) -> NoReturn:
        """Raise for CREATE of a kind of objects that there is not."""
        word = self.token.value
        self.unsupported(f"CREATE {word.upper()}", hint=INSTEAD.get(word.lower()))

    def _create_namespace(self) -> ast.StatementSyntax:
        token = self.advance()
        if_not_exists = self._if_not_exists()
        at = self.token.start
        kind: OneOf["database", "schema"] = "database" if token.value == "database" else "schema"
        name = () if self.at_word("authorization") else self.dotted()
        owner = None
        if kind == "schema" and self.accept("authorization"):
            owner = self.role_name()
            if not name and owner.means != "named":
                self.unsupported("CREATE SCHEMA AUTHORIZATION CURRENT_ROLE without a name", at)
            name = name or (owner.name,)
        elif kind == "database" and (self.at_word("owner") or self.at_words("with", "owner")):
            self.accept("with")
            self.expect("owner")
            self.accept_symbol("=")
            owner = self.role_name()
        if self.at_word("with", "template", "encoding"):
            self.unsupported(f"CREATE {kind.upper()} with options")
        return ast.CreateNamespaceStatement(kind, name, if_not_exists, at, owner)

    def _secret(self) -> tuple[ast.TableRef, ast.Expression]:
        name = self.table_name()
        self.expect("as")
        return name, self.expression()

    def _temporary(self) -> bool:
        """Parse `[[LOCAL | GLOBAL] TEMP[ORARY]]`; return whether it was present."""
        scoped = self.accept("local") or self.accept("global")
        found = self.accept("temporary") or self.accept("temp")
        if scoped and not found:
            self.fail()
        return found

    def _create_view(
        self, or_replace: bool, *, materialized: bool, temporary: bool = False
    ) -> ast.StatementSyntax:
        if_not_exists = self._if_not_exists()
        name = self.table_name()
        columns, expectations = self._view_columns()
        cluster = self._in_cluster()
        options = self._view_options(materialized=materialized)
        if cluster is not None and options.cluster is not None:
            raise SyntaxError_("conflicting or redundant options", position=options.at + 1)
        self.expect("as")
        at = self.token.start
        query = self.query()
        end = self.last_end
        checks = self._checks_after_query(expectations, options.checks, materialized=materialized)
        first = first_select(query)
        if first is not None and first.into is not None:
            raise FeatureNotSupported("views must not contain SELECT INTO")
        as_of = self.as_of() if materialized else None
        if self.at_word("with"):
            # pg_dump writes WITH NO DATA; the view is maintained from its creation all the same.
            no_data = materialized and self.accept("with", "no", "data")
            if not (no_data or self.accept("with", "data")):
                self.unsupported("CHECK OPTION")
        return ast.CreateViewStatement(
            name,
            columns,
            query,
            materialized,
            cluster or options.cluster,
            or_replace,
            if_not_exists,
            at,
            end,
            options.retain,
            temporary,
            as_of,
            options.memory_limit,
            options.refresh,
            checks,
            options.security_invoker,
            options.hydrate,
            options.emit_at,
            options.partition_by,
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
        if not default and self.at_symbol("("):
            keys_at = self.token.start
            keys = self.in_parentheses(self._index_key)
            keys_end = self.last_end
        elif self.at_symbol("("):
            self.fail()
        else:
            default = True
        included: tuple[tuple[str, int], ...] = ()
        if self.accept("include"):
            included = self.in_parentheses(self.name_at)
        retain, limit, hydrate, named = self._index_options()
        if cluster is not None and named is not None:
            raise SyntaxError_("conflicting or redundant options", position=at + 1)
        if self.at_word("where", "with"):
            self.unsupported(f"CREATE INDEX ... {self.token.value.upper()}")
        return ast.CreateIndexStatement(
            name, on, keys, default, cluster or named, if_not_exists, at, keys_at, keys_end, retain,
            limit, included, hydrate, self.as_of(),
        )  # fmt: skip

    def _create_unique_index(self, at: int) -> ast.StatementSyntax:
        self.expect("index")
        self.accept("concurrently")
        if_not_exists = self._if_not_exists()
        name = None if self.at_word("on") else self.name()
        if if_not_exists and name is None:
            self.fail()
        self.expect("on")
        self.accept("only")
        on = self.table_name()
        if self.accept("using") and self.name() != "btree":
            self.unsupported("a unique index that is no btree")
        columns = self.in_parentheses(self._unique_key)
        distinct = True
        if self.accept("nulls"):
            distinct = not self.accept("not")
            self.expect("distinct")
        if self.at_word("where", "include", "with"):
            self.unsupported(f"CREATE UNIQUE INDEX ... {self.token.value.upper()}")
        index = ast.ConstraintDefinition(
            "unique", name, columns, None, "", distinct, at, is_index=True
        )
        return ast.CreateUniqueIndexStatement(on, index, if_not_exists)

    def _unique_key(self) -> tuple[str, int]:
        """Parse a column of a unique key; the sort order is accepted without effect."""
        if self.at_symbol("(") or self.peek().value in ("(", "."):
            self.unsupported("a unique index on an expression")
        found = self.name_at()
        self._key_order()
        return found

    # --- DROP, ALTER

    def _kind(self) -> str:
        if self.accept("assertion"):
            return "materialized view"
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
        if self.accept("function") or self.accept("routine") or self.accept("aggregate"):
            return self._comment_on_function()
        if self.accept("policy"):
            return self._comment_on_policy()
        if self.accept("constraint"):
            constraint = self.name()
            self.expect("on")
            if self.at_word("domain"):
                self.unsupported("COMMENT ON a constraint of a domain")
            table = self.table_name()
            self.expect("is")
            text = None if self.accept("null") else self.string()
            return ast.CommentStatement("constraint", table, text, constraint)
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
            return self.drop_owned()
        if self.at_word(*ROLE_WORDS):
            return self.drop_role()
        if self.accept("token"):
            return self.drop_token()
        if self.accept("function") or self.accept("aggregate"):
            return self._drop_function()
        if self.accept("policy"):
            return self._drop_policy()
        assertions = self.at_word("assertion")
        kind = self._kind()
        self.accept("concurrently")
        if_exists = self.accept("if", "exists")
        names = self.list_of(self.table_name)
        cascade = self.accept("cascade")
        if not cascade:
            self.accept("restrict")
        return ast.DropStatement(kind, names, if_exists, cascade, assertions)

    def alter(self) -> ast.StatementSyntax:
        """Parse ALTER."""
        self.expect("alter")
        if self.at_word(*ROLE_WORDS):
            return self.alter_role()
        if self.accept("system"):
            return ast.AlterSystemStatement(*self.kept_setting())
        if self.at_word("default"):
            return self.default_privileges()
        if self.accept("function") or self.accept("routine") or self.accept("aggregate"):
            return self._alter_function()
        if self.accept("policy"):
            return self._alter_policy()
        kind = self._kind()
        if_exists = self.accept("if", "exists")
        if kind == "table":
            self.accept("only")
        name = self.table_name()
        if self.accept("rename", "to"):
            return ast.RenameStatement(kind, name, self.name(), if_exists)
        if kind in ("view", "materialized view") and self.accept("rename"):
            self.accept("column")
            column = self.name()
            self.expect("to")
            return ast.RenameColumnStatement(kind, name, column, self.name(), if_exists)
        if self.accept("owner", "to"):
            return ast.OwnerStatement(kind, name, self.role_name(), if_exists)
        if kind == "database" and self.at_word("set", "reset"):
            setting, values = self.kept_setting()
            return ast.RoleSettingStatement(None, name.name[-1], setting, values, True)
        if kind in _IN_SCHEMAS and self.accept("set", "schema"):
            return ast.SetSchemaStatement(kind, name, self.name(), if_exists)
        if kind in ("cluster", "schema") and self.accept("swap", "with"):
            swapped: OneOf["cluster", "schema"] = "cluster" if kind == "cluster" else "schema"
            return ast.SwapStatement(swapped, name, self.table_name())
        if kind == "cluster" and (altered := self._alter_cluster(name, if_exists)) is not None:
            return altered
        if kind == "materialized view" and self.accept("set", "cluster"):
            self.accept_symbol("=")
            return ast.SetClusterStatement(name, self.name(), if_exists)
        if kind == "view" and self.at_word("set", "reset") and self.peek(1).value == "(":
            if self.accept("set"):
                (invoker,) = self.in_parentheses(self._security_invoker)
            else:
                self.advance()
                self.in_parentheses(self._security_invoker)
                invoker = False
            return ast.SecurityInvokerStatement(name, invoker, if_exists)
        if kind in ("materialized view", "index"):
            if self.at_word("set") and self.peek(2).value == "memory":
                self.advance()
                (limit,) = self.in_parentheses(self._memory_limit)
                return ast.LimitMemoryStatement(kind, name, limit, if_exists)
            if self.at_word("reset") and self.peek(2).value == "memory":
                self.advance()
                self.expect_symbol("(")
                self.expect("memory", "limit")
                self.expect_symbol(")")
                return ast.LimitMemoryStatement(kind, name, None, if_exists)
        if kind == "materialized view" and self.peek(2).value in ("on", "on_error"):
            return self._alter_error_policy(name, if_exists)
        if kind in ("table", "source", "materialized view", "index"):
            if self.at_word("set") and self.peek(2).value == "retain":
                self.advance()
                return ast.RetainStatement(kind, name, self._retain_options(), if_exists)
            if self.at_word("reset") and self.peek(2).value == "retain":
                self.advance()
                self.expect_symbol("(")
                self.expect("retain", "history")
                self.expect_symbol(")")
                return ast.RetainStatement(kind, name, None, if_exists)
        if kind == "table" and self._at_row_security():
            return self._row_security(name, if_exists)
        if kind == "table":
            return self._alter_table(name, if_exists)
        if kind == "network policy" and not if_exists and self.accept("set"):
            return ast.NetworkPolicyStatement(name.name[-1], self.policy_rules(), False)
        if kind == "connection" and (to := self._alter_connection(name, if_exists)) is not None:
            return to
        if kind == "source" and (tables := self._alter_source(name, if_exists)) is not None:
            return tables
        if kind == "sink" and (set := self._alter_options("sink", name, if_exists)) is not None:
            return set
        if kind == "secret" and self.accept("as"):
            return ast.AlterSecretStatement(name, self.expression(), if_exists)
        if kind == "type":
            return self._alter_type(name)
        if kind == "sequence":
            options = self._sequence_options()
            if not options.given:
                self.fail()
            return ast.AlterSequenceStatement(name, options, if_exists)
        if kind == "subscription" and self.accept("advance"):
            since = self.expression() if self.accept("from") else None
            self.expect("to")
            return ast.AdvanceStatement(name, since, self.expression(), if_exists)
        words = self.token.value.upper() if self.token.kind == WORD else ""
        self.unsupported(f"ALTER {kind.upper()} ... {words}".rstrip(" ."))

    # --- SHOW

    def show(self) -> ast.StatementSyntax:
        """Parse SHOW."""
        at = self.expect("show").start
        redacted = self.at_word("redacted") and self.peek().value == "create"
        if redacted:
            self.advance()
        if self.accept("create"):
            if not redacted and (self.accept("function") or self.accept("aggregate")):
                return self._show_create_function()
            if not redacted and self.accept("all"):
                return ast.ShowCreateAllStatement()
            kind = self._kind()
            return ast.ShowCreateStatement(kind, self.table_name(), redacted)
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
            return ast.ShowVariableStatement("transaction isolation level")
        if self.accept("session", "authorization"):
            return ast.ShowVariableStatement("session_authorization")
        parts = [self.label()]
        while self.accept_symbol("."):
            parts.append(self.label())
        return ast.ShowVariableStatement(".".join(parts).lower())

    def inspect(self) -> ast.ShowStatement:
        """Parse INSPECT SHARD 'id'."""
        at = self.expect("inspect").start
        self.expect("shard")
        return ast.ShowStatement("shard", (self.string(),), None, None, at)

    def _show_create_function(self) -> ast.ShowStatement:
        """Parse the name of a function, perhaps with the types of its arguments."""
        at = self.token.start
        self.any_name()
        if self.at_symbol("("):
            while not self.at_end() and not self.at_symbol(")"):
                self.advance()
            self.expect_symbol(")")
        signature = self.text[at : self.last_end]
        return ast.ShowStatement("create function", (signature,), None, None, at)

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
