"""Bind WEBHOOK as the target of a sink."""

import re
from collections.abc import Mapping

from foreshore.errors import DatatypeMismatch, InvalidParameterValue, UndefinedColumn
from foreshore.sinks.webhook import WebhookHeader, WebhookTarget
from foreshore.sql import ast
from foreshore.sql.bind.definitions.sources.options import (
    OptionValue,
    Parse,
    count,
    milliseconds,
    parsed_options,
    text,
    truth,
)
from foreshore.sql.bind.planning import Planning, located
from foreshore.types import RelationDesc, format_type

_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}", re.ASCII)
_OWN = frozenset(("content-type", "content-length", "host", "idempotency-key"))
_OWN |= {"foreshore-signature", "transfer-encoding", "connection", "user-agent"}


def _rows(name: str, value: OptionValue) -> int:
    found = count(name, value)
    if not 1 <= found <= 10_000:
        raise InvalidParameterValue(f'option "{name}" must be between 1 and 10000')
    return found


_OPTIONS: Mapping[str, tuple[str, Parse]] = {
    "url": ("url", text),
    "timeout": ("timeout_ms", milliseconds),
    "max rows": ("most_rows", _rows),
    "body": ("body", text),
    "removed body": ("removed_body", text),
    "private": ("private", truth),
}


def bind_webhook_target(
    planning: Planning, target: ast.WebhookTargetSyntax, rows: RelationDesc
) -> WebhookTarget:
    """Return the URL that gets the changes of `rows`."""
    options = parsed_options("WEBHOOK", target.options, _OPTIONS)
    if "url" not in options:
        raise InvalidParameterValue('WEBHOOK needs the option "url"', position=target.at + 1)
    if not options["url"].startswith("https://") and not options.get("private"):
        raise InvalidParameterValue(
            "the URL of a webhook must begin with https://",
            hint="A superuser may create the sink with PRIVATE = true.",
            position=target.at + 1,
        )
    if options.get("timeout_ms", 0) > 60_000:
        raise InvalidParameterValue(
            'option "timeout" must be at most 60 seconds', position=target.at + 1
        )
    for option in ("body", "removed_body"):
        if option in options:
            with located(target.at):
                _check_body(options[option], rows)
    if {"body", "removed_body"} & options.keys() and "most_rows" in options:
        raise InvalidParameterValue(
            'option "max rows" is not for requests with a BODY', position=target.at + 1
        )
    headers = tuple(_header(planning, each) for each in target.headers)
    secret = "" if target.secret is None else _secret(planning, target.secret)
    return WebhookTarget(secret=secret, headers=headers, **options)


def _check_body(name: str, rows: RelationDesc) -> None:
    """Raise unless the relation has the column, as a document."""
    if name not in rows.names:
        raise UndefinedColumn(f'column "{name}" does not exist')
    type = rows.columns[rows.names.index(name)].type
    if type.name not in ("json", "jsonb"):
        raise DatatypeMismatch(
            f'column "{name}" is of type {format_type(type)} but a body must be jsonb',
            hint="Make it with jsonb_build_object.",
        )


def _header(planning: Planning, header: ast.SinkHeaderSyntax) -> WebhookHeader:
    if not _NAME.fullmatch(header.name) or header.name.lower() in _OWN:
        raise InvalidParameterValue(
            f'"{header.name}" cannot be a header of a webhook', position=header.at + 1
        )
    if header.secret is not None:
        return WebhookHeader(header.name, secret=_secret(planning, header.secret))
    if not header.value or not header.value.isascii() or not header.value.isprintable():
        raise InvalidParameterValue(
            "the value of a header must be printable ASCII characters", position=header.at + 1
        )
    return WebhookHeader(header.name, header.value)


def _secret(planning: Planning, ref: ast.TableRef) -> str:
    with located(ref.at):
        return planning.catalog.secret_named(ref.name)
