"""The policy: the rules of who may connect, built in or from files that can be read again.

Built in: clients on the loopback are trusted, and others prove a role's password. Once the first
role has been given a password (FORESHORE_PASSWORD), those on the loopback prove one, too. The Unix
socket is for the server's own user alone, who has the data.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from foreshore.errors import ConfigurationFileError
from foreshore.server.admission.rule_file import check, parse_rules, parse_user_names
from foreshore.server.admission.rules import Attempt, Rule, UserName

BUILT_IN = """\
local  all  all               trust
host   all  all  127.0.0.0/8  trust
host   all  all  ::1/128      trust
host   all  all  all          scram-sha-256
"""
PROVE_ALL = """\
local  all  all       trust
host   all  all  all  scram-sha-256
"""
TRUST_ALL = """\
local  all  all       trust
host   all  all  all  trust
"""
RULES_NAME, USER_NAMES_NAME = "pg_hba.conf", "pg_ident.conf"  # in the data directory


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the rules are: in the files given, else in those of `directory`, else built in."""

    rules: Path | None = None
    user_names: Path | None = None
    directory: Path | None = None
    trust_all: bool = False  # in place of the built-in rules
    trust_loopback: bool = True  # by the built-in rules
    verifies_clients: bool = False  # whether authorities of client certificates are configured

    @property
    def rules_file(self) -> Path | None:
        """The file of rules; None: they are built in."""
        return self.rules or self._present(RULES_NAME)

    @property
    def user_names_file(self) -> Path | None:
        """The file of user names; None: there are none."""
        return self.user_names or self._present(USER_NAMES_NAME)

    def _present(self, name: str) -> Path | None:
        if self.directory is None or not (file := self.directory / name).exists():
            return None
        return file


class Policy:
    """The rules that are in force."""

    def __init__(self, sources: Sources | None = None) -> None:
        """Load the rules; raises ConfigurationFileError."""
        self._sources = sources or Sources()
        self.file: Path | None = None  # of the rules in force; None: they are built in
        self.reload()
        if self.trusts_all and self.file is not None:
            raise ConfigurationFileError(
                f'--insecure-no-auth would have no effect, as rules are in "{self.file}"'
            )

    @property
    def trusts_all(self) -> bool:
        """Whether every client is to be trusted, as far as there are no files."""
        return self._sources.trust_all

    def reload(self) -> None:
        """Load the files again; raises ConfigurationFileError, and nothing has changed then."""
        file, names = self._sources.rules_file, self._sources.user_names_file
        if file is None and self.file is not None:
            raise ConfigurationFileError(f'configuration file "{self.file}" is missing')
        rules = self.written()
        if file is not None:
            check(rules, file)
        found = [] if names is None else parse_user_names(_read(names), names)
        self._rules: Sequence[Rule] = rules
        self._user_names: Sequence[UserName] = found
        self.file = file

    def written(self) -> list[Rule]:
        """Return the rules as they are written in the file at present, mistakes included."""
        file = self._sources.rules_file
        built_in = TRUST_ALL if self._sources.trust_all else BUILT_IN
        if not (self._sources.trust_all or self._sources.trust_loopback):
            built_in = PROVE_ALL
        text = built_in if file is None else _read(file)
        return parse_rules(text, verifies_clients=self._sources.verifies_clients)

    def rule_for(self, attempt: Attempt) -> Rule | None:
        """Return the first rule about a client; None if there is none."""
        return next((rule for rule in self._rules if rule.matches(attempt)), None)

    def admits(self, map: str | None, system_user: str, user: str) -> bool:
        """Return whether the owner of a certificate may be `user`; without a map, if it is."""
        if map is None:
            return system_user == user
        return any(each.map == map and each.admits(system_user, user) for each in self._user_names)


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigurationFileError(
            f'could not open configuration file "{file}": {reason}'
        ) from None
