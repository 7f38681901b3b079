"""A plan over few rows has the model's result, or is left to an engine."""

from collections import Counter
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings

from foreshore.compute.local.small.evaluate import evaluate_small, is_small_plan
from foreshore.compute.local.small.join import MOST_PAIRS
from foreshore.compute.local.small.rows import NotSmall, SmallRows
from foreshore.expr.datum import to_array
from foreshore.expr.ir import Get, Join, Project, Relation, columns_of, sources_of
from tests.compute.cases import Contents, random_history, rows_of
from tests.compute.plans import PLANS, U1
from tests.effort import examples
from tests.model import evaluate
from tests.relations import histories, lowered_relations

LEFT_TO_ENGINES = {  # whose rows have lists, equal floats that differ, or are negative
    "join on floats",
    "top by a float",
    "except of floats",
    "lists of floats as keys",
    "negative multiplicities",
}


def small_rows(contents: Contents, get: Get) -> SmallRows:
    entries = [*contents[get.id].items()]
    columns = [
        to_array([row[i] for row, _ in entries], column.type)
        for i, column in enumerate(get.columns)
    ]
    return SmallRows(tuple(columns), np.array([count for _, count in entries], np.int64))


def check(relation: Relation, contents: Contents) -> bool:
    """Compare a plan with the model; return whether it was evaluated."""
    if not is_small_plan(relation):
        return False
    rows, errors = evaluate(relation, contents)
    try:
        found = evaluate_small(relation, lambda get: small_rows(contents, get))
    except NotSmall:
        return False
    assert not errors
    assert rows_of(found, columns_of(relation)) == rows
    return True


@settings(max_examples=examples(400))
@given(lowered_relations(size=5, failing=True), histories(1))
def test_evaluation_matches_model(relation: Relation, history: list[Contents]) -> None:
    check(relation, history[0])


@pytest.mark.parametrize("name", PLANS)
def test_plans_of_each_kind(name: str) -> None:
    (contents,) = random_history(Random(name))[:1]
    assert sources_of(PLANS[name]) <= contents.keys()
    if is_small_plan(PLANS[name]):
        assert check(PLANS[name], contents) != (name in LEFT_TO_ENGINES)


def test_products_of_many_rows_are_left_to_engines() -> None:
    one = Project(U1, (0,))
    count = 1 + int(MOST_PAIRS**0.5)
    rows = SmallRows(
        (pa.nulls(count, pa.int32()), pa.nulls(count, pa.int32()), pa.nulls(count, pa.string())),
        np.ones(count, np.int64),
    )
    with pytest.raises(NotSmall, match="pairs"):
        evaluate_small(Join((one, one)), lambda _: rows)
    assert Counter(evaluate_small(one, lambda _: rows).column(0).to_pylist()) == {None: count}
