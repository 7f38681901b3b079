"""A replica that starts again resumes its dataflows from a checkpoint, or hydrates them and says why."""

import asyncio
import logging
import threading
import time as clock
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from foreshore.compute.arrange.arrangement import Arrangement
from foreshore.compute.checkpoint import state
from foreshore.compute.checkpoint.manifest import (
    File,
    Manifest,
    SavedDataflow,
    SavedState,
    fingerprint,
)
from foreshore.compute.checkpoint.state import Arrays, Mismatch
from foreshore.compute.checkpoint.store import CheckpointStore
from foreshore.compute.controller.cluster import Replica
from foreshore.compute.controller.input_holds import _downgrade_holds
from foreshore.compute.flow import collection, spine
from foreshore.compute.flow.run import Run
from foreshore.compute.memory_limit import ReplicaMemory
from foreshore.compute.protocol import (
    Checkpoints,
    DataflowDescription,
    IndexExport,
    Response,
    SinkExport,
)
from foreshore.compute.replica import checkpoints
from foreshore.compute.replica.dataflow import DataflowState
from foreshore.compute.replica.export_messages import ExportMessages, Sent
from foreshore.compute.replica.resume import check_fits, resume
from foreshore.expr.ir import Column, Join, Relation
from foreshore.ids import GlobalId
from foreshore.types import INT4
from tests.compute.in_process import InProcessLauncher
from tests.compute.runtime.harness import (
    COUNT_SCHEMA,
    Environment,
    Row,
    counts_of,
    environment,
    id_,
    index_on,
    run,
    table,
)

OFTEN = {"checkpoint_interval_ms": "30", "checkpoint_least_bytes": "0"}
RESUMED, HYDRATED = "a dataflow is resumed", "a dataflow is hydrated, not resumed"


def joined() -> Relation:
    """Return the pairs of rows of two tables with the same number: state of joins and of groups."""
    join = Join(table("u1", "u2"), ((Column(0, INT4), Column(2, INT4)),))
    return counts_of(join)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.02)


def replica_of(env: Environment, name: str = "r1") -> Replica:
    return env.compute.clusters["c"].replicas[name]


async def saved(env: Environment, beyond: int, name: str = "r1") -> None:
    """Wait until the newest checkpoint has all dataflows with the updates at a time."""
    replica = replica_of(env, name)
    count = len(env.compute._dataflows)
    await until(
        lambda: (
            len(replica.checkpoints) == count
            and all(each.upper > beyond for each in replica.checkpoints.values())
        )
    )


async def restart(env: Environment, name: str = "r1") -> None:
    """End a replica at once; its link starts it again."""
    replica = replica_of(env, name)
    starts = replica.link.starts
    assert replica.connection is not None
    replica.connection.abort()
    await until(lambda: replica.link.starts > starts and replica.is_running)


async def begun(env: Environment) -> int:
    """Maintain an index and a view on one replica; return the time of the first rows."""
    env.compute.create_cluster("c", options=OFTEN)
    env.compute.create_replica("c", "r1")
    await env.create("u1", "u2")
    await env.create("u9", schema=COUNT_SCHEMA)
    time = await env.write({"u1": [((1, "a"), 1), ((2, "b"), 1)], "u2": [((1, "x"), 1)]})
    view = joined()
    await env.maintain("c", "u8", view, index_on("u7", 0, of=view), as_of=time)
    await env.maintain("c", "u6", counts_of(*table("u1")), SinkExport(id_("u9")), as_of=time)
    await env.compute.wait_upper(id_("u9"), time)
    return time


def scenario(
    directory: Path,
    damage: Callable[[Environment], None] = lambda _: None,
    is_over: Callable[[], object] = lambda: True,
) -> tuple[Counter[Row], Counter[Row]]:
    """Return an index and a view after a restart amid changes, as soon as it `is_over`."""
    found = []

    async def work() -> None:
        async with environment(directory, launcher=InProcessLauncher()) as env:
            time = await begun(env)
            time = await env.write({"u2": [((2, "x"), 1)], "u1": [((1, "a"), 1)]})
            await saved(env, time)
            damage(env)
            await restart(env)
            time = await env.write({"u1": [((1, "a"), -1)], "u2": [((1, "new"), 1)]})
            found.append(await env.index_rows("c", "u7", joined(), time))
            found.append(await env.shard_rows("u9", time))
            time = await env.write({"u1": [((2, "a"), 1)]})
            found[0] = await env.index_rows("c", "u7", joined(), time)
            found[1] = await env.shard_rows("u9", time)
            await until(lambda: bool(is_over()))

    run(work)
    return found[0], found[1]


