"""Which rows of a trace's contents a step needs: those with keys that its changes have.

Contents of a trace can be kept by a key, some of its columns. A statement of a step looks up rows
of a join or a group by equality with columns of tables of changes. If these include the key, all
other rows can be left unread.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from foreshore.compute.delta.changes import change_table, key_columns
from foreshore.compute.delta.differentiate import TickPlan, Trace
from foreshore.expr.columns import columns_of
from foreshore.expr.ir import (
    Column,
    Join,
    LocalGet,
    Reduce,
    Relation,
    Threshold,
    TopK,
    Window,
)
from foreshore.expr.traversal import walk_relations
from foreshore.types import ColumnType

Key = tuple[int, ...]  # positions of columns


@dataclass(frozen=True, slots=True)
class Touch:
    """The rows of a trace whose key equals that of a row of a table of changes, by its columns."""

    table: str
    columns: Key


# For each trace that is read: by which changes, or None: all of it is.
Touched = Mapping[int, tuple[Touch, ...] | None]


def keys_of(plan: TickPlan, is_hashable: Callable[[ColumnType], bool]) -> dict[int, Key]:
    """Return the key of each trace by which most statements look its rows up; () if there is none.

    Of equally frequent ones it is that of fewest columns.
    """
    found: dict[int, Counter[Key]] = {trace.number: Counter() for trace in plan.traces}

    def note(trace: Trace, columns: Sequence[int]) -> None:
        key = tuple(sorted({i for i in columns if is_hashable(trace.columns[i])}))
        if key:
            found[trace.number][key] += 1

    for relation in (*(trace.body for trace in plan.traces), *plan.outputs):
        for node in walk_relations(relation):
            match node:
                case Join(inputs=inputs):
                    traces = [_trace(plan.traces, input) for input in inputs]
                    for _, j, equal in _equal_columns(node, traces):
                        note(traces[j], tuple(equal.values()))
                case Reduce(input=LocalGet(number=number)) if plan.traces[number].sums is not None:
                    trace = plan.traces[number]
                    note(trace, range(len(trace.columns)))
                case Reduce() | TopK() | Window() | Threshold():
                    trace = _trace(plan.traces, node.input)
                    note(trace, key_columns(node, trace.columns))
    return {
        number: min(keys, key=lambda key: (-keys[key], len(key), key), default=())
        for number, keys in found.items()
    }


def touched(
    relation: Relation,
    traces: Sequence[Trace],
    keys: Mapping[int, Key],
    changed: frozenset[str],
) -> Touched:
    """Return which contents the statement for the changes of `relation` reads."""
    found: dict[int, tuple[Touch, ...] | None] = {}

    def note(trace: Trace, touch: Touch | None) -> None:
        before = found.get(trace.number, ())
        found[trace.number] = None if touch is None or before is None else (*before, touch)

    for node in walk_relations(relation):
        match node:
            case Join(inputs=inputs):
                of_inputs = [_trace(traces, input) for input in inputs]
                pairs = {(i, j): equal for i, j, equal in _equal_columns(node, of_inputs)}
                for i, trace in enumerate(of_inputs):
                    if change_table(trace) not in changed:
                        continue
                    for j, other in enumerate(of_inputs):
                        if j != i:
                            equal = {b: a for a, b in pairs.get((i, j), {}).items()}
                            note(other, _touch(trace, keys[other.number], equal))
            case Reduce() | TopK() | Window() | Threshold():
                trace = _trace(traces, node.input)
                if change_table(trace) not in changed:
                    continue
                key = keys[trace.number]
                columns = (
                    key_columns(node, trace.columns)
                    if trace.sums is None
                    else range(len(trace.columns))
                )
                note(trace, _touch(trace, key, {column: column for column in columns}))
    return found


def _touch(changed: Trace, key: Key, equal: Mapping[int, int]) -> Touch | None:
    """Return the touch by a trace's changes; `equal` has their columns by those of the key."""
    if not key or not all(column in equal for column in key):
        return None
    return Touch(change_table(changed), tuple(equal[column] for column in key))


def _trace(traces: Sequence[Trace], relation: Relation) -> Trace:
    assert isinstance(relation, LocalGet), relation
    return traces[relation.number]


def _equal_columns(join: Join, traces: Sequence[Trace]) -> list[tuple[int, int, dict[int, int]]]:
    """Return (i, j, columns of the input i with an equal one of the input j) for pairs of inputs.

    Columns of other types than the same are left out: their forms may differ.
    """
    places = [(i, c) for i, trace in enumerate(traces) for c in range(len(trace.columns))]
    types = columns_of(join)
    found: dict[tuple[int, int], dict[int, int]] = {}
    for equivalence in join.equivalences:
        columns = [scalar.index for scalar in equivalence if isinstance(scalar, Column)]
        for one in columns:
            for other in columns:
                (i, a), (j, b) = places[one], places[other]
                if i != j and types[one].type == types[other].type:
                    found.setdefault((i, j), {}).setdefault(a, b)
    return [(i, j, equal) for (i, j), equal in found.items()]
