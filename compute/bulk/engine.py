"""Bulk engines: evaluations as SQL statements, dataflows as tables that ticks change.

This is the part that engines share. Each engine provides cancellable sessions, and stores for
dataflows.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import count
from threading import RLock

import pyarrow as pa

from foreshore.compute.bulk.session import Session
from foreshore.compute.delta.differentiate import TickPlan, differentiate
from foreshore.compute.delta.recomputed import RecomputedDataflow
from foreshore.compute.delta.temporal import TemporalDataflow
from foreshore.compute.delta.tick import Store, TickDataflow
from foreshore.compute.engine import (
    ALL_ROWS,
    ArrangementSize,
    Cancellation,
    Dataflow,
    Extent,
    Input,
)
from foreshore.compute.protocol import DataflowDescription
from foreshore.compute.render.digits import Digits, digits_in, split_by_digits
from foreshore.compute.render.evaluate import Plans, check_result, plans_of, raise_least
from foreshore.errors import QueryCanceled
from foreshore.expr.ir import Relation
from foreshore.expr.recursion import has_recursion
from foreshore.expr.temporal import has_temporal_filter
from foreshore.expr.traversal import sources_of
from foreshore.ids import GlobalId


class Evaluations:
    """Evaluations in one session, each as by `Engine.evaluate`; of one thread at a time.

    What has been evaluated is kept prepared, so that doing it again costs little.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._prepared: dict[tuple[Relation, Digits], Plans] = {}

    @property
    def session(self) -> Session:
        """Return the session."""
        return self._session

    def rows(
        self,
        relation: Relation,
        inputs: Mapping[GlobalId, Input],
        as_of: int,
        max_bytes: int | None = None,
    ) -> pa.Table:
        """Return the rows of `relation` as of a time."""
        plan = self._without_errors(relation, inputs, as_of, max_bytes)
        return check_result(relation, self._session.evaluate(plan, inputs, as_of, max_bytes))

    def parts(
        self,
        relation: Relation,
        inputs: Mapping[GlobalId, Input],
        as_of: int,
        max_bytes: int | None = None,
        extent: Extent = ALL_ROWS,
        *,
        may_fail: bool = True,
    ) -> Iterator[pa.Table]:
        """Yield the rows of `relation` as of a time, part by part: at least one.

        Its errors are not looked for unless it `may_fail`.
        """
        plan = relation
        if may_fail:
            plan = self._without_errors(relation, inputs, as_of, max_bytes)
        for part in self._session.evaluate_parts(plan, inputs, as_of, max_bytes, extent):
            yield check_result(relation, part)

    def _without_errors(
        self,
        relation: Relation,
        inputs: Mapping[GlobalId, Input],
        as_of: int,
        max_bytes: int | None,
    ) -> Relation:
        """Return the plan of the rows of `relation`; raises the least error that it has."""
        plans = self._plans(relation, ())
        if plans.errors is not None and any(inputs[id].files for id in sources_of(relation)):
            plans = self._plans(relation, digits_in(relation, inputs))
        if plans.errors is not None:
            raise_least(self._session.evaluate(plans.errors, inputs, as_of, max_bytes))
        return plans.rows

    def _plans(self, relation: Relation, digits: Digits) -> Plans:
        """Return the plans of a relation over collections with no more digits than these."""
        plans = self._prepared.get((relation, digits))
        if plans is None:
            plans = Plans(*split_by_digits(relation, digits)) if digits else plans_of(relation)
            self._prepared[relation, digits] = plans
        return plans


class BulkEngine(ABC):
    """An engine (`foreshore.compute.engine.Engine`) that runs SQL statements."""

    name: str

    def __init__(self) -> None:
        self._numbers = count()
        self._lock = RLock()  # an abandoned evaluation may be collected while it is held
        self._running: set[Cancellation] = set()

    def forget(self) -> None:  # noqa: B027
        """Do nothing: dataflows share nothing."""

    @abstractmethod
    def close(self) -> None:
        """Free the engine's resources."""

    @abstractmethod
    def _session(self, number: int, cancellation: Cancellation) -> AbstractContextManager[Session]:
        """Yield a session that runs statements within `_cancellable` and translates exceptions."""

    @abstractmethod
    def _store(self, number: int) -> Store:
        """Return the store of a new dataflow."""

    def create(
        self, description: DataflowDescription, schemas: Mapping[GlobalId, pa.Schema]
    ) -> Dataflow:
        """Return a dataflow that is not hydrated yet."""
        if has_temporal_filter(description.relation):
            return TemporalDataflow(self, description, schemas)
        if has_recursion(description.relation):
            return RecomputedDataflow(description, self.evaluations)
        plan = differentiate(plans_of(description.relation).all, description.relation)
        missing = set(plan.inputs) - set(schemas)
        assert not missing, f"no schema of {missing}"
        return self._dataflow(plan, description.as_of)

    def _dataflow(self, plan: TickPlan, as_of: int) -> TickDataflow:
        return TickDataflow(plan, self._store(next(self._numbers)), as_of)

    def evaluate(
        self,
        relation: Relation,
        inputs: Mapping[GlobalId, Input],
        as_of: int,
        cancellation: Cancellation | None = None,
        max_bytes: int | None = None,
    ) -> pa.Table:
        """Return the rows of `relation` as of a time."""
        with self.evaluations(cancellation or Cancellation()) as evaluations:
            return evaluations.rows(relation, inputs, as_of, max_bytes)

    def evaluate_parts(
        self,
        relation: Relation,
        inputs: Mapping[GlobalId, Input],
        as_of: int,
        cancellation: Cancellation,
        max_bytes: int | None = None,
        *,
        may_fail: bool = True,
        extent: Extent = ALL_ROWS,
    ) -> Generator[pa.Table, None, None]:
        """Yield the rows of `relation` as of a time, part by part: at least one."""
        with self.evaluations(cancellation) as evaluations:
            yield from evaluations.parts(
                relation, inputs, as_of, max_bytes, extent, may_fail=may_fail
            )

    @contextmanager
    def evaluations(self, cancellation: Cancellation) -> Iterator[Evaluations]:
        """Yield evaluations in one session, which `cancellation` stops."""
        with self._session(next(self._numbers), cancellation) as session:
            yield Evaluations(session)

    def limited(self, memory: int) -> "AbstractContextManager[BulkEngine]":
        """Yield this engine: it does not know what a query takes."""
        return nullcontext(self)

    def cancel(self) -> None:
        """Stop all running evaluations."""
        with self._lock:
            running = list(self._running)
        for cancellation in running:
            cancellation.cancel()

    def check(self) -> None:  # noqa: B027 - an engine within this process loses nothing
        """Raise Unavailable if the engine has lost its backend."""

    def sizes(self) -> Iterable[ArrangementSize]:
        """Return nothing: dataflows share no arrangements."""
        return ()

    @contextmanager
    def _cancellable(self, cancellation: Cancellation, stop: Callable[[], None]) -> Iterator[None]:
        """Call `stop` when work in the context is cancelled; the context then raises."""
        with self._running_until_done(cancellation):
            try:
                cancellation.arm(stop)
                yield
                if cancellation.cancelled:
                    raise QueryCanceled
            finally:
                cancellation.disarm()

    @contextmanager
    def _running_until_done(self, cancellation: Cancellation) -> Iterator[None]:
        """Let `cancel` cancel what runs in the context."""
        with self._lock:
            self._running.add(cancellation)
        try:
            yield
        finally:
            with self._lock:
                self._running.discard(cancellation)
