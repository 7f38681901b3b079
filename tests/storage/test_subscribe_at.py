"""Subscribing to a shard: contents and changes, with and without snapshot and selection."""

import asyncio
import gc
import weakref
from collections import Counter
from collections.abc import Iterable
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pytest

from foreshore.errors import DataCorrupted, ObjectNotInPrerequisiteState
from foreshore.expr.ir import Call, Column, Literal, Scalar
from foreshore.storage.controller import ListenEvent, ReadCapability, StorageController
from foreshore.storage.selection import ALL, Selection
from foreshore.types import BOOL, INT8, TEXT
from foreshore.update import Timestamp
from tests.storage.harness import ROWS, U1, Row, Update, open_at, put, run, write

GREAT = Call("ge", (Column(0, INT8), Literal(90_000, INT8)), BOOL)
NAMED = Call("eq", (Column(1, TEXT), Literal("b", TEXT)), BOOL)


class Followed:
    """The events of a subscription so far."""

    def __init__(
        self,
        controller: StorageController,
        read: ReadCapability,
        as_of: Timestamp,
        *,
        snapshot: bool = True,
        selection: Selection = ALL,
    ) -> None:
        self.events: list[ListenEvent] = []
        self._news = asyncio.Event()
        self.listen = controller.subscribe_at(
            read, as_of, self._listened, snapshot=snapshot, selection=selection
        )

    def _listened(self, event: ListenEvent) -> None:
        if self.events:
            assert event.lower == self.events[-1].upper
        self.events.append(event)
        self._news.set()

    async def until(self, upper: Timestamp) -> list[tuple[tuple[object, ...], Timestamp, int]]:
        """Wait until all updates before `upper` have been delivered; return them."""
        async with asyncio.timeout(30):
            while not self.events or self.events[-1].upper < upper:
                self._news.clear()
                await self._news.wait()
        return [
            (tuple(row), time, diff)
            for event in self.events
            if event.updates is not None
            for *row, time, diff in zip(
                *(c.to_pylist() for c in event.updates.columns), strict=True
            )
        ]


def contents(updates: list[Update], time: Timestamp) -> Counter[Row]:
    found: Counter[Row] = Counter()
    for row, at, diff in updates:
        if at <= time:
            found[row] += diff
    return Counter({row: count for row, count in found.items() if count})


HISTORY: list[Update] = [
    ((1, "a"), 1, 1),
    ((2, "b"), 1, 2),
    ((1, "a"), 3, -1),
    ((1, "b"), 3, 1),
    ((2, "b"), 6, -1),
    ((3, None), 8, 1),
]


@pytest.mark.parametrize("settled", [0, 4, 9])
@pytest.mark.parametrize("snapshot", [True, False])
@pytest.mark.parametrize(
    ("selection", "predicate", "columns"),
    [
        (ALL, None, (0, 1)),
        (Selection((1,)), None, (1,)),
        (Selection(None, (NAMED,)), "b", (0, 1)),
        (Selection((0,), (NAMED,)), "b", (0,)),
    ],
)
def test_contents_and_changes_add_up_at_every_frontier(
    tmp_path: Path,
    settled: int,
    snapshot: bool,
    selection: Selection,
    predicate: str | None,
    columns: tuple[int, ...],
) -> None:
    wanted: list[Update] = [
        (tuple(row[i] for i in columns), time, diff)  # type: ignore[misc]
        for row, time, diff in HISTORY
        if predicate is None or row[1] == predicate
    ]

    async def main() -> None:
        controller = await open_at(tmp_path)
        read, _ = await controller.create(U1, ROWS)
        follows: dict[Timestamp, Followed] = {}
        for time in range(10):
            await put(controller, write(U1, time, time + 1, *(u for u in HISTORY if u[1] == time)))
            if time == settled:
                await controller.settle()
            follows[time] = Followed(controller, read, time, snapshot=snapshot, selection=selection)
        follows[5].listen.cancel()
        for early in (0, 2, 7):  # the past, as it still can be read
            follows[20 + early] = Followed(
                controller, read, early, snapshot=snapshot, selection=selection
            )
        for start, followed in follows.items():
            if start == 5:
                continue
            as_of = start % 20
            told = await followed.until(10)
            assert all(at >= as_of + (not snapshot) for _, at, _ in told)
            began = Counter() if snapshot else contents(wanted, as_of)
            for time in range(as_of, 10):
                state = contents(told, time) + began  # type: ignore[arg-type]
                assert +state == contents(wanted, time), (as_of, time)
        later = Followed(controller, read, 12, snapshot=snapshot, selection=selection)
        await put(controller, write(U1, 10, 12, ((9, "b"), 10, 1)))
        assert not later.events  # its time has not come
        await put(controller, write(U1, 12, 14, ((9, "b"), 13, -1)))
        told = await later.until(14)
        assert [diff for _, at, diff in told if at == 13] == [-1]
        last = contents(wanted, 9) + Counter([tuple((9, "b")[i] for i in columns)])
        assert contents(told, 12) == (last if snapshot else Counter())  # type: ignore[arg-type]
        await controller.close()

    run(main)


