"""Of the contents of a trace, a step reads the rows whose key its changes have."""

from foreshore.compute.delta.changes import change_table
from foreshore.compute.delta.differentiate import differentiate
from foreshore.compute.delta.touched import Touch, keys_of, touched
from foreshore.compute.render.evaluate import plans_of
from foreshore.compute.spark.buckets import is_hashable
from foreshore.expr.ir import Aggregate, Column, Get, Join, Reduce, Relation, count_all
from foreshore.ids import GlobalId
from foreshore.types import FLOAT8, INT4, TEXT, ColumnType

ORDERS = Get(GlobalId("u1"), (ColumnType(INT4), ColumnType(TEXT), ColumnType(FLOAT8)))
LINES = Get(GlobalId("u2"), (ColumnType(TEXT), ColumnType(INT4)))


def reads(relation: Relation, *changed: str) -> tuple[list[object], list[object]]:
    """Return the keys of the traces, and what the statement of the first output touches."""
    plan = differentiate(plans_of(relation).all)
    keys = keys_of(plan, is_hashable)
    found = touched(plan.outputs[0], plan.traces, keys, frozenset(changed))
    return [keys[trace.number] for trace in plan.traces], [
        found.get(trace.number, "unread") for trace in plan.traces
    ]


def test_a_join_touches_the_keys_of_the_other_sides_changes() -> None:
    join = Join((ORDERS, LINES), ((Column(0, INT4), Column(4, INT4)),))
    plan = differentiate(plans_of(join).all)
    assert [change_table(trace) for trace in plan.traces] == ["u_u1", "u_u2"]
    assert reads(join, "u_u2") == ([(0,), (1,)], [(Touch("u_u2", (1,)),), "unread"])
    assert reads(join, "u_u1", "u_u2")[1] == [
        (Touch("u_u2", (1,)),), (Touch("u_u1", (0,)),),
    ]  # fmt: skip


def test_a_join_by_other_columns_reads_all() -> None:
    by_float = Join((ORDERS, ORDERS), ((Column(2, FLOAT8), Column(5, FLOAT8)),))
    assert reads(by_float, "u_u1") == ([()], [None])


def test_groups_touch_their_own_keys() -> None:
    least = Aggregate("min", (Column(1, TEXT),), TEXT)
    grouped = Reduce(ORDERS, (Column(0, INT4),), (least,))
    assert reads(grouped, "d0") == ([(0,)], [(Touch("d0", (0,)),)])
    counted = Reduce(ORDERS, (Column(1, TEXT),), (count_all(),))
    keys, found = reads(counted, "d0")
    assert keys == [(0,)]
    assert found == [(Touch("d0", (0,)),)]
    total = Reduce(ORDERS, (), (least,))
    assert reads(total, "d0") == ([()], [None])
