"""Lowering: every subquery and every outer join as plain relational algebra.

A subquery is a function of the row in which it stands, and a plan has no functions of rows. So it
is computed for all rows at once. Of the rows at hand, those columns are taken on which the
subquery depends, each combination once: the *keys*. The subquery is *applied* to them, every
operator in it keeping the key it works for as its first columns (a product at the leaves, a longer
group key in aggregates), and what comes out, key and value, is joined back to the rows.

    SELECT a, (SELECT count(*) FROM u WHERE u.b = t.a) FROM t

    keys    Reduce(t, [a], [])
    counts  Reduce(Filter(Join(keys, u), a = b), [a], [count])
    all     Union(counts, Map(Union(keys, Negate(Project(counts, [a]))), 0))
    result  Join(t, all) on a, where NULL is a key like any other

Operators that give something for nothing, the aggregate without GROUP BY, EXISTS and the scalar
subquery, are completed for the keys that got nothing. What does not depend on the row is computed
once. An outer join is its inner join and, padded with NULLs, the rows whose columns used in ON are
not among those that found a partner. Multiplicities are exact throughout: keys are distinct, and
what is negated has been there.

A subquery that may fail is applied only to the rows for which Case, And and Or let it be
evaluated, as far as their other operands tell. One that gives several rows where one is wanted
fails in a Filter that is never TRUE (`single_row_check`) beside its rows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import assert_never

from foreshore.errors import FeatureNotSupported
from foreshore.expr.ir import (
    FALSE,
    TRUE,
    Aggregate,
    And,
    AnySubquery,
    Call,
    Case,
    Column,
    Constant,
    Environment,
    ErrorOf,
    Exists,
    Filter,
    FlatMap,
    Get,
    Join,
    JoinOn,
    Let,
    Literal,
    LocalGet,
    Map,
    Negate,
    Or,
    OrderKey,
    OuterColumn,
    Parameter,
    Project,
    Reduce,
    Relation,
    Scalar,
    ScalarSubquery,
    Threshold,
    TopK,
    Union,
    check_lowered,
    columns_of,
    count_all,
    operands_of,
    scalars_of,
    walk_relations,
    with_operands,
)
from foreshore.expr.share import allow_depth, share
from foreshore.expr.split import Test, can_fail, may_fail, shift
from foreshore.sql.lower_equi import EquiCondition, Pulled, equi_condition, pull
from foreshore.sql.lower_outer import (
    Reference,
    Scopes,
    at_most_one_row,
    has_subquery,
    may_fail_within,
    put_in,
)
from foreshore.sql.lower_truth import call, existence, for_truth
from foreshore.sql.optimize.properties import is_unique
from foreshore.sql.optimize.scalars import conjunction, conjuncts
from foreshore.types import BOOL, INT8, ColumnType, SqlType


def lower(relation: Relation, fallible: Test = may_fail) -> Relation:
    """Return `relation` in the lowered form; raises FeatureNotSupported."""
    allow_depth()
    lowered = _Lowering(relation, fallible).run(relation)
    check_lowered(lowered)
    return lowered


@dataclass(frozen=True)
class _Outer:
    """The keys that a relation is applied to: distinct rows, and where references find them."""

    relation: Relation
    types: tuple[ColumnType, ...]
    places: dict[Reference, int]

    @property
    def width(self) -> int:
        return len(self.types)

    def columns(self) -> tuple[Column, ...]:
        return tuple(Column(i, c.type, c.nullable) for i, c in enumerate(self.types))


_NOTHING_OUTSIDE = _Outer(Join(()), (), {})


class _Row:
    """The rows at hand, to which the results of subqueries are appended as columns.

    `columns` says where the columns are that the scalars of the node know by their positions.
    """

    def __init__(self, relation: Relation, columns: Sequence[int], outer: _Outer) -> None:
        self.relation = relation
        self.columns = list(columns)
        self.outer = outer
        self.types = list(columns_of(relation))

    def place(self, reference: Reference) -> int:
        """Return where the column is that a subquery here knows by `reference`."""
        level, index = reference
        return self.columns[index] if level == 1 else self.outer.places[(level - 1, index)]

    def append(self, relation: Relation, column: ColumnType) -> Column:
        """Let `relation` be the rows, which has one column more."""
        self.relation = relation
        self.types.append(column)
        return Column(len(self.types) - 1, column.type, column.nullable)

    def identity(self) -> tuple[int, ...]:
        return tuple(range(len(self.types)))


def _filter(relation: Relation, predicates: Sequence[Scalar]) -> Relation:
    return Filter(relation, tuple(predicates)) if predicates else relation


class _Lowering:
    def __init__(self, relation: Relation, fallible: Test) -> None:
        self.fallible = fallible
        self.scopes = Scopes()
        self.next_number = 1 + max(
            (node.number for node in walk_relations(relation) if isinstance(node, Let | LocalGet)),
            default=-1,
        )
        self.bindings: list[tuple[int, Relation]] = []
        self.values: dict[int, Relation] = {}  # the same, by number
        self.locals: dict[int, Relation] = {}  # what a LocalGet of the bound plan now is

    def run(self, relation: Relation) -> Relation:
        body = self.apply(relation, _NOTHING_OUTSIDE)
        for number, value in reversed(self.bindings):
            body = Let(number, value, body)
        return share(body)

    def let(self, value: Relation) -> Relation:
        """Return a relation that may be used several times for `value`."""
        if isinstance(value, Get | LocalGet | Constant):
            return value
        number = self.next_number
        self.next_number += 1
        self.bindings.append((number, value))
        self.values[number] = value
        return LocalGet(number, columns_of(value))

    # --- relations -------------------------------------------------------------------------

    def apply(self, relation: Relation, outer: _Outer) -> Relation:
        """Return each of the rows of `outer` beside the rows of `relation` for it."""
        if outer.width and not self.scopes.of_relation(relation):
            return Join((outer.relation, self.apply(relation, _NOTHING_OUTSIDE)))
        match relation:
            case Constant() | Get():
                return relation
            case LocalGet(number=number):
                return self.locals.get(number, relation)
            case Let(number=number, value=value, body=body):
                if self.scopes.of_relation(value):
                    return self.apply(put_in(body, number, value), outer)
                shadowed = self.locals.get(number)
                self.locals[number] = self.let(self.apply(value, _NOTHING_OUTSIDE))
                result = self.apply(body, outer)
                if shadowed is None:
                    del self.locals[number]
                else:
                    self.locals[number] = shadowed
                return result
            case Map(input=input, scalars=scalars):
                row = self.row(input, outer)
                for scalar in scalars:
                    lowered = self.scalar(row, scalar, ())
                    column = columns_of(Map(row.relation, (lowered,)))[-1]
                    appended = row.append(Map(row.relation, (lowered,)), column)
                    row.columns.append(appended.index)
                return self.close(row)
            case Filter(input=input, predicates=predicates):
                row = self.row(input, outer)
                self.filter(row, predicates)
                return self.close(row)
            case Project(input=input, outputs=outputs):
                row = self.row(input, outer)
                row.columns = [row.columns[i] for i in outputs]
                return self.close(row)
            case FlatMap(input=input, function=function, args=args, columns=columns):
                row = self.row(input, outer)
                lowered_args = tuple(self.scalar(row, arg, ()) for arg in args)
                start = len(row.types)
                row.relation = FlatMap(row.relation, function, lowered_args, columns)
                row.types += columns
                row.columns += range(start, start + len(columns))
                return self.close(row)
            case Reduce():
                return self.reduce(relation, outer)
            case TopK():
                return self.top_k(relation, outer)
            case Negate(input=input):
                return Negate(self.apply(input, outer))
            case Threshold(input=input):
                return Threshold(self.apply(input, outer))
            case Union(inputs=inputs):
                return Union(tuple(self.apply(input, outer) for input in inputs))
            case Join():
                return self.join(relation, outer)
            case JoinOn():
                return self.join_on(relation, outer)
            case _:
                assert_never(relation)

    def row(self, relation: Relation, outer: _Outer) -> _Row:
        """Return the rows of `relation` applied to `outer`, to evaluate scalars in."""
        applied = self.apply(relation, outer)
        width = len(columns_of(applied))
        return _Row(applied, range(outer.width, width), outer)

    def close(self, row: _Row) -> Relation:
        """Return the rows with the keys and the node's columns, and no others."""
        wanted = (*range(row.outer.width), *row.columns)
        return row.relation if wanted == row.identity() else Project(row.relation, wanted)

    def reduce(self, reduce: Reduce, outer: _Outer) -> Relation:
        row = self.row(reduce.input, outer)
        key = [self.scalar(row, scalar, ()) for scalar in reduce.group_key]
        aggregates = tuple(self.aggregate(row, a) for a in reduce.aggregates)
        result = Reduce(row.relation, (*outer.columns(), *key), aggregates)
        if reduce.group_key or not outer.width:
            return result
        groups = self.let(result)
        width = outer.width
        missing = self.without(outer, Project(groups, tuple(range(width))))
        return Union((groups, Map(missing, _over_nothing(reduce.aggregates))))

    def without(self, outer: _Outer, found: Relation) -> Relation:
        """Return the keys that are not among `found`, which holds each key once at most."""
        return Union((outer.relation, Negate(found)))

    def aggregate(self, row: _Row, aggregate: Aggregate) -> Aggregate:
        filter = aggregate.filter
        guards: tuple[Scalar, ...] = ()
        if filter is not None:
            filter = self.scalar(row, filter, ())
            guards = (filter,)
        args = tuple(self.scalar(row, arg, guards) for arg in aggregate.args)
        order_by = tuple(self.order_key(row, key, guards) for key in aggregate.order_by)
        return Aggregate(
            aggregate.function, args, aggregate.type, aggregate.distinct, filter, order_by
        )

    def order_key(self, row: _Row, key: OrderKey, guards: tuple[Scalar, ...]) -> OrderKey:
        return OrderKey(self.scalar(row, key.expr, guards), key.descending, key.nulls_first)

    def top_k(self, top_k: TopK, outer: _Outer) -> Relation:
        for bound in (top_k.limit, top_k.offset):
            if bound is not None and (has_subquery(bound) or self.scopes.of_scalar(bound)):
                raise FeatureNotSupported("LIMIT and OFFSET that depend on other rows")
        row = self.row(top_k.input, outer)
        keys = tuple(self.order_key(row, key, ()) for key in top_k.order_key)
        group = (*range(outer.width), *(row.columns[i] for i in top_k.group_key))
        row.relation = TopK(row.relation, group, keys, top_k.limit, top_k.offset)
        return self.close(row)

    # --- joins -----------------------------------------------------------------------------

    def join(self, join: Join, outer: _Outer) -> Relation:
        """Apply a join of the lowered form, some of whose inputs may depend on the outer row."""
        if not outer.width:
            inputs = tuple(self.apply(input, outer) for input in join.inputs)
            return Join(inputs, join.equivalences, join.null_safe)
        width = outer.width
        parts = [outer.relation]
        equivalences: list[tuple[Scalar, ...]] = [(column,) for column in outer.columns()]
        places: list[int] = []
        for input in join.inputs:
            start = sum(len(columns_of(i)) for i in parts)
            correlated = bool(self.scopes.of_relation(input))
            parts.append(self.apply(input, outer if correlated else _NOTHING_OUTSIDE))
            if correlated:
                for i, column in enumerate(outer.columns()):
                    key = Column(start + i, column.type, column.nullable)
                    equivalences[i] = (*equivalences[i], key)
            places += range(
                start + (width if correlated else 0), start + len(columns_of(parts[-1]))
            )
        row = _Row(Join(tuple(parts)), places, outer)
        for equivalence in join.equivalences:
            equivalences.append(tuple(self.scalar(row, scalar, ()) for scalar in equivalence))
        null_safe = (*range(width), *(width + i for i in join.null_safe))
        row.relation = Join(tuple(parts), tuple(equivalences), null_safe)
        return self.close(row)

    def beside(self, left: Relation, right: Relation, outer: _Outer, correlated: bool) -> _Row:
        """Return the product of the two sides for each key; `left` has the key, `right` may."""
        keys = outer.width
        start = len(columns_of(left))
        if not correlated:
            return _Row(Join((left, right)), range(keys, start + len(columns_of(right))), outer)
        joined = self.rejoin(left, tuple(range(keys)), right)
        return _Row(joined, range(keys, len(columns_of(joined))), outer)

    def rejoin(self, rows: Relation, places: tuple[int, ...], keyed: Relation) -> Relation:
        """Return `rows` beside what `keyed` has, after its first columns, for their keys.

        The keys are the first columns of `keyed`, those at `places` in `rows`.
        """
        types = columns_of(rows)
        width = len(types)
        equivalences = []
        for i, place in enumerate(places):
            column = types[place]
            ours = Column(place, column.type, column.nullable)
            equivalences.append((ours, Column(width + i, column.type, column.nullable)))
        null_safe = tuple(range(len(places)))
        joined = Join((rows, keyed), tuple(equivalences), null_safe)
        total = width + len(columns_of(keyed))
        return Project(joined, (*range(width), *range(width + len(places), total)))

    def join_on(self, join: JoinOn, outer: _Outer) -> Relation:
        left = self.let(self.apply(join.left, outer))
        width = outer.width
        left_width = len(columns_of(left)) - width
        used = self.scopes.of_scalar(join.on)
        on_left = {width + i for level, i in used if level == 0 and i < left_width}
        on_outer = {outer.places[reference] for reference in used if reference[0] > 0}
        if join.lateral:
            assert join.kind in ("inner", "left"), join
            places, right = self.applied(
                _Row(left, range(width, width + left_width), outer), join.right
            )
            row = _Row(self.rejoin(left, places, right), (), outer)
            row.columns = list(range(width, len(row.types)))
            depends = {*on_left, *on_outer, *places}
        else:
            condition = equi_condition(join.on, left_width, self.fallible) if not on_outer else None
            if condition is not None and join.kind != "inner":
                return self.equi_outer_join(join, left, condition, outer)
            correlated = bool(self.scopes.of_relation(join.right)) or (
                bool(width) and join.kind in ("right", "full")
            )
            right = self.apply(join.right, outer if correlated else _NOTHING_OUTSIDE)
            if join.kind != "inner":
                right = self.let(right)
            row = self.beside(left, right, outer, correlated)
            depends = {*on_left, *on_outer, *(range(width) if correlated else ())}
        self.filter(row, (join.on,))
        inner = self.close(row)
        if join.kind == "inner":
            return inner
        inner = self.let(inner)
        total = len(columns_of(inner))
        padding = columns_of(inner)
        parts: list[Relation] = [inner]
        if join.kind in ("left", "full"):
            unmatched = self.unmatched(left, inner, sorted(depends), sorted(depends))
            nulls = tuple(Literal(None, c.type) for c in padding[width + left_width :])
            parts.append(Map(unmatched, nulls))
        if join.kind in ("right", "full"):
            on_right = {i for level, i in used if level == 0 and i >= left_width}
            of_right = sorted(width + i - left_width for i in on_right)
            keys = sorted({*on_outer, *range(width)})
            unmatched = self.unmatched(
                right, inner, [*keys, *of_right], [*keys, *(i + left_width for i in of_right)]
            )
            nulls = tuple(Literal(None, c.type) for c in padding[width : width + left_width])
            padded = Map(unmatched, nulls)
            own = total - left_width
            order = (*range(width), *range(own, total), *range(width, own))
            parts.append(Project(padded, order))
        return Union(tuple(parts))

    def equi_outer_join(
        self, join: JoinOn, left: Relation, condition: EquiCondition, outer: _Outer
    ) -> Relation:
        """Return an outer join on equalities: what has no partner is told by the keys alone."""
        width = outer.width
        correlated = bool(self.scopes.of_relation(join.right)) or (width and join.kind != "left")
        right = self.let(self.apply(join.right, outer if correlated else _NOTHING_OUTSIDE))
        shared = width if correlated else 0
        keys = outer.columns()[:shared]
        left_keys = (*keys, *(shift(a, width) for a, _ in condition.pairs))
        right_keys = (*keys, *(shift(b, shared) for _, b in condition.pairs))
        lefts = self.let(_filter(left, [shift(p, width) for p in condition.left]))
        rights = self.let(_filter(right, [shift(p, shared) for p in condition.right]))
        left_width, right_width = len(columns_of(left)), len(columns_of(right))
        inner = Project(
            _equi_join(lefts, left_keys, rights, right_keys, shared),
            (*range(left_width), *range(left_width + shared, left_width + right_width)),
        )
        parts: list[Relation] = [inner]
        if join.kind in ("left", "full"):
            found = self.distinct(rights, right_keys)
            matched = Project(
                _equi_join(lefts, left_keys, found, None, shared), tuple(range(left_width))
            )
            nulls = tuple(Literal(None, c.type) for c in columns_of(right)[shared:])
            parts.append(Map(Union((left, Negate(matched))), nulls))
        if join.kind in ("right", "full"):
            found = self.distinct(lefts, left_keys)
            matched = Project(
                _equi_join(rights, right_keys, found, None, shared), tuple(range(right_width))
            )
            nulls = tuple(Literal(None, c.type) for c in columns_of(left)[width:])
            padded = Map(Union((right, Negate(matched))), nulls)
            own = range(right_width, right_width + len(nulls))
            parts.append(Project(padded, (*range(shared), *own, *range(shared, right_width))))
        return Union(tuple(parts))

    def distinct(self, rows: Relation, keys: Sequence[Scalar]) -> Relation:
        """Return the values of `keys` in `rows`, each once."""
        return Reduce(rows, tuple(keys), ())

    def unmatched(
        self, rows: Relation, inner: Relation, places: Sequence[int], in_inner: Sequence[int]
    ) -> Relation:
        """Return those of `rows` that no row of `inner` agrees with in the columns at `places`."""
        if not places:
            some = Reduce(Project(inner, ()), (), (count_all(),))
            none = Filter(some, (call("eq", Column(0, INT8, False), Literal(0, INT8)),))
            return Join((rows, Project(none, ())))
        types = columns_of(rows)
        keys = tuple(
            Column(i, types[place].type, types[place].nullable) for i, place in enumerate(places)
        )
        found = Reduce(Project(inner, tuple(in_inner)), keys, ())
        matched = self.rejoin(rows, tuple(places), found)
        return Union((rows, Negate(matched)))

    # --- predicates ------------------------------------------------------------------------

    def filter(self, row: _Row, predicates: Sequence[Scalar]) -> None:
        """Keep those of the rows for which all `predicates` are TRUE.

        What cannot fail and has no subquery goes first, then EXISTS, IN and their negations, which
        are joins; what may fail goes last, and is evaluated for the rows that are left.
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
        row.relation = _filter(row.relation, lowered)
        for predicate in joins:
            found = existence(predicate)
            assert found is not None
            self.exists_filter(row, *found)
        if late:
            final = self.scalar(row, conjunction(late), ())
            row.relation = _filter(row.relation, conjuncts([final]))

    def exists_filter(self, row: _Row, relation: Relation, negated: bool) -> None:
        """Keep the rows for which `relation` has a row, or those for which it has none."""
        if not self.references(relation):
            counted = Reduce(
                self.apply(Project(relation, ()), _NOTHING_OUTSIDE), (), (count_all(),)
            )
            test = call("eq" if negated else "gt", Column(0, INT8, False), Literal(0, INT8))
            row.relation = Join((row.relation, Project(Filter(counted, (test,)), ())))
            return
        pulled = pull(relation, self.scopes, self.fallible)
        if pulled is not None:
            matched, missing, _ = self.pulled(row, self.pulled_keys(pulled), pulled)
            row.relation = missing if negated else matched
            return
        row.relation = self.let(row.relation)
        places, keys = self.keys(row, relation)
        found = self.found(relation, keys)
        if negated:
            found = self.without(keys, found)
        row.relation = self.rejoin(row.relation, places, found)

    def pulled_keys(self, pulled: Pulled) -> Relation:
        """Return the values, each once, for which a pulled relation has rows."""
        applied = self.apply(pulled.relation, _NOTHING_OUTSIDE)
        types = columns_of(applied)
        first = len(types) - len(pulled.outer)
        return Reduce(applied, _columns(types)[first:], ())

    def pulled(self, row: _Row, keyed: Relation, pulled: Pulled) -> tuple[Relation, Relation, int]:
        """Return the rows of `row` beside those of `keyed` for them, and those that have none.

        The last columns of `keyed`, unique in it, are the pulled ones. Also returns how many it has
        before these; they come after the row's.
        """
        row.relation = self.let(row.relation)
        width = len(row.types)
        ours = tuple(self.scalar(row, scalar, ()) for scalar in pulled.outer)
        types = columns_of(keyed)
        values = len(types) - len(ours)
        theirs = _columns(types)[values:]
        equivalences = tuple((a, shift(b, width)) for a, b in zip(ours, theirs, strict=True))
        joined = Join((row.relation, keyed), equivalences)
        matched = self.let(Project(joined, tuple(range(width + values))))
        found = Project(matched, tuple(range(width)))
        return matched, Union((row.relation, Negate(found))), values

    def found(self, relation: Relation, keys: _Outer) -> Relation:
        """Return the keys for which `relation` has a row."""
        return Reduce(self.apply(Project(relation, ()), keys), keys.columns(), ())

    # --- scalars ---------------------------------------------------------------------------

    def scalar(self, row: _Row, scalar: Scalar, guards: tuple[Scalar, ...]) -> Scalar:
        """Return `scalar` over the columns of `row`, to which its subqueries' values are appended.

        It is evaluated where all `guards`, lowered already, are TRUE.
        """
        match scalar:
            case Column(index=index, type=type, nullable=nullable):
                return Column(row.columns[index], type, nullable)
            case OuterColumn(level=level, index=index, type=type, nullable=nullable):
                return Column(row.outer.places[(level, index)], type, nullable)
            case Literal() | Parameter() | Environment():
                return scalar
            case Exists(relation=relation):
                return self.exists(row, relation, guards)
            case ScalarSubquery(relation=relation, type=type):
                return self.scalar_subquery(row, relation, type, guards)
            case AnySubquery():
                return self.any_subquery(row, scalar, guards)
            case Case(branches=branches, otherwise=otherwise, type=type):
                lowered: list[tuple[Scalar, Scalar]] = []
                for condition, result in branches:
                    test = self.scalar(row, for_truth(condition), guards)
                    lowered.append((test, self.scalar(row, result, (*guards, test))))
                    guards = (*guards, call("is_not_true", test))
                return Case(tuple(lowered), self.scalar(row, otherwise, guards), type)
            case And(args=args):
                return And(self.connected(row, args, guards, "is_not_false"))
            case Or(args=args):
                return Or(self.connected(row, args, guards, "is_not_true"))
            case Call(function="coalesce", args=args, type=type):
                values: list[Scalar] = []
                for arg in args:
                    values.append(self.scalar(row, arg, guards))
                    guards = (*guards, call("is_null", values[-1]))
                return Call("coalesce", tuple(values), type)
            case Call() | ErrorOf():
                operands = tuple(self.scalar(row, o, guards) for o in operands_of(scalar))
                return with_operands(scalar, operands)
            case _:
                assert_never(scalar)

    def connected(
        self, row: _Row, args: tuple[Scalar, ...], guards: tuple[Scalar, ...], test: str
    ) -> tuple[Scalar, ...]:
        """Lower the operands of And or Or, those with subqueries where the others leave it open."""
        plain = {i: self.scalar(row, a, guards) for i, a in enumerate(args) if not has_subquery(a)}
        inner = (*guards, *(call(test, value) for value in plain.values()))
        return tuple(
            plain[i] if i in plain else self.scalar(row, arg, inner) for i, arg in enumerate(args)
        )

    def references(self, relation: Relation) -> list[Reference]:
        """Return what `relation`, within a scalar, uses of the rows outside."""
        return sorted(self.scopes.of_relation(relation))

    def keys(self, row: _Row, relation: Relation) -> tuple[tuple[int, ...], _Outer]:
        """Return where in `row` the columns are that `relation` depends on, and their values."""
        references = self.references(relation)
        places = tuple(sorted({row.place(reference) for reference in references}))
        types = tuple(row.types[place] for place in places)
        columns = tuple(
            Column(place, t.type, t.nullable) for place, t in zip(places, types, strict=True)
        )
        position = {place: i for i, place in enumerate(places)}
        distinct = self.let(Reduce(row.relation, columns, ()))
        found = {reference: position[row.place(reference)] for reference in references}
        return places, _Outer(distinct, types, found)

    def applied(self, row: _Row, relation: Relation) -> tuple[tuple[int, ...], Relation]:
        """Return where in `row` the keys of `relation` are, and it applied to them."""
        if not self.references(relation):
            return (), self.apply(relation, _NOTHING_OUTSIDE)
        places, keys = self.keys(row, relation)
        return places, self.apply(relation, keys)

    def value(
        self,
        row: _Row,
        relation: Relation,
        guards: tuple[Scalar, ...],
        column: ColumnType,
        table: Callable[[_Outer], Relation],
    ) -> Column:
        """Append to `row` a column: what `table` makes, for each key, of `relation`."""
        if guards and not may_fail_within(relation, self.fallible):
            guards = ()
        if guards:
            test = conjunction(guards)
            whole = self.let(row.relation)
            row.relation = self.let(Filter(whole, guards))
        else:
            row.relation = self.let(row.relation)
        if self.references(relation):
            places, keys = self.keys(row, relation)
            looked_up = self.rejoin(row.relation, places, table(keys))
        else:
            looked_up = Join((row.relation, table(_NOTHING_OUTSIDE)))
        if guards:
            others = Filter(whole, (call("is_not_true", test),))
            looked_up = Union((looked_up, Map(others, (Literal(None, column.type),))))
            column = ColumnType(column.type)
        return row.append(looked_up, column)

    def exists(self, row: _Row, relation: Relation, guards: tuple[Scalar, ...]) -> Scalar:
        pulled = pull(relation, self.scopes, self.fallible)
        if pulled is not None:
            matched, missing, _ = self.pulled(row, self.pulled_keys(pulled), pulled)
            both = Union((Map(matched, (TRUE,)), Map(missing, (FALSE,))))
            return row.append(both, ColumnType(BOOL, False))

        def table(keys: _Outer) -> Relation:
            if not keys.width:
                counted = Reduce(self.apply(Project(relation, ()), keys), (), (count_all(),))
                some = call("gt", Column(0, INT8, False), Literal(0, INT8))
                return Project(Map(counted, (some,)), (1,))
            found = self.let(self.found(relation, keys))
            return Union((Map(found, (TRUE,)), Map(self.without(keys, found), (FALSE,))))

        return self.value(row, relation, guards, ColumnType(BOOL, bool(guards)), table)

    def any_subquery(self, row: _Row, scalar: AnySubquery, guards: tuple[Scalar, ...]) -> Scalar:
        width = len(columns_of(scalar.relation))
        tested = Project(Map(scalar.relation, (scalar.predicate,)), (width,))

        def table(keys: _Outer) -> Relation:
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
        self, row: _Row, relation: Relation, type: SqlType, guards: tuple[Scalar, ...]
    ) -> Scalar:
        looked_up = self.pulled_value(row, relation, type)
        if looked_up is not None:
            return looked_up

        def table(keys: _Outer) -> Relation:
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
                if not width:  # this group is there also where no row is
                    some = call("gt", Column(0, INT8, False), Literal(0, INT8))
                    found = Project(Filter(groups, (some,)), ())
            missing = self.without(keys, found)
            return Union((checked, Map(missing, (Literal(None, type),))))

        return self.value(row, relation, guards, ColumnType(type), table)

    def pulled_value(self, row: _Row, relation: Relation, type: SqlType) -> Scalar | None:
        """Return the value of a scalar subquery whose correlation can be pulled up, else None."""
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
        keyed = self.let(self.apply(pulled.relation, _NOTHING_OUTSIDE))
        if not is_unique(keyed, range(1, 1 + len(pulled.outer)), self.values):
            return None
        matched, missing, _ = self.pulled(row, keyed, pulled)
        both = Union((matched, Map(missing, (Literal(None, type),))))
        return row.append(both, ColumnType(type))

    def pulled_aggregate(
        self, row: _Row, above: Sequence[Map | Project], reduce: Reduce
    ) -> Scalar | None:
        """Return the value of an aggregate over all rows, and what is computed of it.

        It is computed for each row, as a scalar; so it fails only where it is evaluated.
        """
        pulled = pull(reduce.input, self.scopes, self.fallible)
        scalars = [*scalars_of(reduce)]
        if pulled is None or any(can_fail(scalar, self.fallible) for scalar in scalars):
            return None
        applied = self.apply(pulled.relation, _NOTHING_OUTSIDE)
        types = columns_of(applied)
        keys = len(pulled.outer)
        grouped = Reduce(applied, _columns(types)[len(types) - keys :], reduce.aggregates)
        total = keys + len(reduce.aggregates)
        keyed = Project(grouped, (*range(keys, total), *range(keys)))
        matched, missing, _ = self.pulled(row, keyed, pulled)
        both = Union((matched, Map(missing, _over_nothing(reduce.aggregates))))
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

    def over(self, row: _Row, scalar: Scalar, columns: Sequence[Scalar]) -> Scalar:
        """Return a scalar within a subquery, whose own columns are `columns` of the row outside."""
        match scalar:
            case Column(index=index):
                return columns[index]
            case OuterColumn(level=level, index=index, type=type, nullable=nullable):
                return Column(row.place((level, index)), type, nullable)
            case _:
                operands = tuple(self.over(row, o, columns) for o in operands_of(scalar))
                return with_operands(scalar, operands)


def _always_one_row(relation: Relation) -> bool:
    """Whether `relation` by its form has exactly one row: an aggregate without GROUP BY."""
    while isinstance(relation, Map | Project):
        relation = relation.input
    return isinstance(relation, Reduce) and not relation.group_key


def _over_nothing(aggregates: Sequence[Aggregate]) -> tuple[Literal, ...]:
    """Return what the aggregates are over no rows."""
    return tuple(Literal(0 if a.function == "count" else None, a.type) for a in aggregates)


def _columns(types: Sequence[ColumnType]) -> tuple[Column, ...]:
    return tuple(Column(i, c.type, c.nullable) for i, c in enumerate(types))


def _equi_join(
    rows: Relation,
    keys: Sequence[Scalar],
    others: Relation,
    other_keys: Sequence[Scalar] | None,
    shared: int,
) -> Relation:
    """Join on `keys` and `other_keys` (None: all columns), the first `shared` NULL-safe."""
    start = len(columns_of(rows))
    theirs = _columns(columns_of(others)) if other_keys is None else other_keys
    equivalences = tuple((a, shift(b, start)) for a, b in zip(keys, theirs, strict=True))
    return Join((rows, others), equivalences, tuple(range(shared)))
