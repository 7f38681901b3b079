"""Load generators give the same rows in however many batches."""

from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foreshore.source_spec import GENERATORS, LoadGenerator, outputs_of
from foreshore.storage.ingest.generators.connector import GENERATORS as MAKERS
from foreshore.update import DIFF_FIELD


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
    described = outputs_of(LoadGenerator(name))  # type: ignore[arg-type]
    assert made.keys() == described.keys()
    for reference, desc in described.items():
        schema = desc.arrow_schema().append(DIFF_FIELD)
        assert made[reference].cast(schema).num_rows
