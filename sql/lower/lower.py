"""Lowering: turn every subquery and every outer join into plain relational algebra.

A subquery is a function of the row that contains it, but plans contain no functions of rows. So it
is computed for all rows at once. From the current rows, take the columns on which the subquery
depends, each combination once: the *keys*. The subquery is *applied* to them: every operator in it
carries the key as its first columns (a product at the leaves, a longer group key in aggregates).
The result, key and value, is joined back to the rows.

    SELECT a, (SELECT count(*) FROM u WHERE u.b = t.a) FROM t

    keys    Reduce(t, [a], [])
    counts  Reduce(Filter(Join(keys, u), a = b), [a], [count])
    all     Union(counts, Map(Union(keys, Negate(Project(counts, [a]))), 0))
    result  Join(t, all) on a, where NULL is a key like any other

Operators that return a row for empty input (the aggregate without GROUP BY, EXISTS and the scalar
subquery) are completed for keys without a result. An uncorrelated subquery is computed once. An
outer join is its inner join and, padded with NULLs, the rows whose columns used in ON are not among
the matched ones. Multiplicities are exact throughout: keys are distinct, and only rows that exist
are negated.

A subquery that may fail is applied only to the rows for which Case, And and Or evaluate it, as far
as their other operands show. A scalar subquery with several rows fails in a Filter that is never
TRUE (`single_row_check`) beside its rows.
"""

from typing import assert_never

from foreshore.deep_trees import allow_depth
from foreshore.errors import FeatureNotSupported
from foreshore.expr.block import AnyRecursion, Block, MutualRecursion, Recursion
from foreshore.expr.columns import column_type, columns_of
from foreshore.expr.ir import (
    Aggregate,
    Call,
    Column,
    Constant,
    Filter,
    FlatMap,
    Get,
    Join,
    JoinOn,
    Let,
    LetRec,
    LocalGet,
    Map,
    Negate,
    OrderKey,
    OuterColumn,
    Project,
    Recursive,
    Reduce,
    Relation,
    Scalar,
    TemporalFilter,
    Threshold,
    TopK,
    Union,
    Window,
    WindowFunction,
)
from foreshore.expr.lowered import check_lowered
from foreshore.expr.recursion import as_union
from foreshore.expr.scalars import frame_offsets
from foreshore.expr.share import share
from foreshore.expr.split import Test, may_fail
from foreshore.ids import GlobalId
from foreshore.interruptible import REQUESTS, safepoint
from foreshore.sql.lower.joins import JoinLowering
from foreshore.sql.lower.lateral import before_lateral
from foreshore.sql.lower.outer_columns import (
    has_subquery,
    substitute,
)
from foreshore.sql.lower.rows import NOTHING_OUTSIDE, Outer, Row
from foreshore.sql.lower.subquery import over_no_rows
from foreshore.sql.optimize.scalars import conjuncts
from foreshore.types import BOOL, ColumnType


def lower(relation: Relation, fallible: Test = may_fail) -> Relation:
    """Return `relation` in lowered form; raises FeatureNotSupported."""
    block = lower_block(relation, fallible)
    if block.recursions:
        raise FeatureNotSupported("WITH RECURSIVE is supported in queries and views only")
    return block.relation


def lower_block(relation: Relation, fallible: Test = may_fail) -> Block:
    """Return `relation` in lowered form, with its recursions as a list."""
    allow_depth()
    block = _PlanLowering(relation, fallible).run(relation)
    check_lowered(block.relation)
    return block


