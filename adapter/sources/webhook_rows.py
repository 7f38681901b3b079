"""From requests to the rows of a webhook. All of it runs on a thread."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import pyarrow as pa

from foreshore.adapter.sources.webhook_check import Condition
from foreshore.errors import DatabaseError, InvalidTextRepresentation, StatementTooComplex
from foreshore.json_errors import describe_json_error
from foreshore.json_text import canonical_json
from foreshore.sources.webhook import WebhookSource
from foreshore.structured import stored_map
from foreshore.types import RelationDesc, SqlType
from foreshore.update import DIFF_FIELD

MOST_ROWS = 100_000  # of one request
_raw = msgspec.json.Decoder(msgspec.Raw)
_array = msgspec.json.Decoder(list[msgspec.Raw])


@dataclass(frozen=True, slots=True)
class Request:
    """A request; the names of its headers are in lower case."""

    headers: Mapping[str, bytes]
    body: bytes


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of requests, with `__diff`, and the errors of the requests that have none."""

    table: pa.Table
    errors: Mapping[int, Exception]


def rows_of(
    requests: Sequence[Request],
    spec: WebhookSource,
    desc: RelationDesc,
    condition: Condition | None,
    secrets: Mapping[str, bytes],
) -> Rows:
    """Return the rows of requests that are accepted."""
    errors = dict(_refused(requests, spec, condition, secrets))
    bodies: list[str | bytes] = []
    of_request: list[int] = []
    for number, request in enumerate(requests):
        if number in errors:
            continue
        try:
            found = _bodies(request.body, spec)
            # A header that is no text refuses its request, and not those beside it.
            _row_of_headers(request, spec, desc)
        except DatabaseError as error:
            errors[number] = error
            continue
        bodies += found
        of_request += [number] * len(found)
    return Rows(_table(requests, bodies, of_request, spec, desc), errors)


def _refused(
    requests: Sequence[Request],
    spec: WebhookSource,
    condition: Condition | None,
    secrets: Mapping[str, bytes],
) -> Mapping[int, Exception]:
    """Return the errors of the requests that the webhook does not accept."""
    if condition is None:
        return {}
    errors: dict[int, Exception] = {}
    inputs: list[list[object]] = [[] for _ in spec.inputs]
    asked: list[int] = []
    for number, request in enumerate(requests):
        try:
            values = [
                _input(request, each.what, each.as_bytes, secrets.get(each.secret, b""), type_)
                for each, type_ in zip(spec.inputs, condition.types, strict=True)
            ]
        except DatabaseError as error:
            errors[number] = error
            continue
        asked.append(number)
        for column, value in zip(inputs, values, strict=True):
            column.append(value)
    arrays = [condition.array(values, i) for i, values in enumerate(inputs)]
    if asked:
        found = condition.refused(arrays, len(asked))
        errors |= {asked[row]: error for row, error in found.items()}
    return errors


def _input(request: Request, what: str, as_bytes: bool, secret: bytes, type_: SqlType) -> object:
    if what == "headers":
        return _map(request.headers, as_bytes, type_)
    value = secret if what == "secret" else request.body
    return value if as_bytes else _text(value, what)


def _bodies(body: bytes, spec: WebhookSource) -> list[str | bytes]:
    """Return the values of the column `body`; raises DatabaseError if it cannot be decoded."""
    if spec.body == "bytes":
        return [body]
    if spec.body == "text":
        return [_text(body, "body")]
    _text(body, "body")
    try:
        parts = _documents(body, spec.body == "json array")
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidTextRepresentation(
            "invalid input syntax for type json", detail=describe_json_error(error)
        ) from None
    if len(parts) > MOST_ROWS:
        raise StatementTooComplex(f"a request may have at most {MOST_ROWS} rows")
    return [canonical_json(bytes(each).decode()) for each in parts]


def _documents(body: bytes, is_array: bool) -> Sequence[msgspec.Raw]:
    """Return the documents of a body: one, one on each line, or the elements of an array."""
    try:
        whole = _raw.decode(body)
    except msgspec.DecodeError:
        lines = [each for each in body.split(b"\n") if each.strip()]
        if is_array or len(lines) < 2:
            raise
        return [_raw.decode(each) for each in lines]
    if is_array and bytes(whole).lstrip().startswith(b"["):
        return _array.decode(body)
    return [whole]


def _text(data: bytes, what: str) -> str:
    try:
        found = data.decode()
    except UnicodeDecodeError:
        found = "\0"
    if "\0" in found:
        raise InvalidTextRepresentation(f"the {what} is not a text in UTF-8")
    return found


def _map(headers: Mapping[str, bytes], as_bytes: bool, type_: SqlType) -> bytes:
    values = {name: v if as_bytes else _text(v, f'header "{name}"') for name, v in headers.items()}
    return stored_map(values, type_)


def _row_of_headers(request: Request, spec: WebhookSource, desc: RelationDesc) -> list[object]:
    """Return the values of the columns after the body."""
    found: list[object] = []
    if spec.all_headers:
        kept = {k: v for k, v in request.headers.items() if k not in spec.without_headers}
        found.append(_map(kept, False, desc.columns[1].type))
    for each in spec.headers:
        value = request.headers.get(each.header)
        is_kept = value is None or each.as_bytes
        found.append(value if is_kept else _text(value or b"", f'header "{each.header}"'))
    return found


def _table(
    requests: Sequence[Request],
    bodies: Sequence[str | bytes],
    of_request: Sequence[int],
    spec: WebhookSource,
    desc: RelationDesc,
) -> pa.Table:
    schema = desc.stored_schema()
    numbers = sorted(set(of_request))
    headers = [_row_of_headers(requests[number], spec, desc) for number in numbers]
    takes = pa.array(np.searchsorted(numbers, of_request), pa.int64())
    arrays = [pa.array(bodies, schema.field(0).type)]
    for i in range(1, len(schema)):
        values = pa.array([row[i - 1] for row in headers], schema.field(i).type)
        arrays.append(values.take(takes))
    ones = pa.array(np.ones(len(bodies), dtype=np.int64))
    return pa.Table.from_arrays([*arrays, ones], schema=schema.append(DIFF_FIELD))
