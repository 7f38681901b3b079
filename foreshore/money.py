"""money: text forms in the locale C, which shows $1,234.56. A datum is a number of cents."""

import re

from foreshore.array_text import SPACES
from foreshore.errors import InvalidTextRepresentation, NumericValueOutOfRange

MOST_CENTS = 2**63 - 1
_WRITTEN = re.compile(
    rf"[{SPACES}]*\$?[{SPACES}]*(?P<sign>[-(+]?)[{SPACES}]*\$?[{SPACES}]*"
    rf"(?P<whole>[0-9,]*)(?P<point>\.(?P<cents>[0-9,]*))?(?P<rest>[{SPACES})$+-]*)"
)


def parse_money(text: str) -> int:
    """Return the cents of a text, rounded from its third decimal; raises a DataError."""
    found = _WRITTEN.fullmatch(text)
    if found is None:
        raise InvalidTextRepresentation(f'invalid input syntax for type money: "{text}"')
    decimals = (found["cents"] or "").replace(",", "")
    whole = found["whole"].replace(",", "").lstrip("0")
    cents = int(whole[:20] + decimals[:2].ljust(2, "0"))  # 20 digits are too many in any case
    cents += decimals[2:3] >= "5"
    if found["sign"] in ("-", "(") or "-" in found["rest"]:
        cents = -cents
    if not -MOST_CENTS - 1 <= cents <= MOST_CENTS:
        raise NumericValueOutOfRange(f'value "{text}" is out of range for type money')
    return cents


def money_text(cents: int) -> str:
    """Return the text of a datum: -$1,234.56."""
    whole, rest = divmod(abs(cents), 100)
    return f"{'-' if cents < 0 else ''}${whole:,}.{rest:02}"


_ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen"
    " sixteen seventeen eighteen nineteen"
).split()
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
_SCALES = ("quadrillion", "trillion", "billion", "million", "thousand", "")


def _hundreds(number: int) -> str:
    """Return a number below 1,000 in words, as PostgreSQL writes it."""
    hundred, rest = divmod(number, 100)
    ten, one = divmod(rest, 10)
    tens = _TENS[ten - 2] if ten >= 2 else ""
    if not hundred:
        return _ONES[number] if number < 20 else f"{tens} {_ONES[one]}" if one else tens
    if not rest:
        return f"{_ONES[hundred]} hundred"
    if ten < 2:
        return f"{_ONES[hundred]} hundred and {_ONES[rest]}"
    if not one:
        return f"{_ONES[hundred]} hundred {tens}"
    return f"{_ONES[hundred]} hundred {tens} {_ONES[one]}"


def money_words(cents: int) -> str:
    """Return an amount in English words."""
    whole, rest = divmod(abs(cents), 100)
    groups = [whole // 1000**power % 1000 for power in range(5, -1, -1)]
    words = [
        f"{_hundreds(group)} {scale} " if scale else _hundreds(group)
        for group, scale in zip(groups, _SCALES, strict=True)
        if group
    ]
    dollars, shown = "".join(words) or "zero", _hundreds(rest)  # a million has two blanks behind
    text = f"{dollars} dollar{'' if whole == 1 else 's'} and {shown} cent{'' if rest == 1 else 's'}"
    text = f"minus {text}" if cents < 0 else text
    return text[0].upper() + text[1:]
