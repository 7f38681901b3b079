"""No step in which rows of a system relation are made takes more than 5 ms of the processor.

Others run on the event loop in between. Rows of the catalog are made after a start, and those of a
group of objects after a change. The steps are those of the loop while a session reads a relation.
"""

import asyncio
import gc
from collections.abc import Iterable, Iterator
from pathlib import Path
from time import thread_time

import pyarrow as pa
import pytest

from foreshore.catalog.builtin.answers import CatalogAnswers
from foreshore.catalog.builtin.registry import BUILTINS
from foreshore.catalog.builtin.relation import Builtin, IntrospectionSnapshot
from foreshore.in_turns import SLICE_S, Steps
from foreshore.output_style import OutputStyle
from foreshore.types import REG_NAMES, SqlType
from tests.adapter.harness import TestEnvironment, in_environment
from tests.loop_guard import is_slow

VIEWS = 60
FEW = 50  # rows of a relation
LONG = (
    "pg_attribute pg_timezone_names pg_proc pg_description information_schema.columns"
    " information_schema.data_type_privileges"
).split()
TRIES = 4
# One step of any size more: the slice is over only once a step has ended.
LIMIT_S = 2 * SLICE_S


@pytest.fixture
def without_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def steps_of(env: TestEnvironment, sql: str) -> list[float]:
    """Return the steps of the loop while a statement runs, in seconds of the processor."""
    steps: list[float] = []

    async def watch() -> None:
        began = thread_time()
        while True:
            await asyncio.sleep(0)
            steps.append(thread_time() - began)
            began = thread_time()

    watching = asyncio.ensure_future(watch())
    await asyncio.sleep(0)
    try:
        await env.query("reader", sql, alone=False)
    finally:
        watching.cancel()
    return steps


def is_held_up(steps: list[float]) -> bool:
    """Whether one step is too long for this machine's load, or is most of a long work."""
    longest, whole = max(steps), sum(steps)
    return is_slow(longest, LIMIT_S) or (whole > 4 * LIMIT_S and longest > whole / 2)


async def slow_relations(env: TestEnvironment, names: Iterable[str]) -> dict[str, float]:
    """Return the relations with a step that is too long each time."""
    slow = {}
    for name in names:
        tries = []
        for _ in range(TRIES):
            env.environment.coordinator.catalog_answers = CatalogAnswers()
            steps = await steps_of(env, f"SELECT count(*) FROM {name}")
            tries.append(max(steps))
            if not is_held_up(steps):
                break
        else:
            slow[name] = min(tries)
    return slow


@pytest.mark.usefixtures("without_collection")
def test_rows_of_long_relations_do_not_hold_up_the_loop(
    runner: asyncio.Runner, env: TestEnvironment
) -> None:
    assert runner.run(slow_relations(env, LONG)) == {}


@pytest.mark.full
@pytest.mark.usefixtures("without_collection")
def test_rows_of_no_system_relation_hold_up_the_loop(tmp_path: Path) -> None:
    async def body(env: TestEnvironment) -> None:
        for i in range(VIEWS):
            table = f"CREATE TABLE t{i} (id int PRIMARY KEY, a text DEFAULT 'x', CHECK (id > 0))"
            view = f"CREATE VIEW v{i} AS SELECT a, sum(id) AS s FROM t{i} WHERE id < 9 GROUP BY 1"
            await env.query("maker", f"{table}; {view}; ALTER TABLE t{i} RENAME TO r{i}")
        names = (f"{builtin.schema}.{builtin.name}" for builtin in BUILTINS.values())
        assert await slow_relations(env, names) == {}

    in_environment(tmp_path, body)


@pytest.mark.parametrize("name", REG_NAMES)
def test_names_of_objects_are_there_before_results_are_encoded(
    runner: asyncio.Runner, env: TestEnvironment, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    async def main() -> OutputStyle:
        env.environment.coordinator.catalog_answers = CatalogAnswers()
        await env.query("reader", f"SELECT ARRAY[oid::{name}] FROM pg_type LIMIT 1", alone=False)
        return (await env.session("reader")).output_style(names=True)

    style, made = runner.run(main()), []
    table = Builtin.steps

    def noted(self: Builtin, snapshot: IntrospectionSnapshot) -> Steps[pa.Table]:
        rows = yield from table(self, snapshot)
        made.append((self.name, rows.num_rows))
        return rows

    monkeypatch.setattr(Builtin, "steps", noted)
    assert style.names is not None
    style.names.name_of(SqlType(name), 1)
    assert [each for each in made if each[1] > FEW] == []
