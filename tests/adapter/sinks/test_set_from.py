"""ALTER SINK ... SET FROM: the target goes over from one relation to another."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from foreshore.adapter.coordinator import view_handoff
from foreshore.compute.replica.instance import Instance
from foreshore.storage.export.files.delta import DeltaExporter
from foreshore.update import Timestamp
from tests.adapter.harness import TestEnvironment
from tests.adapter.sinks.waiting import until_state

Parts = AsyncIterator[pa.Table]
TABLES = (
    "CREATE TABLE a (k int PRIMARY KEY, v text)",
    "CREATE TABLE b (k int PRIMARY KEY, v text)",
    "INSERT INTO a VALUES (1, 'same'), (2, 'old'), (3, 'gone')",
    "INSERT INTO b VALUES (1, 'same'), (2, 'new'), (4, 'added')",
)
WITH = "WITH (COMMIT INTERVAL '1 ms')"


@pytest.fixture
def place(own_env: TestEnvironment, tmp_path: Path) -> Path:
    """Return a new directory that sinks may write."""
    place = tmp_path / "out"
    place.mkdir()
    own_env.environment.let_copy([str(place)], tmp_path / "data")
    return place


@dataclass
class Target:
    """The Delta tables of a test, which cannot be reached while they are away."""

    is_away: bool = False


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> Target:
    """Return a target that is there."""
    target, resume = Target(), DeltaExporter.resume

    async def resumed(self: DeltaExporter) -> Timestamp | None:
        if target.is_away:
            raise OSError("it is away")
        return await resume(self)

    monkeypatch.setattr(DeltaExporter, "resume", resumed)
    return target


def rows_of(place: Path) -> list[tuple[int, str]]:
    """Return the rows of a Delta table."""
    found = deltalake.DeltaTable(str(place)).to_pyarrow_table().to_pylist()
    return sorted((row["k"], row["v"]) for row in found)


def changes_of(place: Path) -> list[tuple[int, str, int]]:
    """Return the changes in files of JSON, with their multiplicities."""
    lines = [line for each in place.glob("*.json") for line in each.read_text().splitlines()]
    return sorted((row["k"], row["v"], row["mz_diff"]) for row in map(json.loads, lines))


async def test_hint_of_a_view_that_is_not_replaced_names_set_from(
    own_env: TestEnvironment, place: Path
) -> None:
    env, view = own_env, "MATERIALIZED VIEW m AS SELECT k FROM t WHERE k >"
    await env.ran("a", "CREATE TABLE t (k int PRIMARY KEY)", f"CREATE {view} 0")
    await env.ran("a", f"CREATE SINK s FROM m INTO FILES (URL '{place}', FORMAT json) {WITH}")
    refused = await env.query("a", f"CREATE OR REPLACE {view} 1")
    assert refused.startswith("ERROR 2BP01: cannot replace materialized view m"), refused
    assert "sink s depends on materialized view m\nHINT: Create a view of another name" in refused
    assert "ALTER SINK ... SET FROM" in refused


async def test_target_gets_the_difference_once_and_then_the_changes(
    own_env: TestEnvironment, place: Path
) -> None:
    env = own_env
    await env.ran("a", *TABLES)
    files = f"FILES (URL '{place}/log', FORMAT json)"
    await env.ran("a", f"CREATE SINK s FROM a INTO DELTA (URL '{place}/t') {WITH}")
    await env.ran("a", f"CREATE SINK log FROM a INTO {files} {WITH}", "WAIT FOR ALL SINKS")
    for sink in ("s", "log"):
        await env.ran("a", f"ALTER SINK {sink} SET FROM b")
    await env.ran("a", "INSERT INTO a VALUES (9, 'late')", "WAIT FOR ALL SINKS")
    assert rows_of(place / "t") == [(1, "same"), (2, "new"), (4, "added")]
    await env.ran("a", "DROP TABLE a", "DELETE FROM b WHERE k = 1", "WAIT FOR ALL SINKS")
    await env.ran("a", "INSERT INTO b VALUES (5, 'x')", "WAIT FOR ALL SINKS")
    assert rows_of(place / "t") == [(2, "new"), (4, "added"), (5, "x")]
    begun = [(1, "same", 1), (2, "old", 1), (3, "gone", 1)]
    crossed = [(2, "old", -1), (2, "new", 1), (3, "gone", -1), (4, "added", 1)]
    after = [(1, "same", -1), (5, "x", 1)]
    assert changes_of(place / "log") == sorted(begun + crossed + after)
    shown = await env.query("a", "SHOW CREATE SINK s")
    assert ".b INTO DELTA" in shown
    named = "SELECT count(*) FROM mz_internal.mz_object_dependencies WHERE object_id = "
    named += "(SELECT id FROM mz_sinks WHERE name = 's')"
    assert await env.query("a", named) == "1\nSELECT 1"


async def test_earlier_changes_of_the_former_relation_are_written_before_the_difference(
    own_env: TestEnvironment, place: Path, target: Target
) -> None:
    """The target is away until the relation has changed; meanwhile the former one is kept."""
    env = own_env
    await env.ran("a", *TABLES)
    into = f"DELTA (URL '{place}/t') ENVELOPE APPEND"
    await env.ran("a", f"CREATE SINK s FROM a INTO {into} {WITH}", "WAIT FOR SINKS s")
    target.is_away = True
    await env.ran("a", "ALTER SINK s SET (COMMIT INTERVAL '2 ms')")  # which resumes it
    await until_state(env, "stalled")
    await env.ran("a", "INSERT INTO a VALUES (7, 'x')", "DELETE FROM a WHERE k = 7")
    await env.ran("a", "ALTER SINK s SET FROM b", "DELETE FROM b WHERE k = 4")
    for statement in ("DROP TABLE a", "ALTER TABLE a ADD COLUMN w int", "DROP TABLE a CASCADE"):
        said = await env.query("a", statement)
        assert 'ERROR 2BP01: cannot drop or alter table "a" because sink "s" needs it' in said
    again = await env.query("a", "ALTER SINK s SET FROM a")
    assert 'ERROR 55000: sink "s" has not written the change' in again
    target.is_away = False
    await env.ran("a", "WAIT FOR SINKS s")
    table = deltalake.DeltaTable(str(place / "t")).to_pyarrow_table().to_pylist()
    changes = Counter((row["k"], row["v"], row["mz_diff"]) for row in table)
    assert set(changes.values()) == {1}
    assert {(7, "x", 1), (7, "x", -1), (4, "added", 1), (4, "added", -1)} <= set(changes)
    await env.ran("a", "DROP TABLE a")


async def test_lost_answer_to_the_difference_does_not_repeat_it(
    own_env: TestEnvironment, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env, write, lost = own_env, DeltaExporter.write, 0
    await env.ran("a", *TABLES)

    async def losing(self: DeltaExporter, parts: Parts, lower: int, upper: int) -> None:
        nonlocal lost
        await write(self, parts, lower, upper)
        if lost:
            lost -= 1
            raise OSError("the answer is lost")

    await env.ran("a", f"CREATE SINK s FROM a INTO DELTA (URL '{place}/t') ENVELOPE APPEND {WITH}")
    await env.ran("a", "WAIT FOR SINKS s")
    monkeypatch.setattr(DeltaExporter, "write", losing)
    lost = 2
    await env.ran(
        "a", "BEGIN", "ALTER SINK s SET FROM b", "INSERT INTO b VALUES (6, 'y')", "COMMIT"
    )
    await env.ran("a", "WAIT FOR SINKS s", "DELETE FROM b WHERE k = 6", "WAIT FOR SINKS s")
    table = deltalake.DeltaTable(str(place / "t")).to_pyarrow_table().to_pylist()
    changes = Counter((row["k"], row["v"], row["mz_diff"]) for row in table)
    assert set(changes.values()) == {1}, changes
    assert (6, "y", 1) in changes
    assert (6, "y", -1) in changes


@pytest.mark.full
async def test_sink_without_snapshot_gets_no_difference(
    own_env: TestEnvironment, place: Path
) -> None:
    env = own_env
    await env.ran("a", *TABLES)
    into = f"FILES (URL '{place}/log', FORMAT json)"
    await env.ran("a", f"CREATE SINK s FROM a INTO {into} WITH (SNAPSHOT = false)")
    await env.ran("a", "WAIT FOR SINKS s", "INSERT INTO a VALUES (8, 'p')")
    await env.ran("a", "ALTER SINK s SET FROM b", "INSERT INTO b VALUES (9, 'q')")
    await env.ran("a", "WAIT FOR SINKS s")
    assert changes_of(place / "log") == [(8, "p", 1), (9, "q", 1)]


@pytest.mark.full
async def test_sink_without_snapshot_that_had_not_begun_gets_changes_before_the_cut(
    own_env: TestEnvironment, place: Path, target: Target
) -> None:
    env, target.is_away = own_env, True
    await env.ran("a", *TABLES)
    options = "ENVELOPE APPEND WITH (SNAPSHOT = false)"
    await env.ran("a", f"CREATE SINK s FROM a INTO DELTA (URL '{place}/t') {options}")
    await until_state(env, "stalled")
    await env.ran("a", "INSERT INTO a VALUES (8, 'p')", "ALTER SINK s SET FROM b")
    await env.ran("a", "INSERT INTO b VALUES (9, 'q')")
    target.is_away = False
    await env.ran("a", "WAIT FOR SINKS s")
    assert rows_of(place / "t") == [(8, "p"), (9, "q")]


@pytest.mark.full
async def test_last_changes_of_a_view_whose_replica_starts_are_awaited(
    own_env: TestEnvironment, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The view is known up to a time before the cut when the sink goes on."""
    env, start, opened = own_env, Instance.start, asyncio.Event()

    async def later(self: Instance, executor: Executor, tried: Callable[[], None]) -> None:
        await opened.wait()
        await start(self, executor, tried)

    await env.ran(
        "a",
        *TABLES,
        "CREATE CLUSTER c (SIZE = 'embedded')",
        "CREATE MATERIALIZED VIEW m IN CLUSTER c AS SELECT k, v FROM a",
        f"CREATE SINK s FROM m INTO DELTA (URL '{place}/t') KEY (k) NOT ENFORCED ENVELOPE APPEND",
        "WAIT FOR SINKS s",
        "ALTER CLUSTER c SET (REPLICATION FACTOR = 0)",
        "INSERT INTO a VALUES (4, 'added')",
    )
    monkeypatch.setattr(Instance, "start", later)
    monkeypatch.setattr(view_handoff, "AWAY_SECONDS", 600.0)
    await env.ran("a", "ALTER CLUSTER c SET (REPLICATION FACTOR = 1)", "ALTER SINK s SET FROM b")
    await until_state(env, "running")
    opened.set()
    await env.ran("a", "WAIT FOR SINKS s")
    # Both relations have the row at the cut, so that their difference does not have it.
    times = deltalake.DeltaTable(str(place / "t")).to_pyarrow_table().to_pylist()
    added = [row["mz_timestamp"] for row in times if row["k"] == 4]
    assert len(added) == 1
    assert added[0] < max(row["mz_timestamp"] for row in times)


