"""What is told of an error of an object store: never what a host has answered.

Libraries put the bodies of answers into their errors. Whoever names a host by an endpoint would
read there what only this machine can see, so an error keeps the status, and S3's code of it.
"""

import re

_STATUS = re.compile(
    r"Server returned (?:non-2xx status code|error response):? \d{3}(?: [A-Z][A-Za-z' -]{1,40})?"
)
_CODE = re.compile(r"<Code>(\w{1,100})</Code>")
# What follows these words is part of an answer.
_ANSWER = re.compile(
    r"(Got invalid [\w ]{1,40} response|[Ii]nvalid (?:type|value)|[Uu]nexpected JSON Payload"
    r"|unknown variant|missing field)\b.*"
)


def told(error: BaseException) -> str:
    """Return what an error says, in one line."""
    return without_answer(str(error))


def without_answer(said: str) -> str:
    """Return what an error says, in one line, without an answer in it."""
    status = _STATUS.search(said)
    if status is not None:
        code = _CODE.search(said, status.end())
        return said[: status.end()].strip() + (f" ({code[1]})" if code else "")
    return _ANSWER.sub(r"\1", said.strip().partition("\n")[0])
