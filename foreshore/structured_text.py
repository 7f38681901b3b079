"""The text of records, lists and maps: PostgreSQL's of records, Materialize's of lists and maps.

    (1,"a b",)    a record of 1, 'a b' and NULL
    {1,NULL,3}    a list
    {{1},{2,3}}   a list of lists
    {a=>1,b=>2}   a map

Parsers return the texts of the parts, None for NULL; formatters take them.
"""

import re
from collections.abc import Iterable, Sequence

from foreshore.array_text import SPACES, quote_element
from foreshore.errors import DataError, InvalidTextRepresentation

Texts = list[str | None]

_RECORD_QUOTES = re.compile(r'[(),"\\\s]')
_MAP_QUOTES = re.compile(r'[{},"\\\s=>\[\]]')


# --- records ----------------------------------------------------------------------------------


def split_record(text: str, count: int) -> Texts:
    """Return the texts of the `count` columns of a record."""
    body = text.strip(SPACES)

    def malformed(detail: str) -> InvalidTextRepresentation:
        return InvalidTextRepresentation(f'malformed record literal: "{text}"', detail=detail)

    if not body.startswith("("):
        raise malformed("Missing left parenthesis.")
    columns: Texts = []
    at = 1
    while True:
        value, at = _record_column(body, at)
        if at >= len(body):
            raise malformed("Unexpected end of input.")
        columns.append(value)
        at += 1
        if body[at - 1] == ")":
            break
    if body[at:].strip(SPACES):
        raise malformed("Junk after right parenthesis.")
    if count == 0 and columns == [None]:
        return []
    if len(columns) != count:
        raise malformed(f"Too {'few' if len(columns) < count else 'many'} columns.")
    return columns


def _record_column(body: str, at: int) -> tuple[str | None, int]:
    """Return the text of the column at `at`, None for nothing, and the place of its delimiter."""
    parts: list[str] = []
    quoted = seen = False
    while at < len(body) and (quoted or body[at] not in ",)"):
        character = body[at]
        at += 1
        seen = True
        if character == "\\" and at < len(body):
            parts.append(body[at])
            at += 1
        elif character == '"':
            if quoted and body[at : at + 1] == '"':
                parts.append('"')
                at += 1
            else:
                quoted = not quoted
        else:
            parts.append(character)
    return ("".join(parts) if seen else None), at


def join_record(columns: Iterable[str | None]) -> str:
    """Return the text of a record."""
    return "(" + ",".join("" if text is None else _quoted_column(text) for text in columns) + ")"


def _quoted_column(text: str) -> str:
    if not text or _RECORD_QUOTES.search(text):
        return '"' + text.replace("\\", "\\\\").replace('"', '""') + '"'
    return text


# --- lists and maps ---------------------------------------------------------------------------


