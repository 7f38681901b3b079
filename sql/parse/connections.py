"""Parse CREATE CONNECTION and ALTER CONNECTION."""

from foreshore.connection_spec import TUNNEL
from foreshore.errors import FeatureNotSupported
from foreshore.sql import ast
from foreshore.sql.parse.tables import TableParser

_OF_AWS = {
    ("aws", "privatelink"): "Use an address that this server reaches itself, or an SSH TUNNEL.",
    ("aws", "connection"): "Give the connection a user and a password, or keys, of its own.",
}


class ConnectionParser(TableParser):
    """Parse statements about connections."""

    def _create_connection(self) -> ast.StatementSyntax:
        if_not_exists = self._if_not_exists()
        name = self.table_name()
        self.expect("to")
        self._refuse_aws()
        at = self.token.start
        words = [self.label()]
        while not (self.at_end() or self.at_symbol("(")):
            words.append(self.label())
        options = self.in_parentheses(self._connection_option)
        validate = self._validate_option()
        return ast.CreateConnectionStatement(
            name, " ".join(words), options, if_not_exists, at, validate
        )

    def _validate_option(self) -> bool:
        """Parse `WITH (VALIDATE [= TRUE | FALSE])` if it is there."""
        if not self.accept("with"):
            return False
        self.expect_symbol("(")
        self.expect("validate")
        validate = True
        if self.accept_symbol("="):
            validate = self.accept("true")
            if not validate:
                self.expect("false")
        self.expect_symbol(")")
        return validate

    def _alter_connection(
        self, name: ast.TableRef, if_exists: bool
    ) -> ast.AlterConnectionStatement | None:
        """Parse ROTATE KEYS, or SET (...), DROP (...) and RESET (...); None: it is none of them."""
        if self.accept("rotate"):
            self.expect("keys")
            return ast.AlterConnectionStatement(name, (), if_exists, rotate=True)
        if not self.at_word("set", "drop", "reset"):
            return None
        clauses = self.list_of(self._connection_clause)
        options = tuple(option for clause in clauses for option in clause)
        validate = self._validate_option()
        return ast.AlterConnectionStatement(name, options, if_exists, validate=validate)

    def _connection_clause(self) -> tuple[ast.ConnectionOption, ...]:
        """Parse SET (...), DROP (...) or RESET (...)."""
        if self.accept("set"):
            return self.in_parentheses(self._connection_option)
        if not self.accept("drop"):
            self.expect("reset")
        return self.in_parentheses(self._connection_option_name)

    def validate_connection(self) -> ast.StatementSyntax:
        """Parse VALIDATE CONNECTION."""
        self.expect("validate", "connection")
        name, publication = self.table_name(), None
        if self.accept_symbol("("):
            self.expect("publication")
            self.accept_symbol("=")
            if not self.at_literal():
                self.fail()
            publication = self.advance().value
            self.expect_symbol(")")
        return ast.ValidateConnectionStatement(name, publication)

    def _connection_option(self) -> ast.ConnectionOption:
        """Parse `WORDS [=] text`, `WORDS [=] SECRET name` or `SSH TUNNEL [=] name`."""
        self._refuse_aws()
        at = self.token.start
        words = [self.label()]
        if words[0] in ("broker", "brokers"):
            return self._brokers(at)
        if words == ["ssh"] and self.accept("tunnel"):
            self.accept_symbol("=")
            return ast.ConnectionOption(TUNNEL, None, None, at, self.table_name())
        while not (self.at_symbol("=") or self.at_literal() or self._at_secret()):
            words.append(self.label())
        self.accept_symbol("=")
        name = " ".join(words)
        if self._at_secret():
            self.advance()
            return ast.ConnectionOption(name, None, self.table_name(), at)
        return ast.ConnectionOption(name, self.advance().value, None, at)

    def _brokers(self, at: int) -> ast.ConnectionOption:
        """Parse `BROKER address` or `BROKERS (address, ...)`, each with USING SSH TUNNEL or not."""
        self.accept_symbol("=")
        if self._at_secret():
            self.advance()
            return ast.ConnectionOption("broker", None, self.table_name(), at)
        several = self.at_symbol("(")
        found = self.in_parentheses(self._broker) if several else (self._broker(),)
        tunnels = {None if tunnel is None else tunnel.name for _, tunnel in found}
        if len(tunnels) > 1:
            self.unsupported("brokers behind different SSH tunnels", at)
        addresses, tunnel = ", ".join(each for each, _ in found), found[0][1]
        return ast.ConnectionOption("broker", addresses, None, at, tunnel)

    def _broker(self) -> tuple[str, ast.TableRef | None]:
        address = self.string()
        self._refuse_aws("using")
        through = self.table_name() if self.accept("using", "ssh", "tunnel") else None
        return address, through

    def _refuse_aws(self, *before: str) -> None:
        """Raise where a connection would go through AWS, or be known by rights of AWS."""
        for words, hint in _OF_AWS.items():
            if self.at_words(*before, *words):
                what = " ".join(words).upper()
                position = self.token.start + 1
                raise FeatureNotSupported(f"{what} is not supported", hint=hint, position=position)

    def _at_secret(self) -> bool:
        """Whether SECRET and a name follow, and no further word of an option."""
        after = self.peek(2)
        return self.at_word("secret") and after.value in (",", ")", ".")

    def _connection_option_name(self) -> ast.ConnectionOption:
        at = self.token.start
        words = [self.label()]
        while not (self.at_symbol(",") or self.at_symbol(")")):
            words.append(self.label())
        return ast.ConnectionOption(" ".join(words), None, None, at)
