"""Documents in the form of jsonb, fast where that only reorders members and sets spaces.

That is so for objects of scalar members without escapes, numbers with exponents and negative zeros:
what is between the keys stays as it is written. Messages often have the same keys in the same
order, so the order of jsonb is found once. All others go through `canonical_json`.
"""

import re
from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa

from foreshore.errors import DataError, StatementTooComplex
from foreshore.json_text import canonical_json
from foreshore.storage.ingest.formats.decoder import WRONG_JSON
from foreshore.types import JSONB, arrow_type

_NOT_PLAIN = re.compile(rb"\\|[0-9][eE]|[:,\[\s]-0|\x7f")
_MOST_SHAPES = 1000
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Documents:
    """Brings documents into the form of jsonb; it remembers the shapes of objects."""

    def __init__(self) -> None:
        self._shapes: dict[tuple[str, ...], tuple[bytes, tuple[str, ...]]] = {}

    def column(self, texts: Sequence[bytes | None], errors: dict[int, str]) -> pa.Array:
        """Return UTF-8 documents as jsonb, NULL for those that are none, which `errors` gets."""
        found: list[bytes | None] = []
        for row, text in enumerate(texts):
            if text is None:
                found.append(None)
                continue
            plain = self._plain(text)
            if plain is None:
                try:
                    plain = canonical_json(text.decode()).encode()
                except (DataError, StatementTooComplex) as error:
                    errors.setdefault(row, _with_detail(error))
            found.append(plain)
        return pa.array(found, pa.binary()).cast(arrow_type(JSONB))

    def _plain(self, text: bytes) -> bytes | None:
        """Return a plain object in the form of jsonb; None if it is not one."""
        if _NOT_PLAIN.search(text) is not None:
            return None
        try:
            members = _OBJECT.decode(text)
        except WRONG_JSON:
            return None
        keys = tuple(members)
        shape = self._shapes.get(keys)
        if shape is None:
            shape = self._shape(keys)
        template, order = shape
        values: Any = tuple([members[key] for key in order])
        if text.count(b"{") + text.count(b"[") > 1 and any(
            bytes(each)[:1] in b"{[" for each in values
        ):
            return None
        written: bytes = template % values
        return written

    def _shape(self, keys: tuple[str, ...]) -> tuple[bytes, tuple[str, ...]]:
        """Return the object of members with these keys, and their order there."""
        if len(self._shapes) >= _MOST_SHAPES:
            self._shapes.clear()
        order = sorted((each.encode() for each in keys), key=lambda key: (len(key), key))
        members = b", ".join(b'"' + key.replace(b"%", b"%%") + b'": %b' for key in order)
        shape = b"{" + members + b"}", tuple(key.decode() for key in order)
        self._shapes[keys] = shape
        return shape


def _with_detail(error: DataError | StatementTooComplex) -> str:
    return f"{error.message}: {error.detail}" if error.detail else error.message