async def test_key_that_is_not_enforced_stays_so(own_env: TestEnvironment, place: Path) -> None:
    env = own_env
    await env.ran("a", *TABLES, "CREATE TABLE loose (k int NOT NULL, v text)")
    options = f"KEY (k) NOT ENFORCED {WITH}"
    await env.ran("a", f"CREATE SINK s FROM loose INTO DELTA (URL '{place}/t') {options}")
    for relation in ("b", "loose"):
        await env.ran("a", "WAIT FOR SINKS s", f"ALTER SINK s SET FROM {relation}")


async def test_relation_that_is_changed_twice_in_a_transaction(
    own_env: TestEnvironment, place: Path
) -> None:
    env = own_env
    await env.ran("a", *TABLES)
    await env.ran("a", f"CREATE SINK s FROM a INTO DELTA (URL '{place}/t') {WITH}")
    await env.ran("a", "WAIT FOR SINKS s", "BEGIN", "ALTER SINK s SET FROM b")
    await env.ran("a", "ALTER SINK s SET FROM a", "COMMIT", "INSERT INTO a VALUES (5, 'z')")
    await env.ran("a", "WAIT FOR SINKS s")
    assert rows_of(place / "t") == [(1, "same"), (2, "old"), (3, "gone"), (5, "z")]
    drop = await env.query("a", "ALTER SINK s SET FROM b; DROP TABLE a")
    assert "ERROR 2BP01" in drop
    await env.ran("a", "WAIT FOR SINKS s")
    assert len(rows_of(place / "t")) == 4
    await env.ran(
        "a", f"CREATE SINK r FROM a INTO DELTA (URL '{place}/r'); ALTER SINK r SET FROM b"
    )
    await env.ran("a", "WAIT FOR SINKS r")
    assert rows_of(place / "r") == [(1, "same"), (2, "new"), (4, "added")]


