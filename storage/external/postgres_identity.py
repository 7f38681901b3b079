"""What libpq is told to connect: all that it knows of, so that it asks nobody else.

What is left out libpq takes from the environment, from a service file, a password file, and from
certificates in a home directory. Those are the operator's, and would go to whoever a connection
names. So each option that libpq has is given: by the connection, or as libpq has it by default.

The other side must have asked for what the connection shows, a password or a certificate, unless
the connection's owner is a superuser: a server that trusts this machine does not mean its users.
"""

from collections.abc import Mapping
from pathlib import Path

from psycopg import pq

from foreshore.connection_spec import has_identity, password_is_required
from foreshore.errors import DatabaseError, InvalidParameterValue
from foreshore.storage.external.access import Access

# Of a connection whose owner is a superuser: neither tickets of Kerberos nor tokens of OAuth.
_ANY = "none,password,md5,scram-sha-256"
_BY_PASSWORD = "password,md5,scram-sha-256"
_FILES = {
    "ssl certificate authority": "sslrootcert",
    "ssl certificate": "sslcert",
    "ssl key": "sslkey",
}
_SERVICE = (b"service", b"servicefile")  # what it says fills in what is missing: nothing is
_VERSIONS, _PROTOCOL = {"min_protocol_version", "max_protocol_version"}, "3.0"
_VERIFYING = ("verify-ca", "verify-full")


def not_asked() -> DatabaseError:
    """Return the error for a server that has not asked for what a connection shows."""
    return DatabaseError(
        "password is required",
        sqlstate="2F003",
        detail="Non-superuser cannot connect if the server does not request a password.",
        hint="Target server's authentication method must be changed.",
    )


def identity(access: Access, folder: Path) -> dict[str, str]:
    """Return all options of libpq that say who we are; certificates are put into a folder.

    Raises DatabaseError if the connection shows nothing.
    """
    options = access.options
    if not access.by_superuser and not has_identity(options):
        raise password_is_required()
    found = {**_defaults(), "passfile": str(folder / "no-passwords"), "gssencmode": "disable"}
    found |= _certificates(options, folder)
    found["sslcertmode"] = "allow" if "ssl certificate" in options else "disable"
    found["require_auth"] = _ANY
    if not access.by_superuser and "password" in options:
        found["require_auth"] = _BY_PASSWORD
    elif not access.by_superuser:
        found |= {"require_auth": "none", "sslcertmode": "require"}
    return found | {
        "user": options["user"],
        "password": options.get("password", ""),
        "dbname": options["database"],
    }


def _defaults() -> dict[str, str]:
    """Return each option of libpq as it is by default, in an environment that says nothing."""
    found = {
        option.keyword.decode(): (option.compiled or b"").decode()
        for option in pq.Conninfo.get_defaults()
        if option.envvar is not None and option.keyword not in _SERVICE
    }
    return found | {name: _PROTOCOL for name in _VERSIONS & found.keys()}


def _certificates(options: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return how libpq uses TLS; certificates that are not given are in files that are not there.

    Raises InvalidParameterValue if a certificate is to be verified and nothing says by what.
    """
    mode = options.get("ssl mode", "prefer")
    if mode in _VERIFYING and "ssl certificate authority" not in options:
        raise InvalidParameterValue(
            f"the SSL MODE {mode} needs the option SSL CERTIFICATE AUTHORITY",
            hint="Give the connection the certificate of who has signed that of the server.",
        )
    found = {"sslmode": mode, "sslcrl": str(folder / "no-crl")}
    for option, name in _FILES.items():
        path = folder / name
        if option in options:
            path.touch(mode=0o600)
            path.write_text(options[option])
        found[name] = str(path)
    return found
