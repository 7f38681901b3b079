"""Rows of the catalog by columns: after DDL what has changed is made again, and nothing else."""

import random
from collections.abc import Iterator

import pyarrow as pa
import pytest

from foreshore.adapter.introspection import keyed_rows
from foreshore.adapter.introspection.keyed_rows import MOST_CHANGED, KeyedRows
from foreshore.catalog.builtin.parts import GROUP, RelationRows
from foreshore.catalog.builtin.relation import Builtin, IntrospectionSnapshot
from foreshore.compute.rows.program import TooMany
from foreshore.in_turns import Steps
from foreshore.types import INT8, TEXT, ColumnType
from tests.adapter.harness import TestEnvironment

COLUMNS = (ColumnType(INT8), ColumnType(TEXT))
BOTH = frozenset((0, 1))
TABLES = 4 * GROUP


def states(seed: int) -> Iterator[RelationRows]:
    """Yield the rows of states, each of which has some parts of the one before."""
    chosen = random.Random(seed)

    def part() -> pa.Table:
        keys = [chosen.randrange(20) for _ in range(chosen.randrange(5))]
        texts = pa.array(map(str, keys), pa.string())
        return pa.table({"k": pa.array(keys, pa.int64()), "t": texts})

    parts = [part() for _ in range(30)]
    for _ in range(40):
        yield RelationRows([*parts])
        for _ in range(chosen.choice((0, 1, 1, 3, MOST_CHANGED + 1))):
            parts[chosen.randrange(len(parts))] = part()
        if chosen.random() < 0.3:
            del parts[chosen.randrange(1, len(parts))]
            parts.append(part())


@pytest.mark.parametrize("seed", range(10))
def test_rows_over_those_of_an_earlier_state_are_the_rows(seed: int) -> None:
    keyed = None
    for rows in states(seed):
        keyed = KeyedRows(COLUMNS, rows, keyed)
        expected = sorted(zip(*rows.table.to_pydict().values(), strict=True))
        assert sorted(keyed.under((), BOTH, [()])) == expected
        for key in range(20):
            found = [row for row in expected if row[0] == key]
            assert sorted(keyed.under((0,), BOTH, [(key,)])) == found
            if found:
                with pytest.raises(TooMany):
                    keyed.under((0,), BOTH, [(key,)], len(found) - 1)


async def test_rows_are_made_again_for_what_has_changed(
    own_env: TestEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []  # items whose rows were made
    decoded: list[int] = []  # rows that were put into a dictionary
    steps, places_by = Builtin.steps, keyed_rows._Part._places_by

    def noted_steps(self: Builtin, snapshot: IntrospectionSnapshot) -> Steps[pa.Table]:
        if self.name != "pg_namespace":
            made.append(len(snapshot.all_items))
        return steps(self, snapshot)

    def noted_places(self: keyed_rows._Part, columns: tuple[int, ...]) -> object:
        decoded.append(self.rows.num_rows)
        return places_by(self, columns)

    for number in range(TABLES):
        await own_env.ran("a", f"CREATE TABLE t{number} (i int)")
    names = (
        "SELECT attname FROM pg_attribute a JOIN pg_class c ON c.oid = attrelid"
        " JOIN pg_namespace n ON n.oid = relnamespace WHERE relname = '{}' AND nspname = 'public'"
        " AND attnum > 0"
    )
    for name in ("t1", "t2", "t3"):
        assert await own_env.ran("a", names.format(name)) == "i\nSELECT 1"
    monkeypatch.setattr(Builtin, "steps", noted_steps)
    monkeypatch.setattr(keyed_rows._Part, "_places_by", noted_places)

    async def ask(name: str, expected: str, *, most: int) -> None:
        made.clear()
        decoded.clear()
        assert (await own_env.ran("a", names.format(name))).startswith(expected)
        assert sum(made) <= 2 * most * GROUP, made  # in two relations
        assert sum(decoded) <= 2 * most * GROUP, decoded

    await own_env.ran("a", "CREATE TABLE new (i int)")
    await ask("new", "i\n", most=1)
    await ask("t1", "i\n", most=0)
    await own_env.ran("a", "ALTER TABLE t7 ADD COLUMN j int")
    await ask("t7", "i\nj\n", most=2)
    await own_env.ran("a", "DROP TABLE t7")
    await ask("t7", "SELECT 0", most=2)
    await own_env.ran("a", "BEGIN", "CREATE TABLE within (i int)")
    await ask("within", "i\n", most=1)
    await ask("t8", "i\n", most=0)
    await own_env.ran("a", "ALTER TABLE t8 ADD COLUMN j int", "DROP TABLE t9")
    await ask("t8", "i\nj\n", most=4)
    await ask("t9", "SELECT 0", most=0)
    assert (await own_env.query("b", names.format("t8"), alone=False)) == "i\nSELECT 1"
    await own_env.ran("a", "ROLLBACK")
    await ask("within", "SELECT 0", most=2)
