"""Parse queries, session statements, transactions, cursors and COPY; dispatch all others.

`statement` consumes one statement and leaves the cursor at the `;` or the end after it. A statement
of PostgreSQL that is not supported is reported by name, not as a syntax error.
"""

from collections.abc import Callable
from typing import Literal as OneOf

from foreshore.errors import FeatureNotSupported, SyntaxError_
from foreshore.sql import ast
from foreshore.sql.parse.changes import CHANGES
from foreshore.sql.parse.copying import CopyingParser
from foreshore.sql.parse.lexer import WORD
from foreshore.sql.parse.query import first_select

_UNSUPPORTED_WORDS = frozenset(
    [
        "call",
        "cluster",
        "do",
        "import",
        "load",
        "security",
    ]
)
_PREPARED = ("select", "values", "with", "insert", "update", "delete", "merge", "table")


class StatementParser(CopyingParser):
    """Parse statements."""

    def statement(self) -> ast.StatementSyntax:
        """Parse the current statement to its end."""
        at = self.token.start
        result = self._statement()
        if not self.at_end():
            if self.at_words("as", "of"):
                raise only_queries_have_times(self.token.start)
            self.fail()
        assert self.token.start >= at
        return result

    def _statement(self) -> ast.StatementSyntax:
        token = self.token
        if self.at_symbol("("):
            return self._query_statement()
        if token.kind != WORD:
            self.fail()
        if token.value in _UNSUPPORTED_WORDS:
            return self._unsupported_statement()
        parse = _STATEMENTS.get(token.value)
        if parse is None:
            self.fail()
        return parse(self)

    def _explained_sink(self) -> ast.StatementSyntax:
        """Parse `CREATE SINK ...` of EXPLAIN, perhaps without the sink's name."""
        self.expect("create", "sink")
        at = self.token.start
        if self.at_word("from", "in"):
            return self._sink_called(ast.TableRef(("sink",), None, (), at, at), False, at)
        return self._create_sink()

    def _unsupported_statement(self) -> ast.StatementSyntax:
        token = self.token
        while not self.at_end():
            self.advance()
        return ast.Unsupported(token.value.upper(), token.start)

    # --- queries

    def _query_statement(self) -> ast.SelectStatement | ast.CreateTableAsStatement:
        """Parse a query as a statement, with or without INTO."""
        statement = self.select_statement()
        select = first_select(statement.query)
        if select is None or select.into is None:
            return statement
        into, select.into = select.into, None
        return ast.CreateTableAsStatement(
            into.name, (), statement.query, True, False, into.temporary, as_of=statement.as_of
        )

    def _with(self) -> ast.StatementSyntax:
        """Parse a statement that begins with WITH."""
        if self.with_changes():
            return self.after_changes(*self.changing_with())
        start = self.mark()
        ctes, recursive = self.with_clause()
        if not self.at_word(*CHANGES):
            self.go_back(start)
            return self._query_statement()
        statement = self.change()
        statement.ctes, statement.recursive = ctes, recursive
        return statement

    # --- sessions

    def _set(self) -> ast.StatementSyntax:
        self.expect("set")
        local = self.accept("local")
        session = self.at_word("session") and self.peek().value not in ("=", "to")
        session = session and (not local or self.peek().value == "authorization")
        if session:
            self.advance()
            if not local and self.at_words("session", "authorization"):
                self.advance()
        if session and self.accept("characteristics"):
            self.expect("as", "transaction")
            return self._modes("characteristics")
        if not session and self.at_word("transaction") and self.peek().value not in ("=", "to"):
            self.advance()
            if self.at_word("snapshot"):
                self.unsupported("SET TRANSACTION SNAPSHOT")
            return self._modes("set")
        if self.accept("time", "zone"):
            if self.accept("default") or (self.at_word("local") and self.accept("local")):
                return ast.SetStatement("timezone", None, local)
            if self.at_word("interval"):
                return self._zone_interval(local)
            return ast.SetStatement("timezone", (self._setting(),), local)
        if not session and self.at_word("constraints") and self.peek().value not in ("=", "to"):
            return self._set_constraints()
        if session and self.accept("authorization", "default"):
            return ast.SetStatement("session_authorization", None, local)
        for word, variable in (("role", "role"), ("authorization", "session_authorization")):
            if self.at_word(word) and self.peek().value not in ("=", "to"):
                self.advance()
                return ast.SetStatement(variable, (self._setting(),), local)
        if self.at_word("names", "schema") and self.peek().value not in ("=", "to"):
            name = {"names": "client_encoding", "schema": "search_path"}[self.advance().value]
            return ast.SetStatement(name, (self._setting(),), local)
        name = self._variable()
        if not self.accept_symbol("="):
            self.expect("to")
        if self.accept("default"):
            return ast.SetStatement(name, None, local)
        return ast.SetStatement(name, self.list_of(self._setting), local)

    def _zone_interval(self, local: bool) -> ast.SetZoneStatement:
        self.expect("interval")
        if self.accept_symbol("("):
            self.integer()  # digits of a second, which no zone has
            self.expect_symbol(")")
        text, at = self.string(), self.token.start
        fields = None
        if self.accept("hour"):
            fields = "hour to minute" if self.accept("to", "minute") else "hour"
        elif self.accept("minute"):
            fields = "minute"
        elif not self.at_end():
            raise SyntaxError_("time zone interval must be HOUR or HOUR TO MINUTE", position=at + 1)
        return ast.SetZoneStatement(text, fields, local, at)

    def _reset_variable(self) -> ast.StatementSyntax:
        self.expect("reset")
        if self.accept("all"):
            return ast.ResetStatement(None)
        if self.accept("time", "zone"):
            return ast.ResetStatement("timezone")
        if self.accept("session", "authorization"):
            return ast.ResetStatement("session_authorization")
        return ast.ResetStatement(self._variable())

    def _begin(self) -> ast.StatementSyntax:
        if self.advance().value == "start":
            self.expect("transaction")
            return self._modes("start", required=False)
        if not self.accept("work"):
            self.accept("transaction")
        return self._modes("begin", required=False)

    def _modes(
        self, kind: OneOf["begin", "start", "set", "characteristics"], *, required: bool = True
    ) -> ast.TransactionStatement:
        result = ast.TransactionStatement(kind)
        first = True
        while not self.at_end():
            if not first:
                self.accept_symbol(",")
            first = False
            if self.accept("read", "only"):
                result.read_only = True
            elif self.accept("read", "write"):
                result.read_only = False
            elif self.accept("isolation", "level"):
                words = [self.label()]
                if words[0] in ("read", "repeatable", "strict"):
                    words.append(self.label())
                if words[0] == "bounded":
                    words += [self.label(), self.string()]
                result.isolation = " ".join(words)
            elif not (self.accept("not", "deferrable") or self.accept("deferrable")):
                self.fail()
        if first and required:
            self.fail()
        return result

    def _commit(self) -> ast.StatementSyntax:
        token = self.advance()
        if self.at_word("prepared"):
            self.unsupported("two-phase commit")
        if not self.accept("work"):
            self.accept("transaction")
        if token.value == "rollback" and self.accept("to"):
            self.accept("savepoint")
            return ast.SavepointStatement("rollback to", self.name())
        chain = False
        if self.accept("and"):
            chain = not self.accept("no")
            self.expect("chain")
        kind: OneOf["commit", "rollback"] = (
            "commit" if token.value in ("commit", "end") else "rollback"
        )
        return ast.TransactionStatement(kind, chain=chain)

    def _savepoint(self) -> ast.StatementSyntax:
        self.expect("savepoint")
        return ast.SavepointStatement("savepoint", self.name())

    def _release(self) -> ast.StatementSyntax:
        self.expect("release")
        self.accept("savepoint")
        return ast.SavepointStatement("release", self.name())

    def _prepare(self) -> ast.StatementSyntax:
        self.expect("prepare")
        if self.at_word("transaction"):
            self.unsupported("two-phase commit")
        name = self.name()
        types = self.in_parentheses(self.type_name) if self.at_symbol("(") else ()
        self.expect("as")
        start = self.token.start
        if not self.at_word(*_PREPARED):
            self.fail()
        self._statement()
        return ast.PrepareStatement(name, types, start, self.last_end)

    def _execute(self) -> ast.StatementSyntax:
        self.expect("execute")
        name = self.name()
        start = self.token.start
        args = self.in_parentheses(self.expression) if self.at_symbol("(") else ()
        return ast.ExecuteStatement(name, args, start, self.last_end)

    def _deallocate(self) -> ast.StatementSyntax:
        self.expect("deallocate")
        self.accept("prepare")
        return ast.DeallocateStatement(None if self.accept("all") else self.name())

    def _listen(self) -> ast.StatementSyntax:
        self.expect("listen")
        return ast.ListenStatement("listen", self.name())

    def _unlisten(self) -> ast.StatementSyntax:
        self.expect("unlisten")
        return ast.ListenStatement("unlisten", None if self.accept_symbol("*") else self.name())

    def _notify(self) -> ast.StatementSyntax:
        self.expect("notify")
        channel = self.name()
        return ast.NotifyStatement(channel, self.string() if self.accept_symbol(",") else "")

    def _vacuum(self) -> ast.StatementSyntax:
        self.expect("vacuum")
        if self.at_symbol("("):
            self.in_parentheses(self._maintenance_option)
        else:
            if self.at_word("full"):
                self.unsupported("VACUUM FULL")
            self.accept("freeze")
            self.accept("verbose")
            if not self.accept("analyze"):
                self.accept("analyse")
        return self._maintenance("vacuum")

    def _analyze(self) -> ast.StatementSyntax:
        self.advance()
        if self.at_symbol("("):
            self.in_parentheses(self._maintenance_option)
        else:
            self.accept("verbose")
        return self._maintenance("analyze")

    def _maintenance_option(self) -> None:
        """Parse `NAME [value]`; options of maintenance statements have no effect."""
        if self.at_word("full"):
            self.unsupported("VACUUM FULL")
        self.label()
        if not (self.at_symbol(",") or self.at_symbol(")")):
            self.advance()

    def _maintenance(self, verb: OneOf["vacuum", "analyze"]) -> ast.StatementSyntax:
        tables = () if self.at_end() else self.list_of(self._maintained)
        return ast.MaintenanceStatement(verb, tables)

    def _maintained(self) -> ast.TableRef:
        table = self.table_name()
        if self.at_symbol("("):  # columns, for statistics
            self.in_parentheses(self.name)
        return table

    def _reindex(self) -> ast.StatementSyntax:
        self.expect("reindex")
        if self.at_symbol("("):
            self.in_parentheses(self._maintenance_option)
        if not self.at_word("index", "table", "schema", "database", "system"):
            self.fail()
        kind = self.advance().value
        self.accept("concurrently")
        if kind in ("index", "table"):
            return ast.MaintenanceStatement("reindex", (self.table_name(),))
        self.name()
        return ast.MaintenanceStatement("reindex", ())

    def _checkpoint(self) -> ast.StatementSyntax:
        self.expect("checkpoint")
        return ast.MaintenanceStatement("checkpoint", ())

    def _discard(self) -> ast.StatementSyntax:
        self.expect("discard")
        what = "temp" if self.accept("temporary") else self.token.value
        if what != "temp" and not self.at_word("all", "plans", "sequences", "temp"):
            self.fail()
        if self.at_word("all", "plans", "sequences", "temp"):
            self.advance()
        return ast.DiscardStatement(what)


