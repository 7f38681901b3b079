"""Load generators give the same rows in however many batches."""

from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foreshore.sources.generators import GENERATORS, OUTPUTS
from foreshore.storage.ingest.generators.connector import GENERATORS as MAKERS
from foreshore.update import DIFF


@pytest.mark.parametrize("name", GENERATORS)
@given(cuts=st.lists(st.integers(1, 40), unique=True, max_size=4).map(sorted))
def test_batches_are_cut_anywhere(name: str, cuts: list[int]) -> None:
    make = MAKERS[name]
    whole = make(0, 41)
    bounds = [0, *cuts, 41]
    parts = [make(begin, end) for begin, end in pairwise(bounds)]
    for reference, table in whole.items():
        pieces = [each[reference] for each in parts if reference in each]
        assert pa.concat_tables(pieces).combine_chunks() == table.combine_chunks()


@pytest.mark.parametrize("name", GENERATORS)
def test_rows_have_the_declared_columns(name: str) -> None:
    made = MAKERS[name](0, 3)
    described = OUTPUTS[name]
    assert made.keys() == described.keys()
    for reference, output in described.items():
        names = [column.name for column in output.columns]
        assert made[reference].schema.names == [*names, DIFF]
        assert made[reference].num_rows
