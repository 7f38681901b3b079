"""Blobs as objects of an S3 bucket or a compatible store.

An object appears whole or not at all, and reads are consistent: S3 guarantees both since 2020.
Large objects are uploaded in parallel parts. An unfinished upload is not an object; a lifecycle
rule of the bucket should remove its parts.

Requests with transient failures are retried with growing pauses. A request that was refused had no
effect. One without an answer may have taken effect, or may still do so. Storing the same data under
the same key again does no harm.
"""

# The Protocol documents the methods.
# ruff: noqa: D102

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from foreshore.errors import DatabaseError, InvalidParameterValue
from foreshore.storage.fault import Determinate, Indeterminate
from foreshore.storage.store_errors import told

try:
    import obstore
    from obstore import exceptions
    from obstore.store import S3Store
except ImportError as error:
    raise InvalidParameterValue(
        "blob stores on S3 need the package obstore", hint="Run: pip install 'foreshore[s3]'"
    ) from error

PART_BYTES = 8 << 20
PARTS_AT_ONCE = 4
PIECE_BYTES = 1 << 20
RETRIES = 6
RETRY_SECONDS = 30
REQUEST_SECONDS = 30

_OPTIONS = {"endpoint", "region"}
_REFUSED = (
    FileNotFoundError,  # of the bucket
    exceptions.PermissionDeniedError,
    exceptions.UnauthenticatedError,
    exceptions.PreconditionError,
    exceptions.InvalidPathError,
    exceptions.NotSupportedError,
)
_FAULTS = (OSError, exceptions.BaseError)


class S3Blob:
    """Blobs below a prefix of a bucket."""

    def __init__(self, url: str, credentials: Mapping[str, str] | None = None) -> None:
        """Open `s3://BUCKET/PREFIX?endpoint=URL&region=NAME`; the default endpoint is Amazon's.

        `credentials` are `access_key_id`, `secret_access_key` and `session_token`; by default they
        come from the environment. `proxy_url` may be among them.
        """
        credentials = dict(credentials or {})
        proxy = {name: credentials.pop(name) for name in ("proxy_url",) if name in credentials}
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query))
        if not parts.hostname or parts.username is not None or options.keys() - _OPTIONS:
            raise InvalidParameterValue(
                "invalid blob store: an S3 URL is s3://BUCKET/PREFIX?endpoint=URL&region=NAME",
                hint="Credentials are taken from the environment: AWS_ACCESS_KEY_ID and its kin.",
            )
        place = {name: options[name] for name in ("endpoint", "region") if name in options}
        if "endpoint" in place:
            place.setdefault("region", "us-east-1")  # compatible stores mostly have no regions
        self._name = f"s3://{parts.netloc}{parts.path}"
        self._store = S3Store(
            parts.netloc,
            prefix=unquote(parts.path).strip("/"),
            **place,
            **credentials,
            client_options={
                "allow_http": place.get("endpoint", "").startswith("http://"),
                "timeout": timedelta(seconds=REQUEST_SECONDS),
                "connect_timeout": timedelta(seconds=5),
                **proxy,
            },
            retry_config={
                "max_retries": RETRIES,
                "retry_timeout": timedelta(seconds=RETRY_SECONDS),
            },
        )

    def get(self, key: str) -> bytes | None:
        with self._reading(key):
            try:
                return bytes(obstore.get(self._store, key).bytes())
            except FileNotFoundError:
                return None

    def fetch(self, key: str, file: Path) -> bool:
        with self._reading(key):
            try:
                found = obstore.get(self._store, key)
            except FileNotFoundError:
                return False
            pieces = iter(found.stream(min_chunk_size=PIECE_BYTES))
        with file.open("wb") as out:  # errors of this file are not the store's
            while True:
                with self._reading(key):
                    piece = next(pieces, None)
                if piece is None:
                    return True
                out.write(piece)

    def put(self, key: str, data: bytes) -> None:
        with self._changing("store", key):
            obstore.put(self._store, key, data, **_PARTS)

    def put_file(self, key: str, file: Path) -> None:
        with self._changing("store", key):
            obstore.put(self._store, key, file, **_PARTS)
        file.unlink()

    def create(self, key: str, data: bytes) -> bool:
        with self._changing("create", key):
            try:
                obstore.put(self._store, key, data, mode="create")
            except exceptions.AlreadyExistsError:
                return False
        return True

    def delete(self, key: str) -> None:
        with self._changing("delete", key):
            obstore.delete(self._store, key)

    def list(self, prefix: str) -> Iterator[tuple[str, int]]:
        directory = prefix.rpartition("/")[0] or None  # prefixes of S3Store end at a slash
        with self._reading(prefix):
            for objects in obstore.list(self._store, prefix=directory):
                for found in objects:
                    if found["path"].startswith(prefix):
                        yield found["path"], found["size"]

    def local(self, key: str) -> Path | None:
        return None

    @contextmanager
    def _reading(self, key: str) -> Iterator[None]:
        try:
            yield
        except _FAULTS as error:
            raise self._fault(Determinate, "read", key, error) from error

    @contextmanager
    def _changing(self, what: str, key: str) -> Iterator[None]:
        try:
            yield
        except _REFUSED as error:
            raise self._fault(Determinate, what, key, error) from error
        except _FAULTS as error:
            raise self._fault(Indeterminate, what, key, error) from error

    def _fault(
        self, kind: type[DatabaseError], what: str, key: str, error: Exception
    ) -> DatabaseError:
        return kind(f"cannot {what} blob {key} in {self._name}: {told(error)}")


_PARTS = {"chunk_size": PART_BYTES, "max_concurrency": PARTS_AT_ONCE}
