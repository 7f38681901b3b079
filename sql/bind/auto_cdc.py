"""Bind AUTO_CDC: the rows that a feed of changes leaves, or the history of these rows.

    type 1    for each key the last change, unless it deletes the row (a TopK)
    type 2    for each key its versions, with `valid_from`, `valid_to` and `is_current` (Windows)

The feed is a relation of changes, each with a key, a sequence and an operation, in any order. The
answer depends on which changes there are, not on when they came, so a late one changes only what
it bears on, and one that comes twice changes nothing. Changes without a sequence (NULL) are left
out. Of several with one key and sequence a deletion counts, then the first in the order of all
columns.

A copy of a whole relation for each sequence (SNAPSHOTS OF) is a feed, too: a key that the next copy
lacks is deleted at that copy's sequence.
"""

from collections.abc import Sequence
from typing import Literal as OneOf

from foreshore.errors import (
    DuplicateColumn,
    FeatureNotSupported,
    InvalidColumnReference,
    SyntaxError_,
    UndefinedColumn,
)
from foreshore.expr.columns import columns_of, type_of
from foreshore.expr.functions.comparison import check_equality, check_ordering
from foreshore.expr.ir import (
    FALSE,
    TRUE,
    Call,
    Case,
    Column,
    Filter,
    JoinOn,
    Let,
    Literal,
    LocalGet,
    Map,
    OrderKey,
    Project,
    Reduce,
    Relation,
    Scalar,
    TopK,
    Union,
    Window,
    WindowFunction,
)
from foreshore.sql import ast
from foreshore.sql.bind.binder import Clause
from foreshore.sql.bind.bound_item import BoundItem, scope_of
from foreshore.sql.bind.bound_query import AddedColumns
from foreshore.sql.bind.coerce import to_known
from foreshore.sql.bind.derived_item import derived_item
from foreshore.sql.bind.expression import ExpressionBinder
from foreshore.sql.bind.planning import Planning, located
from foreshore.sql.bind.positions import at_of
from foreshore.sql.bind.row_values import conjunction, disjunction
from foreshore.sql.bind.scope import Scope, Slot
from foreshore.sql.lower.outer_columns import Scopes, has_subquery
from foreshore.types import BOOL, INT8

HISTORY = ("valid_from", "valid_to", "is_current")
_ONE = Literal(1, INT8)


def bind_auto_cdc(planning: Planning, item: ast.AutoCdcRef, parent: Scope | None) -> BoundItem:
    """Return the feed's columns, and those of a history."""
    if item.tracked is not None and not item.history:
        raise SyntaxError_(
            "TRACK HISTORY is for SCD type 2",
            hint="Add STORED AS SCD TYPE 2.",
            position=item.at + 1,
        )
    if item.snapshots and item.deletes is not None:
        raise SyntaxError_(
            "snapshots have no APPLY AS DELETE",
            detail="A key that the next snapshot lacks is deleted.",
            position=item.at + 1,
        )
    return _AutoCdc(planning, item, parent).bind()


