"""The metrics of CREATE METRIC: each follows its relation, and a scrape reads what is there.

A metric has a session of its owner, in which a SUBSCRIBE follows the metric's view. So the rights
of the owner hold, changes are read as they happen, and a scrape asks nobody. If the subscription
ends, the metric shows nothing until it has begun anew, which is tried after RETRY_S to
MOST_RETRY_S.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from foreshore.adapter.client import OpenSession, Rows, Session
from foreshore.adapter.metrics.create import check_names_free, check_readable, index_of
from foreshore.adapter.metrics.series import Change, Series
from foreshore.adapter.services.metrics import Family, Labels, Status
from foreshore.adapter.services.names import Names
from foreshore.adapter.services.times import Times
from foreshore.adapter.show.metrics import relation_of
from foreshore.catalog.groups import METRICS
from foreshore.catalog.item import Item, Object
from foreshore.catalog.roles import role_with
from foreshore.errors import DatabaseError
from foreshore.ids import GlobalId
from foreshore.metric_spec import MetricSpec, check_label, check_metric_name
from foreshore.sql.rewrite.full_names import dotted
from foreshore.text_columns import text_column
from foreshore.types import RelationDesc

logger = logging.getLogger(__name__)

RETRY_S = 1.0  # which doubles with each failure
MOST_RETRY_S = 60.0
HEAD = 3  # columns of a SUBSCRIBE before those of the view: time, progress, copies


class Measured(Names, Times, Protocol):
    """The metrics of the catalog."""


class _Published:
    """A metric that is followed."""

    def __init__(self, item: Item, spec: MetricSpec, now: int) -> None:
        self.item = item
        self.spec = spec
        self.series = Series(spec.most_series)
        self.labels: Labels = ()
        self.status = Status("starting", now)
        self.failures = 0  # since it ran last
        self.task: asyncio.Task[None] | None = None


class PublishedMetrics:
    """The metrics of one environment."""

    def __init__(self, coordinator: Measured) -> None:
        self._coordinator = coordinator
        self._followed: dict[GlobalId, _Published] = {}
        self._open_session: OpenSession | None = None
        self._following = asyncio.Lock()  # else a metric might be followed twice

    def open(self, open_session: OpenSession) -> None:
        """Follow the metrics of the catalog."""
        self._open_session = open_session
        for item in self._coordinator.state.items_of(METRICS):
            self._start(item)

    async def follow(self, changed: Iterable[Object]) -> None:
        """Follow new metrics, leave dropped ones, and begin anew with changed ones.

        Those are changed, too, whose relation has got or lost an index.
        """
        async with self._following:
            await self._follow_changed([each for each in changed if isinstance(each, Item)])

    async def _follow_changed(self, items: Sequence[Item]) -> None:
        indexed = {each.on for each in items if each.on is not None}
        concerned = {each.id for each in items if each.metric}
        for id, followed in self._followed.items():
            if not indexed.isdisjoint(followed.item.depends_on):
                concerned.add(id)
        for id in concerned:
            if (known := self._followed.pop(id, None)) is not None:
                await _stopped(known)
            item = self._coordinator.state.get(id)
            if isinstance(item, Item) and item.metric:
                self._start(item)

    async def close(self) -> None:
        """End all."""
        followed, self._followed = list(self._followed.values()), {}
        for each in followed:
            await _stopped(each)

    def statuses(self) -> Mapping[GlobalId, tuple[Status, int]]:
        """Return the status of each metric, and the number of its series."""
        return {id: (each.status, len(each.series)) for id, each in self._followed.items()}

    def families(self) -> Sequence[Family]:
        """Return what a scrape shows."""
        return [
            Family(each.item.name, each.spec.kind, each.spec.help, each.labels, each.series.shown())
            for each in self._followed.values()
            if each.status.state == "running"
        ]

    # --- following -----------------------------------------------------------------------------

    def _start(self, item: Item) -> None:
        if self._open_session is None or not item.metric:
            return
        found = _Published(item, item.metric, self._coordinator.clock.now())
        self._followed[item.id] = found
        running = self._run(found, self._open_session)
        found.task = asyncio.get_running_loop().create_task(running)

    async def _run(self, metric: _Published, open_session: OpenSession) -> None:
        while True:
            try:
                await self._follow(metric, open_session)
                error = "the relation can change no more"  # which a table or a view never says
            except DatabaseError as found:
                error = found.message
            except Exception:
                logger.exception("a metric cannot be followed", extra={"metric": metric.item.name})
                error = "internal error"
            metric.series.clear()
            if metric.status.error != error:
                extra = {"metric": metric.item.name, "error": error}
                logger.warning("metric stalled", extra=extra)
            metric.status = Status("stalled", self._coordinator.clock.now(), error)
            await asyncio.sleep(min(RETRY_S * 2**metric.failures, MOST_RETRY_S))
            metric.failures = min(metric.failures + 1, 10)

    async def _follow(self, metric: _Published, open_session: OpenSession) -> None:
        state, item = self._coordinator.state, metric.item
        self._check(item)
        relation = relation_of(state, item)
        check_readable(state, relation)
        owner, (database, *_) = role_with(state, item.owner), state.full_name(item)
        variables = {"application_name": f"foreshore metric {item.name}"}
        index = index_of(state, relation)
        if index is not None and index.cluster is not None:
            variables["cluster"] = state.objects[index.cluster].name
        session = open_session(owner, database, variables)
        try:
            view = dotted(state.full_name(item))
            await session.extended.parse("", f"SUBSCRIBE {view} WITH (PROGRESS)", ())
            await session.extended.bind("", "", (), ())
            rows = await session.extended.execute("", 0)
            assert isinstance(rows, Rows), rows
            await self._take(metric, session, rows)
        finally:
            await session.close()

    def _check(self, item: Item) -> None:
        """Raise DatabaseError if a metric has a name that it may not have since it was renamed."""
        check_metric_name(item.name)
        assert item.metric, item
        metrics = self._coordinator.state.items_of(METRICS)
        check_names_free(item.name, item.metric, [each for each in metrics if each.id < item.id])

    async def _take(self, metric: _Published, session: Session, rows: Rows) -> None:
        """Keep the series up to date until the subscription ends."""
        desc = RelationDesc(rows.desc.names[HEAD:], rows.desc.columns[HEAD:])
        metric.labels = desc.names[:-1]
        for label in metric.labels:
            check_label(label)
        begun = 1  # the first row says at which time it begins, before its rows
        async for whole in rows.batches:
            batch = whole.slice(begun)
            begun = max(0, begun - whole.num_rows)
            if not batch.num_rows:
                continue
            metric.series.add(_changes(batch, desc, session))
            if not batch.column(1)[-1].as_py():
                continue
            metric.series.complete()
            if metric.status.state != "running":
                metric.status = Status("running", self._coordinator.clock.now())
                metric.failures = 0


def _changes(batch: pa.RecordBatch, desc: RelationDesc, session: Session) -> list[Change]:
    """Return the changes in a batch of a subscription, without rows of progress."""
    changes = batch.filter(pc.invert(batch.column(1)))
    if not changes.num_rows:
        return []
    style = session.output_style(names=False)
    texts = [
        text_column(changes.column(HEAD + place), column.type, style).to_pylist()
        for place, column in enumerate(desc.columns)
    ]
    *labels, values = texts
    named = [tuple(text or "" for text in row) for row in zip(*labels, strict=True)]
    copies = changes.column(2).to_pylist()
    return list(zip(named or [()] * len(values), values, copies, strict=True))


async def _stopped(metric: _Published) -> None:
    if metric.task is not None:
        metric.task.cancel()
        await asyncio.wait([metric.task])
