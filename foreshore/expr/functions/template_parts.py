"""Templates of dates and times, taken apart as in PostgreSQL.

A keyword counts as written here or in the other case, where both are listed; a prefix (FM, TM)
before it and a suffix (TH, th, SP) after it belong to it. All else is literal: quoted text, and
single characters, of which separators and spaces are read with more tolerance.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

MONTHS = (
    "January February March April May June July August September October November December".split()
)
DAYS = "Sunday Monday Tuesday Wednesday Thursday Friday Saturday".split()
ROMAN_MONTHS = "I II III IV V VI VII VIII IX X XI XII".split()

_UPPER = (
    "A.D. A.M. AD AM B.C. BC CC DAY DDD DD DY D FF1 FF2 FF3 FF4 FF5 FF6 FX HH24 HH12 HH IDDD ID IW"
    " IYYY IYY IY I J MI MM MONTH MON MS OF P.M. PM Q RM SSSSS SSSS SS TZH TZM TZ US WW W Y,YYY"
    " YYYY YYY YY Y"
).split()
# What differs by its case; of other keywords both cases mean the same.
_CASED = frozenset("A.D. A.M. AD AM B.C. BC DAY DY MONTH MON P.M. PM RM TZ".split())
_KEYWORDS = {
    **{word: word for word in _UPPER},
    **{word.lower(): word.lower() if word in _CASED else word for word in _UPPER},
    **{word: word for word in ("Day", "Dy", "Month", "Mon")},
}
# Keywords that are read from digits.
DIGITS = frozenset(
    "CC DDD DD D FF1 FF2 FF3 FF4 FF5 FF6 HH24 HH12 HH IDDD ID IW IYYY IYY IY I J MI MM MS Q SSSSS"
    " SSSS SS TZM US WW W Y,YYY YYYY YYY YY Y".split()
)
_TOKEN = re.compile(
    r"(FM|fm|TM|tm)?(?:("
    + "|".join(map(re.escape, sorted(_KEYWORDS, key=len, reverse=True)))
    + r')(TH|th|SP)?|"((?:\\.|[^"\\]|\\\Z)*)"?|\\?(?=")(.)|(.))',
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Part:
    """A keyword with its modifiers, or one literal character (`keyword` is None)."""

    keyword: str | None
    text: str  # as written
    fill: bool = True  # False after FM
    localized: bool = False  # after TM
    ordinal: str | None = None
    quoted: bool = False

    @property
    def is_separator(self) -> bool:
        """Return whether it matches any separator or space, or none."""
        return self.keyword is None and not self.quoted and is_separator(self.text)


def is_separator(character: str) -> bool:
    """Return whether a character is a space or ASCII's punctuation."""
    return character.isspace() or ("!" <= character <= "~" and not character.isalnum())


@lru_cache(256)
def parse_template(template: str) -> tuple[Part, ...]:
    """Return the parts of a template."""
    parts: list[Part] = []
    for match in _TOKEN.finditer(template):
        prefix, keyword, suffix, quoted, *others = match.groups()
        if keyword is not None:
            mode = (prefix or "").upper()
            ordinal = suffix if suffix != "SP" else None
            name = _KEYWORDS[keyword]
            parts.append(Part(name, keyword, mode != "FM", mode == "TM", ordinal))
        elif quoted is not None:
            text = re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL)
            parts += [Part(None, character, quoted=True) for character in text]
        else:
            parts.append(Part(None, others[0] or others[1] or ""))
    return tuple(part for part in parts if part.text)
