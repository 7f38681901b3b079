"""A Confluent schema registry over HTTP."""

import json
import re
import ssl
from typing import Any
from urllib.parse import quote

import httpx
import msgspec

from foreshore.errors import (
    ConnectionFailure,
    DatabaseError,
    InvalidParameterValue,
    UndefinedObject,
)
from foreshore.storage.external.access import Access
from foreshore.storage.external.avro_references import inlined
from foreshore.storage.external.bounded_http import (
    FAILURES,
    MOST_BYTES,
    asked,
    client,
    reason,
    shortened,
)
from foreshore.storage.external.tls import certificates
from foreshore.storage.external.tunnels import HOST, Port, opened_port

MOST_REFERENCES = 1_000  # of a schema
_NOT_FOUND = 404
_PASSWORD = re.compile(r"//[^/]*@")  # in a URL, with the name of a user
_REFUSED = (409, 422)  # not compatible, no valid schema


class _Reference(msgspec.Struct, frozen=True):
    """A version of a subject, and the name that a schema has for it."""

    name: str
    subject: str
    version: int


class _Registered(msgspec.Struct, frozen=True, rename="camel"):
    """A schema as a registry answers."""

    schema: str
    schema_type: str = "AVRO"
    references: tuple[_Reference, ...] | None = None


class Schema(msgspec.Struct, frozen=True):
    """A schema as it was registered, and those that it refers to, by name."""

    text: str
    references: dict[str, str] = {}

    def document(self) -> Any:
        """Return an Avro schema, with the definitions of the types that it refers to.

        Raises InvalidParameterValue if it is nested too deeply.
        """
        try:
            known = {name: _document(text) for name, text in self.references.items()}
            return inlined(_document(self.text), known) if known else _document(self.text)
        except RecursionError:
            raise InvalidParameterValue("the schema is nested too deeply") from None

    def files(self) -> dict[str, str]:
        """Return the files of a Protobuf schema by their names, its own first."""
        return {"schema.proto": self.text, **self.references}


