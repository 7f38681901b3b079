"""Catalogs of Iceberg tables, by the package pyiceberg.

A catalog says where the files of its tables are, and perhaps by which keys they are read. It is
somebody else's program, so its word is not enough: buckets are reached by keys of the connection
or of the catalog only, never by the server's own, and local files only below the places that COPY
may use, if the statement said LOCAL FILES.
"""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from foreshore.errors import (
    DatabaseError,
    DatetimeFieldOverflow,
    FeatureNotSupported,
    InsufficientPrivilege,
    InvalidParameterValue,
)
from foreshore.iceberg_tables import CatalogTable
from foreshore.sources.files import PLACES
from foreshore.storage.external.access import Access, Accesses
from foreshore.storage.external.checking_proxy import proxy_url
from foreshore.storage.external.dial import check_endpoint, with_checked_address
from foreshore.storage.lake import iceberg
from foreshore.storage.lake.places import CopyPlaces
from foreshore.storage.store_errors import without_answer

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

SECONDS = 30.0  # for an answer of the catalog
_S3 = ("s3", "s3a", "s3n")
_KEYS = ("access key id", "secret access key", "session token")
# What only the connection says: the catalog cannot have our requests signed, or code imported.
_OURS = ("py-", "rest.sig", "auth", "ssl", "client.", "glue.", "credential", "token")
_NEVER = ("py-", "s3.proxy")  # of what reads files: code, and who is in between
_LONGEST = 200  # characters of what the package says
_AGAIN = "It is tried again. Look at the URL of the connection, and whether the catalog is up."
_REFUSED_BY_STORES = ("ACCESS_DENIED", "INVALID_ACCESS_KEY_ID", "SIGNATURE_DOES_NOT_MATCH")
_REFUSED_BY_AWS = frozenset(
    {
        "AccessDenied",
        "AccessDeniedException",
        "ExpiredTokenException",
        "InvalidSignatureException",
        "UnrecognizedClientException",
    }
)
_PROVIDER = "write.py-location-provider.impl"


def opened(access: Access, aws: Access | None, places: CopyPlaces | None) -> "Catalog":
    """Return the catalog of a connection. Blocks.

    Its tables are read by the keys of `aws` if it is given; `places` are those of local files.
    """
    iceberg.package()
    properties = _properties(access, aws)
    files = _Files(_keys(aws) if aws is not None else {}, places)
    with errors():
        if access.options["catalog type"] == "glue":
            return _glue(properties, files)
        return _rest(properties, files)


async def validate(access: Access) -> None:
    """Reach a catalog; raises DatabaseError if it cannot be reached, or refuses the credential."""

    def reach() -> None:
        catalog = opened(access, None, None)
        with errors():
            catalog.list_namespaces()

    await asyncio.to_thread(reach)


@contextmanager
def errors() -> Iterator[None]:
    """Raise errors of the package, and of its requests, as DatabaseError."""
    from pyiceberg import exceptions as of

    refused = (of.UnauthorizedError, of.ForbiddenError, of.OAuthError, of.AuthorizationExpiredError)
    try:
        yield
    except DatabaseError:
        raise
    except ModuleNotFoundError as error:
        raise FeatureNotSupported(
            f'the Python package "{error.name}" is not installed',
            hint="Catalogs of AWS need pip install boto3.",
        ) from None
    except of.NotInstalledError as error:
        raise FeatureNotSupported(
            f"the Iceberg table needs a Python package: {error}",
            hint="Run: pip install 'foreshore[lake]'",
        ) from None
    except refused as error:
        raise _error(
            "the Iceberg catalog refuses the credential", error, "28000",
            "Give the connection another CREDENTIAL or TOKEN by ALTER CONNECTION.",
        ) from error  # fmt: skip
    except of.NoSuchTableError as error:
        raise _error(
            "the Iceberg catalog has no such table", error, "42P01",
            "Look at NAMESPACE and TABLE; if it was dropped, make it anew.",
        ) from error  # fmt: skip
    except of.NoSuchNamespaceError as error:
        raise _error(
            "the Iceberg catalog has no such namespace", error, "3F000",
            "Create it in the catalog.",
        ) from error  # fmt: skip
    except (of.ServerError, of.ServiceUnavailableError, of.CommitStateUnknownException) as error:
        raise _error("the Iceberg catalog fails", error, "08006", _AGAIN) from error
    except of.CommitFailedException as error:
        raise _error("the commit to the Iceberg table conflicts", error, "40001") from error
    except (of.RESTError, of.ValidationException) as error:
        raise _error("the Iceberg catalog", error, "58030") from error
    except FileNotFoundError as error:
        raise _error(
            "a file of the Iceberg table is gone", error, "58P01",
            "It was removed by another program, though the table names it.",
        ) from error  # fmt: skip
    except OSError as error:  # of requests, and of stores
        if any(code in str(error) for code in _REFUSED_BY_STORES):
            raise _error(
                "the store of the Iceberg table refuses the keys", error, "28000",
                "Name others by USING AWS CONNECTION, or change those of the connection.",
            ) from error  # fmt: skip
        raise _error(
            "the Iceberg catalog or its store cannot be reached", error, "08006", _AGAIN
        ) from error
    except OverflowError as error:  # of dates, whose bounds the package makes Python's
        raise DatetimeFieldOverflow(
            "a date or timestamp is out of range for Iceberg tables",
            detail="They have the years 1 to 9999, and no infinity.",
            hint="Cast the column to text.",
        ) from error
    except (ValueError, NotImplementedError, of.ValidationError, of.SignError) as error:
        raise _error("the Iceberg table", error, "58030") from error
    except Exception as error:
        if not type(error).__module__.startswith(("botocore", "boto3", "tenacity")):
            raise
        raise _aws_error(error) from error


