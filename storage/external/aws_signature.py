"""Requests to services of AWS, signed by botocore with the keys of a connection."""

from collections.abc import Callable
from typing import TypeAlias

from foreshore.errors import FeatureNotSupported

# Returns the headers with which a request is sent: of a method, a URL, headers and a body.
Signature: TypeAlias = Callable[[str, str, dict[str, str], bytes], dict[str, str]]


def signature(keys: tuple[str, str, str | None], region: str, service: str) -> Signature:
    """Return what signs requests to a service; `keys` are id, secret and perhaps a token.

    Raises FeatureNotSupported if the package for it is missing.
    """
    try:
        from botocore.auth import S3SigV4Auth, SigV4Auth
        from botocore.awsrequest import AWSRequest
        from botocore.credentials import Credentials
    except ModuleNotFoundError as error:
        raise FeatureNotSupported(
            f'the Python package "{error.name}" is not installed',
            hint="To ask AWS Glue, or to validate connections to AWS, run: pip install botocore",
        ) from None
    kind = S3SigV4Auth if service == "s3" else SigV4Auth
    signs = kind(Credentials(*keys), service, region)

    def signed(method: str, url: str, headers: dict[str, str], body: bytes) -> dict[str, str]:
        request = AWSRequest(method, url, headers=headers, data=body)
        signs.add_auth(request)
        return dict(request.headers)

    return signed
