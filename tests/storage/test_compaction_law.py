"""Consolidation equals the compaction of the formal model."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from foreshore.storage.consolidate import consolidate, least_multiplicity
from foreshore.update import update_schema
from tests.effort import examples
from tests.frontier import Antichain
from tests.ptvc import INTEGERS, PTvc
from tests.storage.harness import ROWS, Row, Update, table, updates_of

END = 8
ROW = st.sampled_from([(1, "a"), (1, None), (None, "a"), (None, None), (2, "")])
UPDATES = st.lists(
    st.tuples(ROW, st.integers(0, END - 1), st.sampled_from([-1, 1, 2])), max_size=12
)
SCHEMA = update_schema(ROWS)


def model(updates: Sequence[Update], since: int) -> PTvc[Row, int]:
    tvc: PTvc[Row, int] = PTvc(INTEGERS)
    tvc.append(Antichain.of(END), updates)
    tvc.compact(Antichain.of(since))
    return tvc


@settings(max_examples=examples(40))
@given(UPDATES, st.integers(0, END))
def test_consolidation_matches_compaction_of_model(updates: list[Update], since: int) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        pieces = list(consolidate(table(updates).to_batches(), SCHEMA, since, Path(scratch)))
    found = updates_of(pieces)
    assert {(row, time): diff for row, time, diff in found} == dict(model(updates, since).changes)
    assert len(found) == len({(row, time) for row, time, _ in found})


@settings(max_examples=examples(40))
@given(UPDATES, st.integers(0, END - 1))
def test_least_multiplicity_covers_all_readable_times(updates: list[Update], since: int) -> None:
    tvc = model(updates, since)
    counts = [n for time in range(since, END) for n in tvc.read(time).values()]
    with tempfile.TemporaryDirectory() as scratch:
        found = least_multiplicity(table(updates).to_batches(), SCHEMA, since, Path(scratch))
    assert found == min([0, *counts])