@pytest.mark.parametrize(
    ("relation", "error"),
    [
        ("no", '42P01: relation "no" does not exist'),
        ("plain", '42809: "plain" is not a table, source or materialized view'),
        ("other", "42804: the relation has other columns than that of sink"),
        ("wide", '42804: column "k" has type bigint, and integer in sink "s"'),
        ("loose", "22023: the columns (k) of the relation are not known to be unique"),
        ("nulls", '42804: column "k" may be NULL in one of the two relations'),
        ("mz_tables", "42809"),
    ],
)
async def test_relation_that_does_not_fit(
    own_env: TestEnvironment, place: Path, relation: str, error: str
) -> None:
    env = own_env
    await env.ran("a", *TABLES)
    await env.ran(
        "a",
        f"CREATE SINK s FROM a INTO DELTA (URL '{place}/t')",
        "CREATE VIEW plain AS SELECT * FROM a",
        "CREATE TABLE other (k int PRIMARY KEY, w text)",
        "CREATE TABLE wide (k bigint PRIMARY KEY, v text)",
        "CREATE TABLE loose (k int NOT NULL, v text)",
        "CREATE TABLE nulls (k int UNIQUE, v text)",
    )
    said = await env.query("a", f"ALTER SINK s SET FROM {relation}")
    assert f"ERROR {error}" in said, said
    assert "does not exist, skipping" in await env.ran("a", "ALTER SINK IF EXISTS q SET FROM b")


async def test_rights_on_sink_and_relation_are_needed(
    own_env: TestEnvironment, place: Path
) -> None:
    env = own_env
    await env.ran("a", *TABLES)
    await env.ran("a", f"CREATE SINK s FROM a INTO DELTA (URL '{place}/t')", "CREATE ROLE r")
    await env.ran("a", "GRANT SELECT ON a, b TO r")
    must = await env.query("a", "SET ROLE r; ALTER SINK s SET FROM b")
    assert "ERROR 42501: must be owner of sink s" in must
    await env.ran("a", "RESET ROLE", "ALTER SINK s OWNER TO r", "REVOKE SELECT ON b FROM r")
    denied = await env.query("a", "SET ROLE r; ALTER SINK s SET FROM b")
    assert "ERROR 42501: permission denied for table b" in denied
