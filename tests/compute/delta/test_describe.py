"""The plan of changes, as EXPLAIN PHYSICAL PLAN shows it."""

from foreshore.compute.delta.describe import describe_plan
from foreshore.compute.delta.differentiate import differentiate
from foreshore.compute.render.evaluate import plans_of
from foreshore.expr.ir import Aggregate, Call, Join, Map, Reduce, count_all
from foreshore.ids import GlobalId
from foreshore.types import INT4, TEXT, numeric_of_scale
from tests.compute.plans import U1, U2, column

WANTED = """\
Trace 0: rows (integer, integer, text)
  Get sales
Trace 1: rows (integer, integer)
  Get u2
Trace 2: accumulators (rows, count, sum) by (text)
  Project (#5, #6)
    Map (#2, #4)
      DeltaJoin on=(#0 = #3)
        Get trace 0
        Get trace 1
Rows:
  Reduce group_by=(#0) aggregates=[count(*), sum(#1)]
    Get trace 2"""


def test_a_join_and_a_group_have_three_traces() -> None:
    join = Join((U1, U2), ((column(0), column(3)),))
    total = Aggregate("sum", (column(4),), numeric_of_scale(0))
    view = Reduce(join, (column(2, TEXT),), (count_all(), total))

    def name_of(id: GlobalId) -> str:
        return "sales" if id == U1.id else id

    assert describe_plan(differentiate(plans_of(view).all), name_of) == WANTED


def test_equal_inputs_share_a_trace_also_with_the_errors() -> None:
    failing = Call("divide(int4,int4)", (column(0), column(1)), INT4)
    view = Map(Join((U1, U1), ((column(0), column(3)),)), (failing,))
    plan = differentiate(plans_of(view).all)
    assert len(plan.outputs) == 2
    leaf, join = plan.traces
    assert leaf.leaf == "u1"
    assert leaf.kept
    assert isinstance(join.body, Join)
    assert not join.kept
