"""Whether the keys of a connection to AWS, or to a store like S3, are known there."""

import re

from foreshore.errors import ConnectionFailure, DatabaseError, InvalidParameterValue
from foreshore.storage.external.access import Access
from foreshore.storage.external.aws_signature import signature
from foreshore.storage.external.bounded_http import FAILURES, asked, client, reason

_CODE = re.compile(rb"<Code>(\w{1,100})</Code>")
_MAY_NOT_LIST = "AccessDenied"  # buckets: the keys are right, and have fewer rights
_KEYS = "Check ACCESS KEY ID, SECRET ACCESS KEY and SESSION TOKEN of the connection."


async def validate(access: Access) -> None:
    """Ask for the list of buckets, which keys need not allow.

    Raises DatabaseError if the service cannot be reached, or does not know the keys.
    """
    given = access.options
    for option in ("access key id", "secret access key"):
        if option not in given:
            raise InvalidParameterValue(f'the connection to AWS has no option "{option.upper()}"')
    region = given.get("region", "us-east-1")
    url = given.get("endpoint", f"https://s3.{region}.amazonaws.com").rstrip("/") + "/"
    keys = (given["access key id"], given["secret access key"], given.get("session token"))
    sign = signature(keys, region, "s3")
    try:
        async with client() as http:
            response = await asked(http, "GET", url, headers=sign("GET", url, {}, b""))
    except FAILURES as error:
        hint = "Check ENDPOINT and REGION of the connection."
        raise ConnectionFailure(f"could not ask {url}: {reason(error)}", hint=hint) from error
    if response.is_success:
        return
    found = _CODE.search(response.content)
    code = found[1].decode() if found else f"status {response.status_code}"
    if code == _MAY_NOT_LIST:
        return
    if response.status_code in (400, 401, 403):
        raise DatabaseError(f"{url} refuses the keys: {code}", sqlstate="28P01", hint=_KEYS)
    raise ConnectionFailure(f"could not ask {url}: {code}")
