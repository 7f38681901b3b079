"""A schema registry of AWS Glue, by its JSON protocol, with requests signed by botocore."""

import json
from typing import Any

from foreshore.errors import (
    ConnectionFailure,
    DatabaseError,
    InvalidParameterValue,
    UndefinedObject,
)
from foreshore.storage.external.access import Access
from foreshore.storage.external.aws_signature import signature
from foreshore.storage.external.bounded_http import FAILURES, asked, client, reason, shortened

DEFAULT_REGISTRY = "default-registry"
_REFUSED = frozenset(
    (
        "ExpiredTokenException",
        "IncompleteSignature",
        "IncompleteSignatureException",
        "InvalidSignatureException",
        "UnrecognizedClientException",
    )
)
_KEYS = "Check ACCESS KEY ID, SECRET ACCESS KEY and SESSION TOKEN of its connection."
_RIGHTS = "Its keys need the rights glue:GetRegistry and glue:GetSchemaVersion."


class GlueRegistry:
    """A client; to be entered."""

    def __init__(self, access: Access) -> None:
        given = access.options
        self._region = given["region"]
        self._url = given.get("endpoint", f"https://glue.{self._region}.amazonaws.com").rstrip("/")
        self._registry = given.get("registry", DEFAULT_REGISTRY)
        keys = (given["access key id"], given["secret access key"], given.get("session token"))
        self._signs = signature(keys, self._region, "glue")
        self._client = client()

    async def __aenter__(self) -> "GlueRegistry":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def latest(self, name: str) -> Any:
        """Return the newest version of an Avro schema.

        Raises UndefinedObject if there is none, InvalidParameterValue if it is none of Avro, and
        DatabaseError if the registry cannot be asked.
        """
        of = {"RegistryName": self._registry, "SchemaName": name}
        asks = {"SchemaId": of, "SchemaVersionNumber": {"LatestVersion": True}}
        return await self._version(asks, name)

    async def version(self, id: str) -> Any:
        """Return a version of an Avro schema by its id; raises as `latest` does."""
        return await self._version({"SchemaVersionId": id}, f"version {id}")

    async def check(self) -> None:
        """Reach the registry; raises DatabaseError."""
        await self._ask("GetRegistry", {"RegistryId": {"RegistryName": self._registry}}, "")

    async def _version(self, asks: dict[str, Any], what: str) -> Any:
        found = await self._ask("GetSchemaVersion", asks, what)
        format = found.get("DataFormat", "AVRO")
        if format != "AVRO":
            raise InvalidParameterValue(f'the schema of "{what}" is {format}, not AVRO')
        try:
            return json.loads(found["SchemaDefinition"])
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise ConnectionFailure(f"{self._begins}: no schema is in its answer") from error

    async def _ask(self, action: str, asks: dict[str, Any], what: str) -> dict[str, Any]:
        body = json.dumps(asks).encode()
        headers = {
            "Content-Type": "application/x-amz-json-1.1",
            "X-Amz-Target": f"AWSGlue.{action}",
        }
        url = f"{self._url}/"
        try:
            signed = self._signs("POST", url, headers, body)
            response = await asked(self._client, "POST", url, headers=signed, content=body)
            found = response.json()
            if not isinstance(found, dict):
                raise ValueError("the answer is none of AWS Glue")
        except FAILURES as error:
            hint = "Check REGION and ENDPOINT of its connection."
            raise ConnectionFailure(f"{self._begins}: {reason(error)}", hint=hint) from error
        if response.is_success:
            return found
        raise self._error(found, response.status_code, what)

    @property
    def _begins(self) -> str:
        return f"could not ask the schema registry at {self._url}"

    def _error(self, found: dict[str, Any], status: int, what: str) -> DatabaseError:
        code = shortened(str(found.get("__type", "")).rpartition("#")[2])
        said = shortened(found.get("Message") or found.get("message") or f"status {status}")
        if code == "EntityNotFoundException":
            lacks = f'has no schema of "{what}"' if what else "does not exist"
            return UndefinedObject(
                f'the schema registry "{self._registry}" at {self._url} {lacks}',
                hint="Check REGISTRY of the connection, and SCHEMA NAME of the format.",
            )
        message = f"{self._begins}: {code}: {said}"
        if code in _REFUSED:  # what AWS says then repeats the request, with its token
            return DatabaseError(f"{self._begins}: {code}", sqlstate="28P01", hint=_KEYS)
        if code.startswith("AccessDenied"):
            return DatabaseError(message, sqlstate="42501", hint=_RIGHTS)
        return ConnectionFailure(message)


async def validate(access: Access) -> None:
    """Reach a registry; raises DatabaseError."""
    async with GlueRegistry(access) as registry:
        await registry.check()
