"""money: arithmetic, casts, words."""

from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from foreshore.expr.functions.casting import plain
from foreshore.expr.functions.decimals import pack, unscaled
from foreshore.expr.functions.function import (
    BY_KEY,
    Outcome,
    Signature,
    declare,
    hidden,
)
from foreshore.expr.functions.number import rows_of
from foreshore.expr.functions.number_casts import to_number
from foreshore.expr.functions.rows import fail, mapped
from foreshore.money import MOST_CENTS, money_words
from foreshore.types import numeric_of_scale


def _within(cents: int) -> int:
    if not -MOST_CENTS - 1 <= cents <= MOST_CENTS:
        raise fail("22003", "money out of range")
    return cents


def _rounded(amount: float) -> int:
    """Return a product or quotient of floats as cents, rounded half to even."""
    if not abs(amount) < 2.0**63:
        raise fail("22003", "money out of range")
    return int(np.rint(amount))


def _quotient(cents: int, by: int) -> int:
    if by == 0:
        raise fail("22012", "division by zero")
    whole = abs(cents) // abs(by)
    return _within(whole if (cents < 0) == (by < 0) else -whole)


def _float_quotient(cents: int, by: float) -> int:
    if by == 0:
        raise fail("22012", "division by zero")
    return _rounded(cents / by)


def _ratio(a: int, b: int) -> float:
    if b == 0:
        raise fail("22012", "division by zero")
    return a / b


def _declare(name: str, args: str, result: str, compute: Callable[..., Any], stem: str) -> None:
    declare(name, args, result, mapped(compute), stem=f"money_{stem}", fallible=True)


_declare("+", "money money", "money", lambda a, b: _within(a + b), "add")
_declare("-", "money money", "money", lambda a, b: _within(a - b), "subtract")
_declare("/", "money money", "float8", _ratio, "divide")
for _t in ("int2", "int4", "int8"):
    _declare("*", f"money {_t}", "money", lambda a, by: _within(a * by), "multiply")
    _declare("*", f"{_t} money", "money", lambda by, a: _within(a * by), "multiply")
    _declare("/", f"money {_t}", "money", _quotient, "divide")
for _t in ("float4", "float8"):
    _declare("*", f"money {_t}", "money", lambda a, by: _rounded(a * by), "multiply")
    _declare("*", f"{_t} money", "money", lambda by, a: _rounded(a * by), "multiply")
    _declare("/", f"money {_t}", "money", _float_quotient, "divide")
declare("cash_words", "money", "text", mapped(money_words))


def _of_decimal(value: Decimal) -> int:
    if not value.is_finite():
        word = "NaN" if value.is_nan() else "infinity"
        raise fail("0A000", f"cannot convert {word} to bigint")
    cents = value * 100 if value.adjusted() < 40 else value
    whole = cents.to_integral_value(ROUND_HALF_UP) if cents.adjusted() < 40 else cents
    if not -MOST_CENTS - 1 <= whole <= MOST_CENTS:
        raise fail("22003", "bigint out of range")
    return int(whole)


def _of_total(total: Decimal) -> int:
    return _within(int(total))


def _to_numeric(types: Signature, a: pa.Array) -> Outcome:
    exact, _ = pack(unscaled(a), a.is_valid() if a.null_count else None, 2)
    kernel = BY_KEY[f"cast(numeric,{types.result.name})"].kernel
    return kernel(Signature((numeric_of_scale(2),), types.result), exact)


def _cents(types: Signature, a: pa.Array) -> Outcome:
    return a


for _t in ("int4", "int8"):
    hidden(
        f"cast({_t},money)", _t, "money", mapped(lambda whole: _within(whole * 100)), fallible=True
    )
hidden("cast(numeric,money)", "numeric", "money", mapped(_of_decimal), fallible=True)
hidden("cast(number,money)", "number", "money", rows_of(_of_decimal), fallible=True)
hidden("cast(money,numeric)", "money", "numeric", _to_numeric, fallible=True)
to_number("money", _to_numeric)
hidden("money_cents(money)", "money", "int8", _cents, duckdb=plain, spark=plain)
hidden("money_of_total(numeric)", "numeric", "money", mapped(_of_total), fallible=True)
