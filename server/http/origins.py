"""Origins: pages of other sites must not run SQL on a server that trusts the browser's machine.

A browser tells from which page a request comes. It is refused if that is a page of another origin
than the server's own, or than those that `--http-origin` allows. A page can reach a server of the
user's machine under a name of its own, which resolves to 127.0.0.1 (DNS rebinding), and is then of
the same origin. So a client that has proven nothing must name the server by an address, as
localhost, or by a name that `--http-host` gives. That holds for SQL, for metrics, and for webhooks
without a condition.
"""

import ipaddress
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection

from foreshore.errors import InvalidAuthorization

_FORWARDED = ("forwarded", "x-forwarded-for", "x-real-ip")


@dataclass(frozen=True, slots=True)
class Origins:
    """The origins and host names that are allowed beside the server's own.

    Names of hosts are in lower case.
    """

    allowed: Collection[str] = ()  # such as https://app.example.com
    hosts: Collection[str] = ()  # names of the server

    def check(self, connection: HTTPConnection) -> None:
        """Raise InvalidAuthorization if a page of a foreign origin has made the request."""
        origin = connection.headers.get("origin")
        if origin is None:
            # Requests of a GET that a page makes for an image or a script name no origin.
            if connection.headers.get("sec-fetch-site") in ("cross-site", "same-site"):
                raise _foreign("another site")
            return
        if origin not in self.allowed and not _is_own(origin, connection):
            raise _foreign(f'"{origin}"')

    def check_host(self, connection: HTTPConnection) -> None:
        """Raise InvalidAuthorization if a request may come from elsewhere than it seems.

        It does if it calls the server by a name that is not its own, or if a proxy forwards it.
        """
        if any(name in connection.headers for name in _FORWARDED):
            raise InvalidAuthorization(
                "requests without a password are not accepted from a proxy",
                hint="Let pg_hba.conf ask for a password.",
            )
        self.check_name(connection, "requests without a password")

    def check_name(self, connection: HTTPConnection, what: str) -> None:
        """Raise InvalidAuthorization if a request calls the server by a name of another.

        `what` are the requests that may not.
        """
        name = _host_of(connection.headers.get("host", ""))
        if not (_is_address(name) or _is_localhost(name) or name in self.hosts):
            raise InvalidAuthorization(
                f'{what} are not accepted for the host "{name}"',
                hint="Call the server by its address or localhost, or start it with --http-host.",
            )

    def headers(self, connection: HTTPConnection) -> Mapping[str, str]:
        """Return the headers that let a page of an allowed origin read the answer."""
        origin = connection.headers.get("origin")
        if origin is None or origin not in self.allowed:
            return {"vary": "origin"}
        return {
            "vary": "origin",
            "access-control-allow-origin": origin,
            "access-control-allow-headers": "accept, authorization, content-type, last-event-id,"
            " mcp-protocol-version, mcp-method, mcp-name, x-request-id",
            "access-control-expose-headers": "x-request-id",
            "access-control-allow-methods": "GET, POST",
            "access-control-max-age": "600",
        }


def _foreign(origin: str) -> InvalidAuthorization:
    return InvalidAuthorization(
        f"requests from pages of {origin} are not accepted",
        hint="Start the server with --http-origin to allow an origin.",
    )


def _is_own(origin: str, connection: HTTPConnection) -> bool:
    scheme = {"ws": "http", "wss": "https"}.get(connection.url.scheme, connection.url.scheme)
    host = connection.headers.get("host")
    return host is not None and origin.lower() == f"{scheme}://{host}".lower()


def _host_of(given: str) -> str:
    """Return the name in a Host header, without port and brackets."""
    try:
        return urlsplit(f"//{given}").hostname or ""
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return True


def _is_localhost(name: str) -> bool:
    return name == "localhost" or name.endswith(".localhost")
