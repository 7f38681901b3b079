"""Load generators give the same rows in however many batches."""

from collections import Counter
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foreshore.sources.generators import GENERATORS, OUTPUTS, LoadGenerator
from foreshore.storage.ingest.generators.connector import ticks_of
from foreshore.update import DIFF

TICKING = [name for name in GENERATORS if name != "clock"]
SPECS = {
    "key value": LoadGenerator("key value", keys=7, snapshot_rounds=2, batch_size=3, value_size=5),
}


@pytest.mark.parametrize("name", TICKING)
@given(cuts=st.lists(st.integers(1, 40), unique=True, max_size=4).map(sorted))
def test_batches_are_cut_anywhere(name: str, cuts: list[int]) -> None:
    make = ticks_of(SPECS.get(name, LoadGenerator(name)))  # type: ignore[arg-type]
    whole = make(0, 41)
    bounds = [0, *cuts, 41]
    parts = [make(begin, end) for begin, end in pairwise(bounds)]
    for reference, table in whole.items():
        pieces = [each[reference] for each in parts if reference in each]
        assert pa.concat_tables(pieces).combine_chunks() == table.combine_chunks()


@pytest.mark.parametrize("name", TICKING)
def test_rows_have_the_declared_columns(name: str) -> None:
    made = ticks_of(LoadGenerator(name))(0, 3)  # type: ignore[arg-type]
    described = OUTPUTS[name]
    assert made.keys() == described.keys()
    for reference, output in described.items():
        names = [column.name for column in output.columns]
        assert made[reference].schema.names == [*names, DIFF]
        assert made[reference].num_rows


@pytest.mark.parametrize("name", ["key value", "marketing", "tpch"])
def test_rows_that_go_have_come_before(name: str) -> None:
    made = ticks_of(SPECS.get(name, LoadGenerator(name)))(0, 120)  # type: ignore[arg-type]
    has_gone = False
    for reference, output in OUTPUTS[name].items():
        present: Counter[tuple[object, ...]] = Counter()
        for row in made[reference].to_pylist():
            diff = row.pop(DIFF)
            present[tuple(row.values())] += diff
            assert 0 <= present[tuple(row.values())] <= 1, (reference, row)
            has_gone |= diff < 0
        names = [column.name for column in output.columns]
        keys = [tuple(r[names.index(k)] for k in output.key) for r, n in present.items() if n]
        assert not output.key or len(set(keys)) == len(keys), reference
    assert has_gone


def test_orders_of_tpch_have_the_price_of_their_lines() -> None:
    made = ticks_of(LoadGenerator("tpch"))(0, 1)
    assert made["orders"].num_rows == 15_000
    assert made["partsupp"].num_rows == 4 * made["part"].num_rows == 8_000
    (first,) = made["orders"].slice(0, 1).to_pylist()
    lines = [r for r in made["lineitem"].to_pylist() if r["l_orderkey"] == first["o_orderkey"]]
    total = sum(
        int(r["l_extendedprice"] * (1 + r["l_tax"]) * (1 - r["l_discount"]) * 100) for r in lines
    )
    assert first["o_totalprice"] * 100 == total
