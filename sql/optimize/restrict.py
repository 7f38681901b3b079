"""Find queries that read few rows of each table: those under keys that the query names.

    SELECT ... FROM t JOIN (VALUES (1), (2)) AS v (x) ON t.id = v.x       t: rows with id = 1 or 2
    SELECT ... FROM orders o JOIN customers c ON c.id = o.customer WHERE o.id = 7
                                              orders: id = 7, then customers: id = customer of these

A plan of *steps* finds rows of one table after the other. The answer is the query's relation over
these rows alone. A table's rows are restricted where it is read: by equalities with constants above
it (`lookup.py`), perhaps by either of several keys (`either.py`), or by an equivalence of a join
with another input, whose rows are the keys. If one step does not find the rows for all reads of a
table, each read has its own.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import msgspec

from foreshore.expr.columns import columns_of, type_of
from foreshore.expr.evaluate import fallible
from foreshore.expr.ir import (
    Column,
    Get,
    Let,
    LocalGet,
    Map,
    Project,
    Reduce,
    Relation,
    Scalar,
    single_input,
)
from foreshore.expr.keys import Elements, Key
from foreshore.expr.split import columns_used, shift
from foreshore.expr.traversal import inputs_of, sources_of, walk_relations, with_inputs
from foreshore.ids import GlobalId
from foreshore.sql.optimize.either import are_unique, either_step
from foreshore.sql.optimize.key_steps import (
    SMALL,
    KeysOf,
    KeyStep,
    RangeStep,
    Restricted,
    Step,
    TableKey,
    TableKeys,
    WholeStep,
)
from foreshore.sql.optimize.lookup import is_comparable, literal_lookup, without_widening
from foreshore.sql.optimize.scalars import substitute
from foreshore.sql.optimize.semijoin import without_semijoins
from foreshore.sql.optimize.table_reads import Lets, TableRead, repeats, starts_of, table_reads


def restricted(relation: Relation, keys: KeysOf) -> Restricted | None:
    """Return the steps that restrict each table that `relation` reads; None if one reads it all.

    Small tables may be read as a whole to restrict others.
    """
    get = single_input(relation)
    if get is not None:
        return _restricted_alone(relation, get, keys(get.id).keys)
    found = _restricted(relation, keys)
    if found is not None:
        return found
    names = Names(keys)
    apart = names.given_to(relation)
    if not names.tables:
        return None
    found = _restricted(apart, names.keys)
    return None if found is None else Restricted(names.resolved(found.steps), found.relation)


class Names:
    """Names for the reads of a table but for its first one, as if they were other tables."""

    def __init__(self, keys: KeysOf) -> None:
        self._keys = keys
        self._reads = Counter[GlobalId]()
        self.tables: dict[GlobalId, GlobalId] = {}  # by name

    def keys(self, name: GlobalId) -> TableKeys:
        """Return the keys of the table of a name."""
        return self._keys(self.tables.get(name, name))

    def given_to(self, relation: Relation) -> Relation:
        """Return `relation` with the names in it."""
        if isinstance(relation, Get) and not self._keys(relation.id).given:
            self._reads[relation.id] += 1
            if self._reads[relation.id] == 1:
                return relation
            name = GlobalId(f"{relation.id}_{self._reads[relation.id]}")
            self.tables[name] = relation.id
            return msgspec.structs.replace(relation, id=name)
        inputs = inputs_of(relation)
        named = tuple([self.given_to(input) for input in inputs])
        changed = any(a is not b for a, b in zip(inputs, named, strict=True))
        return with_inputs(relation, named) if changed else relation

    def resolved(self, steps: Sequence[Step]) -> tuple[Step, ...]:
        """Return steps with the tables that they read."""
        return tuple(
            [
                replace(step, table=self.tables[step.table], alias=step.rows)
                if step.table in self.tables and not isinstance(step, RangeStep)
                else step
                for step in steps
            ]
        )


def _restricted(relation: Relation, keys: KeysOf) -> Restricted | None:
    """Return the steps, of which each finds the rows for all reads of a table."""
    reads: dict[GlobalId, list[TableRead]] = {}
    for read in table_reads(relation):
        reads.setdefault(read.get.id, []).append(read)
    tables = {id: keys(id) for id in reads}
    left = dict.fromkeys(id for id in reads if not tables[id].given)
    if any(not tables[id].keys and tables[id].rows is None for id in left):
        return None
    steps: list[Step] = []
    either: set[GlobalId] = set()  # tables of which several keys find rows
    while left:
        found = _next_steps(reads, tables, left)
        if len(found) > 1:
            either.add(found[-1].table)
        if not found:
            sizes = [(rows, id) for id in left if (rows := tables[id].rows) is not None]
            if len(sizes) < len(left) or min(sizes)[0] > SMALL:
                return None  # all rows of a small table find too many of a large one
            found = (WholeStep(min(sizes)[1]),)
        steps += found
        left.pop(steps[-1].table)
    found_rows = [tables[step.table].rows for step in steps if isinstance(step, KeyStep)]
    reads_whole = len(found_rows) < len(steps)
    if not found_rows or (reads_whole and all(0 <= (n or -1) <= SMALL for n in found_rows)):
        return None  # nothing is gained by it
    for step in steps:
        is_only = len(reads[step.table]) == 1 and step.table not in either
        if isinstance(step, KeyStep) and is_only:
            relation = (
                without_semijoins(relation, step)
                if step.sources
                else _without_conditions(relation, reads[step.table][0], step)
            )
    return Restricted(tuple(steps), relation)


def _next_steps(
    reads: Mapping[GlobalId, Sequence[TableRead]],
    tables: Mapping[GlobalId, TableKeys],
    left: Iterable[GlobalId],
) -> tuple[Step, ...]:
    """Return the step that finds the rows of one of the tables `left`; several of either of keys.

    Nothing is returned if none is found.
    """
    known = frozenset(reads).difference(left)
    for id in left:
        step = _step(reads[id], tables[id].keys, known)
        if step is not None:
            return (step,)
    for id in left:
        read, *more = reads[id]
        steps = () if more else _either(read.chain, read.get, tables[id].keys)
        if steps:
            return steps
    return ()


def _without_conditions(relation: Relation, read: "TableRead", step: KeyStep) -> Relation:
    """Return `relation` without the conditions that gave the keys of the only read of a table."""
    if relation is read.chain:
        found = literal_lookup(read.chain, _columns(read.get, step.columns))
        return relation if found is None else found.residual
    inputs = inputs_of(relation)
    kept = tuple(_without_conditions(input, read, step) for input in inputs)
    changed = any(a is not b for a, b in zip(inputs, kept, strict=True))
    return with_inputs(relation, kept) if changed else relation


def _restricted_alone(relation: Relation, get: Get, keys: Sequence[TableKey]) -> Restricted | None:
    """Return how constants restrict the only table; what the keys imply is not tested again."""
    step, residual = _by_constants(relation, get, keys) or (None, relation)
    if step is not None and step.constraint is not None:
        return Restricted((step,), residual)
    steps = _either(relation, get, keys)
    if steps and (step is None or are_unique(steps)):
        return Restricted(steps, relation)
    return None if step is None else Restricted((step,), residual)


def _either(chain: Relation, get: Get, keys: Sequence[TableKey]) -> tuple[KeyStep, ...]:
    """Return the steps for either of several keys that an OR over the table names."""

    def find(part: Relation) -> KeyStep | None:
        found = _by_constants(part, get, keys)
        return None if found is None else found[0]

    return either_step(chain, get, keys, find)


def _by_constants(
    relation: Relation, get: Get, keys: Sequence[TableKey]
) -> tuple[KeyStep, Relation] | None:
    """Return the step that constants name in a linear relation, by most columns, and the rest."""
    best: tuple[KeyStep, Relation] | None = None
    for key in keys:
        found = literal_lookup(relation, _columns(get, key.columns), prefix=key.prefix)
        if found is None:
            continue
        step = KeyStep(get.id, key, key.columns[: found.width], found.keys)
        if step.constraint is not None:
            return step, found.residual
        if best is None or found.width > len(best[0].columns):
            best = step, found.residual
    return best


def _columns(get: Get, places: Sequence[int]) -> list[Scalar]:
    return [Column(i, get.columns[i].type, get.columns[i].nullable) for i in places]


def _step(
    reads: Sequence[TableRead], keys: Sequence[TableKey], known: frozenset[GlobalId]
) -> KeyStep | None:
    """Return the step that finds the rows of one table for all its `reads`, by most columns."""
    best: KeyStep | None = None
    for key in keys:
        roots = [each for each in reads if not repeats(each, reads, key.columns)]
        width = min(_width(read, key, known) for read in roots)
        if not width or (best is not None and len(best.columns) >= width):
            continue
        columns = key.columns[:width]
        found: dict[Key, None] = {}
        sources: dict[Relation, None] = {}
        for read in roots:
            lookup = literal_lookup(read.chain, _columns(read.get, columns))
            if lookup is not None:
                found.update(dict.fromkeys(lookup.keys))
            else:
                sources[_sources(read, columns, known)[0]] = None
        best = KeyStep(reads[0].get.id, key, columns, tuple(found), tuple(sources))
        if best.constraint is not None:
            return best
    return best


def _width(read: TableRead, key: TableKey, known: frozenset[GlobalId]) -> int:
    """Return how many of the first columns of `key` are restricted where a table is read."""
    found = literal_lookup(read.chain, _columns(read.get, key.columns), prefix=key.prefix)
    best = 0 if found is None else found.width
    for width in range(len(key.columns), best, -1):
        if width < len(key.columns) and not key.prefix:
            break
        if _sources(read, key.columns[:width], known):
            return width
    return best


def _sources(read: TableRead, columns: Sequence[int], known: frozenset[GlobalId]) -> list[Relation]:
    """Return the inputs of a join that have values of all `columns`, as relations of these."""
    if read.join is None:
        return []
    found = []
    starts = starts_of(read.join)
    for i, input in enumerate(read.join.inputs):
        if i == read.place:
            continue
        scalars = [_partner(read, column, starts, i) for column in columns]
        if any(each is None for each in scalars):
            continue
        relation = _with_lets(_key_rows(input, [each for each in scalars if each]), read.lets)
        if sources_of(relation) <= known:
            found.append(relation)
    return found


def _partner(read: TableRead, column: int, starts: Sequence[int], other: int) -> Scalar | None:
    """Return the scalar over another input of the join that equals a column of the table."""
    assert read.join is not None
    own = range(starts[read.place], starts[read.place + 1])
    theirs = range(starts[other], starts[other + 1])
    type = read.get.columns[column].type
    for number, equivalence in enumerate(read.join.equivalences):
        if number in read.join.null_safe and read.get.columns[column].nullable:
            continue
        is_equal = False
        for scalar in equivalence:
            if columns_used(scalar) <= set(own):
                over = read.over_table(shift(scalar, -own.start))
                bare = None if over is None else without_widening(over)
                is_equal |= isinstance(bare, Column) and bare.index == column
        for scalar in equivalence if is_equal else ():
            used = columns_used(scalar)
            if used and used <= set(theirs) and is_comparable(type_of(scalar), type):
                return shift(scalar, -theirs.start)
    return _constant_part(read, column)


def _constant_part(read: TableRead, column: int) -> Scalar | None:
    """Return the only constant that a column of the table equals."""
    found = literal_lookup(read.chain, _columns(read.get, (column,)))
    if found is None or len(found.keys) != 1 or isinstance(found.keys[0][0], Elements):
        return None
    part = found.keys[0][0]
    return None if fallible(part) else part


def _key_rows(input: Relation, scalars: Sequence[Scalar]) -> Relation:
    """Return the values of `scalars` for the rows of `input`, perhaps repeated."""
    if isinstance(input, Reduce) and not input.aggregates:  # DISTINCT
        scalars = [substitute(each, input.group_key) for each in scalars]
        input = input.input
    width = len(columns_of(input))
    return Project(Map(input, tuple(scalars)), tuple(range(width, width + len(scalars))))


def _with_lets(relation: Relation, lets: Lets) -> Relation:
    """Return `relation` within those of `lets` that it uses."""
    for number, value in reversed(lets):
        used = (e.number for e in walk_relations(relation) if isinstance(e, LocalGet))
        if number in used:
            relation = Let(number, value, relation)
    return relation
