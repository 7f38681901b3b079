"""Array text: splits array literals into the texts of their elements, and quotes elements."""

import re

from foreshore.errors import FeatureNotSupported, InvalidTextRepresentation

SPACES = " \t\n\v\f\r"

# The error of a value that only types declared with several brackets have here.
NOT_PLAIN = (
    "an array of several dimensions, or with bounds, needs a type like integer[][], not integer[]"
)

_DIMENSIONS = re.compile(r"\s*((?:\[\s*[+-]?[0-9]+\s*(?::\s*[+-]?[0-9]+\s*)?\]\s*)+)=\s*")
_NEEDS_QUOTES = re.compile(r'[{},"\\\s]')


class ShapeNotSupported(FeatureNotSupported):
    """An array of several dimensions, or with bounds, for a type declared with one bracket."""

    def __init__(self) -> None:
        super().__init__(
            NOT_PLAIN,
            detail="A type declared with one pair of brackets has arrays of one dimension from 1.",
            hint="Declare the column, parameter or cast with two pairs of brackets.",
        )


def split_array(text: str) -> list[str | None]:
    """Return the texts of an array's elements; None for NULL."""
    body = text
    if (match := _DIMENSIONS.match(text)) is not None:
        bounds = re.findall(r"\[([^\]]*)\]", match[1])
        if len(bounds) > 1:
            raise ShapeNotSupported
        low, _, high = bounds[0].partition(":")
        if max(len(low), len(high)) > 10:
            raise _malformed(text, "Array bound is out of integer range.")
        if high and int(low) != 1:
            raise ShapeNotSupported
        body = text[match.end() :]
        expected = int(high or low)
        elements = _split_braces(text, body)
        if len(elements) != expected:
            raise _malformed(text, "Specified array dimensions do not match array contents.")
        return elements
    return _split_braces(text, body)


def _malformed(text: str, detail: str) -> InvalidTextRepresentation:
    return InvalidTextRepresentation(f'malformed array literal: "{text}"', detail=detail)


def _split_braces(text: str, body: str) -> list[str | None]:
    body = body.strip(SPACES)
    if not body.startswith("{"):
        raise _malformed(text, 'Array value must start with "{" or dimension information.')
    elements: list[str | None] = []
    at, length = 1, len(body)
    current: list[str] = []
    kept = 0  # leading characters of the element that trimming must keep
    quoted = seen = False  # of the current element
    while at < length:
        character = body[at]
        at += 1
        if character == '"':
            if seen:
                raise _malformed(text, "Unexpected array element.")
            quoted = seen = True
            while at < length and body[at] != '"':
                at += body[at] == "\\"
                current.append(body[at : at + 1])
                at += 1
            at += 1
            kept = len(current)
        elif character == "\\":
            if quoted or at >= length:
                raise _malformed(text, "Unexpected array element.")
            current.append(body[at])
            at += 1
            seen, kept = True, len(current)
        elif character == "{":
            if seen:
                raise _malformed(text, 'Unexpected "{" character.')
            raise ShapeNotSupported
        elif character in ",}":
            if seen:
                value = "".join(current[:kept])
                bare = not quoted and value.lower() == "null" and len(value) == len(current[:kept])
                elements.append(None if bare else value)
            elif character == "," or elements:
                raise _malformed(text, f'Unexpected "{character}" character.')
            current, kept, quoted, seen = [], 0, False, False
            if character == "}":
                if body[at:].strip(SPACES):
                    raise _malformed(text, "Junk after closing right brace.")
                return elements
        elif character in SPACES:
            if seen and not quoted:
                current.append(character)
        else:
            if quoted:
                raise _malformed(text, "Unexpected array element.")
            current.append(character)
            seen, kept = True, len(current)
    raise _malformed(text, "Unexpected end of input.")


def quote_element(text: str) -> str:
    """Return the text of an array's element, quoted if necessary."""
    if not text or _NEEDS_QUOTES.search(text) or text.lower() == "null":
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return text
