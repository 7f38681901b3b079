"""Lower joins: an outer join is its inner join and the padded rows without a match.

Unmatched rows are found by the columns used in ON: rows whose values there are not among those of
the inner join. If ON consists of equalities and single-side tests, the keys of the other side
suffice, without the join.
"""

from collections.abc import Sequence

from foreshore.expr.columns import columns_of
from foreshore.expr.ir import (
    Column,
    Filter,
    Join,
    JoinOn,
    Literal,
    Map,
    Negate,
    Project,
    Reduce,
    Relation,
    Scalar,
    Union,
    count_all,
)
from foreshore.expr.split import shift
from foreshore.sql.lower.equality import EquiCondition, equi_condition
from foreshore.sql.lower.lateral import is_of_one_row
from foreshore.sql.lower.rows import NOTHING_OUTSIDE, Outer, Row, equi_join, filter_, keys_of
from foreshore.sql.lower.subquery import SubqueryLowering
from foreshore.sql.lower.truth import call
from foreshore.types import INT8


class JoinLowering(SubqueryLowering):
    """Lower joins."""

    def join(self, join: Join, outer: Outer) -> Relation:
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
            parts.append(self.apply(input, outer if correlated else NOTHING_OUTSIDE))
            if correlated:
                for i, column in enumerate(outer.columns()):
                    key = Column(start + i, column.type, column.nullable)
                    equivalences[i] = (*equivalences[i], key)
            places += range(
                start + (width if correlated else 0), start + len(columns_of(parts[-1]))
            )
        row = Row(Join(tuple(parts)), places, outer)
        for equivalence in join.equivalences:
            equivalences.append(tuple(self.scalar(row, scalar, ()) for scalar in equivalence))
        null_safe = (*range(width), *(width + i for i in join.null_safe))
        row.relation = Join(tuple(parts), tuple(equivalences), null_safe)
        return self.close(row)

    def keyed_product(self, left: Relation, right: Relation, outer: Outer, correlated: bool) -> Row:
        """Return the product of the two sides per key; `left` has the key, `right` may have it."""
        keys = outer.width
        start = len(columns_of(left))
        if not correlated:
            return Row(Join((left, right)), range(keys, start + len(columns_of(right))), outer)
        joined = self.rejoin(left, outer.columns(), right)
        return Row(joined, range(keys, len(columns_of(joined))), outer)

    def join_on(self, join: JoinOn, outer: Outer) -> Relation:
        """Apply a binary join of SQL, of any kind and condition."""
        left = self.let(self.apply(join.left, outer))
        width = outer.width
        left_width = len(columns_of(left)) - width
        used = self.scopes.of_scalar(join.on)
        on_left = {width + i for level, i in used if level == 0 and i < left_width}
        on_outer = {outer.places[reference] for reference in used if reference[0] > 0}
        if join.lateral:
            assert join.kind in ("inner", "left"), join
            row = Row(left, range(width, width + left_width), outer)
            places = {row.place(reference) for reference in self.references(join.right)}
            if places and is_of_one_row(join.right):  # no key needs to be there once only
                rows = Outer(left, tuple(row.types), row.within().outer.places)
                row = Row(self.apply(join.right, rows), (), outer)
            else:
                keys, right = self.applied(row, join.right)
                row = Row(self.rejoin(left, keys, right), (), outer)
            row.columns = list(range(width, len(row.types)))
            depends = {*on_left, *on_outer, *places}
        else:
            condition = equi_condition(join.on, left_width, self.fallible) if not on_outer else None
            if condition is not None and join.kind != "inner":
                return self.equi_outer_join(join, left, condition, outer)
            correlated = bool(self.scopes.of_relation(join.right)) or (
                bool(width) and join.kind in ("right", "full")
            )
            right = self.apply(join.right, outer if correlated else NOTHING_OUTSIDE)
            if join.kind != "inner":
                right = self.let(right)
            row = self.keyed_product(left, right, outer, correlated)
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
            shared = sorted({*on_outer, *range(width)})
            unmatched = self.unmatched(
                right, inner, [*shared, *of_right], [*shared, *(i + left_width for i in of_right)]
            )
            nulls = tuple(Literal(None, c.type) for c in padding[width : width + left_width])
            padded = Map(unmatched, nulls)
            own = total - left_width
            order = (*range(width), *range(own, total), *range(width, own))
            parts.append(Project(padded, order))
        return Union(tuple(parts))

    def equi_outer_join(
        self, join: JoinOn, left: Relation, condition: EquiCondition, outer: Outer
    ) -> Relation:
        """Return an outer join on equalities; unmatched rows are found by the keys alone."""
        width = outer.width
        correlated = bool(self.scopes.of_relation(join.right)) or (width and join.kind != "left")
        right = self.let(self.apply(join.right, outer if correlated else NOTHING_OUTSIDE))
        shared = width if correlated else 0
        keys = outer.columns()[:shared]
        left_keys = (*keys, *(shift(a, width) for a, _ in condition.pairs))
        right_keys = (*keys, *(shift(b, shared) for _, b in condition.pairs))
        lefts = self.let(filter_(left, [shift(p, width) for p in condition.left]))
        rights = self.let(filter_(right, [shift(p, shared) for p in condition.right]))
        left_width, right_width = len(columns_of(left)), len(columns_of(right))
        inner = Project(
            equi_join(lefts, left_keys, rights, right_keys, shared),
            (*range(left_width), *range(left_width + shared, left_width + right_width)),
        )
        parts: list[Relation] = [inner]
        if join.kind in ("left", "full"):
            found = self.distinct(rights, right_keys)
            matched = Project(
                equi_join(lefts, left_keys, found, None, shared), tuple(range(left_width))
            )
            nulls = tuple(Literal(None, c.type) for c in columns_of(right)[shared:])
            parts.append(Map(Union((left, Negate(matched))), nulls))
        if join.kind in ("right", "full"):
            found = self.distinct(lefts, left_keys)
            matched = Project(
                equi_join(rights, right_keys, found, None, shared), tuple(range(right_width))
            )
            nulls = tuple(Literal(None, c.type) for c in columns_of(left)[width:])
            padded = Map(Union((right, Negate(matched))), nulls)
            own = range(right_width, right_width + len(nulls))
            parts.append(Project(padded, (*range(shared), *own, *range(shared, right_width))))
        return Union(tuple(parts))

    def distinct(self, rows: Relation, keys: Sequence[Scalar]) -> Relation:
        """Return the distinct values of `keys` in `rows`."""
        return Reduce(rows, tuple(keys), ())

    def unmatched(
        self, rows: Relation, inner: Relation, places: Sequence[int], in_inner: Sequence[int]
    ) -> Relation:
        """Return the `rows` that agree with no row of `inner` in the columns at `places`."""
        if not places:
            some = Reduce(Project(inner, ()), (), (count_all(),))
            none = Filter(some, (call("eq", Column(0, INT8, False), Literal(0, INT8)),))
            return Join((rows, Project(none, ())))
        found = Reduce(inner, keys_of(columns_of(inner), in_inner), ())
        matched = self.rejoin(rows, keys_of(columns_of(rows), places), found)
        return Union((rows, Negate(matched)))
