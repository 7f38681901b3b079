"""to_char of numbers and to_number, by PostgreSQL's templates.

A template is read into `Template`: what it says of the number as a whole, and its parts in order.
`_Writer` and `_Reader` walk the parts beside the digits of a number. Locale is C: `D` is a point,
`G` a comma and `L` a space.
"""

import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import lru_cache

import numpy as np

from foreshore.digits import is_digits
from foreshore.expr.functions.function import declare
from foreshore.expr.functions.number import rows_of
from foreshore.expr.functions.rows import fail, mapped
from foreshore.numbers import MOST_DIGITS, MOST_SCALE

_EXACT = Context(prec=MOST_DIGITS + MOST_SCALE)  # those of any number
_WORDS = ("EEEE", "FM", "MI", "PL", "PR", "RN", "SG", "SP", "TH", *"09BCDGLSV")
_TOKEN = re.compile(
    r'"((?:[^"\\]|\\.)*)"?|('
    + "|".join(f"{word}|{word.lower()}" for word in _WORDS)
    + r'|[.,])|(\\"|.)',
    re.DOTALL,
)
_ROMAN = (
    (1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"), (50, "L"),
    (40, "XL"), (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I"),
)  # fmt: skip


@dataclass
class Template:
    """A template: digits before and after the point, and which marks it has."""

    parts: list[tuple[bool, str]] = field(default_factory=list)  # whether a keyword; its text
    flags: set[str] = field(default_factory=set)
    before: int = 0
    after: int = 0
    multiplied: int = 0  # digits after V
    zero_start: int = 0
    zero_end: int = 0
    sign_at: int = 0  # digits before S
    sign_last: bool = False  # S after the digits

    def add(self, word: str) -> None:
        """Take a keyword into account; raises for a wrong combination."""
        flags = self.flags
        if word in ("0", "9"):
            self._digit(word)
        elif word == "B":
            if not (self.before or self.after or "zero" in flags):
                flags.add("blank")
        elif word in (".", "D"):
            if "point" in flags:
                raise _wrong("multiple decimal points")
            if "V" in flags:
                raise _wrong('cannot use "V" and decimal point together')
            flags.add("point")
        elif word == "S":
            self._sign()
        elif word in ("MI", "PL", "SG"):
            if "S" in flags:
                raise _wrong(f'cannot use "S" and "{word}" together')
            flags |= {"MI", "PL"} if word == "SG" else {word}
        elif word == "PR":
            if flags & {"S", "PL", "MI"}:
                raise _wrong('cannot use "PR" and "S"/"PL"/"MI"/"SG" together')
            flags.add("PR")
        elif word == "V":
            if "point" in flags:
                raise _wrong('cannot use "V" and decimal point together')
            flags.add("V")
        elif word == "EEEE":
            self._exponent()
        elif word in ("FM", "RN"):
            flags.add(word)

    def _digit(self, word: str) -> None:
        flags = self.flags
        if "PR" in flags:
            raise _wrong(f'"{word}" must be ahead of "PR"')
        if word == "9" and "V" in flags:
            self.multiplied += 1
            return
        if word == "0" and not flags & {"zero", "point"}:
            flags.add("zero")
            self.zero_start = self.before + 1
        if "point" in flags:
            self.after += 1
        else:
            self.before += 1
        if word == "0":
            self.zero_end = self.before + self.after

    def _sign(self) -> None:
        flags = self.flags
        if "S" in flags:
            raise _wrong('cannot use "S" twice')
        if flags & {"PL", "MI", "PR"}:
            raise _wrong('cannot use "S" and "PL"/"MI"/"SG"/"PR" together')
        flags.add("S")
        self.sign_last = "point" in flags
        self.sign_at = self.before

    def _exponent(self) -> None:
        if "EEEE" in self.flags:
            raise _wrong('cannot use "EEEE" twice')
        if self.flags & {"blank", "FM", "S", "PR", "MI", "PL", "RN", "V"}:
            raise fail(
                "42601",
                '"EEEE" is incompatible with other formats',
            )
        self.flags.add("EEEE")


def _wrong(message: str) -> Exception:
    return fail("42601", message)


@lru_cache(256)
def parse(template: str) -> Template:
    """Return a template for numbers; it is not changed afterwards."""
    found = Template()
    for match in _TOKEN.finditer(template):
        quoted, word, other = match.groups()
        if word is not None:
            if "EEEE" in found.flags and word.upper() != "TH":
                raise _wrong('"EEEE" must be the last pattern used')
            found.add(word.upper())
            found.parts.append((True, word))
        else:
            text = re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else other
            found.parts.append((False, '"' if text == '\\"' else text))
    return found


# --- to_char -----------------------------------------------------------------------------------


class _Writer:
    """Write the digits of a number at the places of a template."""

    def __init__(self, template: Template, digits: str, sign: str, spaces: int) -> None:
        self.template, self.digits, self.sign, self.spaces = template, digits, sign, spaces
        flags = set(template.flags)
        self.zero_start = template.zero_start - 1 if template.zero_start else 0
        self.sign_last = template.sign_last
        self.out: list[str] = []
        self.place = 0  # of the next digit of the template
        self.at = 0  # of the next digit of the number
        self.in_number = False
        if flags & {"PL", "MI"}:
            self.signed = flags & {"PL", "MI"} != {"PL"}
        else:
            if sign != "-" and "FM" in flags:
                flags.discard("PR")
            self.signed = sign == "+" and "FM" in flags and "S" not in flags
            if "S" in flags and not self.sign_last and template.before == template.sign_at:
                self.sign_last = True
        self.flags = flags
        self.count = template.after + template.before - 1
        self.relevant = self._last_relevant()
        if not self.signed and spaces == 0:
            self.count += 1

    def _last_relevant(self) -> int | None:
        """Return the index of the last digit that FM keeps, or None if it keeps all."""
        point = self.digits.find(".")
        if not {"FM", "point"} <= self.flags or point < 0:
            return None
        last = max(point, len(self.digits.rstrip("0")) - 1)
        if self.template.zero_end > self.spaces:
            last = max(last, min(len(self.digits) - 1, self.template.zero_end - self.spaces))
        return last

    def _hides_zero(self) -> bool:
        """Return whether the digit is the 0 of a fraction, for which a 9 shows a space."""
        first = self.at == 0 and self.digits.startswith("0")
        return first and "zero" not in self.flags and self.template.after != 0

    def _ends_in_point(self) -> bool:
        return self.relevant is not None and self.digits[self.relevant] == "."

    def digit(self, word: str) -> None:
        """Write a digit or the point, with the sign before the first and after the last."""
        self.in_number = False
        flags, filled = self.flags, "FM" not in self.flags
        has_zero = "zero" in flags
        before_number = self.place < self.spaces
        if (
            not self.signed
            and (not before_number or (has_zero and self.zero_start == self.place))
            and (not self._hides_zero() or self._ends_in_point())
        ):
            self._write_sign()
        if before_number and (self.zero_start > self.place or not has_zero):
            self.out.append(" " if filled else "")
        elif has_zero and before_number:
            self.out.append("0")
            self.in_number = True
        else:
            self._write_digit(word, filled)
            if self.at < len(self.digits):
                self.at += 1
        end = self.count + (self.spaces > 0) + ("point" in flags)
        if self.relevant is not None and self.relevant == self.at:
            end = self.place
        if self.place + 1 == end:
            if self.signed and "PR" in flags:
                self.out.append(" " if self.sign == "+" else ">")
            elif "S" in flags and self.sign_last:
                self.out.append(self.sign)
        self.place += 1

    def _write_sign(self) -> None:
        if "S" in self.flags:
            if not self.sign_last:
                self.out.append(self.sign)
                self.signed = True
            return
        if "PR" in self.flags:
            self.out.append(" " if self.sign == "+" else "<")
        elif self.sign == "-":
            self.out.append("-")
        elif "FM" not in self.flags:
            self.out.append(" ")
        self.signed = True

    def _write_digit(self, word: str, filled: bool) -> None:
        digit = self.digits[self.at] if self.at < len(self.digits) else ""
        if digit == ".":
            if not self._ends_in_point() or not filled:
                self.out.append(".")
        elif self.relevant is not None and self.at > self.relevant and word != "0":
            return
        elif self._hides_zero():
            if filled:
                self.out.append(" ")
            elif self._ends_in_point():
                self.out.append("0")
        else:
            self.out.append(digit or "\0")
            self.in_number = True

    def write(self) -> str:
        """Return the number written by the template.

        The text ends where a digit is asked for after the last one, as in PostgreSQL.
        """
        filled = "FM" not in self.flags
        for is_word, text in self.template.parts:
            word = text.upper()
            if not is_word:
                self.out.append(text)
            elif word in ("9", "0", ".", "D"):
                self.digit(word)
            elif word in (",", "G"):
                self.out.append("," if self.in_number else " " if filled else "")
            elif word == "L":
                self.out.append(" ")
            elif word == "TH":
                if not (self.digits.startswith("#") or self.sign == "-" or "point" in self.flags):
                    self.out.append(_ordinal(self.digits, text))
            elif word in ("MI", "PL"):
                wanted = "-" if word == "MI" else "+"
                self.out.append(wanted if self.sign == wanted else " " if filled else "")
            elif word == "SG":
                self.out.append(self.sign)
        return "".join(self.out).partition("\0")[0]


def _ordinal(digits: str, style: str) -> str:
    if not is_digits(digits[-1:]):
        raise fail("22P02", f'"{digits}" is not a number')
    teen = len(digits) > 1 and digits[-2] == "1"
    suffix = "th" if teen else {"1": "st", "2": "nd", "3": "rd"}.get(digits[-1], "th")
    return suffix.upper() if style == "TH" else suffix


def _written(template: Template, digits: str) -> str:
    """Return a number, given by its digits with a sign if it is negative, by the template."""
    sign = "-" if digits.startswith("-") else "+"
    digits = digits.removeprefix("-")
    places = template.before + template.multiplied
    length = len(digits.partition(".")[0])
    if places < length:
        digits = "#" * places + "." + "#" * template.after
    return _Writer(_widened(template), digits, sign, max(places - length, 0)).write()


def _widened(template: Template) -> Template:
    """Return the template with the digits after V as digits before the point."""
    if not template.multiplied:
        return template
    return Template(
        template.parts, template.flags, template.before + template.multiplied, template.after,
        template.multiplied, template.zero_start, template.zero_end, template.sign_at,
        template.sign_last,
    )  # fmt: skip


def _roman(template: Template, number: int) -> str:
    if not 1 <= number <= 3999:
        shown = "#" * 15
    else:
        shown = ""
        for value, letters in _ROMAN:
            shown += letters * (number // value)
            number %= value
    if "FM" not in template.flags:
        shown = shown.rjust(15)
    out = []
    for is_word, text in template.parts:
        if not is_word:
            out.append(text)
        elif text.upper() == "RN":
            out.append(shown if text == "RN" else shown.lower())
    return "".join(out)


def _scientific(text: str) -> str:
    """Return a number in scientific notation with a space in place of a plus sign."""
    mantissa, _, exponent = text.partition("e")
    shown = f"{mantissa}e{exponent[0]}{exponent[1:].rjust(2, '0')}"
    return shown if shown.startswith("-") else f" {shown.removeprefix('+')}"


def _whole(value: Decimal) -> int:
    return int(value.quantize(Decimal(1), ROUND_HALF_UP, _EXACT))


def numeric_to_char(value: Decimal, text: str) -> str:
    """Return a numeric written by a template."""
    template = parse(text)
    if not value.is_finite():
        return _special_to_char(value, template)
    if "RN" in template.flags:
        number = _whole(value)
        if not -(2**31) <= number < 2**31:
            raise fail("22003", "integer out of range")
        return _roman(template, number)
    if "EEEE" in template.flags:
        return _scientific_of(value, template.after)
    value = value.scaleb(template.multiplied, _EXACT)
    rounded = value.quantize(Decimal(1).scaleb(-template.after), ROUND_HALF_UP, _EXACT)
    return _written(template, f"{rounded or abs(rounded):f}")


def _special_to_char(value: Decimal, template: Template) -> str:
    if "RN" in template.flags:
        raise fail("0A000", f"cannot convert {'NaN' if value.is_nan() else 'infinity'} to integer")
    if "EEEE" in template.flags:
        return _special_exponent(template)
    return _written(template, _special(value))


def _scientific_of(value: Decimal, digits: int) -> str:
    if not value:
        return _scientific(f"{Decimal(0):.{digits}f}e+0")
    exponent = value.adjusted()
    unit = Decimal(1).scaleb(-digits)
    mantissa = value.scaleb(-exponent, _EXACT).quantize(unit, ROUND_HALF_UP, _EXACT)
    return _scientific(f"{mantissa:f}e{exponent:+d}")


def _int_to_char(value: int, text: str) -> str:
    template = parse(text)
    if "RN" in template.flags:
        return _roman(template, value)
    if "EEEE" in template.flags:
        return _scientific_of(Decimal(value), template.after)
    digits = str(value * 10**template.multiplied)
    return _written(template, f"{digits}.{'0' * template.after}" if template.after else digits)


def _single(value: float, factor: float) -> float:
    return float(np.float32(value) * np.float32(factor))


def _float_to_char(
    significant: int, multiplied: Callable[[float, float], float] = operator.mul
) -> Callable[[float, str], str]:
    """Return to_char of floats, with at most so many significant digits."""

    def compute(value: float, text: str) -> str:
        template = parse(text)
        if "RN" in template.flags:
            inside = math.isfinite(value) and abs(value) < 2**31
            return _roman(template, round(value) if inside else 0)
        if "EEEE" in template.flags:
            if not math.isfinite(value):
                return _special_exponent(template)
            return _scientific(f"{value:.{template.after}e}")
        if template.multiplied:
            value = multiplied(value, 10.0**template.multiplied)
        length = len(_digits_of(abs(value), 0))
        after = template.after
        if length >= significant:
            after = 0
        elif length + after > significant:
            after = significant - length
        digits = _digits_of(value, after)
        shortened = Template(
            template.parts, template.flags, template.before, after, template.multiplied,
            template.zero_start, template.zero_end, template.sign_at, template.sign_last,
        )  # fmt: skip
        return _written(shortened, digits)

    return compute


def _digits_of(value: float, after: int) -> str:
    return f"{value:.{after}f}" if math.isfinite(value) else _special(value)


def _special(value: float | Decimal) -> str:
    """Return NaN or an infinity as PostgreSQL writes it."""
    if value != value:
        return "NaN"
    return "-Infinity" if value < 0 else "Infinity"


def _special_exponent(template: Template) -> str:
    """Return what stands in place of NaN or an infinity in scientific notation."""
    marks = "#" * (template.before + template.after + 5)
    return f" {marks[: template.before]}.{marks[template.before + 1 :]}"


# --- to_number ---------------------------------------------------------------------------------


class _Reader:
    """Read digits from text at the places of a template."""

    def __init__(self, template: Template, text: str) -> None:
        self.template, self.text, self.at = template, text, 0
        self.sign = " "
        self.digits = ""
        self.before = self.after = 0
        self.past_point = False

    def _ended(self) -> bool:
        return self.at >= len(self.text)

    def _next(self) -> str:
        return self.text[self.at : self.at + 1]

    def digit(self, word: str) -> None:
        """Read a digit or the point, with a sign before or after it."""
        flags = self.template.flags
        if self._ended():
            return
        if self._next() == " ":
            self.at += 1
        if self._ended():
            return
        read = self.before + self.after
        if self.sign == " " and word in ("0", "9") and read == 0:
            self._sign_before()
        if self._ended():
            return
        was_read = False
        if self._next() in "0123456789":
            if self.past_point and self.after == self.template.after:
                return
            self.digits += self._next()
            if self.past_point:
                self.after += 1
            else:
                self.before += 1
            was_read = True
        elif "point" in flags and not self.past_point and self._next() == ".":
            self.digits += "."
            self.past_point = was_read = True
        if self.sign == " " and self.before + self.after > 0:
            following = self.text[self.at + 1 : self.at + 2]
            if "S" in flags:
                if was_read and following in ("-", "+"):
                    self.sign = following
                    self.at += 1
            elif not was_read and flags & {"PL", "MI"} and self._next() in "+-":
                self.sign = self._next()

    def _sign_before(self) -> None:
        mark = self._next()
        if mark in ("-", "+"):
            self.sign = mark
            self.at += 1
        elif mark == "<" and "PR" in self.template.flags:
            self.sign = "-"
            self.at += 1

    def _skip(self, count: int) -> None:
        """Skip so many characters that cannot be part of a number."""
        for _ in range(count):
            if self._ended() or self._next() in "0123456789.,+-":
                return
            self.at += 1

    def read(self) -> str:
        """Return the digits read, with sign and point."""
        filled = "FM" not in self.template.flags
        for is_word, text in self.template.parts:
            if self._ended():
                break
            word = text.upper()
            if not is_word:
                self.at += len(text)
            elif word in ("9", "0", ".", "D"):
                self.digit(word)
                self.at += 1
            elif word in (",", "G"):
                self.at += filled and self._next() == ","
            elif word in ("L", "TH"):
                self._skip(len(word))
            elif word in ("MI", "PL", "SG"):
                signs = {"MI": "-", "PL": "+", "SG": "+-"}[word]
                if self._next() in signs:
                    self.sign = self._next()
                    self.at += 1
                else:
                    self._skip(1)
        return self.sign + self.digits.removesuffix(".")


def _to_number(text: str, format: str) -> Decimal | None:
    if not format:
        return None
    template = parse(format)
    if "RN" in template.flags:
        raise fail("0A000", '"RN" not supported for input')
    if "EEEE" in template.flags:
        raise fail("0A000", '"EEEE" not supported for input')
    read = _Reader(template, text).read()
    if not any(map(is_digits, read)):
        raise fail("22P02", f'invalid input syntax for type numeric: "{read}"')
    value = Decimal(read.strip())
    if abs(value) >= 10 ** (template.before + template.multiplied):
        raise fail("22003", "numeric field overflow")
    return value.scaleb(-template.multiplied, _EXACT)


declare("to_char", "number text", "text", rows_of(numeric_to_char), fallible=True)
for _t, _compute in (
    ("int4", _int_to_char),
    ("int8", _int_to_char),
    ("numeric", numeric_to_char),
    ("float4", _float_to_char(6, _single)),
    ("float8", _float_to_char(15)),
):
    declare("to_char", f"{_t} text", "text", mapped(_compute), fallible=True)
declare("to_number", "text text", "numeric", mapped(_to_number), fallible=True)
