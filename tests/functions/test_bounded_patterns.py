"""Patterns that are exponential under backtracking are matched quickly and correctly."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foreshore.expr.functions import pattern, regex_match
from foreshore.expr.functions.like import like, like_expression
from foreshore.expr.functions.regex import Regex, compile_regex
from foreshore.expr.functions.rows import Failure
from tests.processor_time import seconds_of

AS = "a" * 40 + "!"
LONG = "a" * 30_000


def matches(text: str, expression: str) -> bool:
    return regex_match.matching(compile_regex(expression), text).matches()


CASES: dict[str, tuple[Callable[[], object], object]] = {
    "nested loops": (lambda: matches(AS, "^(a+)+$"), False),
    "nested loops, replaced": (lambda: pattern.regexp_replace(AS, "^(a+)+$", "b"), AS),
    "nested loops, matched": (lambda: pattern.regexp_match(AS, "^(a+)+$"), None),
    "nested loops, split": (lambda: pattern.regexp_split(AS, "(a+)+$", function="f"), (AS,)),
    "alternatives": (lambda: matches(AS, "^(a|aa|aaa)+$"), False),
    "many loops": (lambda: matches(LONG, "a*a*a*a*a*a*a*b"), False),
    "optional letters": (lambda: matches("a" * 30, "a?" * 30 + "a" * 30), True),
    "longest of many": (lambda: pattern.regexp_match(LONG + "b", "(?:a|aa|b)+"), (LONG + "b",)),
    "shortest of many": (lambda: pattern.regexp_match(LONG + "b", "(?:a|aa)+?b"), (LONG + "b",)),
    "behind others": (lambda: pattern.regexp_replace("é" + LONG, "(a|aa)+$", "-"), "é-"),
    "similar to": (lambda: matches(AS, pattern.similar_to_escape("((a+)+)+")), False),
    "like": (lambda: like("a" * 3000 + "b", "%a" * 60 + "c"), False),
    "like with any": (lambda: like("a" * 3000 + "b", "%a_" * 60 + "c"), False),
    "like that is": (lambda: like("a" * 3000 + "b", "%a_" * 60 + "%b"), True),
}


@pytest.mark.parametrize("name", CASES)
def test_exponential_pattern_is_matched_in_linear_time(name: str) -> None:
    run, expected = CASES[name]
    found: list[object] = []
    assert seconds_of(lambda: found.append(run())) < 0.5
    assert found == [expected]


def test_slow_lookaround_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regex_match, "MOST_SECONDS", 0.05)
    with pytest.raises(Failure, match="54001.*takes too long"):
        matches(AS, "(?=a)(a|aa)+$")


@pytest.mark.parametrize(
    "expression", ["(" * 200 + "a" + ")" * 200, "a" * 20_000], ids=["deep", "long"]
)
def test_too_large_pattern_is_rejected(expression: str) -> None:
    with pytest.raises(Failure, match="2201B.*too complex"):
        compile_regex(expression)


def test_repetitions_beyond_re2_limit_are_matched() -> None:
    assert matches("a" * 5000, "^((a{100}){10}){5}$")
    assert not matches("a" * 5001, "^((a{100}){10}){5}$")


ATOMS = st.sampled_from(["a", "b", "ab", "[ab]", "[^a]", ".", r"\w", r"\s", "é"])
QUANTIFIERS = st.sampled_from(
    ["", "", "", "*", "+", "?", "*?", "+?", "??", "{1,2}", "{2}", "{0,3}"]
)


def _larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    group = st.builds("({}{}){}".format, st.sampled_from(["", "?:"]), inner, QUANTIFIERS)
    return st.one_of(
        group,
        st.builds("{}{}".format, inner, group),
        st.builds("{}|{}".format, inner, inner),
        st.builds("{}{}".format, inner, inner),
    )


EXPRESSIONS = st.recursive(st.builds("{}{}".format, ATOMS, QUANTIFIERS), _larger, max_leaves=6)


@settings(deadline=None)
@given(st.text("abé ", max_size=8), EXPRESSIONS)
def test_engines_give_same_matches(text: str, expression: str) -> None:
    regex = compile_regex(expression)
    assert outcome(regex, text) == outcome(replace(regex, short=-1), text)
    source = replace(regex.source, linear=None)
    try:
        by_timed = outcome(replace(regex, short=-1, source=source), text)
    except Failure as failure:
        if "takes too long" in failure.text:
            return
        raise
    compared = 2 if regex.empty_loops else 3  # without captures
    assert outcome(regex, text)[:compared] == by_timed[:compared]


def outcome(regex: Regex, text: str) -> tuple[object, object, object]:
    """Return all matches and their captures, or the error."""
    found = regex_match.matching(regex, text)
    all_bounds = regex_match.find_all(found, text)
    groups: list[object] = []
    for bounds in all_bounds:
        try:
            groups.append(regex_match.captures(regex, found, bounds))
        except Failure as failure:
            groups.append(failure.text)
    return found.matches(), all_bounds, groups


def test_captures_of_repeated_empty_group_beside_lookaround_are_rejected() -> None:
    assert pattern.regexp_match("ab", "(a*)*") == ("a",)
    with pytest.raises(Failure, match="0A000.*may be empty"):
        pattern.regexp_match("ab", "(a*)*(?=b)")
    assert pattern.regexp_match("ab", "(?:a*)*(?=b)") == ("a",)
    assert pattern.regexp_match("ab", "(a)*(?=b)") == ("a",)


@given(st.text("ab_%\n", max_size=8), st.text("ab_%", max_size=6))
def test_like_agrees_with_its_expression(text: str, wanted: str) -> None:
    import re2

    assert like(text, wanted) == (re2.search(like_expression(wanted), text) is not None)
