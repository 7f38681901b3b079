r"""The values of string constants as SQL writes them, for texts that need not be valid.

    'a''b'   E'a\x62'   U&'a\0062' UESCAPE '\'   $x$ab$x$   'a' newline 'b'

A constant may be cut off, and an escape that is none stays. `string_constants.py` decodes those of
statements that run.
"""

import re
from collections.abc import Iterator, Sequence

# The quantifiers are possessive: a text of a client must not make the search try again and again.
STRING = r"""(?:
    [eE]'(?:[^'\\]++|\\.|'')*+(?:'|\Z)
  | (?:[uU]&|[nNbBxX])?'(?:[^']++|'')*+(?:'|\Z)
  | \$(?P<tag>\w*+)\$.*?(?:\$(?P=tag)\$|\Z)
)"""
_PREFIX = re.compile(r"(?:[eEnNbBxX]|[uU]&)?'")
_DOLLARS = re.compile(r"\$\w*+\$")
_LETTERS = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_ESCAPE = re.compile(
    r"((?:\\(?:x[0-9A-Fa-f]{1,2}|[0-7]{1,3}))++)"
    r"|\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))|''",
    re.DOTALL,
)
_BYTE = re.compile(r"\\(?:x([0-9A-Fa-f]{1,2})|([0-7]{1,3}))")
_MARK = re.compile(r"\s*+uescape\s*+'([^'\s])'", re.IGNORECASE)
_CODE = re.compile(r"[+]([0-9A-Fa-f]{6})|([0-9A-Fa-f]{4})")
_CONTINUED = re.compile(r"(?:[ \t\f\v]++|--[^\n\r]*+)*+[\n\r](?:\s++|--[^\n\r]*+)*+")


def values_of(text: str, found: Sequence[re.Match[str]]) -> Iterator[str]:
    """Yield each constant of a text as written within its quotes, and its value.

    `found` are all constants in order. Of those that are continued the whole value comes, too.
    """
    pieces: list[str] = []
    end = 0
    for each in found:
        value = value_of(text, each)
        yield _body(each[0])
        yield value
        if pieces and _CONTINUED.fullmatch(text, end, each.start()) is None:
            yield "".join(pieces)
            pieces.clear()
        pieces.append(value)
        end = each.end()
    yield "".join(pieces)


def value_of(text: str, found: re.Match[str]) -> str:
    """Return the value of a constant in a text."""
    written = found[0]
    body = _body(written)
    if written[0] == "$":
        return body
    if written[0] in "eE":
        return _ESCAPE.sub(_escaped, body)
    body = body.replace("''", "'")
    if written[0] in "uU":
        mark = _MARK.match(text, found.end())
        return _by_code(body, "\\" if mark is None else mark[1])
    return body


def _body(written: str) -> str:
    """Return what is within the quotes of a constant."""
    if dollars := _DOLLARS.match(written):
        return written[dollars.end() :].removesuffix(dollars[0])
    if quote := _PREFIX.match(written):
        return written[quote.end() :].removesuffix("'")
    return written  # a number


def _escaped(found: re.Match[str]) -> str:
    many, short, long, plain = found.groups()
    if many:
        codes = [int(a, 16) if a else int(b, 8) & 255 for a, b in _BYTE.findall(many)]
        return bytes(codes).decode(errors="replace")
    if short or long:
        return _character(short or long, found[0])
    return _LETTERS.get(plain, plain) if plain else "'"


def _by_code(body: str, mark: str) -> str:
    """Return the value of a constant in which `mark` stands before codes, and twice for itself."""
    first, *rest = body.split(mark)
    pieces = [first]
    is_mark = False  # the piece before was empty: this mark is the second of two
    for number, piece in enumerate(rest, 1):
        if is_mark:
            pieces.append(piece)
            is_mark = False
        elif not piece and number < len(rest):
            pieces.append(mark)
            is_mark = True
        elif code := _CODE.match(piece):
            pieces += (_character(code[1] or code[2], mark + code[0]), piece[code.end() :])
        else:
            pieces += (mark, piece)
    return "".join(pieces)


def _character(code: str, written: str) -> str:
    """Return the character of a hexadecimal code; how it is written if there is none."""
    number = int(code, 16)
    return written if number > 0x10FFFF or 0xD800 <= number < 0xE000 else chr(number)
