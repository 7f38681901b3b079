"""The contents of the table of view errors: which rows a change writes."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from foreshore.compute.controller.stored_errors import StoredErrors, table_of
from foreshore.ids import GlobalId
from foreshore.update import DIFF_FIELD

VIEW, OTHER = GlobalId("u1"), GlobalId("u2")
SCHEMA = pa.schema(
    [("object_id", "string"), ("sqlstate", "string"), ("error", "string"), ("at", "int64")]
).append(DIFF_FIELD)

steps = st.dictionaries(st.integers(0, 4), st.sampled_from((None, "22012 zero", "22003 large")))


@given(st.lists(st.tuples(st.sets(st.integers(0, 4)), steps), max_size=4))
def test_rows_add_up_to_the_stored_steps(changes: list[tuple[set[int], dict[int, str]]]) -> None:
    stored, rows = StoredErrors(), []
    for times, wanted in changes:
        rows += stored.difference(VIEW, times, wanted)
        stored.replace(VIEW, times, wanted)
        now = stored.of(VIEW)
        assert {at: now[at] for at in times if at in now} == {
            at: wanted[at] for at in times if at in wanted
        }
        assert stored.difference(VIEW, times, wanted) == []
    kept: dict[tuple[object, ...], int] = {}
    for *row, diff in rows:
        kept[tuple(row)] = kept.get(tuple(row), 0) + diff
    left = [(*row, 1) for row, diff in kept.items() if diff]
    assert set(kept.values()) <= {0, 1}
    again = StoredErrors()
    if left:
        again.load(table_of(left, SCHEMA))  # type: ignore[arg-type]
    assert again.of(VIEW) == stored.of(VIEW)


def test_removed_view_has_no_rows() -> None:
    stored = StoredErrors()
    for id in (VIEW, OTHER):
        stored.replace(id, (1,), {1: "22012 division by zero"})
    assert stored.difference(VIEW, (1, 2), {}) == [(VIEW, "22012", "division by zero", 1, -1)]
    stored.remove(VIEW)
    assert list(stored) == [OTHER]
    assert stored.of(VIEW) == {}