def test_unselected_data_is_neither_read_nor_delivered(tmp_path: Path) -> None:
    async def main() -> None:
        controller = await open_at(tmp_path, segment_bytes=64 << 20)
        read, _ = await controller.create(U1, ROWS)
        rows: list[Update] = [((k, f"text {k}"), 1, 1) for k in range(400_000)]
        await put(controller, write(U1, 0, 2, *rows))
        await controller.settle()
        readings = {}
        predicates: tuple[Scalar, ...] = (GREAT,)
        few = Call("lt", (Column(0, INT8), Literal(10, INT8)), BOOL)
        for name, selection in {
            "all": ALL,
            "column": Selection((0,)),
            "rows": Selection(None, predicates),
            "few": Selection((0,), (few,)),
        }.items():
            followed = Followed(controller, read, 1, selection=selection)
            assert len(await followed.until(2)) == {"all": 400_000, "column": 400_000}.get(
                name, 10 if name == "few" else 310_000
            )
            readings[name] = followed.listen.reading
            await put(controller, write(U1, controller.upper(U1), controller.upper(U1) + 1))
        assert readings["all"].parts == 4
        assert [readings[name].skipped for name in ("all", "column", "few")] == [0, 0, 3]
        sizes = [readings[name].bytes for name in ("few", "column", "rows", "all")]
        assert sizes == sorted(sizes)
        assert sizes[0] < 1_000 < sizes[1] < sizes[2] < sizes[3]
        late = Followed(controller, read, controller.upper(U1) - 1, snapshot=False)
        assert await late.until(controller.upper(U1)) == []
        assert late.listen.reading.parts == 0  # the batch ends before
        await controller.close()

    run(main)


def summed(tables: Iterable[pa.Table]) -> dict[tuple[object, ...], int]:
    """Return how often each row is there, at each time if there are times."""
    found: Counter[tuple[object, ...]] = Counter()
    for table in tables:
        for row in table.to_pylist():
            *key, diff = row.values()
            found[tuple(key)] += diff
    return {key: diff for key, diff in found.items() if diff}