def _aws_error(error: Exception) -> DatabaseError:
    """Return an error of the packages of AWS."""
    code = getattr(error, "response", {}).get("Error", {}).get("Code", "")
    if code in _REFUSED_BY_AWS or type(error).__name__ == "NoCredentialsError":
        hint = "Give the connection other values of ACCESS KEY ID and SECRET ACCESS KEY."
        return _error("AWS refuses the keys of the Iceberg catalog", error, "28000", hint)
    return _error("the Iceberg catalog of AWS", error, "08006", _AGAIN)


def _error(what: str, error: Exception, sqlstate: str, hint: str | None = None) -> DatabaseError:
    said = without_answer(_innermost(error))[:_LONGEST]
    return DatabaseError(f"{what}: {said}", sqlstate=sqlstate, hint=hint)


def _innermost(error: BaseException) -> str:
    """Return what an error of a request says, without what the packages around have put there."""
    where = ""
    while True:
        pool, reason = getattr(error, "pool", None), getattr(error, "reason", None)
        if pool is not None and hasattr(pool, "host"):
            where = f"{pool.host}:{pool.port}: "
        inside = reason if isinstance(reason, BaseException) else (error.args or ("",))[-1]
        if not isinstance(inside, BaseException):
            said = str(inside) if where else str(error)
            return where + (said.partition(">: ")[2] or said or type(error).__name__)
        error = inside


def _properties(access: Access, aws: Access | None) -> dict[str, str]:
    """Return a connection's options as the package names them."""
    given, type = access.options, access.options["catalog type"]
    found = {
        name: given[option]
        for option, name in (
            ("url", "uri"),
            ("warehouse", "warehouse"),
            ("credential", "credential"),
            ("token", "token"),
            ("scope", "scope"),
            ("oauth2 server url", "oauth2-server-uri"),
        )
        if option in given
    }
    signer = access if aws is None or "access key id" in given else aws
    found |= _keys(signer)
    region = signer.options.get("region")
    if type == "s3tablesrest":
        if region is None:
            raise InvalidParameterValue('a catalog of S3 tables needs the option "REGION"')
        found.setdefault("uri", f"https://s3tables.{region}.amazonaws.com/iceberg")
        found |= {"rest.sigv4-enabled": "true", "rest.signing-name": "s3tables"}
        found["rest.signing-region"] = region
    if type != "rest" and "s3.access-key-id" not in found:
        raise InvalidParameterValue(
            f"a catalog of type {type} needs keys of AWS",
            hint="Give it ACCESS KEY ID and SECRET ACCESS KEY.",
        )
    if type == "glue":
        if "uri" in found:
            found["glue.endpoint"] = with_checked_address(found.pop("uri"))
    elif "uri" not in found:
        raise InvalidParameterValue('the connection to the Iceberg catalog needs the option "URL"')
    elif "credential" in found:  # where catalogs have it by default
        tokens = found["uri"].rstrip("/") + "/v1/oauth/tokens"
        found.setdefault("oauth2-server-uri", tokens)
    return found


def _keys(access: Access) -> dict[str, str]:
    """Return the keys of a connection, for stores and for signatures."""
    found = {}
    for option in (*_KEYS, "region"):
        if option in access.options:
            for prefix in ("s3", "client"):
                found[f"{prefix}.{option.replace(' ', '-')}"] = access.options[option]
    if "endpoint" in access.options:
        found["s3.endpoint"] = access.options["endpoint"]
    return found


