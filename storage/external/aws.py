"""Connections to AWS: buckets that are read by their keys."""

import os
from urllib.parse import quote, unquote, urlencode, urlsplit

from foreshore.errors import InvalidParameterValue
from foreshore.storage.blob import Blob
from foreshore.storage.external.access import Access
from foreshore.storage.external.checking_proxy import proxy_url
from foreshore.storage.external.dial import check_endpoint
from foreshore.storage.lake.places import Location

_SERVERS_TOKEN = "AWS_SESSION_TOKEN"
_KEYS = ("access key id", "secret access key", "session token")


def bucket_of(url: str, access: Access) -> Location:
    """Return the place of `s3://BUCKET/KEY`, which is reached by a connection. Blocks.

    Raises InsufficientPrivilege if its endpoint is link-local, InvalidParameterValue if the URL is
    another one or the connection has no keys.
    """
    parts = urlsplit(url)
    if parts.scheme != "s3" or not parts.hostname or parts.query:
        raise InvalidParameterValue(
            f'unrecognized URL "{url}"', hint="An AWS CONNECTION reads s3://BUCKET/KEY."
        )
    bucket, credentials = _bucket(parts.netloc, access), _credentials(access)
    key = unquote(parts.path).strip("/")
    return Location(url, _blob(bucket, credentials), None, key, None, bucket, credentials)


def _bucket(name: str, access: Access) -> str:
    """Return the URL of a bucket, with the options of its store."""
    given = access.options
    options: dict[str, str] = {
        each: given[each] for each in ("endpoint", "region") if each in given
    }
    return f"s3://{quote(name)}" + (f"?{urlencode(options)}" if options else "")


def _credentials(access: Access) -> dict[str, str]:
    """Return the keys of a connection. Those of the server are for its operator's places only."""
    for each in _KEYS[:2]:
        if each not in access.options:
            raise InvalidParameterValue(f'the connection to AWS has no option "{each.upper()}"')
    if "session token" not in access.options and _SERVERS_TOKEN in os.environ:
        raise InvalidParameterValue(  # clients would send the server's to whoever is reached
            'the connection to AWS has no option "SESSION TOKEN"',
            hint=f"That of the server, {_SERVERS_TOKEN}, is not for connections.",
        )
    found = {
        each.replace(" ", "_"): access.options[each] for each in _KEYS if each in access.options
    }
    if "endpoint" in access.options:  # of whoever made the connection
        check_endpoint(access.options["endpoint"])
        found["proxy_url"] = proxy_url()
    return found


def _blob(bucket: str, credentials: dict[str, str]) -> Blob:
    from foreshore.storage.s3_blob import S3Blob  # needs an optional package

    return S3Blob(bucket, credentials)