class _PlanLowering(JoinLowering):
    """Lower relations."""

    def __init__(self, relation: Relation, fallible: Test) -> None:
        super().__init__(relation, fallible)
        self.recursions: list[AnyRecursion] = []  # of the current block
        self.next_recursion = 1

    def run(self, relation: Relation) -> Block:
        return self.block(relation, NOTHING_OUTSIDE)

    def block(self, relation: Relation, outer: Outer) -> Block:
        """Return `relation` applied to `outer` as a separate plan."""
        start = len(self.bindings)
        recursions, self.recursions = self.recursions, []
        body = self.apply(relation, outer)
        for number, value in reversed(self.bindings):
            body = Let(number, value, body)
        block = Block(share(body), tuple(self.recursions))
        del self.bindings[start:]
        self.recursions = recursions
        return block

    def recursive(self, node: Recursive, outer: Outer) -> Relation:
        """Return the result of a recursion for each row of `outer`, as a collection."""
        types = (*outer.types, *columns_of(node))
        number = self.next_recursion
        self.next_recursion += 1
        working = Get(GlobalId(f"r{number}w"), types)
        result = Get(GlobalId(f"r{number}"), types)
        base, step = node.base, node.step
        found: Relation = working
        if outer.width:  # per key, the rows found by the previous step
            equal = tuple(
                Call(
                    "is_not_distinct",
                    (
                        Column(place, outer.types[place].type, outer.types[place].nullable),
                        OuterColumn(*reference, outer.types[place].type),
                    ),
                    BOOL,
                )
                for reference, place in outer.places.items()
            )
            found = Project(Filter(working, equal), tuple(range(outer.width, len(types))))
        step = substitute(step, node.number, found)
        based, stepped = self.block(base, outer), self.block(step, outer)
        self.recursions.append(Recursion(working.id, result.id, based, stepped, not node.all))
        return result

    def let_rec(self, node: LetRec, outer: Outer) -> Relation:
        """Return the body of a mutual recursion, which reads its values as collections."""
        if any(map(self.scopes.of_relation, node.values)):
            raise FeatureNotSupported("WITH MUTUALLY RECURSIVE that depends on outer rows")
        gets = []
        for columns in node.columns:
            gets.append(Get(GlobalId(f"r{self.next_recursion}"), columns))
            self.next_recursion += 1
        shadowed = dict(self.locals)
        self.locals.update(zip(node.numbers, gets, strict=True))
        blocks = tuple(self.block(value, NOTHING_OUTSIDE) for value in node.values)
        ids = tuple(get.id for get in gets)
        found = MutualRecursion(ids, node.columns, blocks, node.limit, node.fails)
        self.recursions.append(as_union(found, GlobalId(f"{ids[0]}w")) or found)
        result = self.apply(node.body, outer)
        self.locals = shadowed
        return result

    def apply(self, relation: Relation, outer: Outer) -> Relation:
        """Return the rows of `outer` joined with the rows that `relation` has for each."""
        if REQUESTS:
            safepoint()
        if outer.width and not self.scopes.of_relation(relation):
            return Join((outer.relation, self.apply(relation, NOTHING_OUTSIDE)))
        match relation:
            case Constant() | Get():
                return relation
            case LocalGet(number=number):
                return self.locals.get(number, relation)
            case Let(number=number, value=value, body=body):
                if self.scopes.of_relation(value):
                    return self.apply(substitute(body, number, value), outer)
                shadowed = self.locals.get(number)
                self.locals[number] = self.let(self.apply(value, NOTHING_OUTSIDE))
                result = self.apply(body, outer)
                if shadowed is None:
                    del self.locals[number]
                else:
                    self.locals[number] = shadowed
                return result
            case Map(input=input, scalars=scalars):
                row = self.row(input, outer)
                waiting: list[Scalar] = []  # to be one node, for only subqueries read the rows
                for scalar in scalars:
                    if waiting and has_subquery(scalar):
                        row.relation, waiting = Map(row.relation, tuple(waiting)), []
                    waiting.append(self.scalar(row, scalar, ()))
                    added = row.append(row.relation, column_type(waiting[-1]))
                    row.columns.append(added.index)
                row.relation = Map(row.relation, tuple(waiting)) if waiting else row.relation
                return self.close(row)
            case Filter(input=input, predicates=predicates):
                first, left = before_lateral(input, conjuncts(predicates), self.fallible)
                row = self.row(first, outer)
                self.filter(row, left)
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
            case Window():
                return self.window(relation, outer)
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
            case Recursive():
                return self.recursive(relation, outer)
            case LetRec():
                return self.let_rec(relation, outer)
            case TemporalFilter():
                raise AssertionError(f"lowered already: {relation}")
            case _:
                assert_never(relation)

    def reduce(self, reduce: Reduce, outer: Outer) -> Relation:
        row = self.row(reduce.input, outer)
        key = [self.scalar(row, scalar, ()) for scalar in reduce.group_key]
        aggregates = tuple(self.aggregate(row, a) for a in reduce.aggregates)
        result = Reduce(row.relation, (*outer.columns(), *key), aggregates)
        if reduce.group_key or not outer.width:
            return result
        groups = self.let(result)
        width = outer.width
        missing = self.without(outer, Project(groups, tuple(range(width))))
        return Union((groups, Map(missing, over_no_rows(reduce.aggregates))))

    def aggregate(self, row: Row, aggregate: Aggregate) -> Aggregate:
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

    def order_key(self, row: Row, key: OrderKey, guards: tuple[Scalar, ...]) -> OrderKey:
        return OrderKey(self.scalar(row, key.expr, guards), key.descending, key.nulls_first)

    def top_k(self, top_k: TopK, outer: Outer) -> Relation:
        for bound in (top_k.limit, top_k.offset):
            if bound is not None and (has_subquery(bound) or self.scopes.of_scalar(bound)):
                raise FeatureNotSupported("LIMIT and OFFSET that depend on other rows")
        row = self.row(top_k.input, outer)
        keys = tuple(self.order_key(row, key, ()) for key in top_k.order_key)
        group = (*range(outer.width), *(row.columns[i] for i in top_k.group_key))
        row.relation = TopK(row.relation, group, keys, top_k.limit, top_k.offset)
        return self.close(row)

    def window(self, window: Window, outer: Outer) -> Relation:
        for offset in (o for function in window.functions for o in frame_offsets(function)):
            if has_subquery(offset) or self.scopes.of_scalar(offset):
                raise FeatureNotSupported("frame offsets that depend on other rows")
        row = self.row(window.input, outer)
        keys = tuple(self.order_key(row, key, ()) for key in window.order_key)
        functions = tuple(self.window_function(row, function) for function in window.functions)
        partition = (*range(outer.width), *(row.columns[i] for i in window.partition))
        row.relation = Window(row.relation, partition, keys, functions)
        start = len(row.types)
        row.types += (ColumnType(function.type, function.nullable) for function in functions)
        row.columns += range(start, len(row.types))
        return self.close(row)

    def window_function(self, row: Row, function: WindowFunction) -> WindowFunction:
        filter = function.filter
        guards: tuple[Scalar, ...] = ()
        if filter is not None:
            filter = self.scalar(row, filter, ())
            guards = (filter,)
        args = tuple(self.scalar(row, arg, guards) for arg in function.args)
        return WindowFunction(function.function, args, function.type, function.frame, filter)
