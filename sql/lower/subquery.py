"""Lower scalars: turn the values of subqueries into columns of the rows that use them.

The value of a subquery is looked up by the keys on which it depends. If it depends on them by
equality only (`lower/equality.py`), it is looked up by the columns of its own that they equal. In
WHERE, EXISTS and IN become joins with the keys found.
"""

from collections.abc import Callable, Sequence
from typing import assert_never

from foreshore.expr.columns import columns_of, type_of
from foreshore.expr.ir import (
    FALSE,
    TRUE,
    Aggregate,
    And,
    AnySubquery,
    Arguments,
    Call,
    Case,
    Column,
    Environment,
    ErrorOf,
    Exists,
    Filter,
    Join,
    Literal,
    Map,
    Negate,
    Once,
    Or,
    OuterColumn,
    Parameter,
    Project,
    Reduce,
    Relation,
    Scalar,
    ScalarSubquery,
    Union,
    count_all,
)
from foreshore.expr.scalars import scalars_of
from foreshore.expr.split import can_fail, shift
from foreshore.expr.traversal import operands_of, with_operands
from foreshore.sql.lower.equality import PulledUp, pull
from foreshore.sql.lower.outer_columns import (
    Reference,
    at_most_one_row,
    has_subquery,
    may_fail_within,
)
from foreshore.sql.lower.rows import (
    NOTHING_OUTSIDE,
    Lowering,
    Outer,
    Row,
    columns_at,
    filter_,
    keys_of,
    value_of,
)
from foreshore.sql.lower.truth import call, existence, for_truth
from foreshore.sql.optimize.properties import is_unique
from foreshore.sql.optimize.scalars import conjunction, conjuncts
from foreshore.types import BOOL, INT8, ColumnType, SqlType


