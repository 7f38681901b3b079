"""Bulk engines: evaluations as SQL statements, dataflows as tables that ticks change.

What they have in common is here. An engine's own is how a session is opened in which an evaluation
can be stopped, and what store it gives a dataflow.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from threading import Lock

import pyarrow as pa

from foreshore.compute.bulk.evaluate import Plans, check_result, plans_of, raise_least
from foreshore.compute.bulk.session import Session
from foreshore.compute.delta.describe import describe_plan
from foreshore.compute.delta.differentiate import differentiate
from foreshore.compute.delta.tick import Store, TickDataflow
from foreshore.compute.engine import Cancellation, Dataflow, Evaluate, Input
from foreshore.compute.protocol import DataflowDescription
from foreshore.errors import QueryCanceled
from foreshore.expr.explain import NameOf
from foreshore.expr.ir import Relation
from foreshore.ids import GlobalId


class BulkEngine(ABC):
    """An engine (`foreshore.compute.engine.Engine`) that runs SQL statements."""

    name: str

    def __init__(self) -> None:
        self._numbers = count()
        self._lock = Lock()
        self._running: set[Cancellation] = set()

    @abstractmethod
    def close(self) -> None:
        """Free what the engine holds."""

    @abstractmethod
    def _session(self, number: int, cancellation: Cancellation) -> AbstractContextManager[Session]:
        """Give a session whose statements run within `_cancellable`; faults in it are ours."""

    @abstractmethod
    def _store(self, number: int) -> Store:
        """Return the store of a new dataflow."""

    def create(
        self, description: DataflowDescription, schemas: Mapping[GlobalId, pa.Schema]
    ) -> Dataflow:
        """Return a dataflow, not yet hydrated."""
        plan = differentiate(plans_of(description.relation).all)
        missing = set(plan.inputs) - set(schemas)
        assert not missing, f"no schema of {missing}"
        return TickDataflow(plan, self._store(next(self._numbers)), description.as_of)

    def evaluate(
        self,
        relation: Relation,
        inputs: Mapping[GlobalId, Input],
        as_of: int,
        cancellation: Cancellation | None = None,
        max_bytes: int | None = None,
    ) -> pa.Table:
        """Return the rows of `relation` as of a time."""
        with self.evaluations(cancellation or Cancellation()) as evaluate:
            return evaluate(relation, inputs, as_of, max_bytes)

    @contextmanager
    def evaluations(self, cancellation: Cancellation) -> Iterator[Evaluate]:
        """Give a function that evaluates as `evaluate` does, many times at little cost each.

        It belongs to one thread at a time. What has been evaluated is kept prepared.
        """
        prepared: dict[Relation, Plans] = {}
        with self._session(next(self._numbers), cancellation) as session:

            def evaluate(
                relation: Relation,
                inputs: Mapping[GlobalId, Input],
                as_of: int,
                max_bytes: int | None = None,
            ) -> pa.Table:
                plans = prepared.get(relation)
                if plans is None:
                    plans = prepared[relation] = plans_of(relation)
                if plans.errors is not None:
                    raise_least(session.evaluate(plans.errors, inputs, as_of, max_bytes))
                rows = session.evaluate(plans.rows, inputs, as_of, max_bytes)
                return check_result(relation, rows)

            yield evaluate

    def cancel(self) -> None:
        """Stop all evaluations that run now."""
        with self._lock:
            running = list(self._running)
        for cancellation in running:
            cancellation.cancel()

    def check(self) -> None:  # noqa: B027 - an engine within this process loses nothing
        """Raise Unavailable if the engine has lost what it works with."""

    def describe(self, relation: Relation, name_of: NameOf) -> str:
        """Return how the engine maintains `relation`."""
        return describe_plan(self.name, differentiate(plans_of(relation).all), name_of)

    @contextmanager
    def _cancellable(self, cancellation: Cancellation, stop: Callable[[], None]) -> Iterator[None]:
        """Let `stop` be called when what runs in the context is cancelled; then that raises."""
        with self._lock:
            self._running.add(cancellation)
        try:
            cancellation.arm(stop)
            yield
            if cancellation.cancelled:
                raise QueryCanceled
        finally:
            cancellation.disarm()
            with self._lock:
                self._running.discard(cancellation)