Parse = Callable[[StatementParser], ast.StatementSyntax]

_STATEMENTS: dict[str, Parse] = {
    "select": StatementParser._query_statement,
    "values": StatementParser.select_statement,
    "table": StatementParser.select_statement,
    "with": StatementParser._with,
    "subscribe": StatementParser.subscribe,
    "explain": StatementParser._explain,
    "insert": StatementParser._insert,
    "update": StatementParser._update,
    "delete": StatementParser._delete,
    "merge": StatementParser._merge,
    "truncate": StatementParser.truncate,
    "lock": StatementParser.lock,
    "validate": StatementParser.validate_connection,
    "copy": StatementParser.copy,
    "create": StatementParser.create,
    "drop": StatementParser.drop,
    "alter": StatementParser.alter,
    "comment": StatementParser.comment,
    "show": StatementParser.show,
    "inspect": StatementParser.inspect,
    "set": StatementParser._set,
    "reset": StatementParser._reset_variable,
    "begin": StatementParser._begin,
    "start": StatementParser._begin,
    "commit": StatementParser._commit,
    "end": StatementParser._commit,
    "rollback": StatementParser._commit,
    "abort": StatementParser._commit,
    "savepoint": StatementParser._savepoint,
    "release": StatementParser._release,
    "prepare": StatementParser._prepare,
    "execute": StatementParser._execute,
    "deallocate": StatementParser._deallocate,
    "declare": StatementParser.declare,
    "fetch": StatementParser.fetch,
    "move": StatementParser.fetch,
    "close": StatementParser.close_cursor,
    "listen": StatementParser._listen,
    "unlisten": StatementParser._unlisten,
    "notify": StatementParser._notify,
    "discard": StatementParser._discard,
    "vacuum": StatementParser._vacuum,
    "analyze": StatementParser._analyze,
    "reindex": StatementParser._reindex,
    "analyse": StatementParser._analyze,
    "checkpoint": StatementParser._checkpoint,
    "refresh": StatementParser.refresh_view,
    "verify": StatementParser.verify_view,
    "wait": StatementParser.wait_for_sinks,
    "grant": StatementParser.grant_or_revoke,
    "revoke": StatementParser.grant_or_revoke,
    "reassign": StatementParser.reassign_owned,
}


def only_queries_have_times(at: int) -> FeatureNotSupported:
    """Return the error for AS OF in a statement that reads nothing."""
    return FeatureNotSupported(
        "AS OF is for queries only",
        detail="A change takes effect at its commit: "
        "at another time it would alter results that were read already.",
        hint="AS OF follows the query whose time it sets: in SELECT, COPY (...), DECLARE, "
        "EXPLAIN, SUBSCRIBE, INSERT ... SELECT, CREATE TABLE ... AS, CREATE MATERIALIZED VIEW "
        "and CREATE INDEX.",
        position=at + 1,
    )


def unsupported(statement: ast.Unsupported) -> FeatureNotSupported:
    """Return the error for a statement of PostgreSQL that is not supported."""
    return FeatureNotSupported(f"{statement.what} is not supported", position=statement.at + 1)