def _document(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text  # a primitive type may be written without quotes


class Registry:
    """A client; to be entered."""

    def __init__(self, access: Access) -> None:
        options = access.options
        self._access, url = access, options["url"].rstrip("/")
        self._url = _PASSWORD.sub("//", url)  # as errors name it
        self._begins = url  # of what is asked for: behind a tunnel that is its port
        self._port: Port | None = None
        self._more: dict[str, Any] = {}  # of each request
        auth = None
        if "username" in options:
            auth = (options["username"], options.get("password", ""))
        self._client = client(auth=auth, verify=_context(access))

    async def __aenter__(self) -> "Registry":
        if (tunnel := self._access.tunnel) is not None:
            try:
                url = httpx.URL(self._begins)
            except httpx.InvalidURL as error:
                raise self._unreachable(error) from error
            port = url.port or (443 if url.scheme == "https" else 80)
            self._port = await opened_port(tunnel, url.host, port)
            self._begins = str(url.copy_with(host=HOST, port=self._port.number)).rstrip("/")
            # The registry is asked, and its certificate checked, by its own name.
            self._more = {
                "headers": {"Host": url.netloc.decode()},
                "extensions": {"sni_hostname": url.host},
            }
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def latest(self, subject: str, type: str) -> Schema:
        """Return the newest schema of a subject, which must be of a type.

        Raises UndefinedObject if there is none, and ConnectionFailure.
        """
        return await self._schema(f"{_path(subject)}/latest", type, subject)

    async def schema(self, id: int, type: str) -> Schema:
        """Return a schema by its id; raises as `latest` does."""
        return await self._schema(f"/schemas/ids/{id}", type, f"id {id}")

    async def register(self, subject: str, schema: str) -> int:
        """Return the id of an Avro schema, which becomes the newest of a subject if it is not.

        Raises InvalidParameterValue if the subject's rules do not allow it, and ConnectionFailure.
        """
        try:
            response = await self._ask("POST", _path(subject), json={"schema": schema})
            if response.status_code in _REFUSED:
                raise InvalidParameterValue(
                    f'the schema registry at {self._url} refuses the schema of "{subject}": '
                    f"{_reason(response)}"
                )
            response.raise_for_status()
            found = response.json()["id"]
        except (*FAILURES, KeyError, TypeError) as error:
            raise self._unreachable(error) from error
        return int(found)

    async def make_compatible(self, subject: str, level: str) -> None:
        """Give a subject a rule for its later schemas, if it has none of its own.

        Raises ConnectionFailure.
        """
        path = f"/config/{quote(subject, safe='')}"
        if await self._get(path) is not None:
            return
        try:
            response = await self._ask("PUT", path, json={"compatibility": level})
            response.raise_for_status()
        except FAILURES as error:
            raise self._unreachable(error) from error

    async def check(self) -> None:
        """Reach the registry; raises ConnectionFailure."""
        await self._get("/subjects")

    async def _schema(self, path: str, type: str, what: str) -> Schema:
        found = await self._registered(path)
        if found is None:
            raise UndefinedObject(
                f'the schema registry at {self._url} has no schema of "{what}"',
                hint="Register it, or write USING SCHEMA.",
            )
        if found.schema_type != type:
            raise InvalidParameterValue(
                f'the schema of "{what}" is {found.schema_type}, not {type}'
            )
        return Schema(found.schema, await self._references(found, type))

    async def _references(self, found: _Registered, type: str) -> dict[str, str]:
        """Return the schemas that a schema refers to, and those that these do, by their names."""
        texts: dict[str, str] = {}
        size = len(found.schema)
        following = list(found.references or ())
        while following:
            each = following.pop()
            if each.name in texts:
                continue
            if len(texts) >= MOST_REFERENCES:
                raise InvalidParameterValue(
                    f"the schema refers to more than {MOST_REFERENCES} others"
                )
            referred = await self._registered(f"{_path(each.subject)}/{each.version}")
            if referred is None:
                raise UndefinedObject(
                    f"the schema registry at {self._url} has no version {each.version} of"
                    f' "{each.subject}", to which a schema refers'
                )
            if referred.schema_type != type:
                raise InvalidParameterValue(
                    f'the schema of "{each.subject}" is {referred.schema_type}, not {type}'
                )
            texts[each.name] = referred.schema
            size += len(referred.schema)
            if size > MOST_BYTES:
                raise InvalidParameterValue(
                    f"the schema and those that it refers to have more than {MOST_BYTES >> 20} MiB"
                )
            following += referred.references or ()
        return texts

    async def _registered(self, path: str) -> _Registered | None:
        """Return a schema, None if there is none; raises DatabaseError."""
        found = await self._get(path)
        try:
            return None if found is None else msgspec.convert(found, _Registered)
        except msgspec.ValidationError as error:
            raise self._unreachable(error) from error

    async def _get(self, path: str) -> Any:
        try:
            response = await self._ask("GET", path)
            if response.status_code == _NOT_FOUND:
                return None
            response.raise_for_status()
            return response.json()
        except FAILURES as error:
            raise self._unreachable(error) from error

    async def _ask(self, method: str, path: str, **request: Any) -> httpx.Response:
        return await asked(self._client, method, self._begins + path, **request, **self._more)

    def _unreachable(self, error: Exception) -> DatabaseError:
        begins = f"could not ask the schema registry at {self._url}"
        if isinstance(error, httpx.HTTPStatusError):
            return _refused(begins, error.response)
        if self._port is not None and self._port.failure is not None:
            return ConnectionFailure(f"{begins}: {self._port.failure.message}")
        why = reason(error)
        if "certificate" in why.lower() or "ssl" in why.lower():
            hint = "Check URL, SSL CERTIFICATE AUTHORITY, SSL CERTIFICATE and SSL KEY."
            return DatabaseError(f"{begins}: {why}", sqlstate="08001", hint=hint)
        return ConnectionFailure(f"{begins}: {why}", hint="Check URL of its connection.")


def _path(subject: str) -> str:
    """Return where the versions of a subject are; its name may be that of a file."""
    return f"/subjects/{quote(subject, safe='')}/versions"


def _refused(begins: str, response: httpx.Response) -> DatabaseError:
    """Return the error for a status of a registry that is none of success."""
    message = f"{begins}: status {response.status_code} {response.reason_phrase}"
    match response.status_code:
        case 401:
            hint = "Check USERNAME and PASSWORD of its connection, and the value of its secret."
            return DatabaseError(message, sqlstate="28P01", hint=hint)
        case 403:
            hint = "Give the user of its connection the rights to read and register schemas."
            return DatabaseError(message, sqlstate="42501", hint=hint)
        case 301 | 302 | 307 | 308:
            hint = "It names another URL, which is not followed. Check URL of its connection."
            return ConnectionFailure(message, hint=hint)
    return ConnectionFailure(message, hint="Check URL of its connection.")


def _reason(response: httpx.Response) -> str:
    """Return what a registry says of a request."""
    try:
        return shortened(response.json()["message"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return f"status {response.status_code}"


def _context(access: Access) -> ssl.SSLContext | bool:
    """Return how the registry is trusted."""
    if not access.options["url"].startswith("https:"):
        return True
    return certificates(access.options)


async def validate(access: Access) -> None:
    """Reach a registry; raises ConnectionFailure."""
    async with Registry(access) as registry:
        await registry.check()
