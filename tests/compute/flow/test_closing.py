"""Final rows of streams with watermarks: each appears once, at its time, and is then forgotten."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from foreshore.compute.bulk import duckdb
from foreshore.compute.bulk.duckdb import DuckDbEngine
from foreshore.compute.delta.describe import describe_plan
from foreshore.compute.delta.tick import TickDataflow
from foreshore.compute.engine import Engine, Input
from foreshore.compute.flow import hydration, ordered
from foreshore.compute.flow.describe import describe_operators
from foreshore.compute.flow.operators import closed_groups
from foreshore.compute.protocol import DataflowDescription
from foreshore.compute.workers.engine import WorkersEngine
from foreshore.errors import DatabaseError
from foreshore.expr.bounded_columns import bounded_columns
from foreshore.expr.columns import columns_of
from foreshore.expr.ir import (
    Aggregate,
    Call,
    Column,
    Filter,
    FlatMap,
    Get,
    Join,
    Let,
    Literal,
    LocalGet,
    Map,
    Negate,
    OrderKey,
    Project,
    Reduce,
    Relation,
    Scalar,
    Threshold,
    TopK,
    Union,
    Window,
    WindowFunction,
    count_all,
)
from foreshore.expr.ir import (
    Case as CaseWhen,
)
from foreshore.expr.traversal import sources_of
from foreshore.expr.watermarks import final_rows, watermark_relation
from foreshore.ids import GlobalId
from foreshore.types import BOOL, INT4, INT8, INTERVAL, TEXT, TIMESTAMP, ColumnType, Watermark
from tests.compute.cases import Case, check_maintained, schema_of, updates
from tests.compute.flow.test_saved_state import Restarting
from tests.compute.without_bulk import WithoutBulk
from tests.compute.workers.in_threads import workers
from tests.effort import examples
from tests.model import Rows, evaluate

COLUMNS = (ColumnType(TIMESTAMP), ColumnType(INT4), ColumnType(TEXT))
A = Get(GlobalId("u1"), COLUMNS, (), True, Watermark(0, 3))
B = Get(GlobalId("u2"), COLUMNS, (), True, Watermark(0, 0))
MARKS = Get(GlobalId("u3"), (ColumnType(TIMESTAMP),))  # to which the clock has moved it
IDLE = Get(A.id, COLUMNS, (), True, Watermark(0, 3, 30, MARKS.id))
LENGTH = 10  # microseconds, of a window


def column(index: int) -> Column:
    return Column(index, COLUMNS[index].type)


def micros(count: int) -> Literal:
    return Literal((0, 0, count), INTERVAL)


def begin(time: Scalar, length: int = LENGTH) -> Scalar:
    key = "date_bin(interval,timestamp,timestamp)"
    return Call(key, (micros(length), time, Literal(0, TIMESTAMP)), TIMESTAMP)


def plus(time: Scalar, count: int) -> Scalar:
    return Call("add(timestamp,interval)", (time, micros(count)), TIMESTAMP)


def ends(get: Get) -> Relation:
    """Return rows with the ends of their windows, in the last column."""
    finite = Filter(get, (Call("isfinite(timestamp)", (column(0),), BOOL),))
    return Map(finite, (plus(begin(column(0)), LENGTH),))


END, LATEST = Column(3, TIMESTAMP), Aggregate("max", (column(1),), INT4)
COUNTED = Reduce(ends(A), (END,), (count_all(),))
DISTINCT = Aggregate("count", (column(1),), INT8, distinct=True)
LIST = Aggregate("string_agg", (column(2), Literal(",", TEXT)), TEXT)
HOPS = FlatMap(
    A,
    "generate_series(timestamp,timestamp,interval)",
    (plus(begin(plus(column(0), -2 * LENGTH)), LENGTH), begin(column(0)), micros(LENGTH)),
    (ColumnType(TIMESTAMP),),
)
OF_TWO = Call("eq", (column(1), Literal(2, INT4)), BOOL)
PER_B = Reduce(ends(B), (END,), (count_all(), LATEST))
BEGUN = Reduce(A, (begin(column(0)),), (count_all(),))
LONG = Reduce(B, (begin(column(0), 2 * LENGTH),), (count_all(),))
MATCHED = Filter(
    Join((A, B), ((column(1), Column(4, INT4)),)),
    (
        Call("ge", (Column(3, TIMESTAMP), column(0)), BOOL),
        Call("le", (Column(3, TIMESTAMP), plus(column(0), 2 * LENGTH)), BOOL),
    ),
)
BEFORE = Filter(  # other rows of the same stream, from 30 to 4 microseconds before
    Join((A, A), ((column(1), Column(4, INT4)),)),
    (
        Call("ge", (Column(3, TIMESTAMP), plus(column(0), -30)), BOOL),
        Call("lt", (Column(3, TIMESTAMP), plus(column(0), -4)), BOOL),
    ),
)
FULL = Join((COUNTED, PER_B), ((Column(0, TIMESTAMP), Column(2, TIMESTAMP)),))
NO_TIME, NO_COUNT = Literal(None, TIMESTAMP), Literal(None, INT8)


def without(rows: Relation, partners: Relation) -> Relation:
    """Return the rows without a partner, whose first columns are equal."""
    width = len(columns_of(rows))
    keys = Reduce(Project(partners, (0,)), (Column(0, TIMESTAMP),), ())
    equal = ((Column(0, TIMESTAMP), Column(width, TIMESTAMP)),)
    return Union((rows, Negate(Project(Join((rows, keys), equal), tuple(range(width))))))


def sessions(rows: Relation, gap: int) -> Relation:
    """Return the rows of a stream with the ends of their sessions by #1, as SESSION does."""
    now, one = column(0), Literal(1, INT8)
    beside = WindowFunction("lead", (now, one, NO_TIME), TIMESTAMP)
    finite = Filter(rows, (Call("isfinite(timestamp)", (now,), BOOL),))
    next = Window(finite, (1,), (OrderKey(now),), (beside,))
    follows = Call("le", (Column(3, TIMESTAMP), plus(now, gap)), BOOL)
    marked = Map(next, (CaseWhen(((follows, NO_TIME),), now, TIMESTAMP),))
    order = (OrderKey(now, True), OrderKey(Column(4, TIMESTAMP)))
    last = WindowFunction("last_known", (Column(4, TIMESTAMP),), TIMESTAMP)
    return Map(Window(marked, (1,), order, (last,)), (plus(Column(5, TIMESTAMP), gap),))


