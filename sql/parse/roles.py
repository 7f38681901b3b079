"""Parse statements about roles: CREATE, ALTER and DROP ROLE, and what roles own."""

from typing import Any

from foreshore.errors import FeatureNotSupported, InvalidName, InvalidParameterValue, SyntaxError_
from foreshore.role_options import Password, RoleName, RoleOptions
from foreshore.sql import ast
from foreshore.sql.parse.lexer import NUMBER, QUOTED, STRING, WORD
from foreshore.sql.parse.query import QueryParser

# The words that set an attribute; each with NO before it clears it.
_FLAGS = {
    "superuser": "superuser",
    "createdb": "create_db",
    "createrole": "create_role",
    "createcluster": "create_cluster",
    "createnetworkpolicy": "create_network_policy",
    "inherit": "inherit",
    "login": "login",
    "replication": "replication",
    "bypassrls": "bypass_rls",
}
ROLE_WORDS = ("role", "user", "group")


class RoleParser(QueryParser):
    """Parse statements about roles."""

    # --- names

    def role_name(self) -> RoleName:
        """Parse a role: a name, PUBLIC, CURRENT_ROLE, CURRENT_USER or SESSION_USER."""
        quoted = self.token.kind == QUOTED
        if self.at_word("current_user", "current_role"):
            return RoleName(self.advance().value, "current")
        if self.at_word("session_user"):
            return RoleName(self.advance().value, "session")
        name = self.name()
        if name == "public" and not quoted:
            return RoleName(name, "public")
        if name == "none":
            raise _reserved(name)
        return RoleName(name)

    def own_name(self) -> str:
        """Parse the name of one role: no other word for it."""
        found = self.role_name()
        if found.means == "public":
            raise _reserved(found.name)
        if found.means != "named":
            raise InvalidName(
                f"{found.name.upper()} cannot be used as a role name here", sqlstate="42939"
            )
        return found.name

    # --- CREATE, ALTER and DROP

    def create_role(self) -> ast.StatementSyntax:
        """Parse CREATE ROLE, USER or GROUP from its second word on."""
        is_user = self.advance().value == "user"
        name = RoleName(self.own_name())
        options = _Options()
        self.accept("with")
        while not self.at_end():
            if not (self._members_option(options) or self._role_option(options)):
                self._unknown_option()
        given = options.attributes
        given.setdefault("login", is_user)
        return ast.CreateRoleStatement(
            name, RoleOptions(**given), options.in_roles, options.members, options.admins
        )

    def _members_option(self, options: "_Options") -> bool:
        at = self.token.start
        if self.accept("sysid"):
            self.integer()
        elif self.accept("in"):
            if not self.accept("role"):
                self.expect("group")
            options.once("in role", at)
            options.in_roles = self.list_of(self.role_name)
        elif self.accept("admin"):
            options.once("admin", at)
            options.admins = self.list_of(self.role_name)
        elif self.accept("role") or self.accept("user"):
            options.once("role", at)
            options.members = self.list_of(self.role_name)
        else:
            return False
        return True

    def _role_option(self, options: "_Options") -> bool:
        at = self.token.start
        if self.at_word("password") or self.at_words("encrypted", "password"):
            self.accept("encrypted")
            self.advance()
            secret = None
            if not self.accept("null"):
                if self.token.kind != STRING:  # which may be the password, and is not shown
                    raise SyntaxError_(
                        "syntax error: PASSWORD needs a string constant", position=at + 1
                    )
                secret = self.string()
            options.add("password", Password(secret), at)
        elif self.accept("unencrypted", "password"):
            raise FeatureNotSupported(
                "UNENCRYPTED PASSWORD is no longer supported",
                hint="Remove UNENCRYPTED to store the password in encrypted form instead.",
                position=at + 1,
            )
        elif self.accept("connection", "limit"):
            limit = -self.integer() if self.accept_symbol("-") else self.integer()
            if not -1 <= limit < 2**31:
                raise InvalidParameterValue(f"invalid connection limit: {limit}")
            options.add("connection_limit", limit, at)
        elif self.accept("valid", "until"):
            options.add("valid_until", self.string(), at)
        elif self.token.kind == WORD and (word := self.token.value).removeprefix("no") in _FLAGS:
            self.advance()
            options.add(_FLAGS[word.removeprefix("no")], not word.startswith("no"), at)
        else:
            return False
        return True

    def _unknown_option(self) -> None:
        token = self.token
        if token.kind == STRING:  # it may be a password
            raise SyntaxError_("syntax error at or near a constant", position=token.start + 1)
        if token.kind not in (WORD, QUOTED):
            self.fail()
        raise SyntaxError_(f'unrecognized role option "{token.value}"', position=token.start + 1)

    def alter_role(self) -> ast.StatementSyntax:
        """Parse ALTER ROLE, USER or GROUP from its second word on."""
        word = self.advance().value
        if word != "group" and self.accept("all"):
            return self._role_setting(None)
        role = self.role_name()
        if self.accept("rename", "to"):
            return ast.RenameRoleStatement(role.name, self.own_name())
        if word == "group":
            adds = self.accept("add")
            if not adds:
                self.expect("drop")
            self.expect("user")
            members = self.list_of(self.role_name)
            return ast.GrantRoleStatement(adds, (role,), members, False, None, "ALTER ROLE")
        if self.at_word("set", "reset") or self.at_words("in", "database"):
            return self._role_setting(role)
        options = _Options()
        self.accept("with")
        while not self.at_end():
            if not self._role_option(options):
                self._unknown_option()
        return ast.AlterRoleStatement(role, RoleOptions(**options.attributes))

    def drop_role(self) -> ast.StatementSyntax:
        """Parse DROP ROLE, USER or GROUP from its second word on."""
        self.advance()
        if_exists = self.accept("if", "exists")
        return ast.DropRoleStatement(self.list_of(self.role_name), if_exists)

    # --- tokens

    def create_token(self) -> ast.StatementSyntax:
        """Parse CREATE TOKEN from its name on."""
        name, role = self.name(), self._token_role()
        valid_until = self.string() if self.accept("valid", "until") else None
        return ast.CreateTokenStatement(name, role, valid_until)

    def drop_token(self) -> ast.StatementSyntax:
        """Parse DROP TOKEN from its third word on."""
        if_exists = self.accept("if", "exists")
        return ast.DropTokenStatement(self.name(), self._token_role(), if_exists)

    def _token_role(self) -> RoleName | None:
        return self.role_name() if self.accept("for") else None

    # --- settings

    def _role_setting(self, role: RoleName | None) -> ast.StatementSyntax:
        database = self.name() if self.accept("in", "database") else None
        setting, values = self.kept_setting()
        return ast.RoleSettingStatement(role, database, setting, values, False)

    def kept_setting(self) -> tuple[str | None, tuple[str, ...] | None]:
        """Parse SET or RESET of a setting that is kept: its name, None for all, and its values."""
        if self.accept("reset"):
            return (None if self.accept("all") else self._variable()), None
        self.expect("set")
        if self.accept("time", "zone"):
            return "timezone", (None if self.accept("default") else (self._setting(),))
        name = self._variable()
        if self.accept("from", "current"):
            return name, ()
        if not self.accept_symbol("="):
            self.expect("to")
        return name, (None if self.accept("default") else self.list_of(self._setting))

    def _variable(self) -> str:
        parts = [self.name_or_function()]
        while self.accept_symbol("."):
            parts.append(self.label())
        return ".".join(parts).lower()

    def _setting(self) -> str:
        sign = ""
        if self.at_symbol("-") or self.at_symbol("+"):
            sign = "-" if self.advance().value == "-" else ""
        if self.token.kind not in (NUMBER, STRING, WORD, QUOTED):
            self.fail()
        return sign + self.advance().value

    # --- what roles own

    def drop_owned(self) -> ast.StatementSyntax:
        """Parse DROP OWNED from its second word on."""
        self.expect("owned", "by")
        roles = self.list_of(self.role_name)
        cascade = self.accept("cascade")
        if not cascade:
            self.accept("restrict")
        return ast.OwnedStatement("drop", roles, None, cascade)

    def reassign_owned(self) -> ast.StatementSyntax:
        """Parse REASSIGN OWNED."""
        self.expect("reassign", "owned", "by")
        roles = self.list_of(self.role_name)
        self.expect("to")
        return ast.OwnedStatement("reassign", roles, self.role_name(), False)


class _Options:
    """The options of CREATE or ALTER ROLE, which come in any order."""

    def __init__(self) -> None:
        self.attributes: dict[str, Any] = {}
        self.in_roles: tuple[RoleName, ...] = ()
        self.members: tuple[RoleName, ...] = ()
        self.admins: tuple[RoleName, ...] = ()
        self._seen: set[str] = set()

    def once(self, name: str, at: int) -> None:
        """Raise if the option was given before."""
        if name in self._seen:
            raise SyntaxError_("conflicting or redundant options", position=at + 1)
        self._seen.add(name)

    def add(self, name: str, value: Any, at: int) -> None:
        """Add an attribute."""
        self.once(name, at)
        self.attributes[name] = value


def _reserved(name: str) -> InvalidName:
    return InvalidName(f'role name "{name}" is reserved', sqlstate="42939")
