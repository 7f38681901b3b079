"""Webhooks: rows that other programs send by HTTP."""

from typing import Literal as OneOf
from typing import TypeAlias

import msgspec

from foreshore.sources.outputs import Column, Output

BodyFormat: TypeAlias = OneOf["json", "json array", "text", "bytes"]
BODY_TYPES = {"json": "jsonb", "json array": "jsonb", "text": "text", "bytes": "bytea"}
HEADERS_TYPE = {False: "map[text=>text]", True: "map[text=>bytea]"}


class HeaderColumn(msgspec.Struct, frozen=True):
    """A header, in lower case, that has a column of its own."""

    header: str
    column: str
    as_bytes: bool = False


class CheckInput(msgspec.Struct, frozen=True):
    """A column over which CHECK is evaluated: the body, the headers, or a secret by its id."""

    what: OneOf["body", "headers", "secret"]
    column: str
    as_bytes: bool = False
    secret: str = ""


class WebhookSource(msgspec.Struct, frozen=True, tag="webhook"):
    """What a webhook takes, and which requests it accepts.

    `check` is the text of a condition over `inputs`; a request is accepted if it is true.
    """

    body: BodyFormat
    headers: tuple[HeaderColumn, ...] = ()
    all_headers: bool = False
    without_headers: tuple[str, ...] = ()  # of all of them
    check: str = ""
    inputs: tuple[CheckInput, ...] = ()


def webhook_output(spec: WebhookSource) -> Output:
    """Return the columns of the rows."""
    columns = [Column("body", BODY_TYPES[spec.body], False)]
    if spec.all_headers:
        columns.append(Column("headers", HEADERS_TYPE[False], False))
    columns += [Column(each.column, "bytea" if each.as_bytes else "text") for each in spec.headers]
    return Output(tuple(columns))


def input_type(each: CheckInput) -> str:
    """Return the SQL type of a column over which CHECK is evaluated."""
    if each.what == "headers":
        return HEADERS_TYPE[each.as_bytes]
    return "bytea" if each.as_bytes else "text"