class _Reader:
    """Read the text of a list or map, character by character."""

    def __init__(self, text: str, kind: str) -> None:
        self.text = text
        self.kind = kind
        self.at = 0

    def fail(self, detail: str) -> DataError:
        return syntax_error(self.kind, detail, self.text)

    def blanks(self) -> None:
        while self.peek() and self.peek() in SPACES:
            self.at += 1

    def peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def open(self) -> None:
        self.blanks()
        if self.peek() != "{":
            raise self.fail(f"expected '{{', found {self.peek() or 'empty string'}")
        self.at += 1
        self.blanks()

    def close(self) -> None:
        self.blanks()
        if self.at < len(self.text):
            raise self.fail(
                f"malformed array literal; contains '{self.peek()}' after terminal '}}'"
            )

    def embedded(self) -> str:
        """Return the text of a list or map within this one."""
        start = self.at
        if self.peek() != "{":
            return self.bare(",}") or ""
        depth, quoted = 0, False
        while self.at < len(self.text):
            character = self.peek()
            self.at += 1
            if character == "\\":
                self.at += 1
            elif character == '"':
                quoted = not quoted
            elif not quoted and character == "{":
                depth += 1
            elif not quoted and character == "}":
                depth -= 1
                if depth == 0:
                    return self.text[start : self.at]
        what = "unexpected end of input" if self.kind == "list" else "unterminated embedded element"
        raise self.fail(what)

    def quoted(self) -> str:
        self.at += 1
        parts: list[str] = []
        while self.at < len(self.text):
            character = self.peek()
            self.at += 1
            if character == '"':
                return "".join(parts)
            if character == "\\":
                character = self.peek()
                self.at += 1
            parts.append(character)
        raise self.fail("unterminated quoted string")

    def bare(self, ends: str) -> str | None:
        """Return the text up to one of `ends` without blanks around it; None for NULL."""
        parts: list[str] = []
        kept = 0  # characters that are not blanks at the end
        escaped = False
        while True:
            character = self.peek()
            if not character:
                raise self.fail("unterminated element")
            if character in ends or (ends[0] == "=" and self.text.startswith("=>", self.at)):
                break
            self.at += 1
            if character == "\\":
                character, escaped = self.peek(), True
                self.at += 1
                kept = len(parts) + 1
            elif character in '"{':
                raise self.fail(f"malformed literal; must escape special character '{character}'")
            elif character not in SPACES:
                kept = len(parts) + 1
            parts.append(character)
        text = "".join(parts[:kept])
        if not text:
            raise self.fail("malformed literal; missing element")
        return None if text.upper() == "NULL" and not escaped else text

    def value(self, *, nested: bool) -> str | None:
        """Return the text of the item here."""
        if self.peek() == '"':
            return self.quoted()
        if nested and self.peek() == "{":
            return self.embedded()
        if self.peek() == "{":
            hint = "; perhaps you want a nested map" if self.kind == "map" else ""
            what = "element" if self.kind == "list" else "value"
            raise self.fail(f"unescaped '{{' at beginning of {what}{hint}")
        return self.bare(",}")

    def next(self) -> bool:
        """Return whether another item follows."""
        self.blanks()
        character = self.peek()
        if not character:
            raise self.fail("unexpected end of input")
        if character not in ",}":
            raise self.fail(f"expected ',' or '}}', got '{character}'")
        self.at += 1
        self.blanks()
        return character == ","


def syntax_error(kind: str, detail: str, text: str) -> InvalidTextRepresentation:
    """Return the error of a text that is no list or map."""
    return InvalidTextRepresentation(f'invalid input syntax for type {kind}: {detail}: "{text}"')


def split_list(text: str, *, nested: bool) -> Texts:
    """Return the texts of a list's items; `nested` items are lists or maps themselves."""
    reader = _Reader(text, "list")
    reader.open()
    items: Texts = []
    if reader.peek() == "}":
        reader.at += 1
    else:
        items.append(reader.value(nested=nested))
        while reader.next():
            items.append(reader.value(nested=nested))
    reader.close()
    return items


def split_map(text: str, *, nested: bool) -> list[tuple[str, str | None]]:
    """Return the keys of a map and the texts of its values; `nested` ones are lists or maps."""
    reader = _Reader(text, "map")
    reader.open()
    pairs: list[tuple[str, str | None]] = []
    if reader.peek() == "}":
        reader.at += 1
    else:
        more = True
        while more:
            pairs.append(_pair(reader, nested=nested))
            more = reader.next()
    reader.close()
    return pairs


def _pair(reader: _Reader, *, nested: bool) -> tuple[str, str | None]:
    if reader.peek() == '"':
        key = reader.quoted()
    else:
        start = reader.at
        if "=>" not in reader.text[start:]:
            raise reader.fail("expected =>")
        key = reader.bare("=") or reader.text[start : reader.at].strip(SPACES)
    reader.blanks()
    if not reader.text.startswith("=>", reader.at):
        raise reader.fail("expected =>")
    reader.at += 2
    reader.blanks()
    return key, reader.value(nested=nested)


def join_list(items: Sequence[str | None], *, nested: bool) -> str:
    """Return the text of a list."""
    return "{" + ",".join(map(_item, items, [nested] * len(items))) + "}"


def _item(text: str | None, nested: bool) -> str:
    if text is None:
        return "NULL"
    return text if nested else quote_element(text)


def join_map(pairs: Iterable[tuple[str, str | None]], *, nested: bool) -> str:
    """Return the text of a map."""
    return (
        "{" + ",".join(f"{_in_map(key)}=>{_map_value(text, nested)}" for key, text in pairs) + "}"
    )


def _map_value(text: str | None, nested: bool) -> str:
    if text is None:
        return "NULL"
    return text if nested else _in_map(text)


def _in_map(text: str) -> str:
    if not text or _MAP_QUOTES.search(text) or text.lower() == "null":
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return text
