"""What scans of single inputs say about the errors of plans over joins of them."""

from foreshore.compute.render.certain import suspects
from foreshore.expr.ir import (
    Aggregate,
    Call,
    Column,
    Get,
    Join,
    Map,
    Project,
    Reduce,
    TopK,
    count_all,
)
from foreshore.ids import GlobalId
from foreshore.types import INT4, ColumnType, numeric_of_scale

INT = ColumnType(INT4)
U1, U2 = (Get(GlobalId(id), (INT, INT)) for id in ("u1", "u2"))
JOIN = Join((U1, U2), ((Column(0, INT4), Column(2, INT4)),))


def add(a: int, b: int) -> Call:
    return Call("add(int4,int4)", (Column(a, INT4), Column(b, INT4)), INT4)


def test_scalar_over_one_input_is_looked_at_there() -> None:
    assert suspects(Map(JOIN, (add(2, 3),))) == [Map(U2, (add(0, 1),))]


def test_scalar_over_two_inputs_is_not_certain() -> None:
    assert suspects(Map(JOIN, (add(1, 3),))) is None


def test_plan_without_failing_scalars_has_no_suspects() -> None:
    assert suspects(Project(JOIN, (1,))) == []


def test_scalars_are_followed_through_linear_operators() -> None:
    first = Map(Project(U1, (1, 0)), (add(0, 1),))
    join = Join((first, U2), ((Column(2, INT4), Column(3, INT4)),))
    nested = Call("add(int4,int4)", (Column(1, INT4), Column(0, INT4)), INT4)
    assert suspects(Map(join, (add(2, 0),))) == [
        Map(
            U1,
            (
                nested,
                Call("add(int4,int4)", (nested, Column(1, INT4)), INT4),
            ),
        )
    ]


def test_arguments_and_filters_of_aggregates_are_looked_at() -> None:
    total = Aggregate("sum", (add(0, 1),), numeric_of_scale(0), filter=None)
    assert suspects(Reduce(JOIN, (), (total,))) == [Map(U1, (add(0, 1),))]
    assert suspects(Reduce(JOIN, (add(2, 2),), (count_all(),))) == [Map(U2, (add(0, 0),))]


def test_other_operators_are_not_certain() -> None:
    assert suspects(Map(TopK(U1, (0,), (), None), (add(0, 1),))) is None
    assert suspects(Map(Reduce(U1, (Column(0, INT4),), (count_all(),)), (add(0, 0),))) is None
