"""Bind WEBHOOK."""

from typing import Literal as OneOf
from typing import cast

from foreshore.errors import DuplicateColumn
from foreshore.sources.webhook import BodyFormat, CheckInput, HeaderColumn, WebhookSource
from foreshore.sql import ast
from foreshore.sql.bind.planning import Planning, located


def bind_webhook(planning: Planning, reads: ast.WebhookSyntax) -> WebhookSource:
    """Return what a webhook takes and accepts; its condition is bound when it is created."""
    headers = tuple(HeaderColumn(each.header, each.column, each.as_bytes) for each in reads.headers)
    inputs = tuple(_input(planning, each) for each in reads.inputs)
    with located(reads.at):
        _check_distinct("body", *(["headers"] * reads.all_headers), *(h.column for h in headers))
        _check_distinct(*(each.column for each in inputs))
    return WebhookSource(
        cast(BodyFormat, reads.body),
        headers,
        reads.all_headers,
        reads.without_headers,
        reads.check,
        inputs,
    )


def _input(planning: Planning, each: ast.CheckInputSyntax) -> CheckInput:
    if each.secret is None:
        what: OneOf["headers", "body"] = "headers" if each.what == "headers" else "body"
        return CheckInput(what, each.column or what, each.as_bytes)
    with located(each.secret.at):
        id = planning.catalog.secret_named(each.secret.name)
    return CheckInput("secret", each.column or each.secret.name[-1], each.as_bytes, id)


def _check_distinct(*columns: str) -> None:
    for i, column in enumerate(columns):
        if column in columns[:i]:
            raise DuplicateColumn(f'column "{column}" specified more than once')