class SubqueryLowering(Lowering):
    """Lower scalars and predicates."""

    def filter(self, row: Row, predicates: Sequence[Scalar]) -> None:
        """Keep the rows for which all `predicates` are TRUE.

        Predicates that cannot fail and have no subquery come first, then EXISTS, IN and their
        negations, which are joins. Predicates that may fail come last and are evaluated only for
        the remaining rows.
        """
        early: list[Scalar] = []
        joins: list[Scalar] = []
        late: list[Scalar] = []
        for predicate in conjuncts([for_truth(p) for p in conjuncts(predicates)]):
            if existence(predicate) is not None:
                joins.append(predicate)
            elif has_subquery(predicate) or can_fail(predicate, self.fallible):
                late.append(predicate)
            else:
                early.append(predicate)
        lowered = [self.scalar(row, predicate, ()) for predicate in early]
        row.relation = filter_(row.relation, lowered)
        for predicate in joins:
            found = existence(predicate)
            assert found is not None
            self.exists_filter(row, *found)
        if late:
            final = self.scalar(row, conjunction(late), ())
            row.relation = filter_(row.relation, conjuncts([final]))

    def exists_filter(self, row: Row, relation: Relation, negated: bool) -> None:
        """Keep the rows for which `relation` has a row (or, negated, has none)."""
        if not self.references(relation):
            counted = Reduce(self.apply(Project(relation, ()), NOTHING_OUTSIDE), (), (count_all(),))
            test = call("eq" if negated else "gt", Column(0, INT8, False), Literal(0, INT8))
            row.relation = Join((row.relation, Project(Filter(counted, (test,)), ())))
            return
        pulled = pull(relation, self.scopes, self.fallible)
        if pulled is not None:
            matched, missing, _ = self.pulled(row, self.pulled_keys(pulled), pulled)
            row.relation = missing if negated else matched
            return
        row.relation = self.let(row.relation)
        ours, keys = self.keys(row, relation)
        found = self.found(relation, keys)
        if negated:
            found = self.without(keys, found)
        row.relation = self.rejoin(row.relation, ours, found)

    def pulled_keys(self, pulled: PulledUp) -> Relation:
        """Return the distinct values for which a pulled-up relation has rows."""
        applied = self.apply(pulled.relation, NOTHING_OUTSIDE)
        types = columns_of(applied)
        first = len(types) - len(pulled.outer)
        return Reduce(applied, columns_at(types)[first:], ())

    def pulled(self, row: Row, keyed: Relation, pulled: PulledUp) -> tuple[Relation, Relation, int]:
        """Join `row` with `keyed`, and return unmatched rows separately.

        The last columns of `keyed`, unique in it, are the pulled-up ones. Also returns the number
        of columns before these; they follow the columns of the row.
        """
        row.relation = self.let(row.relation)
        width = len(row.types)
        ours = tuple(self.scalar(row, scalar, ()) for scalar in pulled.outer)
        types = columns_of(keyed)
        values = len(types) - len(ours)
        theirs = columns_at(types)[values:]
        equivalences = tuple((a, shift(b, width)) for a, b in zip(ours, theirs, strict=True))
        joined = Join((row.relation, keyed), equivalences)
        matched = self.let(Project(joined, tuple(range(width + values))))
        found = Project(matched, tuple(range(width)))
        return matched, Union((row.relation, Negate(found))), values

    def found(self, relation: Relation, keys: Outer) -> Relation:
        """Return the keys for which `relation` has a row."""
        return Reduce(self.apply(Project(relation, ()), keys), keys.columns(), ())

    def scalar(self, row: Row, scalar: Scalar, guards: tuple[Scalar, ...]) -> Scalar:
        """Return `scalar` over the columns of `row`, with the values of its subqueries appended.

        It is evaluated only where all `guards`, already lowered, are TRUE; they count only for
        subqueries.
        """
        match scalar:
            case Column(index=index, type=type, nullable=nullable):
                return Column(row.columns[index], type, nullable)
            case OuterColumn(level=level, index=index, type=type, nullable=nullable):
                place = row.outer.places[(level, index)]
                return value_of(Column(place, row.types[place].type, nullable), type)
            case Literal() | Parameter() | Arguments() | Environment():
                return scalar
            case Exists(relation=relation):
                return self.exists(row, relation, guards)
            case ScalarSubquery(relation=relation, type=type):
                return self.scalar_subquery(row, relation, type, guards)
            case AnySubquery():
                return self.any_subquery(row, scalar, guards)
            case Case(branches=branches, otherwise=otherwise, type=type):
                lowered: list[tuple[Scalar, Scalar]] = []
                guarded = has_subquery(scalar)
                for condition, result in branches:
                    test = self.scalar(row, for_truth(condition), guards)
                    inner = (*guards, test) if guarded else ()
                    lowered.append((test, self.scalar(row, result, inner)))
                    if guarded:
                        guards = (*guards, call("is_not_true", test))
                return Case(tuple(lowered), self.scalar(row, otherwise, guards), type)
            case And(args=args):
                return And(self.connective(row, args, guards, "is_not_false"))
            case Or(args=args):
                return Or(self.connective(row, args, guards, "is_not_true"))
            case Call(function="coalesce", args=args, type=type):
                values: list[Scalar] = []
                guarded = has_subquery(scalar)
                for arg in args:
                    values.append(self.scalar(row, arg, guards))
                    if guarded:
                        guards = (*guards, call("is_null", values[-1]))
                return Call("coalesce", tuple(values), type)
            case Call() | ErrorOf() | Once():
                operands = tuple(self.scalar(row, o, guards) for o in operands_of(scalar))
                return with_operands(scalar, operands)
            case _:
                assert_never(scalar)

    def connective(
        self, row: Row, args: tuple[Scalar, ...], guards: tuple[Scalar, ...], test: str
    ) -> tuple[Scalar, ...]:
        """Lower the operands of And or Or; subqueries only where other operands do not decide."""
        plain = {i: self.scalar(row, a, guards) for i, a in enumerate(args) if not has_subquery(a)}
        if len(plain) == len(args):
            return tuple(plain.values())
        inner = (*guards, *(call(test, value) for value in plain.values()))
        return tuple(
            plain[i] if i in plain else self.scalar(row, arg, inner) for i, arg in enumerate(args)
        )

    def references(self, relation: Relation) -> list[Reference]:
        """Return the references of `relation`, within a scalar, to the rows outside."""
        return sorted(self.scopes.of_relation(relation))

    def keys(self, row: Row, relation: Relation) -> tuple[tuple[Scalar, ...], Outer]:
        """Return the distinct keys of a row on which `relation` depends, and their references."""
        references = self.references(relation)
        places = sorted({row.place(reference) for reference in references})
        ours = keys_of(row.types, places)
        distinct = self.let(Reduce(row.relation, ours, ()))
        position = {place: i for i, place in enumerate(places)}
        found = {reference: position[row.place(reference)] for reference in references}
        return ours, Outer(distinct, columns_of(distinct), found)

    def applied(self, row: Row, relation: Relation) -> tuple[tuple[Scalar, ...], Relation]:
        """Return the keys of `relation`, over `row`, and `relation` applied to them."""
        if not self.references(relation):
            return (), self.apply(relation, NOTHING_OUTSIDE)
        ours, keys = self.keys(row, relation)
        return ours, self.apply(relation, keys)

    def value(
        self,
        row: Row,
        relation: Relation,
        guards: tuple[Scalar, ...],
        column: ColumnType,
        table: Callable[[Outer], Relation],
    ) -> Column:
        """Append to `row` the column that `table` computes from `relation` for each key."""
        if guards and not may_fail_within(relation, self.fallible):
            guards = ()
        if guards:
            test = conjunction(guards)
            whole = self.let(row.relation)
            row.relation = self.let(Filter(whole, guards))
        else:
            row.relation = self.let(row.relation)
        if self.references(relation):
            ours, keys = self.keys(row, relation)
            looked_up = self.rejoin(row.relation, ours, table(keys))
        else:
            looked_up = Join((row.relation, table(NOTHING_OUTSIDE)))
        if guards:
            others = Filter(whole, (call("is_not_true", test),))
            looked_up = Union((looked_up, Map(others, (Literal(None, column.type),))))
            column = ColumnType(column.type)
        return row.append(looked_up, column)

    def exists(self, row: Row, relation: Relation, guards: tuple[Scalar, ...]) -> Scalar:
        """Return whether `relation` has a row."""
        pulled = pull(relation, self.scopes, self.fallible)
        if pulled is not None:
            matched, missing, _ = self.pulled(row, self.pulled_keys(pulled), pulled)
            both = Union((Map(matched, (TRUE,)), Map(missing, (FALSE,))))
            return row.append(both, ColumnType(BOOL, False))

        def table(keys: Outer) -> Relation:
            if not keys.width:
                counted = Reduce(self.apply(Project(relation, ()), keys), (), (count_all(),))
                some = call("gt", Column(0, INT8, False), Literal(0, INT8))
                return Project(Map(counted, (some,)), (1,))
            found = self.let(self.found(relation, keys))
            return Union((Map(found, (TRUE,)), Map(self.without(keys, found), (FALSE,))))

        return self.value(row, relation, guards, ColumnType(BOOL, bool(guards)), table)

    def any_subquery(self, row: Row, scalar: AnySubquery, guards: tuple[Scalar, ...]) -> Scalar:
        """Return the three-valued OR over the rows: count those not FALSE, and those TRUE."""
        width = len(columns_of(scalar.relation))
        tested = Project(Map(scalar.relation, (scalar.predicate,)), (width,))

        def table(keys: Outer) -> Relation:
            applied = self.apply(tested, keys)
            verdict = Column(keys.width, BOOL)
            open = Filter(applied, (call("is_not_false", verdict),))
            counts = (
                count_all(),
                Aggregate("count", (), INT8, filter=verdict),
            )
            groups = self.let(Reduce(open, keys.columns(), counts))
            any, true = (Column(keys.width + i, INT8, False) for i in range(2))
            zero = Literal(0, INT8)
            branches = (
                (call("gt", true, zero), TRUE),
                (call("gt", any, zero), Literal(None, BOOL)),
            )
            outputs = (*range(keys.width), keys.width + 2)
            present = Project(Map(groups, (Case(branches, FALSE, BOOL),)), outputs)
            if not keys.width:
                return present
            missing = self.without(keys, Project(groups, tuple(range(keys.width))))
            return Union((present, Map(missing, (FALSE,))))

        return self.value(row, tested, guards, ColumnType(BOOL), table)

    def scalar_subquery(
        self, row: Row, relation: Relation, type: SqlType, guards: tuple[Scalar, ...]
    ) -> Scalar:
        """Return the one value of `relation`, NULL if it has no row."""
        computed = self.computed(row, relation, guards)
        if computed is not None:
            return computed
        looked_up = self.pulled_value(row, relation, type)
        if looked_up is not None:
            return looked_up

        def table(keys: Outer) -> Relation:
            applied = self.apply(relation, keys)
            if _always_one_row(relation):
                return applied
            values = self.let(applied)
            width = keys.width
            places = tuple(range(width))
            if at_most_one_row(relation) or is_unique(values, places, self.values):
                found: Relation = Project(values, places)
                checked = values
            else:
                groups = self.let(Reduce(values, keys.columns(), (count_all(),)))
                check = call("single_row_check", Column(width, INT8, False))
                failing = Project(Filter(groups, (check,)), places)
                null = (Literal(None, type),)
                checked = Union((values, Map(failing, null)))
                found = Project(groups, places)
                if not width:  # without keys, this group exists even if there are no rows
                    some = call("gt", Column(0, INT8, False), Literal(0, INT8))
                    found = Project(Filter(groups, (some,)), ())
            missing = self.without(keys, found)
            return Union((checked, Map(missing, (Literal(None, type),))))

        return self.value(row, relation, guards, ColumnType(type), table)

    def computed(self, row: Row, relation: Relation, guards: tuple[Scalar, ...]) -> Scalar | None:
        """Return the value of `(SELECT scalar)` without FROM as a scalar of the current row.

        Returns None for any other form of subquery.
        """
        above: list[Map | Project] = []
        while isinstance(relation, Map | Project):
            above.append(relation)
            relation = relation.input
        if not isinstance(relation, Join) or relation.inputs:
            return None
        within = row.within()
        for node in reversed(above):
            if isinstance(node, Project):
                within.columns = [within.columns[i] for i in node.outputs]
                continue
            for scalar in node.scalars:
                lowered = self.scalar(within, scalar, guards)
                if guards and can_fail(lowered, self.fallible):
                    type = type_of(lowered)
                    lowered = Case(((conjunction(guards), lowered),), Literal(None, type), type)
                mapped = Map(within.relation, (lowered,))
                column = within.append(mapped, columns_of(mapped)[-1])
                within.columns.append(column.index)
        row.relation, row.types = within.relation, within.types
        (place,) = within.columns
        return Column(place, row.types[place].type, row.types[place].nullable)

    def pulled_value(self, row: Row, relation: Relation, type: SqlType) -> Scalar | None:
        """Return the value of a scalar subquery whose correlation can be pulled up, or None."""
        above: list[Map | Project] = []
        inner = relation
        while isinstance(inner, Map | Project):
            above.append(inner)
            inner = inner.input
        if isinstance(inner, Reduce) and not inner.group_key:
            if any(has_subquery(s) for node in (*above, inner) for s in scalars_of(node)):
                return None
            if any(level for s in scalars_of(inner) for level, _ in self.scopes.of_scalar(s)):
                return None
            return self.pulled_aggregate(row, above, inner)
        pulled = pull(relation, self.scopes, self.fallible)
        if pulled is None:
            return None
        keyed = self.let(self.apply(pulled.relation, NOTHING_OUTSIDE))
        if not is_unique(keyed, range(1, 1 + len(pulled.outer)), self.values):
            return None
        matched, missing, _ = self.pulled(row, keyed, pulled)
        both = Union((matched, Map(missing, (Literal(None, type),))))
        return row.append(both, ColumnType(type))

    def pulled_aggregate(
        self, row: Row, above: Sequence[Map | Project], reduce: Reduce
    ) -> Scalar | None:
        """Return the value of an aggregate over all rows, and the scalar computed from it.

        The scalar is computed for each row, so it fails only where it is evaluated.
        """
        pulled = pull(reduce.input, self.scopes, self.fallible)
        scalars = [*scalars_of(reduce)]
        if pulled is None or any(can_fail(scalar, self.fallible) for scalar in scalars):
            return None
        applied = self.apply(pulled.relation, NOTHING_OUTSIDE)
        types = columns_of(applied)
        keys = len(pulled.outer)
        grouped = Reduce(applied, columns_at(types)[len(types) - keys :], reduce.aggregates)
        total = keys + len(reduce.aggregates)
        keyed = Project(grouped, (*range(keys, total), *range(keys)))
        matched, missing, _ = self.pulled(row, keyed, pulled)
        both = Union((matched, Map(missing, over_no_rows(reduce.aggregates))))
        columns: list[Scalar] = []
        row.relation = both
        for column in columns_of(both)[len(row.types) :]:
            columns.append(row.append(both, column))
        for node in reversed(above):
            if isinstance(node, Project):
                columns = [columns[i] for i in node.outputs]
            else:
                for scalar in node.scalars:
                    columns.append(self.over(row, scalar, columns))
        return columns[0]

    def over(self, row: Row, scalar: Scalar, columns: Sequence[Scalar]) -> Scalar:
        """Return a scalar of a subquery over the outer row; `columns` are the subquery's own."""
        match scalar:
            case Column(index=index):
                return columns[index]
            case OuterColumn(level=level, index=index, type=type, nullable=nullable):
                place = row.place((level, index))
                return value_of(Column(place, row.types[place].type, nullable), type)
            case _:
                operands = tuple(self.over(row, o, columns) for o in operands_of(scalar))
                return with_operands(scalar, operands)


def _always_one_row(relation: Relation) -> bool:
    """Return whether `relation` has exactly one row by its form: an aggregate without GROUP BY."""
    while isinstance(relation, Map | Project):
        relation = relation.input
    return isinstance(relation, Reduce) and not relation.group_key


def over_no_rows(aggregates: Sequence[Aggregate]) -> tuple[Literal, ...]:
    """Return the values of the aggregates over no rows."""
    return tuple(Literal(0 if a.function == "count" else None, a.type) for a in aggregates)
