"""REGEX: the groups of a match as columns."""

from collections.abc import Sequence

from foreshore.sources.regex import compiled
from foreshore.storage.ingest.formats.decoder import Decoded, Values, without_wrong
from foreshore.storage.ingest.formats.plain import parsed, texts_of
from foreshore.types import SqlType


class RegexDecoder:
    """Values of the groups of a regular expression, NULL for groups that took no part."""

    def __init__(self, pattern: str, types: Sequence[SqlType]) -> None:
        self._search, self._types = compiled(pattern).search, tuple(types)

    def decode(self, values: Values) -> Decoded:
        """Return the groups of the first match in each message; one without a match is wrong."""
        errors: dict[int, str] = {}
        none = (None,) * len(self._types)
        rows: list[tuple[str | None, ...]] = []
        for row, text in enumerate(without_wrong(values, texts_of, errors).to_pylist()):
            found = None if text is None else self._search(text)
            if found is None and text is not None:
                errors.setdefault(row, "the message does not match the regular expression")
            rows.append(none if found is None else found.groups())
        columns = zip(*rows, strict=True) if rows else none
        return Decoded(
            tuple(
                parsed([*(texts or ())], type, errors)
                for texts, type in zip(columns, self._types, strict=True)
            ),
            errors,
        )
