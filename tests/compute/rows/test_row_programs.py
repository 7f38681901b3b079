"""A plan as a row program has the model's rows, or says that columns have to compute it."""

from collections import Counter
from random import Random

import pytest
from hypothesis import event, given, settings

from foreshore.compute.rows.program import RowFailed, RowProgram, TooMany, compile_rows
from foreshore.expr.ir import (
    Call,
    Case,
    Column,
    Finishing,
    Frame,
    FrameBound,
    Get,
    Literal,
    Map,
    OrderKey,
    Parameter,
    Relation,
    Scalar,
    Window,
    WindowFunction,
)
from foreshore.ids import GlobalId
from foreshore.types import BOOL, INT4, INT8, TEXT, ColumnType, Datum
from tests.compute.cases import Contents, random_history
from tests.compute.plans import PLANS
from tests.effort import examples
from tests.model import evaluate
from tests.relations import histories, lowered_relations

# Products of arrays, and equal values that look different; more rows than there can be.
NOT_DONE = dict.fromkeys(
    [
        "lists of floats as keys",
        "except of floats",
    ],
    "not compiled",
) | dict.fromkeys(["except", "negative multiplicities"], "too many")


def told_apart(rows: Counter[tuple[Datum, ...]]) -> Counter[str]:
    """Return rows by their texts, which tell zeros apart and NaN not."""
    return Counter({repr(row): count for row, count in rows.items()})


def run(program: RowProgram, contents: Contents) -> Counter[tuple[Datum, ...]]:
    lists = [list(contents[id].elements()) for id in program.collections]
    return Counter(program.run(lists))


def check(relation: Relation, contents: Contents) -> str:
    """Compare a plan with the model; return how it went."""
    program = compile_rows(relation)
    if program is None:
        return "not compiled"
    rows, errors = evaluate(relation, contents)
    try:
        found = run(program, contents)
    except RowFailed:
        return "failed"
    except TooMany:
        return "too many"
    assert not errors, "columns tell of an error"
    assert told_apart(found) == told_apart(rows)
    return "done"


@settings(max_examples=examples(400))
@given(lowered_relations(size=5, failing=True), histories(1))
def test_programs_match_the_model(relation: Relation, history: list[Contents]) -> None:
    event(check(relation, history[0]))


@settings(max_examples=examples(200))
@given(lowered_relations(size=5), histories(1))
def test_programs_that_cannot_fail_do_not(relation: Relation, history: list[Contents]) -> None:
    outcome = check(relation, history[0])
    event(outcome)
    assert outcome != "failed"


@pytest.mark.parametrize("name", PLANS)
def test_plans_of_each_kind(name: str) -> None:
    (contents,) = random_history(Random(name))[:1]
    assert check(PLANS[name], contents) == NOT_DONE.get(name, "done")


T = Get(GlobalId("u9"), (ColumnType(INT4), ColumnType(TEXT, nullable=False)))
ROWS = [(2, "b"), (None, "n"), (1, "a"), (3, "a")]
N, X = Column(0, INT4), Column(1, TEXT)


def finished(*keys: OrderKey, limit: int | None = None, offset: int = 0) -> list[tuple[Datum, ...]]:
    program = compile_rows(T, Finishing(keys, None, 0, (1, 0)))
    assert program is not None
    return program.run([ROWS], limit=limit, offset=offset)


def test_rows_are_ordered_cut_and_projected() -> None:
    assert finished(OrderKey(N)) == [("a", 1), ("b", 2), ("a", 3), ("n", None)]
    assert finished(OrderKey(N, descending=True, nulls_first=True), limit=2) == [
        ("n", None),
        ("a", 3),
    ]
    assert finished(OrderKey(N, nulls_first=True))[0] == ("n", None)
    assert finished(OrderKey(N, descending=True))[-1] == ("n", None)
    assert finished(OrderKey(X), OrderKey(N, descending=True), limit=2, offset=1) == [
        ("a", 1),
        ("b", 2),
    ]
    assert finished(limit=1, offset=1) == [("n", None)]
    assert finished(limit=0) == []


def test_frame_may_have_one_node_for_both_ends() -> None:
    before = FrameBound("preceding", Literal(1, INT8))
    function = WindowFunction("count", (), INT8, Frame("range", before, before))
    program = compile_rows(Window(T, (), (OrderKey(N),), (function,)))
    assert program is not None
    assert [(row[0], row[2]) for row in program.run([ROWS])] == [(1, 0), (2, 1), (3, 1), (None, 1)]


def value(scalar: Scalar, *args: Datum) -> Datum:
    program = compile_rows(Map(Get(GlobalId("u9"), ()), (scalar,)))
    assert program is not None
    values = [name.upper() for name in program.session_values]
    ((found,),) = program.run([[()]], args, values)
    return found


def test_arguments_are_not_in_the_program() -> None:
    total = Call("add(int4,int4)", (Parameter(1, INT4), Parameter(2, INT4)), INT4)
    assert value(total, 1, 2) == 3
    assert value(total, 1, None) is None
    with pytest.raises(RowFailed):
        value(total, 2**31 - 1, 1)


def test_branches_that_are_not_taken_do_not_fail() -> None:
    divided = Call("divide(int4,int4)", (Literal(6, INT4), Parameter(1, INT4)), INT4)
    is_zero = Call("eq", (Parameter(1, INT4), Literal(0, INT4)), BOOL)
    guarded = Case(((is_zero, Literal(-1, INT4)),), divided, INT4)
    assert [value(guarded, n) for n in (0, 2)] == [-1, 3]
    chosen = Call("coalesce", (Parameter(2, INT4), divided), INT4)
    assert value(chosen, 0, 7) == 7
    with pytest.raises(RowFailed):
        value(chosen, 0, None)


def test_more_rows_than_few_are_refused() -> None:
    program = compile_rows(T)
    assert program is not None
    assert len(program.run([ROWS], most=4)) == 4
    with pytest.raises(TooMany):
        program.run([ROWS], most=3)
