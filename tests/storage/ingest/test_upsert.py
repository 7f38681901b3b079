"""The rows of keys are those of a dictionary, whatever the batches, and so are the updates."""

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foreshore.storage.ingest.kafka import upsert
from foreshore.storage.ingest.kafka.upsert import KeyedRows
from foreshore.types import INT8

SCHEMA = pa.schema([("v", pa.string()), ("k", pa.int64())])

changes = st.lists(st.tuples(st.integers(0, 5), st.none() | st.text(max_size=2)), max_size=8)


def rows_of(batch: list[tuple[int, str | None]]) -> pa.Table:
    columns = [[value for _, value in batch], [key for key, _ in batch]]
    return pa.table(dict(zip(SCHEMA.names, columns, strict=True)), schema=SCHEMA)


@pytest.mark.parametrize("few", [0, 10_000])
@given(loaded=st.dictionaries(st.integers(0, 5), st.text(max_size=2)), batches=st.lists(changes))
def test_updates_are_those_of_a_dictionary(
    few: int, loaded: dict[int, str], batches: list[list[tuple[int, str | None]]]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(upsert, "FEW", few)
        rows = KeyedRows(SCHEMA, [1], [INT8])
        rows.load(rows_of(list(loaded.items())))
        model: dict[int, str] = dict(loaded)
        shown = Counter(model.items())
        for batch in batches:
            table = rows_of(batch)
            stays = [value is not None for _, value in batch]
            for update in rows.change(rows.keys_of(table), stays, table).to_pylist():
                shown[update["k"], update["v"]] += update["__diff"]
            for key, value in batch:
                if value is None:
                    model.pop(key, None)
                else:
                    model[key] = value
            assert +shown == Counter(model.items())
            assert all(count >= 0 for count in shown.values())
            assert len(rows) == len(model)
