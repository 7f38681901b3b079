"""The list of what a transaction writes to one table, held to plain lists and dictionaries."""

from hypothesis import given, settings
from hypothesis import strategies as st

from foreshore.adapter.transaction.transaction import Written, WrittenRows
from foreshore.compute.keys.layout import FEW, KeyedRows, KeyLayout
from foreshore.constraint import Unique
from foreshore.ids import GlobalId
from foreshore.table_rows import Row, TableRows
from foreshore.types import INT4, ColumnType, RelationDesc
from foreshore.update import DIFF
from tests.effort import examples

DESC = RelationDesc(("k",), (ColumnType(INT4),))
KEY = Unique("t_pkey", (0,), primary=True)
LAYOUT = KeyLayout(GlobalId("u1"), KEY, DESC)

# Which of the lists so far gets one more part, the part's key, how many rows it has, and whether
# they are columns.
Step = tuple[int, int, int, bool]
steps = st.lists(
    st.tuples(
        st.integers(0, 30), st.integers(0, 3), st.sampled_from([1, FEW, FEW + 1]), st.booleans()
    ),
    max_size=20,
)


@given(steps)
@settings(max_examples=examples(100))
def test_lists_that_share_storage_are_independent(steps: list[Step]) -> None:
    lists, expected = [WrittenRows()], [list[Written]()]
    for place, key, count, are_columns in steps:
        place %= len(lists)
        rows = TableRows(DESC, [(each,) for each in range(key, key + count)])
        if are_columns:
            rows = TableRows.of_table(DESC, rows.table)
        added = Written(rows, {KEY.name: KeyedRows(LAYOUT, rows)})
        lists.append(lists[place].adding(added))
        expected.append([*expected[place], added])
        check(lists[place], expected[place])
        check(lists[-1], expected[-1])
    for list_, wanted in zip(lists, expected, strict=True):
        check(list_, wanted)


def check(rows: WrittenRows, wanted: list[Written]) -> None:
    assert list(rows) == wanted
    assert len(rows) == len(wanted)
    if not wanted:
        assert rows.by_key(LAYOUT).newest == {}
        return
    own = rows.by_key(LAYOUT)
    counts: dict[Row, int] = {}
    for part in wanted:
        for key in part.rows.table.column(0).to_pylist():
            counts[key,] = counts.get((key,), 0) + 1
    table = own.arrangement.updates(0)
    found: dict[Row, int] = {}
    for key, diff in zip(table.column(0).to_pylist(), table[DIFF].to_pylist(), strict=True):
        found[key,] = found.get((key,), 0) + diff
    assert found == counts
    if any(not part.rows.has_tuples for part in wanted if part.rows.num_rows > FEW):
        assert own.newest is None  # many rows that came as columns
    else:
        assert own.newest == {row: row for row in counts}


def test_keys_of_a_new_constraint_are_added_to_the_parts() -> None:
    rows = TableRows(DESC, [(1,)])
    written = WrittenRows([Written(rows, {})])
    assert written.by_key(LAYOUT).newest == {(1,): (1,)}
    (part,) = written
    assert part.keyed.keys() == {KEY.name}