class _Files:
    """Makes what reads and writes the files of a table."""

    def __init__(self, keys: Mapping[str, str], places: CopyPlaces | None) -> None:
        self._keys = keys
        self._places = places

    def of(self, properties: Mapping[str, Any]) -> Any:
        """Return the files of a table with these properties."""
        from pyiceberg.io.pyarrow import PyArrowFileIO

        places = self._places
        given = {name: each for name, each in properties.items() if not name.startswith(_NEVER)}
        given |= self._keys
        if "s3.access-key-id" not in given:
            given = {name: each for name, each in given.items() if not name.endswith("role-arn")}
            given["s3.anonymous"] = "true"
        if "s3.endpoint" in given:
            check_endpoint(given["s3.endpoint"])
            given["s3.proxy-uri"] = proxy_url()
            given.setdefault("s3.region", "us-east-1")
        given |= {"s3.connect-timeout": "10", "s3.request-timeout": "60"}

        class Guarded(PyArrowFileIO):  # type: ignore[misc]
            def _initialize_fs(self, scheme: str, netloc: str | None = None) -> Any:
                if scheme not in (*_S3, "file"):
                    raise FeatureNotSupported(f"Iceberg tables in {scheme}://")
                return super()._initialize_fs(scheme, netloc)

            def new_input(self, location: str) -> Any:
                self._check(location)
                return super().new_input(location)

            def new_output(self, location: str) -> Any:
                self._check(location)
                return super().new_output(location)

            def delete(self, location: Any) -> None:
                self._check(getattr(location, "location", location))
                super().delete(location)

            def _check(self, location: str) -> None:
                scheme, _, path = self.parse_location(location, self.properties)
                if scheme == "file":
                    if places is None:
                        raise InsufficientPrivilege(
                            "the files of the Iceberg table are local",
                            hint="Add the option LOCAL FILES.",
                        )
                    places.find(path, is_pattern=False)

        return Guarded(given)


def catalog_of(table: CatalogTable, accesses: Accesses) -> "Catalog":
    """Return the catalog of a table that a source or sink names. Blocks."""
    aws = None if table.aws is None else accesses[table.aws]
    places = CopyPlaces.from_options(accesses[PLACES].options) if table.local else None
    return opened(accesses[table.connection], aws, places)


def check_properties(table: Any) -> None:
    """Raise if a table wants code to be imported when it is written."""
    if _PROVIDER in table.metadata.properties:
        raise FeatureNotSupported(f"Iceberg tables with the property {_PROVIDER}")


def _rest(properties: dict[str, str], files: _Files) -> "Catalog":
    """Return a catalog that is reached by its REST protocol."""
    from pyiceberg.catalog.rest import RestCatalog
    from pyiceberg.catalog.rest.auth import AuthManagerAdapter, NoopAuthManager
    from requests.adapters import HTTPAdapter

    from foreshore.storage.external.checked_requests import guard

    class Impatient(HTTPAdapter):
        def send(self, request: Any, *args: Any, **kwargs: Any) -> Any:
            kwargs["timeout"] = kwargs.get("timeout") or SECONDS
            return super().send(request, *args, **kwargs)

    class Rest(RestCatalog):  # type: ignore[misc]
        properties: dict[str, Any]

        def _config_headers(self, session: Any) -> None:
            super()._config_headers(session)
            for scheme in ("http://", "https://"):
                session.mount(scheme, Impatient())
            guard(session)

        def _create_session(self) -> Any:
            session = super()._create_session()
            guard(session)  # what signs requests has an adapter of its own
            if not {"token", "credential"} & self.properties.keys():
                session.auth = AuthManagerAdapter(NoopAuthManager())  # else "Bearer None" is sent
            return session

        def _fetch_config(self) -> None:
            super()._fetch_config()
            said = self.properties.items()
            self.properties = {name: each for name, each in said if not name.startswith(_OURS)}
            self.properties |= {
                name: each for name, each in properties.items() if name.startswith(_OURS)
            }

        def _load_file_io(self, properties: Any = None, location: str | None = None) -> Any:
            return files.of({**self.properties, **(properties or {})})

    return Rest("foreshore", **properties)


def _glue(properties: dict[str, str], files: _Files) -> "Catalog":
    """Return a catalog of AWS Glue, whose client uses no proxy of the environment."""
    import boto3
    from botocore.config import Config
    from pyiceberg.catalog.glue import GlueCatalog

    class Glue(GlueCatalog):  # type: ignore[misc]
        def _load_file_io(self, properties: Any = None, location: str | None = None) -> Any:
            return files.of({**self.properties, **(properties or {})})

    config = Config(
        proxies={},
        ignore_configured_endpoint_urls=True,
        connect_timeout=SECONDS,
        read_timeout=SECONDS,
        retries={"max_attempts": 5, "mode": "standard"},
    )
    client = boto3.client(
        "glue",
        region_name=properties.get("client.region"),
        endpoint_url=properties.get("glue.endpoint"),
        aws_access_key_id=properties["client.access-key-id"],
        aws_secret_access_key=properties["client.secret-access-key"],
        aws_session_token=properties.get("client.session-token"),
        config=config,
    )
    return Glue("foreshore", client, **properties)