PLANS: dict[str, Relation] = {
    "rows within an interval": Project(MATCHED, (0, 1, 3, 5)),
    "rows of one stream within an interval": Project(BEFORE, (0, 1, 3, 5)),
    "two uses of a join within an interval": Union(
        (
            Project(MATCHED, (0, 1)),
            Project(
                Filter(MATCHED.input, (Call("le", (Column(3, TIMESTAMP), column(0)), BOOL),)),
                (0, 4),
            ),
        )
    ),
    "left join within an interval": Union(
        (
            Project(MATCHED, (0, 1, 3)),
            Map(
                Project(
                    without(Reduce(A, (column(0), column(1)), ()), Project(MATCHED, (0,))), (0, 1)
                ),
                (NO_TIME,),
            ),
        )
    ),
    "full": Project(
        Map(
            Union(
                (
                    Project(FULL, (0, 1, 2, 3)),
                    Map(without(COUNTED, Project(FULL, (2,))), (NO_TIME, NO_COUNT)),
                    Project(
                        Map(without(Project(PER_B, (0, 1)), FULL), (NO_TIME, NO_COUNT)),
                        (2, 3, 0, 1),
                    ),
                )
            ),
            (
                Call(
                    "coalesce",
                    (Column(0, TIMESTAMP), Column(2, TIMESTAMP)),
                    TIMESTAMP,
                ),
            ),
        ),
        (4, 1, 3),
    ),
    "sessions": Reduce(sessions(A, 7), (Column(6, TIMESTAMP), column(1)), (count_all(),)),
    "count": COUNTED,
    "moved by the clock": Reduce(ends(IDLE), (END,), (count_all(), LATEST)),
    "join of one moved by the clock": Project(
        Join(
            (Reduce(ends(IDLE), (END,), ()), PER_B), ((Column(0, TIMESTAMP), Column(1, TIMESTAMP)),)
        ),
        (0, 2, 3),
    ),
    "all aggregates": Reduce(ends(A), (column(1), END), (LATEST, DISTINCT, LIST, count_all())),
    "beginnings": Reduce(A, (begin(column(0)),), (count_all(),)),
    "days": Reduce(A, (begin(column(0), 86_400_000_000),), (count_all(),)),
    "times": Reduce(A, (column(0),), (LATEST,)),
    "rows": Project(A, (1, 0)),
    "hops": Project(
        Map(Reduce(HOPS, (END, column(1)), (count_all(),)), (plus(Column(0, TIMESTAMP), 20),)),
        (3, 1, 2),
    ),
    "having": Filter(COUNTED, (Call("gt", (Column(1, INT8), Literal(1, INT8)), BOOL),)),
    "reduction of a reduction": Reduce(
        Reduce(ends(A), (END, column(1)), (count_all(),)),
        (Column(0, TIMESTAMP),),
        (Aggregate("max", (Column(2, INT8),), INT8),),
    ),
    "first rows": TopK(ends(A), (3,), (OrderKey(column(1)),), Literal(2, INT8)),
    "numbered": Window(
        ends(A), (3,), (OrderKey(column(1)),), (WindowFunction("row_number", (), INT8),)
    ),
    "ranked": Window(
        ends(A), (3,), (OrderKey(column(1)),), (WindowFunction("dense_rank", (), INT8),)
    ),
    "except": Threshold(Union((ends(A), Negate(Filter(ends(A), (OF_TWO,)))))),
    "join": Project(
        Join((COUNTED, PER_B), ((Column(0, TIMESTAMP), Column(2, TIMESTAMP)),)), (0, 1, 3, 4)
    ),
    "join of rows": Project(
        Join(
            (ends(A), ends(B)),
            ((END, Column(7, TIMESTAMP)), (column(1), Column(5, INT4))),
        ),
        (3, 1, 6),
    ),
    "join of other lengths": Project(
        Join((BEGUN, LONG), ((Column(0, TIMESTAMP), Column(2, TIMESTAMP)),)), (0, 1, 3)
    ),
    "union of rows and windows": Union((COUNTED, Project(Map(B, (Literal(0, INT8),)), (0, 3)))),
    "union": Union((COUNTED, Project(PER_B, (0, 1)))),
    "outer": Let(
        0,
        COUNTED,
        Union((LocalGet(0, columns_of(COUNTED)), Negate(Filter(COUNTED, ())), COUNTED)),
    ),
}


