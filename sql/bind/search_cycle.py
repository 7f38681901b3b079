"""SEARCH and CYCLE of a recursive query: columns that the recursion computes beside its own.

    SEARCH DEPTH FIRST BY a SET s       s = ARRAY[ROW(a)], then s || ROW(a)
    SEARCH BREADTH FIRST BY a SET s     s = ROW(0, a), then ROW(s.f1 + 1, a)
    CYCLE a SET c USING p               c = false, p = ARRAY[ROW(a)], then
                                        c = ROW(a) = ANY (p), p = p || ROW(a), from rows without c

As in PostgreSQL, they follow the query's columns.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from foreshore.errors import DuplicateColumn, FeatureNotSupported, SyntaxError_
from foreshore.expr.columns import columns_of, type_of
from foreshore.expr.ir import Case, Filter, Map, Project, Relation, Scalar
from foreshore.sql import ast
from foreshore.sql.bind.binder import Clause
from foreshore.sql.bind.coerce import common_type, to_common, to_known
from foreshore.sql.bind.expression import ExpressionBinder
from foreshore.sql.bind.planning import Planning
from foreshore.sql.bind.scope import Scope, Slot

_Columns = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class AddedBySearch:
    """The columns of SEARCH and CYCLE of a query of WITH, whose own are `names`."""

    planning: Planning
    common: ast.CommonTable
    names: tuple[str, ...]

    @property
    def added(self) -> tuple[str, ...]:
        """The names of the columns that are added."""
        search, cycle = self.common.search, self.common.cycle
        found = () if search is None else (search.name,)
        return found if cycle is None else (*found, cycle.mark, cycle.path)

    def check(self) -> None:
        """Raise PostgreSQL's errors about names."""
        search, cycle = self.common.search, self.common.cycle
        used = "already used in WITH query column list"
        if search is not None:
            self._check_columns(search.columns, "search", search.at)
            if search.name in self.names:
                raise _wrong(f'search sequence column name "{search.name}" {used}', search.at)
        if cycle is None:
            return
        self._check_columns(cycle.columns, "cycle", cycle.at)
        for what, name in (("mark", cycle.mark), ("path", cycle.path)):
            if name in self.names:
                raise _wrong(f'cycle {what} column name "{name}" {used}', cycle.at)
            if search is not None and name == search.name:
                same = f"search sequence column name and cycle {what} column name are the same"
                raise _wrong(same, search.at)
        if cycle.mark == cycle.path:
            raise _wrong("cycle mark column name and cycle path column name are the same", cycle.at)

    def _check_columns(self, columns: _Columns, what: str, at: int) -> None:
        for place, (name, _) in enumerate(columns):
            if name not in self.names:
                raise _wrong(f'{what} column "{name}" not in WITH query column list', at)
            if name in dict(columns[:place]):
                raise DuplicateColumn(
                    f'{what} column "{name}" specified more than once', position=at + 1
                )

    def with_first(self, base: Relation) -> Relation:
        """Return the rows of the non-recursive term with the added columns."""
        search, cycle = self.common.search, self.common.cycle
        binder = self._binder(base, self.names)
        values: list[Scalar] = []
        if search is not None:
            row = _row(search.columns, search.at)
            if search.kind == "breadth":
                value: ast.Expression = _row(search.columns, search.at, _zero(search.at))
            else:
                value = ast.ArrayOf((row,), search.at)
            values.append(binder.bind(value))
        if cycle is not None:
            path = ast.ArrayOf((_row(cycle.columns, cycle.at),), cycle.at)
            values += [self._marks(binder)[1], binder.bind(path)]
        return Map(base, tuple(values))

    def carried(self, step: ast.Select) -> ast.Select:
        """Return the recursive term with the added columns of the row that it extends."""
        if step.distinct is not None:
            raise FeatureNotSupported(
                "SEARCH and CYCLE of a recursive term with DISTINCT are not supported",
                position=step.at + 1,
            )
        tables = (each for each in ast.nodes_of(step.from_) if isinstance(each, ast.TableRef))
        table = next(each for each in tables if each.name == (self.common.name,))
        alias = table.alias or self.common.name
        more = (
            ast.Target(ast.ColumnRef((alias, name), step.at), None, step.at) for name in self.added
        )
        return msgspec.structs.replace(step, targets=(*step.targets, *more))

    def with_next(self, step: Relation) -> Relation:
        """Return the rows of the recursive term, which `carried` their columns, with new ones."""
        search, cycle = self.common.search, self.common.cycle
        before = tuple(f"*{name}*" for name in self.added)
        binder = self._binder(step, (*self.names, *before))
        values: list[Scalar] = []
        if search is not None:
            old = ast.ColumnRef((f"*{search.name}*",), search.at)
            if search.kind == "breadth":
                depth = ast.Operation(
                    "+", ast.Field(old, "f1", search.at), ast.Number("1", search.at), search.at
                )
                value: ast.Expression = _row(search.columns, search.at, depth)
            else:
                row = _row(search.columns, search.at)
                value = ast.Operation("||", old, row, search.at)
            values.append(binder.bind(value))
        if cycle is not None:
            row, path = _row(cycle.columns, cycle.at), ast.ColumnRef((f"*{cycle.path}*",), cycle.at)
            found = binder.boolean(ast.Quantified(row, "=", "any", path, cycle.at), "CYCLE")
            mark, default = self._marks(binder)
            old_mark = binder.bind(ast.ColumnRef((f"*{cycle.mark}*",), cycle.at))
            goes_on = binder.call("<>", (old_mark, mark), cycle.at)
            step = Filter(step, (goes_on,))
            values += [
                Case(((found, mark),), default, type_of(mark)),
                binder.bind(ast.Operation("||", path, row, cycle.at)),
            ]
        width, own = len(columns_of(step)), len(self.names)
        outputs = (*range(own), *range(width, width + len(values)))
        return Project(Map(step, tuple(values)), outputs)

    def _marks(self, binder: ExpressionBinder) -> tuple[Scalar, Scalar]:
        """Return the values of the mark: of a row that closes a cycle, and of any other."""
        cycle = self.common.cycle
        assert cycle is not None
        both = tuple(map(binder.bind, (cycle.value, cycle.default)))
        common = common_type(both, "CYCLE", (cycle.at, cycle.at))
        value, default = (
            to_known(self.planning, to_common(self.planning, each, common, "CYCLE", cycle.at), 0)
            for each in both
        )
        return value, default

    def _binder(self, relation: Relation, names: Sequence[str]) -> ExpressionBinder:
        slots = [Slot(name, place) for place, name in enumerate(names)]
        scope = Scope(list(columns_of(relation)), [], slots)
        return ExpressionBinder(self.planning, scope, Clause("SEARCH and CYCLE"))


def added_by_search(
    planning: Planning, common: ast.CommonTable, names: tuple[str, ...]
) -> AddedBySearch | None:
    """Return what SEARCH and CYCLE add to a recursive query, None without them."""
    if common.search is None and common.cycle is None:
        return None
    found = AddedBySearch(planning, common, names)
    found.check()
    return found


def refuse_search(common: ast.CommonTable) -> None:
    """Raise an error if a query that does not read itself has SEARCH or CYCLE."""
    clause = common.search or common.cycle
    if clause is not None:
        raise _wrong("WITH query is not recursive", common.at)


def _row(columns: _Columns, at: int, first: ast.Expression | None = None) -> ast.Row:
    fields = tuple(ast.ColumnRef((name,), column_at) for name, column_at in columns)
    return ast.Row(fields if first is None else (first, *fields), at)


def _zero(at: int) -> ast.Expression:
    return ast.CastTo(ast.Number("0", at), ast.TypeName(("int8",), (), 0, at), at)


def _wrong(message: str, at: int) -> SyntaxError_:
    return SyntaxError_(message, position=at + 1)
