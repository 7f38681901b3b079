"""Strings that no state names are forgotten, all others keep their numbers and bytes."""

from collections import Counter
from collections.abc import Iterator, Mapping
from copy import deepcopy
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from foreshore.compute.bulk.duckdb import DuckDbEngine
from foreshore.compute.checkpoint.state import Captured, Writer
from foreshore.compute.engine import Input
from foreshore.compute.flow import hydration, intern, ordered, spine
from foreshore.compute.flow.dataflow import FlowDataflow
from foreshore.compute.flow.intern import Interner
from foreshore.compute.flow.memo import Memo
from foreshore.compute.flow.unsupported import Unsupported
from foreshore.compute.output import Output
from foreshore.compute.protocol import DataflowDescription
from foreshore.expr.ir import Call, Column, Filter, Literal, Map, Reduce
from foreshore.ids import GlobalId
from foreshore.types import BOOL, TEXT
from tests.compute.cases import Case, check_maintained, random_history
from tests.compute.plans import PLANS, U1
from tests.compute.without_bulk import WithoutBulk
from tests.effort import examples
from tests.model import Rows
from tests.relations import TABLES, histories, lowered_relations

TEXTS = st.one_of(
    st.text("ab", max_size=3), st.integers(0, 400).map(lambda n: "x" * n), st.text(max_size=80)
)


def texts_of(interner: Interner, numbers: Any) -> list[str]:
    found: list[str] = interner.strings(numbers, pa.string()).to_pylist()
    return found


def poison(interner: Interner, random: Random) -> None:
    """Let forgotten strings be others: their bytes are overwritten, some numbers taken."""
    lengths, end = interner.lengths, int(interner._counts[1])
    for number in np.flatnonzero(lengths[:end] < 0).tolist():
        begin = interner.starts[number]
        interner.arena[begin : begin - 1 - lengths[number]] = 255
    for _ in range(random.randrange(4)):
        interner.numbers(pa.array([random.randbytes(random.randrange(12))], pa.binary()))


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(st.tuples(st.lists(TEXTS), st.sampled_from("ifsk")), max_size=12), st.randoms())
def test_strings_that_are_named_stay(steps: list[tuple[list[str], str]], random: Random) -> None:
    """Strings are interned, let go and named again, while cycles run and all is loaded anew."""
    interner = Interner()
    held: dict[str, int] = {}

    def check() -> None:
        numbers = np.array(list(held.values()), np.int64)
        assert texts_of(interner, numbers) == list(held)
        again = interner.numbers(pa.array(list(held), pa.string())).tolist()
        assert again == list(held.values()), "a string has two numbers"

    for texts, action in steps:
        numbers = interner.numbers(pa.array(texts, pa.string())).tolist()
        assert len(set(numbers)) == len(set(texts))
        held |= dict(zip(texts, numbers, strict=True))
        if action in "fk":
            gone = [text for text in held if random.random() < 0.5]
            for text in gone:
                del held[text]
            interner.begin_forgetting()
            interner.mark(np.array([*held.values(), 0], np.int64))
            back = [text for text in gone if random.random() < 0.3]
            found = interner.numbers(pa.array(back, pa.string())).tolist()
            held |= dict(zip(back, found, strict=True))
            if action == "f":
                interner.forget()
                assert len(interner) == len(held)
                poison(interner, random)
            else:
                interner.keep_all()
        elif action == "s":
            interner = Interner.loaded(interner.seed, [interner.save(1)])
        check()


def test_strings_that_took_a_number_are_saved() -> None:
    interner = Interner(1)
    interner.numbers(pa.array(["a", "b"]))
    before = deepcopy(interner.save(1))
    interner.begin_forgetting()
    interner.mark(interner.numbers(pa.array(["a"])))
    interner.forget()
    numbers = interner.numbers(pa.array(["a", "c"]))
    assert numbers.tolist() == [1, 2]
    after = interner.save(before.end)
    saved = [before, after] if after.begin == before.end else [after]
    assert texts_of(Interner.loaded(interner.seed, saved), numbers) == ["a", "c"]
    assert interner.save(after.end).begin == after.end


def test_memos_keep_no_string_of_a_step_at_the_beginning_of_a_cycle() -> None:
    interner, memo = Interner(1), Memo()

    def lengths(numbers: Any) -> Any:
        found = np.array(list(map(len, texts_of(interner, numbers))), np.int64)
        none = np.zeros(len(found), np.int64)
        return found, none, none.astype(np.bool_), none

    given = interner.numbers(pa.array(["long"]))
    interner.begin_forgetting()
    memo.values(given, lengths, interner.generation)
    interner.forget()
    taken = interner.numbers(pa.array(["ab"]))
    assert taken.tolist() == given.tolist()
    assert memo.values(taken, lengths, interner.generation)[0].tolist() == [2]


def test_memory_is_flat_where_strings_come_and_go() -> None:
    interner, sizes = Interner(1), []
    for turn in range(40):
        texts = [f"{'long ' * (i % 40)}{turn} {i}" for i in range(2_000)]
        numbers = interner.numbers(pa.array(texts))
        interner.begin_forgetting()
        interner.mark(numbers)
        interner.forget()
        assert texts_of(interner, numbers) == texts
        sizes.append(interner.nbytes)
    assert sizes[-1] == sizes[4], sizes


def test_columns_of_other_values_keep_nothing() -> None:
    interner = Interner(1)
    numbers = interner.numbers(pa.array([f"{i}" for i in range(100)]))
    rows = np.stack([np.arange(100) * 1_000, numbers], axis=1)[:10]
    interner.begin_forgetting()
    interner.mark(np.ascontiguousarray(rows))
    assert interner.forget() == 90
    assert texts_of(interner, numbers[:10]) == [f"{i}" for i in range(10)]


