"""The conditions under which parts of scalars are evaluated, as Case and coalesce skip parts."""

from collections.abc import Callable, Iterable, Sequence

from foreshore.expr.ir import FALSE, TRUE, Call, Case, Scalar
from foreshore.expr.split import is_null
from foreshore.expr.traversal import operands_of
from foreshore.types import BOOL


def conditions(
    scalars: Iterable[Scalar], wanted: Callable[[Scalar], bool]
) -> dict[Scalar, list[Scalar]]:
    """Return the `wanted` parts of `scalars`, nested ones first, with their conditions.

    A part is evaluated for a row if one of the conditions, one for each occurrence, is TRUE. If
    an occurrence is always evaluated, the only condition is TRUE.
    """
    found: dict[Scalar, list[Scalar]] = {}
    for scalar in scalars:
        _visit(scalar, TRUE, wanted, found)
    return found


def _visit(
    scalar: Scalar,
    when: Scalar,
    wanted: Callable[[Scalar], bool],
    found: dict[Scalar, list[Scalar]],
) -> None:
    match scalar:
        case Case(branches=branches, otherwise=otherwise):
            tests = [test for test, _ in branches]
            for i, (test, value) in enumerate(branches):
                _visit(test, _none(tests[:i], when), wanted, found)
                _visit(value, _first(tests[: i + 1], when), wanted, found)
            _visit(otherwise, _none(tests, when), wanted, found)
        case Call(function="coalesce", args=args):
            for i, arg in enumerate(args):
                nulls = [_negated(is_null(before)) for before in args[:i]]
                _visit(arg, _none(nulls, when), wanted, found)
        case _:
            for operand in operands_of(scalar):
                _visit(operand, when, wanted, found)
    if wanted(scalar):
        places = found.setdefault(scalar, [])
        if when == TRUE:
            places[:] = [TRUE]
        elif when not in places and TRUE not in places:
            places.append(when)


def _none(tests: Sequence[Scalar], when: Scalar) -> Scalar:
    """Return whether `when` is TRUE and none of `tests`, tried in order, is."""
    if not tests:
        return when
    tried = Case(tuple((test, FALSE) for test in tests), TRUE, BOOL)
    return Case(((when, tried),), FALSE, BOOL)


def _first(tests: Sequence[Scalar], when: Scalar) -> Scalar:
    """Return whether `when` is TRUE and the last of `tests` is the first that is TRUE."""
    *before, last = tests
    tried = Case((*((test, FALSE) for test in before), (last, TRUE)), FALSE, BOOL)
    return Case(((when, tried),), FALSE, BOOL)


def _negated(test: Scalar) -> Scalar:
    return Case(((test, FALSE),), TRUE, BOOL)
