"""JSON paths: what cases recorded from PostgreSQL do not show."""

import sys
from collections.abc import Iterator
from types import FrameType

import pytest

from foreshore.errors import DatabaseError
from foreshore.expr.functions import jsonpath_items
from foreshore.expr.functions.jsonpath_items import items_of
from foreshore.expr.functions.jsontext import dumps, loads
from foreshore.expr.functions.rows import Failure
from foreshore.jsonpath import parse, shown
from tests.functions.jsonpath_cases import PATHS


@pytest.mark.parametrize("text", PATHS)
def test_shown_path_is_shown_alike_again(text: str) -> None:
    kept = shown(parse(text))
    assert shown(parse(kept)) == kept


def test_steps_are_limited() -> None:
    nested = "[" * 60 + "1" + "]" * 60
    path = parse("$.** ? (@.** ? (@.** ? (@.** ? (@.** == 2) == 2) == 2) == 2)")
    with pytest.raises(Failure, match="too many steps"):
        list(items_of(path, loads(nested), {}))


@pytest.mark.parametrize(
    ("path", "document"),
    [
        ("$" + ".**" * 50, "[" * 60 + "1" + "]" * 60),
        ("$.**.**", "[" * 500 + "1" + "]" * 500),
        ("$.**.** ? (@ == 2)", '{"a":' * 500 + "1" + "}" * 500),
        ("$[*] ? (@ > 0) == $[*] ? (@ < 0)", f"[{'1, -1, ' * 500}0]"),
    ],
)
def test_a_step_takes_constant_time(
    monkeypatch: pytest.MonkeyPatch, path: str, document: str
) -> None:
    """Resuming a generator counts as a call; before, each step resumed all that it was within."""
    monkeypatch.setattr(jsonpath_items, "MOST_STEPS", 10_000)
    parsed, value = parse(path), loads(document)
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        with pytest.raises(Failure, match="too many steps"):
            list(items_of(parsed, value, {}))
    finally:
        sys.setprofile(None)
    assert calls < 10 * 10_000


@pytest.fixture
def usual_recursion() -> Iterator[None]:
    """Limit recursion as Python does by itself; Hypothesis may have raised the limit."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(1_000)
    yield
    sys.setrecursionlimit(before)


@pytest.mark.parametrize(
    "text", ["(" * 5_000 + "$" + ")" * 5_000, "-" * 5_000 + "$", "$" + " + 1" * 5_000]
)
def test_deep_path_is_refused(usual_recursion: None, text: str) -> None:
    with pytest.raises(DatabaseError) as error:
        shown(parse(text))
    assert error.value.sqlstate == "54001"


def test_exists_stops_at_the_first_item() -> None:
    found = items_of(parse("$[*] / (1 - $[*])"), loads("[0]"), {})
    assert dumps(next(found)) == "0.00000000000000000000"