def test_cycle_is_worth_while_when_strings_have_doubled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intern, "LEAST_STRINGS", 10)
    interner = Interner(1)
    interner.numbers(pa.array([f"{i}" for i in range(10)]))
    assert not interner.is_crowded
    numbers = interner.numbers(pa.array([f"{i}" for i in range(11)]))
    assert interner.is_crowded
    interner.begin_forgetting()
    interner.mark(numbers)
    interner.forget()
    assert not interner.is_crowded


class Forgetting(WithoutBulk):
    """An engine that forgets strings before, during and after steps."""

    def __init__(self, bulk: DuckDbEngine, random: Random) -> None:
        super().__init__(bulk)
        self.random = random
        self.gone = 0

    def create(
        self, description: DataflowDescription, schemas: Mapping[GlobalId, pa.Schema]
    ) -> Any:
        """Return a dataflow between whose steps strings are forgotten."""
        return Forgetful(self, super().create(description, schemas))


class Forgetful:
    """A dataflow; what it puts out is made into tables at once, as a replica does."""

    def __init__(self, engine: Forgetting, dataflow: Any) -> None:
        assert isinstance(dataflow, FlowDataflow)
        self._engine = engine
        self._dataflow = dataflow

    def hydrate(self, inputs: Mapping[GlobalId, Input]) -> Output:
        """Hydrate."""
        return _as_tables(self._dataflow.hydrate(inputs))

    def step(self, lower: int, upper: int, deltas: Mapping[GlobalId, pa.Table]) -> Output:
        """Step; a cycle is before it, or begins before and goes on after it."""
        engine, output = self._engine, None
        when = engine.random.choice(("before", "after the beginning", "after capturing", "never"))
        if engine.random.random() < 0.3:
            while self._dataflow.maintain():
                pass
        if when == "never":
            return _as_tables(self._dataflow.step(lower, upper, deltas))
        cycle = engine.forgetting()
        captured = [*cycle.shared()]
        if when == "after the beginning":
            output = _as_tables(self._dataflow.step(lower, upper, deltas))
        captured += [*cycle.shared(), self._state()]
        if when == "after capturing":
            output = _as_tables(self._dataflow.step(lower, upper, deltas))
        for each in captured:
            cycle.mark(each)
        engine.gone += cycle.forget()
        poison(engine._collections.interner, engine.random)
        return output or _as_tables(self._dataflow.step(lower, upper, deltas))

    def _state(self) -> Captured:
        to = Writer()
        self._dataflow.save(to)
        return to.captured

    def close(self) -> None:
        """Close."""
        self._dataflow.close()


def _as_tables(output: Output) -> Output:
    _ = output.rows, output.errors
    return output


@pytest.fixture(scope="module")
def bulk() -> Iterator[DuckDbEngine]:
    """Yield one bulk engine for all cases."""
    bulk = DuckDbEngine(threads=1)
    yield bulk
    bulk.close()


@pytest.fixture(params=["large runs", "small runs"])
def small(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let few updates be runs of their own, or none."""
    monkeypatch.setattr(hydration, "BULK_ROWS", 1 << 60)
    if request.param == "small runs":
        monkeypatch.setattr(spine, "TAIL_ROWS", 3)
        monkeypatch.setattr(ordered, "EAGER", 4)


@pytest.mark.parametrize("name", PLANS)
def test_each_operator_is_exact_while_strings_are_forgotten(
    small: None, bulk: DuckDbEngine, name: str
) -> None:
    random = Random(name)
    for _ in range(4):
        cuts = frozenset(random.sample(range(2, 7), random.randint(1, 5)))
        case = Case(PLANS[name], random_history(random, times=7), cuts)
        try:
            check_maintained(Forgetting(bulk, random), case)
        except Unsupported as error:
            pytest.skip(str(error))


@settings(max_examples=examples(60), deadline=None)
@given(st.data(), st.booleans(), st.randoms(use_true_random=False))
def test_plans_are_exact_while_strings_are_forgotten(
    bulk: DuckDbEngine, data: st.DataObject, failing: bool, random: Random
) -> None:
    relation = data.draw(lowered_relations(size=data.draw(st.integers(1, 6)), failing=failing))
    cuts = frozenset(data.draw(st.sets(st.integers(2, 4))))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hydration, "BULK_ROWS", 1 << 60)
        patch.setattr(spine, "TAIL_ROWS", 3)
        try:
            case = Case(relation, data.draw(histories(5)), cuts)
            check_maintained(Forgetting(bulk, random), case)
        except Unsupported:
            reject()


@pytest.mark.parametrize("turn", range(4))
def test_constants_of_plans_stay(bulk: DuckDbEngine, turn: int) -> None:
    """No state names them while the rows that have them are gone."""
    texts, kept = Column(2, TEXT), Literal("kept", TEXT)
    named = Map(Filter(U1, (Call("eq", (texts, Literal("b", TEXT)), BOOL),)), (kept,))
    there: dict[GlobalId, Rows] = {table.id: Counter() for table in TABLES}
    rows: Rows = Counter({(0, 1, "b"): 1, (1, 1, "c"): 1})
    history = [{**there, U1.id: each} for each in (rows, Counter(), Counter(), rows)]
    for plan in (named, Reduce(U1, (kept,), ())):
        check_maintained(Forgetting(bulk, Random(turn)), Case(plan, history, frozenset({2, 3})))
