"""The answers that are kept: bounded, those asked for last, and never of another form."""

from foreshore.output_style import OutputStyle
from foreshore.server.answers import LONGEST, OVERHEAD, Answer, Answers


class Shown:
    """A proof."""


def answer(data: bytes) -> Answer:
    return Answer(data, Shown())


def test_forms_differ_by_plan_columns_and_style() -> None:
    answers = Answers()
    plan, other, desc = object(), object(), object()
    utc, zone = OutputStyle("UTC"), OutputStyle("Asia/Kolkata")
    forms = [
        answers.form(plan, desc, utc),
        answers.form(other, desc, utc),
        answers.form(plan, other, utc),
        answers.form(plan, desc, zone),
    ]
    assert len(set(forms)) == 4
    assert answers.form(plan, desc, OutputStyle("UTC")) == forms[0]


def test_what_is_asked_for_stays_and_the_rest_is_bounded() -> None:
    each = 4 + OVERHEAD + 10
    answers = Answers(10 * each)
    for number in range(1000):
        answers.put((1, b"%04d" % number), answer(b"x" * 10))
        assert answers.get((1, b"0000")) is not None
        kept = sum(answers.get((1, b"%04d" % i)) is not None for i in range(1, number - 10))
        assert kept == 0
    assert answers.get((1, b"0999")) is not None


def test_long_answer_is_not_kept() -> None:
    answers = Answers()
    answers.put((1, b"a"), answer(b"x" * LONGEST))
    assert answers.get((1, b"a")) is None
