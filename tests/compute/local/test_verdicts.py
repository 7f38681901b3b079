"""Verdicts on plans with arguments are those on the plans with the arguments put in."""

import pytest

import foreshore.compute.local.small.verdicts as module
from foreshore.compute.local.small.evaluate import is_small_plan
from foreshore.compute.local.small.verdicts import Verdicts
from foreshore.expr.ir import Call, Environment, Join, Map, Parameter, Relation, Scalar
from foreshore.sql.rewrite.bind_parameters import bind_relation, parameter_bindings
from foreshore.types import INT4, INT8, TEXT, Datum, array_of


def plan_of(*scalars: Scalar) -> Relation:
    return Map(Join(()), scalars)


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[Relation]:
    seen: list[Relation] = []

    def small(plan: Relation) -> bool:
        seen.append(plan)
        return is_small_plan(plan)

    monkeypatch.setattr(module, "is_small_plan", small)
    return seen


def verdict(verdicts: Verdicts, plan: Relation, *args: Datum) -> bool:
    bound = bind_relation(plan, parameter_bindings(args, lambda _: 1 << 30))
    found = verdicts.is_small(plan, args, bound)
    assert found == is_small_plan(bound)
    return found


def test_plan_with_arrays_of_like_length_is_looked_at_once(looked_at: list[Relation]) -> None:
    verdicts, plan = Verdicts(), plan_of(Parameter(1, array_of(INT4)))
    for args in [(1, 2, 3), (7, 8), (2, None)]:
        assert verdict(verdicts, plan, args)
    assert len(looked_at) == 1
    assert not verdict(verdicts, plan, tuple(range(2_000)))
    assert len(looked_at) == 2


def test_larger_values_are_looked_at(looked_at: list[Relation]) -> None:
    verdicts = Verdicts()
    times = Parameter(2, INT4)
    plan = plan_of(Call("repeat(text,int4)", (Parameter(1, TEXT), times), TEXT))
    assert verdict(verdicts, plan, "x", 10) == verdict(verdicts, plan, "x", 11)
    assert len(looked_at) == 1
    assert not verdict(verdicts, plan, "x", 1 << 20)
    assert len(looked_at) == 2
    verdict(verdicts, plan, "y", 1 << 20)
    assert len(looked_at) == 3


def test_session_values_are_looked_at_each_time(looked_at: list[Relation]) -> None:
    verdicts, plan = Verdicts(), plan_of(Environment("mz_now", INT8), Parameter(1, INT4))
    verdict(verdicts, plan, 1)
    verdict(verdicts, plan, 1)
    assert len(looked_at) == 2
