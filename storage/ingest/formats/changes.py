"""Changes as Debezium writes them in JSON: `{"before": ..., "after": ..., "op": ...}`.

They may be within `payload`, beside their schema, and so may keys.
"""

from typing import Any

import msgspec

from foreshore.storage.ingest.formats.decoder import WRONG_JSON, Decoded, Decoder, Values

_NULL = b"null"


class _Change(msgspec.Struct, gc=False):
    after: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    payload: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _Wrapped(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    payload: msgspec.Raw
    schema: msgspec.Raw


class ChangeDecoder:
    """Decodes the rows after changes by another decoder; deleted rows have none."""

    def __init__(self, rows: Decoder) -> None:
        self._rows = rows
        self._change = msgspec.json.Decoder(_Change | None)

    def decode(self, values: Values) -> Decoded:
        """Return the row after each change."""
        errors: dict[int, str] = {}
        found: list[bytes | None] = []
        for row, value in enumerate(values):
            try:
                found.append(None if value is None else self._after(value))
            except (*WRONG_JSON, ValueError) as error:
                errors[row] = f"no change as Debezium writes it: {error}"
                found.append(None)
        deleted = frozenset(
            row for row, each in enumerate(found) if each is None and row not in errors
        )
        decoded = self._rows.decode(found)
        return Decoded(decoded.columns, {**decoded.errors, **errors}, deleted)

    def _after(self, value: bytes) -> bytes | None:
        change = self._change.decode(value)
        if change is not None and isinstance(change.payload, msgspec.Raw):
            change = self._change.decode(change.payload)
        if change is None:
            return None
        if not isinstance(change.after, msgspec.Raw):
            raise ValueError('it has no member "after"')
        after = bytes(change.after)
        return None if after == _NULL else after


class PayloadDecoder:
    """Decodes what is within `payload` beside `schema`, or the whole message."""

    def __init__(self, rows: Decoder) -> None:
        self._rows = rows
        self._wrapped: Any = msgspec.json.Decoder(_Wrapped)

    def decode(self, values: Values) -> Decoded:
        """Return the rows of messages or of their payloads."""
        return self._rows.decode([None if each is None else self._payload(each) for each in values])

    def _payload(self, value: bytes) -> bytes:
        try:
            return bytes(self._wrapped.decode(value).payload)
        except WRONG_JSON:
            return value
