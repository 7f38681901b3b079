"""Row programs: a plan that sees few rows, as one Python function over tuples.

    program = compile_rows(relation, finishing)
    rows = program.run([rows of program.collections[0], ...], args, values, limit, offset)

The source is generated and compiled once for a plan; its parameters and session values are
arguments of the function. It counts what it gathers: beyond `most` rows it raises TooMany, and if a
row has an error RowFailed. Then the same plan runs on columns, which tells errors as always.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from foreshore.compute.rows.ordering import SortKey, sort_rows
from foreshore.compute.rows.relations import (
    MOST_NODES,
    Relations,
    rows_of_constant,
    tuple_of,
)
from foreshore.compute.rows.scalars import Row as Values
from foreshore.compute.rows.source import NotCompiled, Source, TooMany
from foreshore.errors import DataError, UserError
from foreshore.expr.columns import column_type
from foreshore.expr.functions.rows import OF_A_ROW, Failure
from foreshore.expr.ir import (
    Constant,
    Filter,
    Finishing,
    Get,
    Join,
    Literal,
    Map,
    Parameter,
    Project,
    Relation,
    Scalar,
    Union,
)
from foreshore.expr.scalars import scalars_of
from foreshore.expr.traversal import walk_relations
from foreshore.ids import GlobalId
from foreshore.table_rows import Row
from foreshore.types import Datum

MOST = 1_000  # rows that a program sees or gathers: some milliseconds
MOST_CALLS = 200  # of kernels, over columns of one value: the same
_PARAMETERS = "given, args, values, limit, offset, most"


class RowFailed(Exception):
    """A row has an error, which columns tell."""


@dataclass(frozen=True, slots=True)
class RowProgram:
    """A plan as a function over the rows of `collections`, in this order."""

    collections: tuple[GlobalId, ...]
    session_values: tuple[str, ...]
    function: Callable[..., list[Row]]
    most: int  # rows that it sees or gathers

    def run(
        self,
        given: Sequence[Iterable[Row]],
        args: Sequence[Datum] = (),
        values: Sequence[Datum] = (),
        limit: int | None = None,
        offset: int = 0,
        most: int | None = None,
    ) -> list[Row]:
        """Return the finished rows; raises TooMany and RowFailed.

        `values` are those of `session_values`.
        """
        if most is None:
            most = self.most
        for rows in given:
            if isinstance(rows, list | tuple) and len(rows) > most:
                raise TooMany
        try:
            return self.function(given, args, values, limit, offset, most)
        except (*OF_A_ROW, Failure, UserError, DataError) as error:
            raise RowFailed from error


def compile_rows(
    relation: Relation,
    finishing: Finishing | None = None,
    *,
    is_cut: bool = True,
    rules: Sequence[Scalar] = (),
) -> RowProgram | None:
    """Return the program of a relation and what finishes its rows; None if it is not compiled.

    Without `is_cut` it is never run with a limit or an offset. It fails for a row for which one of
    the `rules` is FALSE.
    """
    if sum(1 for _ in walk_relations(relation)) > MOST_NODES:
        return None
    try:
        is_plain = not rules and (finishing is None or not finishing.order_by)
        if isinstance(relation, Constant) and is_plain:
            return _of_rows(relation, finishing)
        if finishing is None and (leaves := _rows_of_leaves(relation)) is not None:
            return _of_leaves(leaves)
        return _Compiler(relation, finishing, is_cut, rules).compiled()
    except NotCompiled:
        return None


def _of_rows(relation: Constant, finishing: Finishing | None) -> RowProgram:
    """Return the program of rows that are known, of which no source has to be compiled."""
    rows = rows_of_constant(relation)
    if finishing is not None and finishing.project != tuple(range(len(relation.columns))):
        rows = [tuple([row[i] for i in finishing.project]) for row in rows]

    def run(
        _given: object, _args: object, _values: object, limit: int | None, offset: int, _: int
    ) -> list[Row]:
        return rows[offset : None if limit is None else offset + limit]

    return RowProgram((), (), run, MOST)


Leaf: TypeAlias = Parameter | Literal


def _rows_of_leaves(relation: Relation) -> list[tuple[Leaf, ...]] | None:
    """Return the rows of a relation in which there are arguments and literals only, else None."""
    match relation:
        case Join(inputs=()):
            return [()]
        case Map(input=input, scalars=scalars):
            leaves = tuple(each for each in scalars if isinstance(each, Parameter | Literal))
            rows = _rows_of_leaves(input) if len(leaves) == len(scalars) else None
            return None if rows is None else [(*row, *leaves) for row in rows]
        case Union(inputs=inputs):
            parts = [_rows_of_leaves(each) for each in inputs]
            return None if None in parts else [row for part in parts for row in part or ()]
        case _:
            return None


def _of_leaves(rows: Sequence[tuple[Leaf, ...]]) -> RowProgram:
    """Return the program of such rows, as those of most keys are: it is not compiled either."""
    match rows:
        case [(Parameter(number=number),)]:  # a key
            return RowProgram((), (), lambda given, args, *_: [(args[number - 1],)], MOST)
    makers = [_row_of_leaves(row) for row in rows]
    if len(makers) == 1:
        make = makers[0]
        return RowProgram((), (), lambda given, args, *_: [make(args)], MOST)
    return RowProgram((), (), lambda given, args, *_: [make(args) for make in makers], MOST)


def _row_of_leaves(leaves: Sequence[Leaf]) -> Callable[[Sequence[Datum]], Row]:
    """Return the function from arguments to a row."""
    match leaves:
        case (Parameter(number=number),):
            return lambda args: (args[number - 1],)
        case _ if all(isinstance(each, Literal) for each in leaves):
            row = tuple([each.value for each in leaves if isinstance(each, Literal)])
            return lambda args: row
    pairs = [
        (each.number - 1, None) if isinstance(each, Parameter) else (None, each.value)
        for each in leaves
    ]
    return lambda args: tuple([datum if at is None else args[at] for at, datum in pairs])


class _Compiler:
    def __init__(
        self,
        relation: Relation,
        finishing: Finishing | None,
        is_cut: bool,
        rules: Sequence[Scalar],
    ) -> None:
        self._relation = relation
        self._rules = rules
        self._finishing = finishing
        self._is_cut = is_cut and finishing is not None
        # Whether there may be more rows than are given.
        self._multiplies = not all(
            isinstance(node, Get | Map | Filter | Project) for node in walk_relations(relation)
        )
        self._source = Source()
        self._relations = Relations(self._source)

    def compiled(self) -> RowProgram:
        source, relations = self._source, self._relations
        finishing = self._finishing
        is_ordered = finishing is not None and bool(finishing.order_by)
        nodes = walk_relations(self._relation)
        relations.scalars.write_once(scalar for node in nodes for scalar in scalars_of(node))
        rows = source.assign("[]")
        if self._multiplies:
            source.line("work = 0")
        stop = None
        if self._is_cut and not is_ordered:
            stop = source.assign("most + 1 if limit is None else offset + limit")
            source.line(f"if {stop} <= 0: return []")

        def add(row: Values, sign: int) -> None:
            if sign < 0:
                raise NotCompiled("rows of negative multiplicity")
            for each in self._rules:
                kept = relations.scalars.write(each, row).text
                source.line(f"if {kept} is False: raise {source.constant(RowFailed)}")
            output = tuple_of(self._output(row))
            if self._multiplies:
                relations.add(rows, output)
            else:
                source.line(f"{rows}.append({output})")
            if stop is not None:
                source.line(f"if len({rows}) == {stop}: return {rows}[offset:]")

        relations.write(self._relation, add)
        if is_ordered:
            assert finishing is not None
            width = len(finishing.project)
            keys = [
                SortKey(width + n, column_type(key.expr), key.descending, key.nulls_first)
                for n, key in enumerate(finishing.order_by)
            ]
            source.line(f"{source.constant(sort_rows)}({rows}, {source.constant(keys)})")
            if self._is_cut:
                cut = "[offset:None if limit is None else offset + limit]"
                source.line(f"{rows} = {rows}{cut}")
            source.line(f"return [row[:{width}] for row in {rows}]")
        else:
            source.line(f"return {rows}" if stop is None else f"return {rows}[offset:]")
        return RowProgram(
            tuple(relations.collections),
            tuple(relations.scalars.session_values),
            source.function(_PARAMETERS),
            MOST // max(1, relations.scalars.kernel_calls * MOST // MOST_CALLS),
        )

    def _output(self, row: Values) -> Values:
        """Return the columns that are sent, then those by which rows are sorted."""
        finishing = self._finishing
        if finishing is None:
            return row
        keys = [self._relations.scalars.write(key.expr, row) for key in finishing.order_by]
        return [*(row[i] for i in finishing.project), *keys]


__all__ = ["MOST", "RowFailed", "RowProgram", "TooMany", "compile_rows"]
