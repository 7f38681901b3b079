"""Random values for the rows of any part of a query.

    Filter(t, random() < 0.5)     rows    t with a number for each row, from 1 on
                                  values  random_of(seed, number) for each of them
                                  Filter(values, #value < 0.5), without the further columns

Engines evaluate a call once or several times for a row, or not at all. So each call is written as a
function of its row: `random_of` gives the same value whenever it is asked for the same seed and row
number. The seed is a call over no rows, made once before the query. Row numbers are in the order of
all columns, so they are the same wherever the rows are computed; equal rows have different numbers.

In a subquery that is computed for each row around it, row numbers start again for each. So its seed
is itself a value of the row around it: `random_of(random_of(seed, outer number), number)`. In the
step of a recursion the number of a row follows from its columns as well, so that it is another one
in each iteration.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from foreshore.expr.columns import columns_of, type_of
from foreshore.expr.functions.comparison import is_comparable
from foreshore.expr.functions.system import DRAWN, RANDOM, RANDOM_UUID
from foreshore.expr.ir import (
    And,
    AnySubquery,
    Call,
    Column,
    Exists,
    Filter,
    JoinOn,
    Literal,
    Map,
    OuterColumn,
    Project,
    Recursive,
    Reduce,
    Relation,
    Scalar,
    ScalarSubquery,
    Window,
    WindowFunction,
)
from foreshore.expr.scalars import scalars_of, with_scalars
from foreshore.expr.traversal import inputs_of, operands_of, with_inputs, with_operands
from foreshore.sql.bind.side_effects import RemainingCalls
from foreshore.sql.lower.outer_columns import Scopes
from foreshore.sql.rewrite.scalars import map_relation, map_scalar
from foreshore.types import BOOL, BYTEA, INT8, TEXT, ColumnType

_ROW_NUMBER = WindowFunction("row_number", (), INT8)


def with_random_rows(relation: Relation) -> tuple[Relation, RemainingCalls]:
    """Return a bound relation in which random values are functions of rows, and its other calls.

    Raises FeatureNotSupported for other calls over several rows.
    """
    remaining = RemainingCalls.of(relation)
    wanted = frozenset(
        call.number for call, once in remaining.calls if not once and is_random(call)
    )
    if wanted:
        relation = _Rewriter(wanted, remaining.scopes).relation(relation)
        remaining = RemainingCalls.of(relation)
    remaining.check()
    return relation, remaining


def is_random(scalar: Scalar) -> bool:
    """Return whether a scalar is a call whose values are independent of all other calls."""
    return isinstance(scalar, Call) and scalar.function in (RANDOM, RANDOM_UUID)


@dataclass
class _Rewriter:
    wanted: frozenset[int]  # numbers of calls
    scopes: Scopes
    in_step: bool = False  # of a recursion, whose rows have other numbers in each iteration

    def relation(self, relation: Relation) -> Relation:
        """Return `relation` without wanted calls."""
        inputs = inputs_of(relation)
        if isinstance(relation, Recursive):
            step = replace(self, in_step=True).relation(relation.step)
            return with_inputs(relation, (self.relation(relation.base), step))
        if inputs:
            relation = with_inputs(relation, tuple(map(self.relation, inputs)))
        if isinstance(relation, JoinOn) and relation.lateral:
            found = self._lateral(relation)
            if found is not relation:
                assert isinstance(found, Project)
                return with_inputs(found, (self._conditioned(found.input),))
        return self._conditioned(relation)

    def _conditioned(self, relation: Relation) -> Relation:
        """Return `relation` without wanted calls in its own scalars."""
        if not any(map(self._may_change, scalars_of(relation))):
            return relation
        relation = with_scalars(relation, self._inner)
        calls = self._calls(scalars_of(relation))
        if not calls and not any(map(self._draws_by_row, scalars_of(relation))):
            return relation
        if isinstance(relation, Map) and len(relation.scalars) > 1:
            return self._each(relation)
        return self._join(relation) if isinstance(relation, JoinOn) else self._over(relation, calls)

    def _numbered(self, relation: Relation) -> Relation:
        """Return rows with their numbers."""
        numbered = Window(relation, (), (), (_ROW_NUMBER,))
        if not self.in_step:
            return numbered
        columns = columns_of(relation)
        width = len(columns)
        return Project(Map(numbered, (_row_key(columns),)), (*range(width), width + 1))

    def _drawn(self, input: Relation, calls: Sequence[Call]) -> Relation:
        """Return rows with their numbers, and a random value for each call."""
        number = Column(len(columns_of(input)), INT8, False)
        values = tuple(Call(DRAWN[call.function], (call, number), type_of(call)) for call in calls)
        return Map(self._numbered(input), values)

    def _lateral(self, join: JoinOn) -> Relation:
        """Return a lateral join whose right side draws other values for each row of the left."""
        right = self._by_row(join.right, len(columns_of(join.left)), 1)
        if right is join.right:
            return join
        width, other = len(columns_of(join.left)), len(columns_of(right))
        on = _moved(join.on, width, 1)
        found = JoinOn(self._numbered(join.left), right, join.kind, on, lateral=True)
        return Project(found, (*range(width), *range(width + 1, width + 1 + other)))

    def _draws_by_row(self, scalar: Scalar) -> bool:
        """Whether a subquery in a scalar draws other values for each row."""
        return self._seeded(scalar, 0) is not scalar

    def _seeded(self, scalar: Scalar, place: int) -> Scalar:
        """Return a scalar whose subqueries draw by the number of the row, at `place`, around them.

        Only those do that depend on columns of the row: others are computed once.
        """
        match scalar:
            case Exists(relation=inner):
                found = self._by_row(inner, place, 1)
                return scalar if found is inner else Exists(found)
            case ScalarSubquery(relation=inner, type=type):
                found = self._by_row(inner, place, 1)
                return scalar if found is inner else ScalarSubquery(found, type)
            case AnySubquery(predicate=predicate, relation=inner):
                found = self._by_row(inner, place, 1)
                return scalar if found is inner else AnySubquery(predicate, found)
        operands = operands_of(scalar)
        seeded = tuple(self._seeded(each, place) for each in operands)
        same = all(a is b for a, b in zip(operands, seeded, strict=True))
        return scalar if same else with_operands(scalar, seeded)

    def _by_row(self, relation: Relation, place: int, level: int) -> Relation:
        """Return a subquery whose seeds are values of the row `level` rows outside of it."""
        if level not in {at for at, _ in self.scopes.of_relation(relation)}:
            return relation
        changed = [False]

        def seed(scalar: Scalar, depth: int) -> Scalar | None:
            match scalar:
                case Call(function=function, args=(inner, number)) if function in DRAWN.values():
                    changed[0] = True
                    outer = OuterColumn(depth, place, INT8, False)
                    mixed = Call(function, (inner, outer), type_of(scalar))
                    return Call(function, (mixed, number), type_of(scalar))
                case (
                    Exists(relation=inner)
                    | ScalarSubquery(relation=inner)
                    | AnySubquery(relation=inner)
                ) if not self.scopes.of_relation(inner):
                    return scalar  # it is computed once
            return None

        found = map_relation(relation, seed, level)
        return found if changed[0] else relation

    def _each(self, relation: Map) -> Relation:
        """Return columns that are computed one by one, as each may use those before it."""
        found = relation.input
        for scalar in relation.scalars:
            calls, by_row = self._calls((scalar,)), self._draws_by_row(scalar)
            found = Map(found, (scalar,))
            found = self._over(found, calls) if calls or by_row else found
        return found

    def _may_change(self, scalar: Scalar) -> bool:
        if isinstance(scalar, Exists | ScalarSubquery | AnySubquery) or self._is_wanted(scalar):
            return True
        return any(map(self._may_change, operands_of(scalar)))

    def _is_wanted(self, scalar: Scalar) -> bool:
        return isinstance(scalar, Call) and scalar.number in self.wanted

    def _inner(self, scalar: Scalar) -> Scalar:
        """Return `scalar` with its subqueries rewritten."""
        match scalar:
            case Exists(relation=inner):
                return Exists(self.relation(inner))
            case ScalarSubquery(relation=inner, type=type):
                return ScalarSubquery(self.relation(inner), type)
            case AnySubquery(predicate=predicate, relation=inner):
                return AnySubquery(self._inner(predicate), self.relation(inner))
        operands = operands_of(scalar)
        return with_operands(scalar, tuple(map(self._inner, operands))) if operands else scalar

    def _calls(self, scalars: Iterable[Scalar]) -> list[Call]:
        """Return the wanted calls in scalars whose subqueries are rewritten."""
        found: dict[int, Call] = {}

        def note(scalar: Scalar, depth: int) -> Scalar | None:
            if isinstance(scalar, Call) and scalar.function in DRAWN.values():
                return scalar  # its seed stays
            if self._is_wanted(scalar):
                assert isinstance(scalar, Call)
                found.setdefault(scalar.number, scalar)
            return None

        for scalar in scalars:
            map_scalar(scalar, note)
        return list(found.values())

    def _over(self, relation: Relation, calls: Sequence[Call]) -> Relation:
        """Return a relation of one input with columns of it in place of calls."""
        (input,) = inputs_of(relation)
        width = len(columns_of(input))
        drawn = self._drawn(input, calls)
        further = 1 + len(calls)
        places = {call.number: width + 1 + i for i, call in enumerate(calls)}
        placed = self._replacing(places)
        changed = with_scalars(
            with_inputs(relation, (drawn,)), lambda scalar: placed(self._seeded(scalar, width))
        )
        if isinstance(relation, Reduce):
            return changed
        added = len(columns_of(relation)) - width  # behind those of the input
        start = width + further
        return Project(changed, (*range(width), *range(start, start + added)))

    def _replacing(self, places: dict[int, int]) -> Callable[[Scalar], Scalar]:
        """Return what replaces calls by the columns at `places`."""

        def replace(scalar: Scalar, depth: int) -> Scalar | None:
            if not isinstance(scalar, Call):
                return None
            if scalar.function in DRAWN.values():
                return scalar
            place = places.get(scalar.number) if scalar.number else None
            if place is None:
                return None
            if depth:
                return OuterColumn(depth, place, scalar.type, False)
            return Column(place, scalar.type, False)

        return lambda scalar: map_scalar(scalar, replace)

    # --- joins ---------------------------------------------------------------------------------

    def _join(self, join: JoinOn) -> Relation:
        """Return a join with calls in its condition as one of the pairs that pass the condition."""
        left, right, kind = join.left, join.right, join.kind
        width, other = len(columns_of(left)), len(columns_of(right))
        if kind == "inner":
            return self._pairs(join)
        if kind == "left":  # the pairs' right columns, beside the left row of this number
            numbered = self._numbered(left)
            pairs = self._pairs(
                JoinOn(numbered, right, "inner", _moved(join.on, width, 1), join.lateral)
            )
            passing = Project(pairs, tuple(range(width, width + 1 + other)))
            found = JoinOn(numbered, passing, "left", _equal(width, width + 1))
            return Project(found, (*range(width), *range(width + 2, width + 2 + other)))
        if kind == "right":
            numbered = self._numbered(right)
            pairs = self._pairs(JoinOn(left, numbered, "inner", join.on))
            passing = Project(pairs, (*range(width), width + other))
            found = JoinOn(passing, numbered, "right", _equal(width, width + 1 + other))
            return Project(found, (*range(width), *range(width + 1, width + 1 + other)))
        first, second = self._numbered(left), self._numbered(right)
        pairs = self._pairs(JoinOn(first, second, "inner", _moved(join.on, width, 1)))
        passing = Project(pairs, (width, width + 1 + other))
        beside = JoinOn(first, passing, "left", _equal(width, width + 1))
        found = JoinOn(beside, second, "full", _equal(width + 2, width + 3 + other))
        return Project(found, (*range(width), *range(width + 3, width + 3 + other)))

    def _pairs(self, join: JoinOn) -> Relation:
        """Return an inner join; conditions with calls are tested for its pairs."""
        conditions = join.on.args if isinstance(join.on, And) else (join.on,)
        drawing = tuple(
            each for each in conditions if self._calls((each,)) or self._draws_by_row(each)
        )
        plain = And(tuple(each for each in conditions if each not in drawing))
        pairs = Filter(JoinOn(join.left, join.right, "inner", plain, join.lateral), drawing)
        return self._over(pairs, self._calls(drawing))


def _row_key(columns: Sequence[ColumnType]) -> Scalar:
    """Return a number that follows from a row and its number, which comes after `columns`."""
    number: Scalar = Column(len(columns), INT8, False)
    for i, column in enumerate(columns):
        if is_comparable(column.type):
            value = Call("order_bytes", (Column(i, column.type, column.nullable),), BYTEA)
            known = Call("coalesce", (value, Literal(b"", BYTEA)), BYTEA)
            text = Call("encode(bytea,text)", (known, Literal("hex", TEXT)), TEXT)
            number = Call("hashtextextended(text,int8)", (text, number), INT8)
    return number


def _equal(a: int, b: int) -> Scalar:
    return Call("eq", (Column(a, INT8), Column(b, INT8)), BOOL)


def _moved(scalar: Scalar, start: int, by: int) -> Scalar:
    """Return a condition with its columns from `start` on moved."""

    def move(node: Scalar, depth: int) -> Scalar | None:
        match node:
            case Column(index=index, type=type, nullable=nullable) if not depth and index >= start:
                return Column(index + by, type, nullable)
            case OuterColumn(level=level, index=index, type=type, nullable=nullable) if (
                level == depth and index >= start
            ):
                return OuterColumn(level, index + by, type, nullable)
        return None

    return map_scalar(scalar, move)