def test_changes_returns_updates_between_times(tmp_path: Path) -> None:
    async def main() -> None:
        controller = await open_at(tmp_path)
        read, _ = await controller.create(U1, ROWS)
        for time in range(10):
            await put(controller, write(U1, time, time + 1, *(u for u in HISTORY if u[1] == time)))
            if time == 4:
                await controller.settle()
        for after in range(10):
            for through in range(after, 10):
                table = await controller.changes(read, after, through)
                times = table.column(2).to_pylist()
                assert sorted(times) == sorted(t for _, t, _ in HISTORY if after < t <= through)
                parts = [part async for part in controller.changes_in_parts(read, after, through)]
                assert summed(parts) == summed([table])
            known = await controller.change_times(read, after)
            assert sorted(known.to_pylist()) == sorted(t for _, t, _ in HISTORY if after < t)
        with controller.snapshot(read, 9) as snapshot:
            contents = [part async for part in snapshot.parts()]
            assert summed(contents) == summed([await snapshot.contents()])
        with controller.snapshot(read, 7) as snapshot:
            parts = [part.column(0).to_pylist() async for part in snapshot.column_parts(0)]
            first = [row[0] for row, time, _ in HISTORY if time <= 7]
            assert Counter(chain.from_iterable(parts)) == Counter(first)
        with pytest.raises(ObjectNotInPrerequisiteState, match="not known through 10"):
            await controller.changes(read, 3, 10)
        lower = await controller.downgrade_capability(read, 4)
        assert isinstance(lower, ReadCapability)
        with pytest.raises(ObjectNotInPrerequisiteState, match="as of 3") as raised:
            await controller.changes(lower, 3, 8)
        assert raised.value.detail == "It is readable from 4."
        await controller.close()

    run(main)


def test_cancel_or_drop_ends_subscription(tmp_path: Path) -> None:
    async def main() -> None:
        controller = await open_at(tmp_path)
        read, _ = await controller.create(U1, ROWS)
        await put(controller, write(U1, 0, 2, ((1, "a"), 1, 1)))
        mine, theirs = Followed(controller, read, 1), Followed(controller, read, 1)
        await mine.until(2)
        mine.listen.cancel()
        await put(controller, write(U1, 2, 3, ((2, "a"), 2, 1)))
        await theirs.until(3)
        assert [event.upper for event in mine.events] == [2]
        await controller.drop(U1)
        assert theirs.listen.cancelled
        await controller.close()

    run(main)


def test_cancelled_listens_are_freed(tmp_path: Path) -> None:
    async def main() -> None:
        controller = await open_at(tmp_path)
        read, _ = await controller.create(U1, ROWS)
        await put(controller, write(U1, 0, 2, ((1, "a"), 1, 1)))
        early, late = Followed(controller, read, 1), Followed(controller, read, 100)
        await early.until(2)
        await asyncio.sleep(0)  # the late one waits for its time
        early.listen.cancel()
        late.listen.cancel()
        await put(controller, write(U1, 2, 3, ((2, "a"), 2, 1)))
        assert controller._shards[U1].listens == []
        assert late.listen._waiting is None
        await controller.settle()
        (damaged,) = (tmp_path / "blob" / U1).iterdir()
        damaged.write_bytes(b"")
        failing = Followed(controller, read, 2).listen
        await put(controller, write(U1, 3, 4, ((3, "a"), 3, 1)))
        assert failing.task is not None
        with pytest.raises(DataCorrupted):
            await failing.task
        await put(controller, write(U1, 4, 5, ((4, "a"), 4, 1)))
        assert controller._shards[U1].listens == []
        await controller.close()

    run(main)


def test_updates_before_start_are_not_queued(tmp_path: Path) -> None:
    async def main() -> None:
        controller = await open_at(tmp_path)
        read, _ = await controller.create(U1, ROWS)
        followed = Followed(controller, read, 9)
        written = []
        for time in range(9):
            one = write(U1, time, time + 1, ((time, "x"), time, 1))
            written.append(weakref.ref(one.updates))
            await put(controller, one)
            del one
        await controller.settle()  # storage itself has let go of them
        gc.collect()
        assert [table for table in written if table() is not None] == []
        await put(controller, write(U1, 9, 10, ((9, "y"), 9, 1)))
        await put(controller, write(U1, 10, 11, ((10, "z"), 10, 1)))
        told = await followed.until(11)
        assert Counter(told) == Counter(
            [*(((k, "x"), 9, 1) for k in range(9)), ((9, "y"), 9, 1), ((10, "z"), 10, 1)]
        )
        await controller.close()

    run(main)
