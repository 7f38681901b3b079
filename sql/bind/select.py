"""Bind SELECT: FROM and WHERE, then the clauses over groups, DISTINCT and ORDER BY."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from foreshore.errors import (
    FeatureNotSupported,
    GroupingError,
    InvalidColumnReference,
    SyntaxError_,
    UndefinedColumn,
    WindowingError,
)
from foreshore.expr.columns import columns_of, type_of
from foreshore.expr.functions.comparison import check_equality
from foreshore.expr.ir import Column, Literal, OrderKey, Project, Relation, Scalar, TopK
from foreshore.sql import ast
from foreshore.sql.bind.aggregates import Aggregates, Grouping
from foreshore.sql.bind.binder import Clause
from foreshore.sql.bind.bound_query import (
    AddedColumns,
    BoundQuery,
    Branch,
    Wanted,
    distinct,
    filtered,
    order_key,
    output_index,
    project,
)
from foreshore.sql.bind.coerce import coerce, is_unknown, to_known
from foreshore.sql.bind.columns import resolve_qualifier
from foreshore.sql.bind.expression import ExpressionBinder
from foreshore.sql.bind.from_clause import bind_from
from foreshore.sql.bind.grouping_sets import expand
from foreshore.sql.bind.order import UNORDERED, RowOrder
from foreshore.sql.bind.output_names import column_name
from foreshore.sql.bind.planning import Planning, located
from foreshore.sql.bind.positions import at_of
from foreshore.sql.bind.records import expanded
from foreshore.sql.bind.scope import Scope, Slot, resolve_table
from foreshore.sql.bind.sets import SetCalls, references
from foreshore.sql.bind.stars import check_star, order_of_all
from foreshore.sql.bind.widths import TARGETS, check_targets
from foreshore.sql.bind.window_call import bind_named_windows
from foreshore.sql.bind.windows import Windows, uses_windows
from foreshore.sql.rewrite.scalars import map_scalar
from foreshore.types import INT8, ColumnType, ResultOrigin


class SelectBinder:
    """Bind one SELECT: FROM and WHERE, then the clauses over groups."""

    def __init__(self, planning: Planning, select: ast.Select, parent: Scope | None) -> None:
        self.planning = planning
        self.select = select
        if select.into is not None:
            raise SyntaxError_(
                "SELECT ... INTO is not allowed here", position=select.into.name.at + 1
            )
        self.relation, self.scope = bind_from(planning, select.from_, parent)
        self._write_out()
        self.aggregates = Aggregates(planning.new_query())
        self.sets = SetCalls()
        self.windows = Windows()
        self.is_grouped = False
        self.order = UNORDERED  # of the rows, without ORDER BY
        self._where()
        self.names: list[str] = []
        self.offsets: list[int] = []
        self.targets: list[Scalar] = []
        if select.windows:
            binder = self._binder("WINDOW", aggregates=True)
            bind_named_windows(binder, self.windows, select.windows)
        for target in select.targets:
            self._target(target)
        check_targets(len(self.targets), defined=planning.defined)
        self.origins = self.scope.origins_of(self.targets)
        self.qualify: Scalar | None = None
        if select.qualify is not None:
            binder = self._binder("QUALIFY", aggregates=True, windows=True)
            self.qualify = binder.condition(select.qualify)

    def _write_out(self) -> None:
        """Record that `TABLE t` is kept as a SELECT, as t may need an alias after renames."""
        planning, at = self.planning, self.select.at
        if self.select.is_table and planning.keeps_text and not planning.inlining:
            planning.qualified.append((at, at + len("TABLE"), "SELECT * FROM"))

    def _binder(
        self, clause: str, *, aggregates: bool, sets: bool = False, windows: bool = False
    ) -> ExpressionBinder:
        return ExpressionBinder(
            self.planning,
            self.scope,
            Clause(
                clause,
                self.aggregates if aggregates else None,
                sets=self.sets if sets else None,
                windows=self.windows if windows else None,
            ),
        )

    def _where(self) -> None:
        if self.select.where is not None:
            condition = self._binder("WHERE", aggregates=False).condition(self.select.where)
            self.relation = filtered(self.relation, condition)

    def _target(self, target: ast.Target) -> None:
        expr = target.expr
        if isinstance(expr, ast.Star):
            self._star(expr)
            return
        binder = self._binder("SELECT", aggregates=True, sets=True, windows=True)
        if isinstance(expr, ast.Field) and expr.name is None:
            for column, name in expanded(binder, expr):
                self.targets.append(column)
                self.names.append(name)
                self.offsets.append(at_of(expr))
            return
        self.targets.append(binder.bind(expr))
        self.names.append(target.alias if target.alias is not None else column_name(expr))
        self.offsets.append(at_of(expr))

    def _star(self, star: ast.Star) -> None:
        if star.qualifier:
            table, level, scope = resolve_qualifier(
                self.planning, self.scope, star.qualifier, star.at
            )
            if level:
                raise FeatureNotSupported(
                    "the columns of an outer query's table are not supported here",
                    position=star.at + 1,
                )
            slots: Sequence[Slot] = table.slots
        else:
            if not self.select.from_:
                raise SyntaxError_(
                    "SELECT * with no tables specified is not valid", position=star.at + 1
                )
            scope, slots = self.scope, self.scope.visible
        replaced = check_star(star, [slot.name for slot in slots])
        excluded = {name for name, _ in star.excluded}
        for slot in slots:
            if slot.name in excluded:
                continue
            if slot.name in replaced:
                binder = self._binder("SELECT", aggregates=True, sets=True, windows=True)
                self.targets.append(binder.bind(replaced[slot.name]))
                self.names.append(slot.name)
                self.offsets.append(at_of(replaced[slot.name]))
                continue
            self.targets.append(scope.column(slot.index))
            self.names.append(slot.name)
            self.offsets.append(star.at)
            owner = next((t for t in scope.tables if slot in t.slots), None)
            shown = f"{owner.alias}.{slot.name}" if owner is not None else slot.name
            scope.named.setdefault(slot.index, (shown, star.at))

    # --- entry points

    def branch(self) -> Branch:
        """Return the SELECT as an operand of a set operation."""
        having, _, _ = self._group([])
        if having is not None:
            self.relation = filtered(self.relation, having)
        self._join_windows()
        self._join_sets()
        return Branch(self.relation, tuple(self.targets), tuple(self.names), tuple(self.offsets))

    def bind(self, order_by: tuple[ast.SortKey, ...], wanted: Wanted) -> BoundQuery:
        """Return the SELECT with its ORDER BY."""
        for i, (scalar, at) in enumerate(zip(self.targets, self.offsets, strict=True)):
            if is_unknown(scalar):
                self.targets[i] = self._known(scalar, i, wanted, at)
        order_by = order_of_all(order_by, len(self.targets))
        keys = [self._sort_key(key) for key in order_by]
        ons: list[Scalar] = []
        if isinstance(self.select.distinct, tuple):
            ons = [self._distinct_on(expr) for expr in self.select.distinct]
        self._check_width([*ons, *(key.expr for key in keys)])
        having, sorted_by, ons = self._group([key.expr for key in keys], ons)
        if having is not None:
            self.relation = filtered(self.relation, having)
        sorted_by, ons = self._join_windows(sorted_by, ons)
        keys = _over(keys, sorted_by)
        if not keys and not self.is_grouped:
            self.order = self.scope.order
        if keys and not references((*sorted_by, *ons)):
            # Set-returning calls are added after sorting and DISTINCT ON.
            keys = self._sorted(keys, ons, order_by)
            self._join_sets()
        else:
            sorted_by, ons = self._join_sets(sorted_by, ons)
            keys = self._sorted(_over(keys, sorted_by), ons, order_by)
        return self._finished(keys, order_by)

    def _check_width(self, others: Sequence[Scalar]) -> None:
        """Check the targets with what is sorted and grouped by beside them, as PostgreSQL does."""
        if len(others) + len(self.targets) > TARGETS:
            count = len(self.targets) + len({*others}.difference(self.targets))
            check_targets(count, defined=self.planning.defined)

    def _known(self, scalar: Scalar, i: int, wanted: Wanted, at: int) -> Scalar:
        if wanted is not None and i < len(wanted):
            result = coerce(self.planning, scalar, wanted[i], "assignment", at)
            if result is not None:
                return result
        return to_known(self.planning, scalar, at)

    def _sort_key(self, key: ast.SortKey) -> OrderKey:
        index = output_index(key.expr, self.names, self.targets, "ORDER BY")
        if index is not None:
            return order_key(key, self.targets[index])
        binder = self._binder("ORDER BY", aggregates=True, sets=True, windows=True)
        return order_key(key, to_known(self.planning, binder.bind(key.expr), key.at))

    def _distinct_on(self, expr: ast.Expression) -> Scalar:
        index = output_index(expr, self.names, self.targets, "SELECT DISTINCT ON")
        if index is not None:
            return self.targets[index]
        binder = self._binder("DISTINCT ON", aggregates=True, sets=True, windows=True)
        return to_known(self.planning, binder.bind(expr), at_of(expr))

    # --- groups

    def _group(
        self, others: list[Scalar], ons: list[Scalar] | None = None
    ) -> tuple[Scalar | None, list[Scalar], list[Scalar]]:
        """Group the rows if the query has groups; return HAVING and the other scalars over them."""
        ons = ons or []
        select = self.select
        having = None
        if select.having is not None:
            having = self._binder("HAVING", aggregates=True).condition(select.having)
        sets = expand(select.group_by, self._group_key, distinct=select.distinct_groups)
        aggregates = self.aggregates
        if select.groups_all:
            sets = [self._plain_targets()]
        elif not (select.group_by or aggregates.cores or aggregates.has_grouping or having):
            return having, others, ons
        self.is_grouped = True
        unique = tuple(dict.fromkeys(key for keys in sets for key in keys))
        self._check_width(unique)
        if len(sets) > 1:
            self._refuse_constants(unique)
        positions = tuple(tuple(map(unique.index, keys)) for keys in sets)
        if references(unique):
            unique, others, ons = self._join_group_sets(unique, others, ons)
        grouping = Grouping(self.scope, unique, aggregates, positions)
        determined = grouping.determined()
        if determined:
            scalars = [*self.targets, *others, *ons]
            if having is not None:
                scalars.append(having)
            grouping = self._with_determined(grouping, determined, scalars)
        self.targets = [grouping.over_groups(scalar) for scalar in self.targets]
        others = [grouping.over_groups(scalar) for scalar in others]
        ons = [grouping.over_groups(scalar) for scalar in ons]
        for call in self.sets.used_by((*self.targets, *others, *ons)).values():
            call.args = tuple(grouping.over_groups(arg) for arg in call.args)
        self.windows.change(grouping.over_groups)
        if self.qualify is not None:
            self.qualify = grouping.over_groups(self.qualify)
        if having is not None:
            having = grouping.over_groups(having)
        self.relation = grouping.relation(self.relation, self.planning.new_let)
        return having, others, ons

    def _with_determined(
        self, grouping: Grouping, determined: frozenset[int], scalars: list[Scalar]
    ) -> Grouping:
        """Return the grouping with the used columns that primary keys among its keys determine."""
        found: dict[int, None] = {}

        def look(scalar: Scalar) -> Scalar:
            grouping.columns_beside_keys(scalar, found)
            return scalar

        calls = self.sets.used_by(scalars).values()
        for scalar in (*scalars, *(arg for call in calls for arg in call.args)):
            look(scalar)
        self.windows.change(look)
        if self.qualify is not None:
            look(self.qualify)
        added = tuple(self.scope.column(i) for i in found if i in determined)
        first = len(grouping.keys)
        places = tuple(range(first, first + len(added)))
        return replace(
            grouping,
            keys=(*grouping.keys, *added),
            sets=tuple((*each, *places) for each in grouping.sets),
        )

    def _plain_targets(self) -> tuple[Scalar, ...]:
        """Return the targets by which GROUP BY ALL groups, those without aggregates or windows."""
        keys = tuple(
            target
            for target in self.targets
            if not isinstance(target, Literal)
            and not self.aggregates.refers(target)
            and not uses_windows((target,))
            and not references((target,))
        )
        if not keys and not self.aggregates.cores:
            raise FeatureNotSupported(
                "GROUP BY ALL of constants is not supported", position=self.select.at + 1
            )
        return keys

    def _refuse_constants(self, keys: tuple[Scalar, ...]) -> None:
        """Raise 0A000 for a constant that is a key in some of several grouping sets.

        It cannot be told apart from equal constants elsewhere, which are never NULL.
        """
        if any(isinstance(key, Literal) for key in keys):
            raise FeatureNotSupported(
                "a constant in GROUPING SETS is not supported", position=self.select.at + 1
            )

    def _group_key(self, expr: ast.Expression) -> Scalar:
        binder = self._binder("GROUP BY", aggregates=False, sets=True)
        scalar: Scalar | None = None
        if isinstance(expr, ast.ColumnRef) and len(expr.parts) == 1:
            try:
                scalar = binder.bind(expr)
            except UndefinedColumn:
                if expr.parts[0] not in self.names:
                    raise
        if scalar is None:
            index = output_index(expr, self.names, self.targets, "GROUP BY")
            if index is None:
                scalar = binder.bind(expr)
            else:
                scalar = self.targets[index]
                if uses_windows((scalar,)):
                    raise WindowingError(
                        "window functions are not allowed in GROUP BY",
                        position=self.offsets[index] + 1,
                    )
                if self.aggregates.refers(scalar):
                    raise GroupingError(
                        "aggregate functions are not allowed in GROUP BY",
                        position=self.offsets[index] + 1,
                    )
        known = to_known(self.planning, scalar, at_of(expr))
        with located(at_of(expr)):
            check_equality(type_of(known))
        return known

    # --- window functions

    def _join_windows(self, *others: list[Scalar]) -> list[list[Scalar]]:
        """Add the columns of window functions; return `others` over the result."""
        if not self.windows.calls and self.qualify is None:
            return list(others)
        self.relation, over = self.windows.join(self.relation)
        if self.qualify is not None:
            self.relation = filtered(self.relation, over(self.qualify))
        self.targets = list(map(over, self.targets))
        for call in self.sets.calls:
            call.args = tuple(map(over, call.args))
        return [list(map(over, scalars)) for scalars in others]

    # --- set-returning functions

    def _join_group_sets(
        self, keys: tuple[Scalar, ...], others: list[Scalar], ons: list[Scalar]
    ) -> tuple[tuple[Scalar, ...], list[Scalar], list[Scalar]]:
        """Add rows of set-returning calls in GROUP BY; return the scalars over the result.

        Elsewhere a call is evaluated over the groups, unless it is part of a key.
        """
        placed = self.sets.join_rows(self.relation, keys)
        self.relation = placed.relation
        over = {key: placed.over(key) for key in keys if references((key,))}

        def key_of(node: Scalar, depth: int) -> Scalar | None:
            return None if depth else over.get(node)

        def by_keys(scalars: Iterable[Scalar]) -> list[Scalar]:
            return [map_scalar(scalar, key_of) for scalar in scalars]

        self.targets = by_keys(self.targets)
        others, ons = by_keys(others), by_keys(ons)
        for call in self.sets.used_by((*self.targets, *others, *ons)).values():
            call.args = tuple(by_keys(call.args))
        return tuple(over.get(key, key) for key in keys), others, ons

    def _join_sets(self, *others: list[Scalar]) -> list[list[Scalar]]:
        """Add rows of set-returning calls; return `others` over the result."""
        used = [*self.targets, *(scalar for scalars in others for scalar in scalars)]
        if not references(used):
            return list(others)
        grouped_by = self.select.group_by or self.select.groups_all
        one_row = not (grouped_by if self.is_grouped else self.select.from_)
        columns = () if one_row else columns_of(self.relation)
        placed = self.sets.join_rows(self.relation, used)
        self.relation = placed.relation
        self.order = placed.order.within_rows(self.order, columns)
        self.targets = list(map(placed.over, self.targets))
        return [list(map(placed.over, scalars)) for scalars in others]

    # --- ordering and DISTINCT

    def _sorted(
        self, keys: list[OrderKey], ons: list[Scalar], order_by: tuple[ast.SortKey, ...]
    ) -> list[OrderKey]:
        """Apply DISTINCT ON, if present; return the sort keys over the remaining rows."""
        if not ons:
            return keys
        placing = AddedColumns(columns_of(self.relation))
        positions = [placing.place(key.expr) for key in keys]
        on_positions = [placing.place(on) for on in ons]
        self._check_distinct_on(on_positions, positions, order_by)
        self.relation = placing.relation(self.relation)
        columns = columns_of(self.relation)
        placed = _over(keys, [_column(columns, position) for position in positions])
        self.relation = TopK(
            self.relation,
            tuple(dict.fromkeys(on_positions)),
            (*placed, *self.order.keys),
            Literal(1, INT8),
            None,
        )
        found = [OrderKey(_column(columns, position)) for position in dict.fromkeys(on_positions)]
        self.order = UNORDERED if keys else RowOrder(tuple(found))
        return placed

    def _finished(self, keys: list[OrderKey], order_by: tuple[ast.SortKey, ...]) -> BoundQuery:
        placing = AddedColumns(columns_of(self.relation))
        project = tuple(map(placing.place, self.targets))
        names = tuple(self.names)
        if self.select.distinct is True:
            return self._distinct(placing, project, keys, order_by)
        positions = [placing.place(key.expr) for key in keys]
        relation = placing.relation(self.relation)
        columns = columns_of(relation)
        placed = _over(keys, [_column(columns, position) for position in positions])
        whole = self.order.whole or bool(keys)
        return BoundQuery(
            relation,
            project,
            names,
            (*placed, *self.order.keys) if whole else (),
            offsets=tuple(self.offsets),
            scope=self.scope,
            partial=UNORDERED if whole else self.order,
            origins=self.origins,
        )

    def _distinct(
        self,
        placing: AddedColumns,
        project: tuple[int, ...],
        keys: list[OrderKey],
        order_by: tuple[ast.SortKey, ...],
    ) -> BoundQuery:
        """Return distinct rows, ordered by shown columns."""
        for key, syntax in zip(keys, order_by, strict=True):
            if key.expr not in self.targets:
                raise InvalidColumnReference(
                    "for SELECT DISTINCT, ORDER BY expressions must appear in select list",
                    position=syntax.at + 1,
                )
        relation = distinct(Project(placing.relation(self.relation), project))
        columns = columns_of(relation)
        moved = [_column(columns, self.targets.index(key.expr)) for key in keys]
        return BoundQuery(
            relation,
            tuple(range(len(columns))),
            tuple(self.names),
            tuple(_over(keys, moved)),
            origins=self.origins,
        )

    def _check_distinct_on(
        self, ons: list[int], keys: list[int], order_by: tuple[ast.SortKey, ...]
    ) -> None:
        wanted = set(ons)
        for i, position in enumerate(keys):
            if not wanted - set(keys[:i]):
                return
            if position not in wanted:
                assert isinstance(self.select.distinct, tuple)
                raise InvalidColumnReference(
                    "SELECT DISTINCT ON expressions must match initial ORDER BY expressions",
                    position=at_of(self.select.distinct[0]) + 1,
                )


def _over(keys: Sequence[OrderKey], scalars: Sequence[Scalar]) -> list[OrderKey]:
    """Return sort keys with other expressions, one for each."""
    return [
        OrderKey(expr, key.descending, key.nulls_first)
        for expr, key in zip(scalars, keys, strict=True)
    ]


def _column(columns: Sequence[ColumnType], index: int) -> Column:
    return Column(index, columns[index].type, columns[index].nullable)


def project_targets(
    planning: Planning,
    targets: tuple[ast.Target, ...],
    scope: Scope,
    relation: Relation,
    clause: Clause,
) -> tuple[Relation, tuple[str, ...], tuple[ResultOrigin, ...]]:
    """Return a select list over a relation, with names and origins."""
    scalars: list[Scalar] = []
    names: list[str] = []
    binder = ExpressionBinder(planning, scope, clause)
    for target in targets:
        if isinstance(target.expr, ast.Star):
            slots: Sequence[Slot] = scope.visible
            if target.expr.qualifier:
                slots = resolve_table(scope, target.expr.qualifier, target.expr.at)[0].slots
            scalars.extend(scope.column(slot.index) for slot in slots)
            names.extend(slot.name for slot in slots)
            continue
        if isinstance(target.expr, ast.Field) and target.expr.name is None:
            for column, name in expanded(binder, target.expr):
                scalars.append(column)
                names.append(name)
            continue
        scalars.append(to_known(planning, binder.bind(target.expr), target.at))
        names.append(target.alias if target.alias is not None else column_name(target.expr))
    check_targets(len(scalars), defined=planning.defined)
    return project(relation, scalars), tuple(names), scope.origins_of(scalars)