def history(random: Random, times: int) -> list[dict[GlobalId, Rows]]:
    """Return contents of the streams at each time, of which no row came late."""
    found: list[dict[GlobalId, Rows]] = []
    now: dict[GlobalId, Rows] = {A.id: Counter(), B.id: Counter(), MARKS.id: Counter()}
    moved = -20
    for step in range(times):
        before, now = now, {id: Counter(rows) for id, rows in now.items()}
        if random.random() < 0.3:
            moved = max(moved, 6 * step + random.randint(-6, 6))
            now[MARKS.id] = Counter({(moved,): 1})
        for get in (IDLE, B):
            marks, _ = evaluate(watermark_relation(get), before)
            ((mark,),) = marks
            for _ in range(random.randint(0, 3)):
                at = random.choice((None, 6 * step + random.randint(-9, 9)))
                if at is None or mark is None or at >= mark:
                    now[get.id][at, random.randint(1, 3), random.choice("ab")] += 1
        found.append(now)
    return found


@pytest.fixture(scope="module")
def bulk() -> Iterator[DuckDbEngine]:
    bulk = DuckDbEngine(threads=1)
    yield bulk
    bulk.close()


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkersEngine]:
    with workers(2) as engine:
        yield engine


@pytest.fixture(params=["operators", "restarting", "workers", "duckdb"])
def engine(
    request: pytest.FixtureRequest,
    bulk: DuckDbEngine,
    pool: WorkersEngine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Engine:
    """Return an engine; operators forget as soon as they may."""
    monkeypatch.setattr(closed_groups, "LEAST_TO_FORGET", 1)
    monkeypatch.setattr(ordered, "EAGER", 4)
    monkeypatch.setattr(hydration, "BULK_ROWS", 1 << 60)
    monkeypatch.setattr(duckdb, "CONSOLIDATE_TAIL_AFTER", 0)
    monkeypatch.setattr(duckdb, "CONSOLIDATE_AFTER", 0)
    match request.param:
        case "operators":
            return WithoutBulk(bulk)
        case "restarting":
            return Restarting(bulk, tmp_path, Random(1))
        case "workers":
            return pool
        case _:
            return bulk


@pytest.mark.parametrize("name", PLANS)
def test_view_has_rows_whose_window_the_watermark_has_passed(engine: Engine, name: str) -> None:
    final = final_rows(PLANS[name])
    assert final is not None
    random = Random(name)
    for _ in range(examples(6)):
        contents = history(random, 9)
        cuts = frozenset(random.sample(range(2, 9), random.randint(0, 7)))
        check_maintained(engine, Case(final, contents, cuts))


@pytest.mark.scaled
@pytest.mark.parametrize("name", PLANS)
def test_final_rows_are_those_at_or_before_the_watermark_and_stay(name: str) -> None:
    plan = PLANS[name]
    final = final_rows(plan)
    assert final is not None
    bounds = bounded_columns(plan)[plan]
    place = min(bounds, key=lambda i: (not all(each.is_end for each in bounds[i]), i))
    random, seen = Random(name), 0
    for _ in range(examples(60)):
        before: Rows = Counter()
        for contents in history(random, 9):
            rows, _ = evaluate(plan, contents)
            marks = {
                get: next(iter(evaluate(watermark_relation(get), contents)[0]))[0]
                for get in (A, B, IDLE)
            }
            wanted = {
                row: count
                for row, count in rows.items()
                if row[place] is not None
                and all(
                    marks[each.get] is not None
                    and row[place] + each.micros + each.inclusive <= marks[each.get]
                    for each in bounds[place]
                )
            }
            found, _ = evaluate(final, contents)
            assert found == wanted
            assert all(found[row] >= count for row, count in before.items())
            before, seen = found, seen + len(found)
    assert seen or name == "days"


def stream(first: int, time: int) -> pa.Table:
    """Return a thousand rows of as many microseconds."""
    numbers = range(first, first + 1000)
    return updates(COLUMNS, [((n, n % 3, str(n % 7)), time, 1) for n in numbers])


@pytest.mark.parametrize(
    "name",
    [
        "count",
        "all aggregates",
        "reduction of a reduction",
        "hops",
        "numbered",
        "first rows",
        "except",
    ],
)
@pytest.mark.parametrize("count", [1, 2])
def test_state_of_closed_windows_is_freed(
    bulk: DuckDbEngine, pool: WorkersEngine, count: int, name: str
) -> None:
    final = final_rows(PLANS[name])
    assert final is not None
    assert "Forgets closed " in describe_operators(final, workers=count)
    ids = tuple(sorted(sources_of(final)))
    schemas = dict.fromkeys(ids, schema_of(COLUMNS))
    description = DataflowDescription(GlobalId("t1"), final, ids, (), 1)
    engine: Engine = WithoutBulk(bulk) if count == 1 else pool
    dataflow = engine.create(description, schemas)
    first = Input(schema_of(COLUMNS), (), (stream(0, 1),))
    dataflow.hydrate(dict.fromkeys(ids, first))
    kept = []
    for time in range(2, 60):
        dataflow.step(time, time + 1, dict.fromkeys(ids, stream(1000 * time, time)))
        while dataflow.maintain():
            pass
        pool.report()
        kept.append(sum(each.records for each in dataflow.sizes()))
    # A worker's report may come before it has forgotten what the last step closed.
    assert min(kept[-10:]) <= 2 * max(kept[:8]), kept
    with pytest.raises(DatabaseError, match="closed window"):
        dataflow.step(60, 61, dict.fromkeys(ids, stream(1000, 60)))
    dataflow.close()


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in ("count", "ranked", "full") else pytest.mark.full)
        for name in PLANS
        if name != "sessions" and "interval" not in name
    ],
)
def test_duckdb_drops_rows_of_closed_windows(
    bulk: DuckDbEngine, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(duckdb, "CONSOLIDATE_AFTER", 100)
    final = final_rows(PLANS[name])
    assert final is not None
    ids = tuple(sorted(sources_of(final)))
    description = DataflowDescription(GlobalId("t1"), final, ids, (), 1)
    schemas = {id: schema_of(MARKS.columns if id == MARKS.id else COLUMNS) for id in ids}
    dataflow = bulk.create(description, schemas)
    assert isinstance(dataflow, TickDataflow)
    assert "without closed #" in describe_plan(dataflow._plan)
    store = dataflow._store
    assert isinstance(store, duckdb.DuckDbStore)
    streams = [id for id in ids if id != MARKS.id]
    first = {id: (stream(0, 1),) if id in streams else () for id in ids}
    dataflow.hydrate({id: Input(schemas[id], (), tail) for id, tail in first.items()})
    kept = []
    for time in range(2, 30):
        dataflow.step(time, time + 1, dict.fromkeys(streams, stream(1000 * time, time)))
        names = [f"s{each.number}" for each in dataflow._plan.traces if each.kept]
        counts = [store.execute(f"SELECT count(*) FROM {each}").fetchone() for each in names]
        kept.append(sum(count[0] for count in counts if count is not None))
    assert name == "days" or kept[-1] <= 1.2 * max(kept[:8]), kept
    dataflow.close()


@pytest.mark.parametrize("name", ["join of rows", "rows within an interval", "full"])
@pytest.mark.parametrize("count", [1, 2])
def test_rows_that_joins_look_up_are_forgotten(count: int, name: str) -> None:
    final = final_rows(PLANS[name])
    assert final is not None
    described = describe_operators(final, workers=count)
    assert "Forgets closed rows that joins look up" in described
    assert "shared" not in described


@pytest.mark.parametrize("name", ["join of other lengths", "union of rows and windows"])
def test_rows_wait_in_one_order_for_watermarks_at_other_distances(name: str) -> None:
    final = final_rows(PLANS[name])
    assert final is not None
    described = describe_operators(final)
    assert "Closing on operators" in described
    assert "Forgets closed groups of operator" in described
