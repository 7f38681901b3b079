"""A dataflow that is saved and loaded at any point is exact at every time from there on."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from foreshore.compute.bulk.duckdb import DuckDbEngine
from foreshore.compute.checkpoint import state
from foreshore.compute.checkpoint.files import map_arrays, write_arrays
from foreshore.compute.checkpoint.state import Arrays, Captured, Reader, Writer
from foreshore.compute.engine import Dataflow, Engine, Input
from foreshore.compute.flow import hydration, ordered, spine
from foreshore.compute.flow.dataflow import FlowDataflow
from foreshore.compute.flow.unsupported import Unsupported
from foreshore.compute.output import Output
from foreshore.compute.protocol import DataflowDescription
from foreshore.ids import GlobalId
from tests.compute.cases import Case, check_maintained, random_history
from tests.compute.plans import PLANS
from tests.compute.without_bulk import WithoutBulk
from tests.effort import examples
from tests.relations import histories, lowered_relations


def through_files(captured: Captured, directory: Path) -> Captured:
    """Return what is read back of captured state. Runs are in memory first, then in files."""

    def again(arrays: Mapping[str, object], *, changeable: bool) -> dict[str, Any]:
        path = directory / "file.arrow"
        write_arrays(path, arrays)
        found = map_arrays(path, changeable=changeable)
        path.unlink()
        return found

    mapped = {n: again(run.arrays(), changeable=False) for n, run in captured.runs.items()}
    copied = {n: {k: a.copy() for k, a in arrays.items()} for n, arrays in mapped.items()}
    arrays = again(captured.arrays, changeable=True)
    return Captured(
        arrays, {}, captured.tables, copied, lambda name, run: run.back(Arrays(mapped[name]))
    )


class Restarting(WithoutBulk):
    """An engine whose dataflows are saved, and loaded into a new engine, before some steps."""

    def __init__(self, bulk: Engine, directory: Path, random: Random) -> None:
        super().__init__(bulk)
        self._bulk = bulk
        self._directory = directory
        self._random = random
        self.restarts = 0

    def create(
        self, description: DataflowDescription, schemas: Mapping[GlobalId, pa.Schema]
    ) -> Any:
        """Return a dataflow that restarts."""
        return Restarted(self, description, super().create(description, schemas))

    def again(self, dataflow: Dataflow, description: DataflowDescription) -> Dataflow:
        """Return what is loaded of a dataflow that was saved."""
        assert isinstance(dataflow, FlowDataflow)
        self.restarts += 1
        self.hold()
        to = Writer()
        dataflow.save(to)
        shared = self.save_shared(1)
        self.release()
        self._collections = WithoutBulk(self._bulk)._collections
        strings = [
            replace(each, state=through_files(each.state, self._directory))
            for each in shared.strings
        ]
        collections = [
            replace(each, state=through_files(each.state, self._directory))
            for each in shared.collections
        ]
        self.load_shared(replace(shared, strings=strings, collections=collections))
        reader = Reader(through_files(to.captured, self._directory))
        loaded = self.load(description, reader)
        reader.check_all_read()
        self.forget_unread()
        return loaded


class Restarted:
    """A dataflow that may restart before each step."""

    def __init__(
        self, engine: Restarting, description: DataflowDescription, dataflow: FlowDataflow
    ) -> None:
        self._engine = engine
        self._description = description
        self._dataflow: Dataflow = dataflow

    def hydrate(self, inputs: Mapping[GlobalId, Input]) -> Output:
        """Hydrate."""
        return self._dataflow.hydrate(inputs)

    def step(self, lower: int, upper: int, deltas: Mapping[GlobalId, pa.Table]) -> Output:
        """Step, perhaps after a restart; sometimes merge runs between."""
        random = self._engine._random
        if random.random() < 0.3:
            while self._dataflow.maintain():
                pass
        if random.random() < 0.7:
            description = msgspec.structs.replace(self._description, as_of=lower - 1)
            self._dataflow = self._engine.again(self._dataflow, description)
        return self._dataflow.step(lower, upper, deltas)

    def close(self) -> None:
        """Close."""
        self._dataflow.close()


@pytest.fixture(scope="module")
def bulk() -> Iterator[DuckDbEngine]:
    """Yield one bulk engine for all cases."""
    bulk = DuckDbEngine(threads=1)
    yield bulk
    bulk.close()


@pytest.fixture(params=["large runs", "small runs"])
def small(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let few updates be runs and files of their own, or none."""
    monkeypatch.setattr(hydration, "BULK_ROWS", 1 << 60)
    if request.param == "small runs":
        monkeypatch.setattr(spine, "TAIL_ROWS", 3)
        monkeypatch.setattr(ordered, "EAGER", 4)
        monkeypatch.setattr(state, "LARGE", 3)


def check_restarting(bulk: DuckDbEngine, directory: Path, case: Case, random: Random) -> int:
    """Assert that a plan is exact with restarts; return how many there were."""
    engine = Restarting(bulk, directory, random)
    check_maintained(engine, case)
    return engine.restarts


@settings(
    max_examples=examples(150),
    suppress_health_check=list(HealthCheck),
    deadline=None,
)
@given(st.data(), st.booleans(), st.randoms(use_true_random=False))
def test_a_loaded_dataflow_is_exact_at_every_time(
    small: None,
    bulk: DuckDbEngine,
    tmp_path: Path,
    data: st.DataObject,
    failing: bool,
    random: Random,
) -> None:
    size = data.draw(st.integers(1, 6))
    relation = data.draw(lowered_relations(size=size, failing=failing))
    cuts = frozenset(data.draw(st.sets(st.integers(2, 4))))
    try:
        check_restarting(bulk, tmp_path, Case(relation, data.draw(histories(5)), cuts), random)
    except Unsupported:
        reject()


@pytest.mark.parametrize("name", PLANS)
def test_each_operator_is_exact_after_loading(
    small: None, bulk: DuckDbEngine, tmp_path: Path, name: str
) -> None:
    random, restarts = Random(name), 0
    for _ in range(8):
        cuts = frozenset(random.sample(range(2, 7), random.randint(1, 5)))
        case = Case(PLANS[name], random_history(random, times=7), cuts)
        try:
            restarts += check_restarting(bulk, tmp_path, case, random)
        except Unsupported as error:
            pytest.skip(str(error))
    assert restarts


def test_arrays_of_all_shapes_come_back_and_can_be_changed(tmp_path: Path) -> None:
    arrays: dict[str, Any] = {
        "rows": np.arange(12, dtype=np.int64).reshape(4, 3),
        "none": np.empty((0, 3), np.int64),
        "no words": np.empty((5, 0), np.int64),
        "hashes": np.array([2**64 - 1], np.uint64),
        "places": np.array([3, 1], np.int32),
        "bytes": np.frombuffer(b"abc", np.uint8),
    }
    write_arrays(tmp_path / "file.arrow", arrays)
    found = map_arrays(tmp_path / "file.arrow")
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype, name
        assert found[name].shape == array.shape, name
        assert np.array_equal(found[name], array), name
    found["rows"][0, 0] = 99
    assert map_arrays(tmp_path / "file.arrow")["rows"][0, 0] == 0
