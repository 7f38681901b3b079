"""EXPLAIN ANALYZE MEMORY, CPU: the operators that maintain an object, and what each of them takes.

The rows are a tree, each operator before its inputs, as its replicas last reported them. Without
skew the figures are averages over the replicas.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from foreshore import blocking
from foreshore.adapter.explain.explain import name_of
from foreshore.adapter.introspection.live_relations import dataflow_reports
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.statement.result import BatchSource, Selected
from foreshore.catalog.item import Cluster
from foreshore.compute.controller.cluster import workers_of
from foreshore.compute.controller.dataflow_rows import arrangements, operators
from foreshore.compute.describe import operator_titles
from foreshore.compute.finish import batch_of_rows
from foreshore.compute.protocol import ArrangementStatus, DataflowStatus, OperatorStatus
from foreshore.errors import ObjectNotInPrerequisiteState
from foreshore.ids import GlobalId
from foreshore.sql.explained_names import columns_of
from foreshore.sql.plan import ExplainOperators
from foreshore.types import Datum

LARGE = 1 << 20  # bytes of an arrangement that is worth a hint


@dataclass(frozen=True, slots=True)
class Figures:
    """Memory and CPU of an operator or dataflow on one replica; None if it reports none."""

    bytes: int | None = None
    records: int | None = None
    cpu_ns: int | None = None
    rows_in: int | None = None
    rows_out: int | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """A row of the answer: what it is about, its figures by replica, and a hint."""

    title: str
    figures: Mapping[str, Figures]
    hint: str | None = None


async def explain_operators(context: StatementContext, plan: ExplainOperators) -> Selected:
    """Run EXPLAIN ANALYZE MEMORY or CPU; raises if no replica has reported the object yet."""
    description = context.views.compute.dataflow(plan.object)
    if description is None:
        shown = name_of(context, plan.object)
        raise ObjectNotInPrerequisiteState(f'"{shown}" is not maintained yet')
    name = partial(name_of, context)
    relation = description.relation
    cluster = context.names.state.objects.get(context.names.state.item(plan.object).cluster or "")
    workers = workers_of(cluster.options) if isinstance(cluster, Cluster) else 1
    find = partial(operator_titles, relation, name, workers, columns_of(context.planner.reader()))
    titles = await blocking.run(context.engines.executor, find)
    lines = list(_Report(context, plan.object, titles).lines())
    rows = [row for line in lines for row in _rows(context, plan, line)]
    return Selected(plan.desc, BatchSource(batch_of_rows(rows, plan.desc.columns)), "EXPLAIN")


class _Report:
    """The reports of all replicas about an object."""

    def __init__(self, context: StatementContext, id: GlobalId, titles: Sequence[str]) -> None:
        self._context = context
        self._id = id
        self._titles = titles
        reports = dataflow_reports(context)
        self._arrangements = list(arrangements(reports))
        self._operators: defaultdict[int, dict[str, OperatorStatus]] = defaultdict(dict)
        for replica, operator in operators(reports):
            if operator.dataflow == id:
                self._operators[operator.operator][replica] = operator
        self._dataflows: dict[str, DataflowStatus] = {
            replica: status
            for replica, status in context.views.compute.clusters.dataflows()
            if status.id == id
        }

    def lines(self) -> Iterator[Line]:
        """Yield the whole, then the tree of operators, then what belongs to none of them."""
        own = [each for each in self._arrangements if each[1].object == self._id]
        whole = {
            replica: Figures(
                sum(each.bytes for r, each in own if r == replica),
                sum(each.records for r, each in own if r == replica),
                status.hydration_ns + status.step_ns + status.merge_ns,
            )
            for replica, status in self._dataflows.items()
        }
        yield Line(name_of(self._context, self._id), whole)
        used = {input for each in self._one() for input in each.inputs}
        seen: set[int] = set()
        for top in [each.operator for each in self._one() if each.operator not in used]:
            yield from self._tree(top, 1, seen)
        for kind in dict.fromkeys(each.name for _, each in own if each.operator is None):
            found = [(r, each) for r, each in own if each.operator is None and each.name == kind]
            yield Line(f"  {kind.capitalize()}", _summed(found))

    def _one(self) -> list[OperatorStatus]:
        """Return the operators as one of the replicas reports them: they have the same."""
        return [next(iter(each.values())) for _, each in sorted(self._operators.items())]

    def _tree(self, number: int, depth: int, seen: set[int]) -> Iterator[Line]:
        """Yield an operator and its inputs; of one that was shown before, only its title."""
        by_replica = self._operators[number]
        status = next(iter(by_replica.values()))
        title = self._titles[number] if number < len(self._titles) else status.name
        head = f"{'  ' * depth}{number}: {title}"
        if number in seen:
            yield Line(f"{head} (shown above)", {})
            return
        seen.add(number)
        kept = [
            (replica, each)
            for replica, each in self._arrangements
            if each.object == self._id and each.operator == number
        ]
        memory = _summed(kept)
        figures = {
            replica: Figures(
                memory[replica].bytes if replica in memory else None,
                memory[replica].records if replica in memory else None,
                each.hydration_ns + each.step_ns + each.merge_ns,
                each.rows_in,
                each.rows_out,
            )
            for replica, each in by_replica.items()
        }
        yield Line(head, figures, _hint(status, [each for _, each in kept]))
        yield from self._shared(status, depth + 1)
        for input in status.inputs:
            yield from self._tree(input, depth + 1, seen)

    def _shared(self, status: OperatorStatus, depth: int) -> Iterator[Line]:
        """Yield the arrangement of the collection that an operator gets, if dataflows share it."""
        description = self._context.views.compute.dataflow(self._id)
        if status.name != "Get" or description is None or status.operator >= len(self._titles):
            return
        for id in description.imports:
            if self._titles[status.operator].startswith(f"Get {name_of(self._context, id)}"):
                shared = [
                    (replica, each)
                    for replica, each in self._arrangements
                    if each.object == id and each.name == "rows" and each.operator is None
                ]
                if shared:
                    title = f"{'  ' * depth}Arrangement of {name_of(self._context, id)}, shared"
                    hint = "All dataflows of the replica share it; it is not part of the total."
                    yield Line(title, _summed(shared), hint)
                return


def _summed(found: Sequence[tuple[str, ArrangementStatus]]) -> dict[str, Figures]:
    """Return the sums of arrangements by replica."""
    return {
        replica: Figures(
            sum(each.bytes for r, each in found if r == replica),
            sum(each.records for r, each in found if r == replica),
        )
        for replica in dict.fromkeys(r for r, _ in found)
    }


def _hint(status: OperatorStatus, kept: Sequence[ArrangementStatus]) -> str | None:
    """Return what would make an operator cheaper, if it is dear and something is known to help."""
    if sum(each.bytes for each in kept) < LARGE:
        return None
    records = max(each.records for each in kept)
    match status.name:
        case "Delta join":
            return (
                "It keeps rows of an input that is not a table or a materialized view. Joins of a"
                " materialized view of that input would share one arrangement of it."
            )
        case "TopK" | "Window":
            return (
                f"It keeps all {records} rows of all groups, in order. A filter below it would"
                " make them fewer."
            )
        case "Reduce" if any(each.name == "ordered rows" for each in kept):
            return (
                "Minima, maxima and lists keep all values of their groups; counts and sums keep"
                " one record for each group."
            )
        case "Recursion":
            return "It keeps the rows of each round. Fewer rounds, or fewer rows in them, help."
    return None


def _rows(
    context: StatementContext, plan: ExplainOperators, line: Line
) -> Iterator[tuple[Datum, ...]]:
    average = _average(list(line.figures.values()))
    if not plan.skew:
        yield (line.title, *_measured(plan, average, None), line.hint)
        return
    for replica, figures in line.figures.items():
        found = context.names.state.objects.get(replica)
        name = found.name if found is not None else replica
        yield (line.title, name, *_measured(plan, figures, average), line.hint)


def _measured(plan: ExplainOperators, figures: Figures, average: Figures | None) -> list[Datum]:
    """Return the columns of all measures; with an `average` also how much it is exceeded."""
    values: list[Datum] = []
    for measure in plan.measures:
        if measure == "memory":
            values += [None if figures.bytes is None else _pretty(figures.bytes), figures.records]
            pair = (figures.bytes, average.bytes if average is not None else None)
        else:
            cpu = None if figures.cpu_ns is None else (0, 0, figures.cpu_ns // 1000)
            values += [cpu, figures.rows_in, figures.rows_out]
            pair = (figures.cpu_ns, average.cpu_ns if average is not None else None)
        if average is not None:
            values.append(pair[0] / pair[1] if pair[0] is not None and pair[1] else None)
    return values


def _average(figures: Sequence[Figures]) -> Figures:
    def mean(values: Sequence[int | None]) -> int | None:
        known = [value for value in values if value is not None]
        return round(sum(known) / len(known)) if known else None

    return Figures(
        mean([each.bytes for each in figures]),
        mean([each.records for each in figures]),
        mean([each.cpu_ns for each in figures]),
        mean([each.rows_in for each in figures]),
        mean([each.rows_out for each in figures]),
    )


def _pretty(size: int) -> str:
    """Return a size in the largest unit of which it has ten, as pg_size_pretty does."""
    unit, rest = "bytes", float(size)
    for larger in ("kB", "MB", "GB", "TB"):
        if rest < 10240:
            break
        rest, unit = rest / 1024, larger
    return f"{round(rest)} {unit}"
