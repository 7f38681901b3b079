"""Reads of few rows, which keys and indexes find, computed as tuples.

    SELECT * FROM t WHERE id = $1 LIMIT 1             SELECT count(*) FROM t WHERE id IN (1, $1)
    SELECT ... FROM o JOIN c ON c.id = o.c WHERE o.id = $1        SELECT now(), $1 + 1

A `RowRead` is made when the statement is prepared. It finds rows of one source after the other
(`row_sources.py`); the keys of each are a program's rows (`compute/rows`), over what was found
before. Another program computes the answer. `None` in place of rows says that the pipeline has to
read (`pipeline.py`): the index does not know the rows at that time, they are too many, or one has
an error.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice, takewhile

from foreshore.adapter.plans.access_path import (
    Bulk,
    Constant,
    IndexLookups,
    IndexRead,
    InProcess,
    KeyLookup,
    PeekPlan,
)
from foreshore.adapter.plans.calls import calls_in, calls_of
from foreshore.adapter.plans.row_sources import (
    CatalogRows,
    IndexedTable,
    IndexedView,
    PageProgram,
    RangedTable,
    RecursedRows,
    RowsPart,
    RowsSource,
    TableSource,
    indexed_view,
    keys_of_catalog,
    source_of,
    whole_view,
)
from foreshore.catalog.builtin.object_names import sources_of_names
from foreshore.catalog.builtin.registry import BUILTINS
from foreshore.catalog.planned import Planned
from foreshore.compute.arrange.arrangement import TooManyRows
from foreshore.compute.rows.program import RowFailed, RowProgram, TooMany, compile_rows
from foreshore.expr.columns import columns_of
from foreshore.expr.cost import (
    LIGHT,
    LONG,
    computes_numbers,
    cost_of_a_row,
    has_growing_call,
    size_of,
    takes_long_for_a_row,
)
from foreshore.expr.equality import has_one_form
from foreshore.expr.functions.system import RANDOM, RANDOM_UUID
from foreshore.expr.ir import (
    Call,
    Finishing,
    Join,
    Map,
    Reduce,
    Relation,
    Scalar,
    single_input,
)
from foreshore.expr.traversal import walk_relations
from foreshore.ids import GlobalId
from foreshore.sql.optimize.key_steps import KeyStep, Restricted, Step
from foreshore.sql.optimize.recursive_steps import RestrictedRecursion
from foreshore.sql.optimize.restrict import restricted
from foreshore.sql.plan import Query
from foreshore.table_rows import Row
from foreshore.types import ColumnType, Datum

# Types of which a value has one form. A numeric, for example, may have digits to be added.
SIMPLE = frozenset(
    "bool int2 int4 int8 oid date time timestamp timestamptz float8 text varchar name uuid".split()
)

SessionValue = Callable[[str], Datum]
CALLS = frozenset(("nextval", RANDOM, RANDOM_UUID))  # that may be made in vain


# Rows under keys; it raises TooMany if it has to read more than so many.
MOST_ROUNDS = 100  # of a recursion
Find = Callable[[RowsSource, Sequence[Row], int | None], Iterable[Row] | None]


@dataclass(frozen=True, slots=True, eq=False)
class RowRead:
    """The sources that are read, in this order, and the program over their rows."""

    sources: tuple[RowsSource, ...]
    tables: tuple[TableSource, ...]  # among them
    views: tuple[IndexedView, ...]
    relations: tuple[GlobalId, ...]  # of the catalog
    timed: tuple[GlobalId, ...]  # the collections that are read at the transaction's time
    program: RowProgram
    limit: RowProgram | None
    offset: RowProgram | None
    cut: tuple[int | None, int]  # LIMIT and OFFSET where they are constants
    grows: bool  # whether it may take long, or make much longer values, if some are long
    is_exact: bool  # whether its rows are in the forms of their columns' types
    takes_first: bool  # whether it needs no more rows of its only source once it has enough
    # Whether its first rows are those of first rows of its first source, which may be too few.
    begins: bool = False
    shows_names: bool = False  # whether its rows are shown with names of objects
    calls: tuple[Call, ...] = ()  # made before it
    # Where its rows are not all of the answer: whether they are not, and what is read then.
    unless: RowProgram | None = None
    instead: "RowRead | None" = None
    recursions: tuple[RecursedRows, ...] = ()  # whose results it reads

    @property
    def is_by_keys(self) -> bool:
        """Whether all its rows are found by keys: neither ranges nor whole views are read."""
        wide = [
            isinstance(each, RangedTable) or (isinstance(each, IndexedView) and each.is_whole)
            for each in self.sources
        ]
        return bool(wide) and not any(wide)

    @property
    def reads_keys_only(self) -> bool:
        """Whether it reads tables by their key indexes, and nothing else."""
        return 0 < len(self.tables) == len(self.sources)

    @classmethod
    def of(
        cls,
        sources: Sequence[RowsSource],
        programs: tuple[RowProgram, RowProgram | None, RowProgram | None],
        relation: Relation,
        finishing: Finishing,
        *,
        takes_first: bool,
        recursions: Sequence[RecursedRows] = (),
    ) -> "RowRead":
        """Return the read of `relation` by programs of it, of LIMIT and of OFFSET."""
        tables = tuple([each for each in sources if isinstance(each, TableSource)])
        tables += tuple([table for each in recursions for table in each.tables])
        views = tuple([each for each in sources if isinstance(each, IndexedView)])
        return cls(
            tuple(sources),
            tables,
            views,
            tuple([each.id for each in sources if isinstance(each, CatalogRows)]),
            (*(each.id for each in tables), *(each.index for each in views)),
            *programs,
            (finishing.limit, finishing.offset),
            has_growing_call(relation) or computes_numbers(relation),
            _is_exact(relation, finishing),
            takes_first,
            recursions=tuple(recursions),
        )

    def chosen(self, args: Sequence[Datum]) -> "RowRead | None":
        """Return the read by which the arguments are answered; None if there is none."""
        if self.unless is None:
            return self
        try:
            ((is_all,),) = _run(self.unless, {}, args, no_value)
        except (TooMany, RowFailed):
            return None
        if is_all is not True:
            return self
        return None if self.instead is None else self.instead.chosen(args)

    def rows(
        self,
        args: Sequence[Datum],
        value: SessionValue,
        find: Find,
        known: Mapping[GlobalId, Iterable[Row]] | None = None,
    ) -> list[Row] | None:
        """Return the finished rows; None if they are to be read another way.

        The rows of some sources may be `known`.
        """
        if not _are_arguments_short(args):
            return None
        try:
            if self.recursions:
                known = self._results(args, value, find)
                if known is None:
                    return None
            if known is not None:
                sources = [each for each in self.sources if each.rows not in known]
                found = self._found(sources, {**known}, args, value, find)
            elif self.begins:
                return self._first_rows(args, value, find)
            else:
                found = self._found(self.sources, {}, args, value, find)
            return None if found is None else self._finished(found, args, value)
        except (TooMany, TooManyRows, RowFailed):
            return None

    def _found(
        self,
        sources: Sequence[RowsSource],
        found: dict[GlobalId, Iterable[Row]],
        args: Sequence[Datum],
        value: SessionValue,
        find: Find,
    ) -> dict[GlobalId, Iterable[Row]] | None:
        """Return the rows of sources with those that were found before."""
        most = self.program.most
        for each in sources:
            keys = _keys(each, found, args, value)
            page = each.page if isinstance(each, RangedTable) else None
            is_begun = self.takes_first or page is not None
            rows = find(each, keys, None if is_begun else most)
            if rows is None:
                return None
            if page is not None:
                rows = _rows_of_page(page, rows, most, args, value)
            elif self.takes_first:
                rows = _counted(rows, most, only_short=self.grows)
            elif isinstance(each, IndexedTable | RangedTable):
                rows = [*islice(rows, most + 1)]  # of which more are too many
            found[each.rows] = rows
        return found

    def _results(
        self, args: Sequence[Datum], value: SessionValue, find: Find
    ) -> dict[GlobalId, Iterable[Row]] | None:
        """Return the results of the recursions; None if rows are not known at once."""
        found: dict[GlobalId, Iterable[Row]] = {}
        for each in self.recursions:
            rows = self._result(each, found, args, value, find)
            if rows is None:
                return None
            found[each.rows] = rows
        return found

    def _result(
        self,
        recursion: RecursedRows,
        found: Mapping[GlobalId, Iterable[Row]],
        args: Sequence[Datum],
        value: SessionValue,
        find: Find,
    ) -> list[Row] | None:
        """Return the rows of a recursion; raises TooMany if they or the steps are many."""
        result: list[Row] = []
        seen: set[Row] = set()
        part, given, work = recursion.base, dict(found), 0
        for _ in range(MOST_ROUNDS):
            known = self._found(part.sources, given, args, value, find)
            if known is None:
                return None
            work += sum([len([*known[each.rows]]) for each in part.sources])
            rows = _run(part.program, known, args, value)
            if recursion.distinct:
                rows = [row for row in dict.fromkeys(rows) if row not in seen]
                seen.update(rows)
            if not rows:
                return result
            result += rows
            if max(work, len(result)) > self.program.most:
                raise TooMany
            if not _are_short({recursion.rows: rows}):
                raise TooMany
            part, given = recursion.step, {**found, recursion.working: rows}
        raise TooMany

    def _first_rows(
        self, args: Sequence[Datum], value: SessionValue, find: Find
    ) -> list[Row] | None:
        """Return the first rows: over more and more of the first source until there are enough."""
        limit, offset = self._cut(args, value)
        first, *others = self.sources
        rows = find(first, _keys(first, {}, args, value), None)
        if rows is None or limit is None:
            return None
        left, taken, more = iter(rows), list[Row](), limit + offset
        while True:
            before, most = len(taken), self.program.most
            taken += islice(left, min(more, most + 1 - before))
            if len(taken) > most:
                return None
            found = self._found(others, {first.rows: taken}, args, value, find)
            done = None if found is None else self._finished(found, args, value)
            if done is None or len(done) == limit or len(taken) < before + more:
                return done
            more = len(taken)

    def over(
        self, id: GlobalId, rows: Sequence[Row], args: Sequence[Datum], value: SessionValue
    ) -> list[Row] | None:
        """Return the finished rows over those of its only collection; None as `rows` does."""
        if self.grows and not (_are_arguments_short(args) and _are_short({id: rows})):
            return None
        program = self.program
        values = [value(name) for name in program.session_values] if program.session_values else ()
        given = (rows,) if program.collections else ()
        try:
            cut = self._cut(args, value) if self.limit or self.offset else self.cut
            return program.run(given, args, values, *cut)
        except (TooMany, RowFailed):
            return None

    def _finished(
        self, found: Mapping[GlobalId, Iterable[Row]], args: Sequence[Datum], value: SessionValue
    ) -> list[Row] | None:
        if self.grows and not self.takes_first and not _are_short(found):
            return None
        return _run(self.program, found, args, value, *self._cut(args, value))

    def _cut(self, args: Sequence[Datum], value: SessionValue) -> tuple[int | None, int]:
        """Return LIMIT and OFFSET."""
        limit, offset = self.cut
        if self.limit is not None:
            limit = _bound(self.limit, args, value)
        if self.offset is not None:
            offset = _bound(self.offset, args, value) or 0
        return limit, offset


def no_value(name: str) -> Datum:
    """Return no session value, of which a program has none."""
    raise AssertionError(name)


def keys_of(source: RowsSource, args: Sequence[Datum], value: SessionValue) -> list[Row] | None:
    """Return the keys of a source that no other gives; None if they are to be found another way."""
    if not _are_arguments_short(args):
        return None
    try:
        return _keys(source, {}, args, value)
    except (TooMany, RowFailed):
        return None


def _keys(
    source: RowsSource,
    found: Mapping[GlobalId, Iterable[Row]],
    args: Sequence[Datum],
    value: SessionValue,
) -> list[Row]:
    """Return the keys of a source, each once and without NULL, or the ends of its range."""
    keys = _run(source.keys, found, args, value)
    if isinstance(source, RangedTable):
        return keys
    if len(keys) == 1:
        return [] if None in keys[0] else keys
    return [key for key in dict.fromkeys(keys) if None not in key]


def _are_arguments_short(args: Sequence[Datum]) -> bool:
    """Whether no function of an argument takes long, as it would of a long one."""
    for each in args:  # noqa: SIM110 - most are integers, and a generator costs more than they do
        if type(each) is not int and size_of(each) > LONG:
            return False
    return True


def _rows_of_page(
    page: PageProgram, rows: Iterable[Row], most: int, args: Sequence[Datum], value: SessionValue
) -> list[Row]:
    """Return the first rows, up to those of a page; raises TooMany if they are more than `most`."""
    limit = _bound(page.limit, args, value)
    offset = 0 if page.offset is None else _bound(page.offset, args, value) or 0
    if limit is None:
        raise TooMany
    wanted, left, taken, more = limit + offset, iter(rows), list[Row](), limit + offset
    while True:
        before = len(taken)
        taken += islice(left, min(more, most + 1 - before))
        if len(taken) > most:
            raise TooMany
        if len(taken) < before + more:
            return taken
        if page.program is None:
            break
        given = dict.fromkeys(page.program.collections, taken)
        if len(_run(page.program, given, args, value)) >= wanted:
            break
        more = len(taken)
    if page.ties and taken:
        last = [taken[-1][i] for i in page.ties]
        taken += takewhile(lambda row: [row[i] for i in page.ties] == last, _counted(left, most))
    return taken


def _counted(rows: Iterable[Row], most: int, *, only_short: bool = False) -> Iterator[Row]:
    """Yield rows; raises TooMany if there are more than `most`, or one is not short."""
    for number, row in enumerate(rows):
        if number == most or (only_short and max(map(size_of, row), default=0) > LONG):
            raise TooMany
        yield row


def _run(
    program: RowProgram,
    found: Mapping[GlobalId, Iterable[Row]],
    args: Sequence[Datum],
    value: SessionValue,
    limit: int | None = None,
    offset: int = 0,
) -> list[Row]:
    given = [found[id] for id in program.collections] if program.collections else ()
    values = [value(name) for name in program.session_values] if program.session_values else ()
    return program.run(given, args, values, limit, offset)


def _bound(program: RowProgram, args: Sequence[Datum], value: SessionValue) -> int | None:
    """Return the value of LIMIT or OFFSET; a negative one raises RowFailed."""
    ((bound,),) = _run(program, {}, args, value)
    if bound is None:
        return None
    number = int(str(bound))
    if number < 0:
        raise RowFailed
    return number


def _are_short(found: Mapping[GlobalId, Iterable[Row]]) -> bool:
    """Whether no value is so long that making it longer would take much."""
    rows = chain.from_iterable(found.values())
    return all(size_of(each) <= LONG for each in chain.from_iterable(rows))


# --- planning ------------------------------------------------------------------------------


def plan_row_read(peek: PeekPlan, planned: Mapping[GlobalId, Planned]) -> RowRead | None:
    """Return `peek` compiled, if it reads rows under keys, few whole tables, or nothing."""
    query, path = peek.query, peek.path
    calls = calls_in(query.relation) if peek.has_side_effects else []
    if query.init_plans or not all(map(_is_made_before, calls)):
        return None
    if query.changes or query.row_outputs or (query.recursions and peek.recursive is None):
        return None
    recursions: list[RecursedRows | None] = []
    sources: list[RowsSource | None]
    match path:
        case InProcess() if peek.recursive is not None:
            relation = peek.recursive.last.relation
            sources = _sources(peek.recursive.last.steps, relation, planned)
            recursions = [_recursed(each, planned) for each in peek.recursive.recursions]
        case KeyLookup(steps=steps, relation=relation) | IndexLookups(steps, relation):
            sources = _sources(steps, relation, planned)
        case IndexRead(index=index, on=on, keys=None, relation=relation):
            sources = [whole_view(on, index)]
        case IndexRead(index=index, on=on, keys=tuple() as keys, relation=relation):
            sources = [indexed_view(on, index, keys, (), planned)]
        case Bulk(relation=relation, whole=whole) if whole:
            sources = _sources(whole, relation, planned)
        case Constant(relation=relation) if not peek.is_timed:
            sources = []
        case InProcess(relation=relation) if peek.sources <= BUILTINS.keys() and not peek.is_timed:
            few = restricted(relation, keys_of_catalog)
            if few is None:
                return None
            relation, sources = few.relation, _sources(few.steps, few.relation, planned)
        case _:
            return None
    cost = cost_of_a_row(relation)
    if takes_long_for_a_row(relation) or cost > LIGHT:
        return None
    found = [each for each in sources if each is not None]
    results = [each for each in recursions if each is not None]
    if len(found) < len(sources) or len(results) < len(recursions):
        return None
    is_cut, finishing = _is_cut(query), query.finishing
    is_single = single_input(relation) is not None and not results
    if is_single and is_cut and _is_in_order(found):
        finishing = Finishing((), finishing.limit, finishing.offset, finishing.project)
    program = compile_rows(relation, finishing, is_cut=is_cut)
    limit, offset = _compiled(query.limit), _compiled(query.offset)
    if program is None or (query.limit is not None and limit is None):
        return None
    if query.offset is not None and offset is None:
        return None
    if not {*program.collections} <= {each.rows for each in (*found, *results)}:
        return None
    program = replace(program, most=min(program.most, 2 * LIGHT // max(cost, 1)))
    takes_first = is_single and is_cut and not finishing.order_by
    programs = (program, limit, offset)
    read = RowRead.of(
        found,
        programs,
        relation,
        query.finishing,
        takes_first=takes_first,
        recursions=results,
    )
    shows_names = bool(sources_of_names(column.type for column in query.desc.columns))
    return replace(
        read,
        shows_names=shows_names,
        begins=len(found) > 1 and _is_in_order(found[:1]),
        calls=tuple(calls),
    )


def plan_optional_read(peek: PeekPlan, planned: Mapping[GlobalId, Planned]) -> RowRead | None:
    """Return what `plan_row_read` does, or a read that its arguments may make shorter."""
    read = plan_row_read(peek, planned)
    for condition, path in reversed(peek.optional):
        shorter = plan_row_read(replace(peek, path=path), planned)
        test = Map(Join(()), (condition,))
        if shorter is not None and cost_of_a_row(test) <= LIGHT and not takes_long_for_a_row(test):
            unless = compile_rows(test)
            if unless is not None and not unless.session_values:
                read = replace(shorter, unless=unless, instead=read)
    return read


def _is_made_before(call: Call) -> bool:
    """Whether a call may be made before the rows are computed, perhaps in vain."""
    return call.function in CALLS and not any(calls_of([arg]) for arg in call.args)


def plan_over_rows(
    id: GlobalId,
    relation: Relation,
    query: Query | None = None,
    *,
    rules: Sequence[Scalar] = (),
) -> RowRead | None:
    """Return a relation over rows that a statement has as `id`, compiled, as `query` finishes it.

    It fails for a row that breaks one of the `rules`. None if it reads anything else.
    """
    width = len(columns_of(relation))
    finishing = Finishing((), None, 0, tuple(range(width))) if query is None else query.finishing
    if query is not None and (query.row_outputs or _is_cut(query)):
        return None
    computed = Map(relation, tuple(rules)) if rules else relation
    if calls_in(computed):
        return None
    if takes_long_for_a_row(computed) or cost_of_a_row(computed) > LIGHT:
        return None
    program = compile_rows(relation, finishing, is_cut=False, rules=rules)
    if program is None or not {*program.collections} <= {id}:
        return None
    return RowRead.of((), (program, None, None), relation, finishing, takes_first=False)


def _is_cut(query: Query) -> bool:
    finishing = query.finishing
    bounds = (query.limit, query.offset, finishing.limit, finishing.offset or None)
    return bounds != (None,) * 4


def _sources(
    steps: Sequence[Step], relation: Relation, planned: Mapping[GlobalId, Planned]
) -> list[RowsSource | None]:
    keyed = [step for step in steps if isinstance(step, KeyStep)]
    over = [relation, *(each for step in keyed for each in step.sources)]
    return [source_of(step, over, planned) for step in steps]


def _recursed(
    found: RestrictedRecursion, planned: Mapping[GlobalId, Planned]
) -> RecursedRows | None:
    """Return a recursion compiled; None if it is not, or if its rows are not as they are stored."""
    recursion = found.recursion
    base, step = (_part(each, planned) for each in (found.base, found.step))
    types = [[column.type for column in columns_of(each.relation)] for each in recursion.blocks]
    if base is None or step is None or types[0] != types[1]:
        return None
    if not all((type.element or type).name in SIMPLE for type in types[0]):
        return None
    if recursion.distinct and not all(map(has_one_form, types[0])):
        return None
    return RecursedRows(recursion.result, recursion.working, base, step, recursion.distinct)


def _part(few: Restricted, planned: Mapping[GlobalId, Planned]) -> RowsPart | None:
    relation = few.relation
    if takes_long_for_a_row(relation) or cost_of_a_row(relation) > LIGHT:
        return None
    sources = _sources(few.steps, relation, planned)
    tables = tuple([each for each in sources if isinstance(each, TableSource)])
    program = compile_rows(relation)
    if program is None or len(tables) < len(sources):
        return None
    return RowsPart(tables, program)


def _is_in_order(sources: Sequence[RowsSource]) -> bool:
    """Whether the rows of the only source come in the order of the query."""
    return all(
        isinstance(each, RangedTable) and each.range.is_ordered and each.page is None
        for each in sources
    )


def _compiled(bound: Scalar | None) -> RowProgram | None:
    return None if bound is None else compile_rows(Map(Join(()), (bound,)))


def _is_exact(relation: Relation, finishing: Finishing) -> bool:
    columns = columns_of(relation)
    if are_simple([columns[i] for i in finishing.project]):
        return True
    return not any(isinstance(node, Map | Reduce) for node in walk_relations(relation))


def are_simple(columns: Sequence[ColumnType]) -> bool:
    """Whether rows of these columns can be sent as they are computed."""
    return all(column.type.name in SIMPLE for column in columns)