class _AutoCdc:
    def __init__(self, planning: Planning, item: ast.AutoCdcRef, parent: Scope | None) -> None:
        self.planning, self.item = planning, item
        self.part = planning.binding.item(planning, item.input, parent)
        if len(self.part.tables) != 1:
            raise FeatureNotSupported(
                "AUTO_CDC of a join is not supported",
                hint="Write the join as a query in parentheses.",
                position=item.at + 1,
            )
        self.scope = scope_of(self.part, parent)
        self.binder = ExpressionBinder(planning, self.scope, Clause("the clauses of AUTO_CDC"))
        self.width = len(self.part.columns)
        self.keys = tuple(dict.fromkeys(map(self._key, item.keys)))
        added = AddedColumns(self.part.columns)
        sequence = [self._ordered(each) for each in item.sequence]
        deleted = FALSE if item.deletes is None else self._deletes(item.deletes)
        self.about = self._used((*sequence, deleted))  # columns about the change, not the row
        if item.snapshots:  # deletions have the sequence of the next snapshot beside their own
            added.added.extend(sequence)
            self.sequence = tuple(range(self.width, self.width + len(sequence)))
        else:
            self.sequence = tuple(dict.fromkeys(map(added.place, sequence)))
        self.deleted = Column(added.place(deleted), BOOL, False)
        self.rows = added.relation(self.part.relation)

    def bind(self) -> BoundItem:
        """Return the item, bound."""
        outputs = self._outputs()
        values = [slot.index for slot in outputs]
        values = [i for i in values if i not in self.keys and i not in self.about]
        tracked = self._chosen(self.item.tracked, values)
        ignored = [i for i in self._ignored(values) if i not in self.keys]
        relation = self._one_each()
        if self.item.snapshots:
            relation = self._with_deletions(relation)
        if ignored:
            relation = self._filled(relation, ignored)
        if self.item.history:
            return self._item(self._versions(relation, tracked), outputs)
        return self._item(self._present(relation), outputs)

    # --- clauses

    def _key(self, key: ast.Expression) -> int:
        scalar = self.binder.bind(key)
        if not isinstance(scalar, Column):
            raise InvalidColumnReference(
                "the keys of AUTO_CDC have to be columns of the feed", position=at_of(key) + 1
            )
        with located(at_of(key)):
            check_equality(type_of(scalar))
        return scalar.index

    def _ordered(self, expr: ast.Expression) -> Scalar:
        scalar = to_known(self.planning, self.binder.bind(expr), at_of(expr))
        self._refuse_subquery(scalar, expr)
        with located(at_of(expr)):
            check_ordering(type_of(scalar))
        return scalar

    def _deletes(self, expr: ast.Expression) -> Scalar:
        condition = self.binder.boolean(expr, "APPLY AS DELETE WHEN")
        self._refuse_subquery(condition, expr)
        return Call("is_true", (condition,), BOOL)

    def _refuse_subquery(self, scalar: Scalar, expr: ast.Expression) -> None:
        if has_subquery(scalar):
            raise FeatureNotSupported(
                "cannot use subquery in the clauses of AUTO_CDC", position=at_of(expr) + 1
            )

    def _used(self, scalars: Sequence[Scalar]) -> frozenset[int]:
        uses = (use for each in scalars for use in Scopes().of_scalar(each))
        return frozenset(index for level, index in uses if level == 0)

    def _outputs(self) -> list[Slot]:
        """Return the visible columns."""
        slots = self.part.visible
        if self.item.outputs is None:
            return list(slots)
        kept = set(self._chosen(self.item.outputs, [slot.index for slot in slots]))
        return [slot for slot in slots if slot.index in kept]

    def _ignored(self, values: Sequence[int]) -> list[int]:
        return [] if self.item.ignores is None else self._chosen(self.item.ignores, values)

    def _chosen(self, choice: ast.ColumnChoice | None, all_columns: Sequence[int]) -> list[int]:
        """Return the columns of a choice; all of `all_columns` if there is none."""
        if choice is None:
            return list(all_columns)
        named = [self._named(name, at) for name, at in choice.names]
        if choice.excluded:
            return [i for i in all_columns if i not in named]
        return list(dict.fromkeys(named))

    def _named(self, name: str, at: int) -> int:
        found = [slot.index for slot in self.part.visible if slot.name == name]
        if not found:
            raise UndefinedColumn(f'column "{name}" does not exist', position=at + 1)
        return found[0]

    # --- relations: the feed's columns, then the sequence, and whether it is a deletion

    def _column(self, index: int) -> Column:
        """Return a column of the feed, for which a right is needed, or an added one."""
        return self.scope.column(index)

    def _added(self, relation: Relation, index: int) -> Column:
        column = columns_of(relation)[index]
        return Column(index, column.type, column.nullable)

    def _order(self, relation: Relation, *, descending: bool = False) -> tuple[OrderKey, ...]:
        return tuple(OrderKey(self._added(relation, i), descending) for i in self.sequence)

    def _one_each(self) -> Relation:
        """Return one change for each key and sequence."""
        known = (Call("is_not_null", (self._added(self.rows, i),), BOOL) for i in self.sequence)
        rows = Filter(self.rows, tuple(known))
        group = tuple(dict.fromkeys((*self.keys, *self.sequence)))
        return TopK(rows, group, (OrderKey(self.deleted, True),), _ONE)

    def _with_deletions(self, relation: Relation) -> Relation:
        """Return the rows of snapshots, and a deletion of each key that the next one lacks."""
        number = self.planning.new_let()
        rows = LocalGet(number, columns_of(relation))
        kinds = [self._added(rows, i) for i in self.sequence]
        leads = tuple(_beside("lead", each) for each in kinds)
        times = Reduce(rows, tuple(kinds), ())
        order = tuple(OrderKey(self._added(times, i)) for i in range(len(kinds)))
        leads_of_times = tuple(_beside("lead", self._added(times, i)) for i in range(len(kinds)))
        following = Window(times, (), order, leads_of_times)
        own = Window(rows, self.keys, self._order(rows), leads)
        first, count = len(columns_of(rows)), len(kinds)
        here = range(first, first + count)  # the key's own next sequence
        same = range(first + count, first + 2 * count)
        there = range(first + 2 * count, first + 3 * count)  # that of the next snapshot

        def compared(name: str, left: Sequence[int], right: Sequence[int]) -> list[Scalar]:
            return [
                Call(name, (_at(kind, i), _at(kind, j)), BOOL)
                for kind, i, j in zip(kinds, left, right, strict=True)
            ]

        joined = JoinOn(
            own, following, "inner", conjunction(compared("eq", self.sequence, same)), False
        )
        is_last = Call("is_not_null", (_at(kinds[0], there[0]),), BOOL)
        gone = Filter(joined, (is_last, disjunction(compared("is_distinct", here, there))))
        marked = Map(gone, (TRUE,))
        deletions = Project(marked, (*range(self.width), *there, first + 3 * count))
        return Let(number, relation, Union((rows, deletions)))

    def _filled(self, relation: Relation, ignored: Sequence[int]) -> Relation:
        """Return the changes with the last value since a deletion in place of NULL."""
        whole = len(columns_of(relation))
        partition: tuple[int, ...] = self.keys
        if self.item.deletes is not None or self.item.snapshots:
            sequence = [self._added(relation, i) for i in self.sequence]
            marks = tuple(
                Case(((self.deleted, each),), _null(each), each.type) for each in sequence
            )
            marked = Map(relation, marks)
            known = tuple(
                WindowFunction("last_known", (Column(whole + i, each.type),), each.type)
                for i, each in enumerate(sequence)
            )
            relation = Window(marked, self.keys, self._order(relation), known)
            first = whole + len(sequence)
            partition = (*self.keys, *range(first, first + len(sequence)))
        width = len(columns_of(relation))
        columns = [self._column(i) for i in ignored]
        values = tuple(Case(((self.deleted, _null(each)),), each, each.type) for each in columns)
        known = tuple(
            WindowFunction("last_known", (Column(width + i, each.type),), each.type)
            for i, each in enumerate(columns)
        )
        filled = Window(Map(relation, values), partition, self._order(relation), known)
        places = list(range(whole))
        for i, index in enumerate(ignored):
            places[index] = width + len(values) + i
        return Project(filled, tuple(places))

    def _present(self, relation: Relation) -> Relation:
        """Return the last change of each key, unless it is a deletion."""
        if isinstance(relation, TopK):  # one choice for both: equal sequences, and the last one
            relation = relation.input
        order = (*self._order(relation, descending=True), OrderKey(self.deleted, True))
        last = TopK(relation, self.keys, order, _ONE)
        return Project(self._without_deletions(last), tuple(range(self.width)))

    def _versions(self, relation: Relation, tracked: Sequence[int]) -> Relation:
        """Return the last change of each version, from when it was there and until when.

        A version begins with the first change of a key, after a deletion, and where a tracked
        column changes. It lasts until the next change that begins one, or deletes.
        """
        width = len(columns_of(relation))
        sequence = [self._added(relation, i) for i in self.sequence]
        columns = [self._column(i) for i in tracked]
        for each in columns:
            with located(self.item.at):
                check_equality(each.type)
        beside = (
            _beside("lead", sequence[0]),
            *(_beside("lag", each) for each in (self.deleted, *columns)),
        )
        seen = Window(relation, self.keys, self._order(relation), beside)
        before = Column(width + 1, BOOL)
        changed = [
            Call("is_distinct", (each, Column(width + 2 + i, each.type)), BOOL)
            for i, each in enumerate(columns)
        ]
        begins = disjunction([Call("is_not_false", (before,), BOOL), *changed])
        starts = tuple(Case(((begins, each),), _null(each), each.type) for each in sequence)
        marked = Map(self._without_deletions(seen), starts)
        first = width + len(beside)
        known = tuple(
            WindowFunction("last_known", (Column(first + i, each.type),), each.type)
            for i, each in enumerate(sequence)
        )
        in_versions = Window(marked, self.keys, self._order(marked), known)
        first += len(sequence)
        group = (*self.keys, *range(first, first + len(sequence)))
        last = TopK(in_versions, group, self._order(in_versions, descending=True), _ONE)
        end = Column(width, sequence[0].type)
        current = Map(last, (Call("is_null", (end,), BOOL),))
        return Project(current, (*range(self.width), first, width, first + len(sequence)))

    def _without_deletions(self, relation: Relation) -> Relation:
        if self.item.deletes is None and not self.item.snapshots:
            return relation
        return Filter(relation, (Call("not", (self.deleted,), BOOL),))

    # --- the result

    def _item(self, relation: Relation, slots: list[Slot]) -> BoundItem:
        part, item = self.part, self.item
        if item.history:
            slots += [Slot(name, self.width + i) for i, name in enumerate(HISTORY)]
        names = [slot.name for slot in slots]
        for name in HISTORY if item.history else ():
            if names.count(name) > 1:
                raise DuplicateColumn(
                    f'column "{name}" specified more than once',
                    hint="Leave it out of the feed's columns with COLUMNS * EXCEPT.",
                    position=item.at + 1,
                )
        return derived_item(part, relation, slots, item.alias, item.columns)


def _null(column: Column) -> Literal:
    return Literal(None, column.type)


def _beside(name: OneOf["lag", "lead"], column: Column) -> WindowFunction:
    """Return `lag` or `lead` of a column, NULL where there is no such row."""
    return WindowFunction(name, (column, _ONE, _null(column)), column.type)


def _at(column: Column, index: int) -> Column:
    """Return a nullable column of the same type at another place."""
    return Column(index, column.type)
