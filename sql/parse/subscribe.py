"""Parse SUBSCRIBE and CREATE SUBSCRIPTION; clauses may come in any order, each once."""

from foreshore.errors import FeatureNotSupported, SyntaxError_
from foreshore.sql import ast
from foreshore.sql.parse.lexer import QUOTED, WORD
from foreshore.sql.parse.query import QueryParser

_TRUE, _FALSE = ("true", "on", "1"), ("false", "off", "0")
_ENVELOPES = ("upsert", "debezium")
_CLAUSES = ("with", "as", "up", "envelope", "within")


class SubscribeParser(QueryParser):
    """Parse SUBSCRIBE and CREATE SUBSCRIPTION."""

    def subscribe(self) -> ast.SubscribeStatement:
        """Parse SUBSCRIBE [TO] relation, (query) or SUBSCRIPTION name, with its clauses."""
        at = self.expect("subscribe").start
        self.accept("to")
        durable = self._at_subscription()
        source: ast.Query | ast.TableRef
        if self.at_symbol("("):
            source = self.parenthesised_query()
        elif self.at_word("select", "values") or self.at_word("with"):
            source = self.query()
        else:
            if durable:
                self.advance()
            source = self.table_name()
        options: dict[str, bool] | None = None
        as_of: ast.AsOf | None = None
        up_to: ast.Expression | None = None
        envelope: ast.Envelope | None = None
        order_by: tuple[ast.SortKey, ...] | None = None
        while True:
            token = self.token
            if options is None and self.accept("with"):
                given = self.in_parentheses(lambda: self._flag(("snapshot", "progress")))
                options = dict(given)
                if len(options) < len(given):
                    raise SyntaxError_("conflicting or redundant options", position=token.start + 1)
            elif as_of is None and self.at_words("as", "of"):
                if durable:
                    raise SyntaxError_(
                        "AS OF cannot be combined with a subscription",
                        hint="It begins at its position, which ALTER SUBSCRIPTION ... ADVANCE TO"
                        " moves.",
                        position=token.start + 1,
                    )
                as_of = self.as_of()
            elif up_to is None and self.accept("up", "to"):
                up_to = self.expression()
            elif envelope is None and self.accept("envelope"):
                envelope = self._envelope(token.start)
            elif order_by is None and self.accept("within", "timestamp", "order", "by"):
                order_by = self.list_of(self._sort_key)
            else:
                break
        return ast.SubscribeStatement(
            source, options or {}, as_of, up_to, envelope, order_by, at, durable
        )

    def _at_subscription(self) -> bool:
        """Return whether SUBSCRIPTION and a name follow, not a relation `subscription`."""
        after = self.peek()
        return self.at_word("subscription") and (
            after.kind == QUOTED or (after.kind == WORD and after.value not in _CLAUSES)
        )

    def create_subscription(self) -> ast.StatementSyntax:
        """Parse CREATE SUBSCRIPTION after these words."""
        if_not_exists = self.accept("if", "not", "exists")
        name = self.table_name()
        if self.at_word("connection"):
            raise FeatureNotSupported(
                "CREATE SUBSCRIPTION ... CONNECTION is not supported",
                hint="Say FOR and a relation, or FOR and a query in parentheses.",
                position=self.token.start + 1,
            )
        self.expect("for")
        if not self.at_symbol("("):
            relation = self.table_name()
            return ast.CreateSubscriptionStatement(
                name, relation, if_not_exists, relation.at, relation.end
            )
        self.expect_symbol("(")
        at = self.token.start
        query = self.query()
        end = self.last_end
        self.expect_symbol(")")
        return ast.CreateSubscriptionStatement(name, query, if_not_exists, at, end)

    def _flag(self, known: tuple[str, ...]) -> tuple[str, bool]:
        token = self.token
        name = self.label()
        if name not in known:
            raise SyntaxError_(
                f'unrecognized SUBSCRIBE option "{name}"',
                hint="Options are SNAPSHOT and PROGRESS.",
                position=token.start + 1,
            )
        self.accept_symbol("=")
        if self.at_symbol(",") or self.at_symbol(")"):
            return name, True
        value = self.advance()
        word = value.value.lower()
        if word not in _TRUE + _FALSE:
            raise SyntaxError_(f"{name} requires a Boolean value", position=value.start + 1)
        return name, word in _TRUE

    def _envelope(self, at: int) -> ast.Envelope:
        if not self.at_word(*_ENVELOPES):
            self.fail()
        kind = self.advance().value
        self.expect_symbol("(")
        self.expect("key")
        key = self.in_parentheses(self._key_column)
        self.expect_symbol(")")
        return ast.Envelope(kind, key, at)

    def _key_column(self) -> tuple[str, int]:
        at = self.token.start
        return self.name(), at

    def _sort_key(self) -> ast.SortKey:
        at = self.token.start
        expr = self.expression()
        descending = self.accept("desc")
        if not descending:
            self.accept("asc")
        nulls_first: bool | None = None
        if self.accept("nulls", "first"):
            nulls_first = True
        elif self.accept("nulls", "last"):
            nulls_first = False
        return ast.SortKey(expr, descending, nulls_first, at)