RIGHT = (Counter({("x", 3): 1, ("new", 1): 1}), Counter({("a", 2): 1, ("b", 1): 1}))


def test_a_restarted_replica_resumes_all_dataflows(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    assert scenario(tmp_path) == RIGHT
    assert caplog.text.count(RESUMED) == 2
    assert HYDRATED not in caplog.text


def test_answers_are_right_with_state_in_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mapped: list[Run] = []
    back = Run.back

    def noted(run: Run, saved: Arrays) -> None:
        mapped.append(run)
        back(run, saved)

    monkeypatch.setattr(Run, "back", noted)
    monkeypatch.setattr(state, "LARGE", 1)
    monkeypatch.setattr(spine, "TAIL_ROWS", 1)
    monkeypatch.setattr(ReplicaMemory, "is_crowded", True)
    assert scenario(tmp_path, is_over=lambda: mapped) == RIGHT


def files(env: Environment) -> list[Path]:
    root = env.storage.files.root
    return sorted((root / "checkpoints").rglob("*.arrow"))


def manifest(env: Environment) -> Path:
    (found,) = (env.storage.files.root / "checkpoints").rglob("manifest.json")
    return found


def lose_files(env: Environment) -> None:
    for file in files(env):
        file.unlink()


def change_bytes(env: Environment) -> None:
    for file in files(env):
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 255
        file.write_bytes(data)


def cut_manifest(env: Environment) -> None:
    path = manifest(env)
    path.write_bytes(path.read_bytes()[:-100])


def other_engine(env: Environment) -> None:
    path = manifest(env)
    found = msgspec.json.decode(path.read_bytes(), type=Manifest)
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(found, engine="another")))


def other_plan(env: Environment) -> None:
    path = manifest(env)
    found = msgspec.json.decode(path.read_bytes(), type=Manifest)
    dataflows = tuple(msgspec.structs.replace(d, fingerprint="x") for d in found.dataflows)
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(found, dataflows=dataflows)))


def later_upper(env: Environment) -> None:
    path = manifest(env)
    found = msgspec.json.decode(path.read_bytes(), type=Manifest)
    dataflows = tuple(msgspec.structs.replace(d, upper=1 << 50) for d in found.dataflows)
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(found, dataflows=dataflows)))


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lose_files, "is missing"),
        (change_bytes, "wrong checksum"),
        (cut_manifest, "a checkpoint is not read"),
        (other_engine, "another version of the engine"),
        (other_plan, "its plan or its exports were changed"),
        (later_upper, "is known before"),
    ],
)
def test_what_does_not_fit_is_hydrated_and_the_log_says_why(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    damage: Callable[[Environment], None],
    why: str,
) -> None:
    def stopped(env: Environment) -> None:
        for cluster in env.compute.clusters:
            for replica in cluster.replicas.values():
                assert replica.connection is not None
        damage(env)

    caplog.set_level(logging.INFO)
    assert scenario(tmp_path, stopped) == RIGHT
    assert why in caplog.text
    assert RESUMED not in caplog.text


def test_an_index_that_is_not_resumed_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reads wait for an index that a checkpoint has, as long as it may be resumed."""
    found = []

    async def work() -> None:
        async with environment(tmp_path, launcher=InProcessLauncher()) as env:
            time = await begun(env)
            assert not env.compute.is_resuming(id_("u7"))
            await saved(env, time)
            assert env.compute.is_resuming(id_("u7"))
            deliver = env.compute._responses.deliver

            def delivered(
                replica: Replica, message: Response, tables: tuple[pa.Table, ...]
            ) -> None:
                deliver(replica, message, tables)
                if isinstance(message, Checkpoints) and not message.begun:
                    found.append((env.compute.is_resuming(id_("u7")), bool(replica.checkpoints)))

            monkeypatch.setattr(env.compute._responses, "deliver", delivered)
            monkeypatch.setattr(checkpoints, "resume", lambda *_: None)
            await restart(env)
            await env.index_rows("c", "u7", joined(), time)

    run(work)
    assert (False, True) in found  # u8 was hydrated, the other one not yet


def test_a_view_resumes_while_another_replica_is_ahead(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its errors are compacted as far as the shard is, on the event loop."""
    states: list[DataflowState] = []
    resumed, messages = DataflowState._resumed, ExportMessages.resumed

    def noted(self: DataflowState, *arguments: Any) -> Sent:
        states.append(self)
        return resumed(self, *arguments)

    def compacted(self: ExportMessages, errors: Arrangement, frontier: int) -> Sent:
        states[-1].allow_compaction(id_("u9"), frontier + 10)
        return messages(self, errors, frontier)

    monkeypatch.setattr(DataflowState, "_resumed", noted)
    monkeypatch.setattr(ExportMessages, "resumed", compacted)
    assert scenario(tmp_path) == RIGHT
    assert "dataflow failed" not in caplog.text


