"""Numerics without a scale: their three fields keep values, order and display scales."""

from decimal import Decimal

import hypothesis.strategies as st
import pytest
from hypothesis import given

from foreshore import numbers
from foreshore.datum import from_array, to_array
from foreshore.errors import DataError
from foreshore.expr.evaluate import outcome
from foreshore.expr.functions.registry import resolve
from foreshore.expr.ir import Call, Literal
from foreshore.sorted_numerics import numeric_bytes
from foreshore.structured import stored, values_of
from foreshore.text import parse_text
from foreshore.types import NUMBER, TEXT, record_of
from tests.processor_time import seconds_of

NOT_FINITE = ["NaN", "Infinity", "-Infinity"]
texts = st.one_of(
    st.sampled_from([*NOT_FINITE, "0", "0.00", "1.5", "1.50", "999999999999999999.99999999999999999999"]),
    st.decimals(allow_nan=False, allow_infinity=False, places=3).map(numbers.shown),
    st.builds(
        lambda units, scale: numbers.shown(Decimal((units < 0, tuple(map(int, str(abs(units)))), -scale))),
        st.integers(-(10**45), 10**45),
        st.integers(0, 60),
    ),
)  # fmt: skip


def _order(text: str) -> tuple[int, Decimal]:
    """Return PostgreSQL's order: NaN is the greatest."""
    value = Decimal(text)
    return (1, Decimal(0)) if value.is_nan() else (0, value)


@given(st.lists(st.none() | texts))
def test_columns_keep_texts(data: list[str | None]) -> None:
    assert from_array(to_array(data, NUMBER), NUMBER) == data


@given(texts, texts)
def test_parts_order_as_values_do(a: str, b: str) -> None:
    first, second = (numbers.order_key(numbers.number(each)) for each in (a, b))
    assert (first < second) == (_order(a) < _order(b))
    assert (first == second) == (_order(a) == _order(b))


@given(texts)
def test_records_keep_texts(text: str) -> None:
    type = record_of(("a", "b"), (NUMBER, NUMBER))
    assert list(values_of(stored((text, text), type), type)) == [text, text]


@pytest.mark.parametrize(
    "text", ["1e131072", "-1e131072", "1e9999999999999999999", "abc", "1..2", "--1", "-nan", ""]
)
def test_invalid_texts_are_refused(text: str) -> None:
    with pytest.raises(DataError):
        parse_text(text, NUMBER)


def test_texts_keep_their_scale() -> None:
    given = ["1.50", "+1.50", "-0.00", "1e3", "1.5e-3", " 7 ", "NaN", "-inf", ".5", "5."]
    shown = ["1.50", "1.50", "0.00", "1000", "0.0015", "7", "NaN", "-Infinity", "0.5", "5"]
    assert [parse_text(text, NUMBER) for text in given] == shown


@pytest.mark.parametrize("text", ["1" + "0" * 100_000, "-" + "9" * 2_000 + ".5"])
def test_template_for_fewer_digits_than_a_number_has_is_filled_with_hashes(text: str) -> None:
    template = "9" * 400
    found = resolve("to_char", [NUMBER, TEXT], (text, template))
    scalar = Call(found.key, (Literal(text, NUMBER), Literal(template, TEXT)), found.result)
    values, errors = outcome(scalar, (), 1)
    assert errors is None
    assert set(values[0].as_py().strip(" -")) == {"#"}


@pytest.mark.parametrize(
    "text", ["9" * 100_000, "1" + "0" * 100_000, "0." + "7" * 16_000, "-" + "12" * 50_000]
)
def test_long_numerics_sort_at_the_cost_of_their_texts(text: str) -> None:
    value = Decimal(text)
    shown = min(seconds_of(lambda: [str(value) for _ in range(10)]) for _ in range(3))
    assert min(seconds_of(lambda: numeric_bytes(value)) for _ in range(3)) < 4 * shown
