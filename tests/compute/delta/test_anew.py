"""When a step computes all rows anew; that it is exact is tested with the engine."""

from foreshore.compute.delta.anew import LEAST_CHANGES, is_cheaper
from foreshore.compute.delta.differentiate import differentiate
from foreshore.expr.ir import Column, Join, Threshold
from tests.compute.plans import U1, U2


def test_groups_and_joins_of_several_changed_inputs_are_computed_anew_if_much_has_changed() -> None:
    much, little = 10 * LEAST_CHANGES, LEAST_CHANGES - 1
    group = differentiate([Threshold(U2)])
    assert is_cheaper(group.outputs[0], group.traces, {"s0": much}, {f"u_{U2.id}": much})
    assert not is_cheaper(group.outputs[0], group.traces, {"s0": much}, {f"u_{U2.id}": little})
    assert not is_cheaper(group.outputs[0], group.traces, {"s0": 100 * much}, {f"u_{U2.id}": much})
    width = len(U1.columns)
    equal = (Column(0, U1.columns[0].type), Column(width, U2.columns[0].type))
    join = differentiate([Join((U1, U2), (equal,))])
    rows, both = {"s0": much, "s1": much}, {f"u_{U1.id}": much, f"u_{U2.id}": much}
    assert is_cheaper(join.outputs[0], join.traces, rows, both)
    assert not is_cheaper(join.outputs[0], join.traces, rows, {f"u_{U1.id}": much})
