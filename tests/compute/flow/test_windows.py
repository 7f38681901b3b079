"""Windows maintained by the arrangement engine have the model's rows at every time."""

from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from foreshore.compute.bulk.duckdb import DuckDbEngine
from foreshore.compute.flow.batch import Batch
from foreshore.compute.flow.engine import FlowEngine
from foreshore.compute.flow.operators import window
from foreshore.compute.flow.operators.window import WindowFunctions
from foreshore.compute.flow.ordered import OrderedSpine
from foreshore.compute.flow.sums import Points
from foreshore.compute.flow.unsupported import Unsupported
from foreshore.expr.ir import (
    Frame,
    FrameBound,
    Literal,
    OrderKey,
    Relation,
    Window,
    WindowFunction,
)
from foreshore.ids import GlobalId
from foreshore.types import INT4, INT8, TEXT, numeric_of_scale
from tests.compute.cases import Case, Contents, check_maintained
from tests.compute.plans import U1, column
from tests.compute.without_bulk import WithoutBulk
from tests.effort import examples
from tests.model import Rows
from tests.relations import TABLES, histories, window_relations


@pytest.fixture(scope="module")
def engine() -> Iterator[FlowEngine]:
    """Yield one engine for all cases."""
    bulk = DuckDbEngine(threads=1)
    yield WithoutBulk(bulk)
    bulk.close()


@settings(max_examples=examples(300))
@given(window_relations(failing=True), histories(5), st.sets(st.integers(2, 4)))
def test_windows_are_exact_at_every_time(
    engine: FlowEngine, relation: Relation, history: list[Contents], cuts: set[int]
) -> None:
    try:
        check_maintained(engine, Case(relation, history, frozenset(cuts)))
    except Unsupported:
        reject()


def _offset(side: str, rows: int) -> FrameBound:
    return FrameBound(side, Literal(rows, INT8))  # type: ignore[arg-type]


VALUE, TEXTS = column(1), column(2, TEXT)
NEIGHBOURS = (
    WindowFunction("lag", (VALUE, Literal(2, INT8), VALUE), INT4),
    WindowFunction("lead", (TEXTS, Literal(1, INT8), Literal("none", TEXT)), TEXT),
    WindowFunction(
        "max", (VALUE,), INT4, Frame("rows", _offset("preceding", 1), _offset("following", 2))
    ),
)
RUNNING = (
    WindowFunction("row_number", (), INT8),
    WindowFunction("sum", (VALUE,), numeric_of_scale(0), Frame("rows")),
    WindowFunction("count", (TEXTS,), INT8, Frame("rows", None, _offset("preceding", 1))),
)
RANKED = (
    WindowFunction("rank", (), INT8),
    WindowFunction("sum", (VALUE,), numeric_of_scale(0)),
    WindowFunction("count", (), INT8, Frame("groups", FrameBound("current"))),
)
KNOWN = (
    WindowFunction("last_known", (VALUE,), INT4),
    WindowFunction("last_known", (TEXTS,), TEXT),
)
REACHING = {
    "known": KNOWN,
    "known with neighbours": (*KNOWN, *NEIGHBOURS),
    "known with running": (*KNOWN, *RUNNING),
    "neighbours": NEIGHBOURS,
    "running": RUNNING,
    "ranked": RANKED,
    "running with neighbours": (*RUNNING, *NEIGHBOURS),
    "ranked with neighbours": (*RANKED, *NEIGHBOURS),
    "dense": (*RANKED, WindowFunction("dense_rank", (), INT8)),
    "whole": (WindowFunction("last_value", (TEXTS,), TEXT), *RANKED),
}


def changing(random: Random) -> list[Contents]:
    """Return versions of a table of some dozen rows, a few of which differ from one to the next."""

    def row() -> tuple[object, ...]:
        return random.choice((0, 1, None)), random.randrange(9), random.choice(("a", "b", None))

    rows = [row() for _ in range(40)]
    history: list[Contents] = []
    for _ in range(6):
        other: dict[GlobalId, Rows] = {table.id: Counter() for table in TABLES}
        history.append({**other, U1.id: Counter(rows)})
        for _ in range(random.randrange(4)):
            rows.pop(random.randrange(len(rows)))
        rows += [row() for _ in range(random.randrange(4))]
    return history


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("name", REACHING)
def test_what_changes_reach_is_exact(engine: FlowEngine, name: str, descending: bool) -> None:
    window = Window(U1, (0,), (OrderKey(VALUE, descending),), REACHING[name])
    for seed in range(examples(20)):
        random = Random(seed)
        cuts = frozenset(random.sample(range(2, 6), random.randint(0, 4)))
        check_maintained(engine, Case(window, changing(random), cuts))


