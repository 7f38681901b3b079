"""What the server can read again while it runs: its certificate, and who may connect."""

import ipaddress
import logging
import socket
from collections.abc import Iterable
from dataclasses import dataclass

from foreshore.errors import ConfigurationFileError, DatabaseError
from foreshore.server.admission.policy import Policy, Sources
from foreshore.server.admission.rules import Rule
from foreshore.server.options import ServeOptions
from foreshore.server.tls import Tls

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Configuration:
    """The configuration that is in force."""

    tls: Tls | None
    policy: Policy

    @classmethod
    def load(cls, options: ServeOptions) -> "Configuration":
        """Read the files that the options name; raises ConfigurationFileError."""
        files = options.tls
        found = Sources(
            options.hba_file,
            options.ident_file,
            options.data_dir,
            trust_all=options.insecure_no_auth,
            trust_loopback=options.password is None,
            verifies_clients=files is not None and files.ca is not None,
        )
        return cls(None if files is None else Tls(files), Policy(found))

    def reload(self) -> bool:
        """Read the files again, and return whether all can be used.

        A broken one changes nothing.
        """
        complete = True
        for each, what in ((self.policy, "rules of who may connect"), (self.tls, "certificate")):
            try:
                if each is not None:
                    each.reload()
            except DatabaseError as error:
                detail = "" if error.detail is None else f"; {error.detail}"
                logger.error("%s not reloaded: %s%s", what, error.message, detail)
                complete = False
        return complete

    def rules(self) -> list[dict[str, object]]:
        """Return the rules of who may connect, as they are written, for pg_hba_file_rules."""
        try:
            return [_shown(rule) for rule in self.policy.written()]
        except ConfigurationFileError as error:
            return [{"error": error.message}]

    def check_safe(self, ports: Iterable[socket.socket], *, has_passwords: bool) -> None:
        """Refuse to serve addresses beyond the loopback to clients that cannot authenticate."""
        if has_passwords or self.policy.file is not None or self.policy.trusts_all:
            return
        hosts = (str(port.getsockname()[0]) for port in ports)
        for host in hosts:
            if not ipaddress.ip_address(host.partition("%")[0]).is_loopback:
                raise ConfigurationFileError(
                    f'nobody could authenticate at "{host}", as no role has a password',
                    hint="Set FORESHORE_PASSWORD, or write pg_hba.conf, or listen on the loopback; "
                    "--insecure-no-auth trusts every client.",
                )


def _shown(rule: Rule) -> dict[str, object]:
    """Return a rule as a row of pg_hba_file_rules."""
    if rule.error is not None:
        return {"line_number": rule.line, "error": rule.error}
    address: str | None = "all" if rule.type != "local" else None
    mask = None
    if isinstance(rule.networks, str):
        address = rule.networks
    elif rule.networks is not None:
        address, mask = str(rule.networks.network_address), str(rule.networks.netmask)
    return {
        "line_number": rule.line,
        "type": rule.type,
        "database": [each.text for each in rule.databases],
        "user_name": [each.text for each in rule.users],
        "address": address,
        "netmask": mask,
        "auth_method": rule.method,
        "options": [f"{name}={value}" for name, value in (rule.options or {}).items()] or None,
    }