def test_second_replica_resumes_from_the_first_ones_checkpoint(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def work() -> None:
        async with environment(tmp_path, launcher=InProcessLauncher()) as env:
            time = await begun(env)
            await saved(env, time)
            env.compute.create_replica("c", "r2")
            await saved(env, time, "r2")
            await env.compute.drop_replica("c", "r1")
            time = await env.write({"u2": [((2, "x"), 1)]})
            assert await env.index_rows("c", "u7", joined(), time) == Counter({("x", 2): 1})
            assert await env.shard_rows("u9", time) == Counter({("a", 1): 1, ("b", 1): 1})

    run(work)
    assert RESUMED in caplog.text


def test_inputs_are_held_at_the_newest_checkpoint(tmp_path: Path) -> None:
    async def work() -> None:
        async with environment(tmp_path, launcher=InProcessLauncher()) as env:
            time = await begun(env)
            await saved(env, time)
            replica = replica_of(env)
            upper = replica.checkpoints[id_("u8")].upper
            connection, replica.connection = replica.connection, None  # it makes no further one
            assert connection is not None
            connection.listen(on=False)
            later = time
            for _ in range(5):
                later = await env.write({"u1": [((3, "c"), 1)]})
            env.compute.allow_compaction(id_("u7"), later)
            replica.saving = False
            await _downgrade_holds(env.storage, env.compute._dataflows)
            holds = env.compute._dataflows[id_("u8")].holds.values()
            saved_upper = replica.checkpoints[id_("u8")].upper
            assert upper <= saved_upper
            assert {hold.frontier for hold in holds} == {min(saved_upper - 1, later)}
            replica.connection = connection
            connection.listen(on=True)

    run(work)


def test_a_checkpoint_has_no_files_beyond_its_manifests(tmp_path: Path) -> None:
    async def work() -> None:
        async with environment(tmp_path, launcher=InProcessLauncher()) as env:
            time = await begun(env)
            for number in range(4):
                time = await env.write({"u1": [((number, "a"), 1)]})
                await saved(env, time)

            def tidy() -> bool:
                found = msgspec.json.decode(manifest(env).read_bytes(), type=Manifest)
                names = {file.key.rpartition("/")[2] for file in found.files}
                return names == {file.name for file in files(env)}

            await until(tidy)

    run(work)


def test_no_checkpoint_is_made_before_all_dataflows_are_resumed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def slow(
        engine: Any,
        store: Any,
        manifest: Any,
        description: DataflowDescription,
        contents: Any,
        shards: Any,
    ) -> Any:
        calls.append(description.id)
        if len(calls) == 2:
            clock.sleep(1)  # meanwhile the other one would be saved, and this one's files deleted
        return resume(engine, store, manifest, description, contents, shards)

    monkeypatch.setattr(checkpoints, "resume", slow)
    monkeypatch.setattr(checkpoints, "PATIENCE_SECONDS", 0.1)
    caplog.set_level(logging.INFO)
    assert scenario(tmp_path) == RIGHT
    assert caplog.text.count(RESUMED) == 2
    assert HYDRATED not in caplog.text


def test_a_dataflow_is_resumed_although_another_one_has_stepped_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They share collections, of which the first one resumed forgets no times that the next needs."""
    monkeypatch.setattr(collection, "KEPT_TIMES", 0)
    monkeypatch.setattr(checkpoints, "PATIENCE_SECONDS", 0.1)
    caplog.set_level(logging.INFO)
    calls: list[str] = []
    may_go_on = threading.Event()

    def slow(
        engine: Any,
        store: Any,
        manifest: Any,
        description: DataflowDescription,
        contents: Any,
        shards: Any,
    ) -> Any:
        calls.append(description.id)
        if len(calls) == 2:
            assert may_go_on.wait(60)
        return resume(engine, store, manifest, description, contents, shards)

    async def work() -> None:
        async with environment(tmp_path, launcher=InProcessLauncher()) as env:
            time = await begun(env)
            view = joined()
            await env.maintain("c", "u4", view, index_on("u5", 0, of=view), as_of=time)
            await saved(env, time)
            monkeypatch.setattr(checkpoints, "resume", slow)
            await restart(env)
            await until(lambda: len(calls) == 2)
            replica = replica_of(env)
            exported = {"u8": id_("u7"), "u4": id_("u5"), "u6": id_("u9")}[calls[0]]
            for _ in range(3):
                time = await env.write({"u2": [((2, "x"), 1)], "u1": [((2, "b"), 1)]})
                await until(lambda: replica.uppers.get(exported, 0) > time)  # noqa: B023
            may_go_on.set()
            for index in ("u7", "u5"):
                expected = Counter({("x", 13): 1})
                assert await env.index_rows("c", index, view, time) == expected

    run(work)
    assert caplog.text.count(RESUMED) == 3, caplog.text
    assert HYDRATED not in caplog.text


def failing(monkeypatch: pytest.MonkeyPatch, method: str, name: str) -> None:
    """Let a method fail for one dataflow."""
    right = getattr(DataflowState, method)

    def fails(self: DataflowState, *args: Any) -> Any:
        if self.id == id_(name):
            raise RuntimeError(f"no {method}")
        return right(self, *args)

    monkeypatch.setattr(DataflowState, method, fails)


@pytest.mark.parametrize("method", ["step", "save"])
def test_a_dataflow_that_cannot_be_saved_keeps_its_last_state(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
) -> None:
    caplog.set_level(logging.INFO)

    async def work() -> None:
        async with environment(tmp_path, launcher=InProcessLauncher()) as env:
            time = await begun(env)
            await saved(env, time)
            with monkeypatch.context() as patch:
                failing(patch, method, "u6")
                time = await env.write({"u1": [((2, "b"), 1)], "u2": [((2, "x"), 1)]})
                replica = replica_of(env)
                for _ in range(2):
                    upper = replica.checkpoints[id_("u8")].upper
                    await until(lambda: replica.checkpoints[id_("u8")].upper > max(upper, time))  # noqa: B023
                    assert replica.checkpoints[id_("u6")].upper <= time
                    time = await env.write({"u2": [((2, "x"), 1)]})
            await restart(env)
            assert await env.index_rows("c", "u7", joined(), time) == Counter({("x", 7): 1})
            assert await env.shard_rows("u9", time) == Counter({("a", 1): 1, ("b", 2): 1})

    run(work)
    assert caplog.text.count(RESUMED) == 2
    assert HYDRATED not in caplog.text


@pytest.mark.parametrize("method", ["collect", "put"])
def test_inputs_stay_held_when_a_later_checkpoint_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    calls = []

    def fails(self: CheckpointStore, manifest: Manifest) -> None:
        calls.append(manifest)
        raise OSError("the store is away")

    async def work() -> None:
        async with environment(tmp_path, launcher=InProcessLauncher()) as env:
            time = await begun(env)
            await saved(env, time)
            monkeypatch.setattr(CheckpointStore, method, fails)
            while len(calls) < 3:
                await asyncio.sleep(0.002)
                assert replica_of(env).checkpoints

    run(work)


@pytest.mark.parametrize(
    ("upper", "fits"),
    [(4, False), (5, True), (7, True), (10, True), (20, True)],
    ids=["rows missing", "no row missing", "later", "as far", "farther"],
)
def test_view_resumes_if_its_shard_has_all_rows(upper: int, fits: bool) -> None:
    """The output changed before 5 for the last time; the state is that before 10."""
    sink = SinkExport(GlobalId("u9"))
    description = DataflowDescription(GlobalId("u9"), joined(), (), (sink,), upper - 1)
    files = SavedState(File("a", 0, 0))
    saved = SavedDataflow(GlobalId("u9"), fingerprint(description), 10, 5, 5, 0, files)
    if fits:
        check_fits(saved, description, {}, {GlobalId("u9"): upper})
    else:
        with pytest.raises(Mismatch, match="has not all rows of the checkpoint"):
            check_fits(saved, description, {}, {GlobalId("u9"): upper})


@pytest.mark.parametrize(("as_of", "fits"), [(7, False), (8, True), (12, True)])
def test_index_is_not_resumed_at_times_that_were_merged(as_of: int, fits: bool) -> None:
    index = IndexExport(GlobalId("u9"), (Column(0, INT4),))
    description = DataflowDescription(GlobalId("u9"), joined(), (), (index,), as_of)
    files = SavedState(File("a", 0, 0))
    saved = SavedDataflow(GlobalId("u9"), fingerprint(description), 10, 10, 8, 0, files)
    if fits:
        check_fits(saved, description, {}, {})
    else:
        with pytest.raises(Mismatch, match="u9 is exact from 8"):
            check_fits(saved, description, {}, {})