@pytest.mark.parametrize("name", ["known", "known with neighbours"])
def test_known_values_are_found_at_any_distance(
    monkeypatch: pytest.MonkeyPatch, engine: FlowEngine, name: str
) -> None:
    monkeypatch.setattr(window, "FIRST_NEAR", 1)
    relation = Window(U1, (0,), (OrderKey(VALUE),), REACHING[name])

    def rows(random: Random, count: int, known: float) -> Rows:
        def text() -> str | None:
            return random.choice("ab") if random.random() < known else None

        return Counter((0, random.randrange(60), text()) for _ in range(count))

    for seed in range(examples(20)):
        random = Random(seed)
        contents = rows(random, 30, 0.2)
        history: list[Contents] = []
        for _ in range(5):
            history.append({**{table.id: Counter() for table in TABLES}, U1.id: contents.copy()})
            contents = contents + rows(random, random.randrange(3), 0.5)
            for row in random.sample(list(contents), 2):
                contents = contents - Counter([row])
        check_maintained(engine, Case(relation, history, frozenset({3})))


def test_many_changes_read_partitions_as_a_whole(
    monkeypatch: pytest.MonkeyPatch, engine: FlowEngine
) -> None:
    whole: list[bool] = []
    reaches = WindowFunctions._reaches_most

    def noted(self: WindowFunctions, points: Points, updates: Batch) -> bool:
        whole.append(reaches(self, points, updates))
        return whole[-1]

    monkeypatch.setattr(WindowFunctions, "_reaches_most", noted)
    monkeypatch.setattr(window, "WHOLE_LEAST", 3)
    rows = Counter({(0, i, "a"): 1 for i in range(100)})
    changes = {  # by the first and the last place of three added rows
        (0, 90): True, (20, 75): True, (20, 60): False, (97, 99): False,
    }  # fmt: skip
    for places, is_whole in changes.items():
        added = Counter({(0, i, "b"): 1 for i in (*places, places[1] - 1)})
        history = [
            {**{table.id: Counter() for table in TABLES}, U1.id: each}
            for each in (rows, rows + added, rows)
        ]
        relation = Window(U1, (0,), (OrderKey(VALUE),), NEIGHBOURS)
        check_maintained(engine, Case(relation, history, frozenset({2})))
        assert whole[-2:] == [is_whole] * 2, places


@pytest.mark.parametrize("whole", [False, True])
def test_neighbours_in_partitions_read_as_a_whole_are_exact(
    monkeypatch: pytest.MonkeyPatch, engine: FlowEngine, whole: bool
) -> None:
    monkeypatch.setattr(WindowFunctions, "_reaches_most", lambda *_: whole)
    relation = Window(U1, (0,), (OrderKey(VALUE),), NEIGHBOURS)
    for seed in range(examples(10)):
        random = Random(seed)
        cuts = frozenset(random.sample(range(2, 6), random.randint(0, 4)))
        check_maintained(engine, Case(relation, changing(random), cuts))


@pytest.mark.parametrize(("name", "most"), [("neighbours", 24), ("running", 24), ("known", 2 * 34)])
def test_a_change_reads_only_rows_that_it_reaches(
    monkeypatch: pytest.MonkeyPatch, engine: FlowEngine, name: str, most: int
) -> None:
    read = []

    def count(method: Any) -> Any:
        def counted(*args: Any) -> Any:
            found = method(*args)
            read.append(len(found.points))
            return found

        return counted

    for method in ("rows_near", "following"):
        monkeypatch.setattr(OrderedSpine, method, count(getattr(OrderedSpine, method)))
    many = Counter({(0, i, "a"): 1 for i in range(300)})
    history = [
        {**{table.id: Counter() for table in TABLES}, U1.id: rows}
        for rows in (many, many + Counter({(0, 297, "b"): 1}))
    ]
    check_maintained(engine, Case(Window(U1, (0,), (OrderKey(VALUE),), REACHING[name]), history))
    assert read[-1] <= most, read
