"""Calls with side effects: separate them from a query and call them for its result rows.

    SELECT nextval('s') + x FROM t     the rows of   SELECT NULL, x FROM t
                                       then   (nextval('s') + #1)   for each of them, in their order

Engines cannot call a function exactly once per row. So the relation for the engine has NULL in
place of a column with such a call, and further columns with the values that the call needs. The
adapter then computes the column row by row, in the order of the result. This covers select lists,
written rows, and defaults. A call over a single row that always exists, as without FROM, is made
once before the query. All other calls are rejected at planning (`RemainingCalls`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from foreshore.deep_trees import allow_depth
from foreshore.errors import FeatureNotSupported
from foreshore.expr.columns import columns_of, type_of
from foreshore.expr.evaluate import constant, is_constant
from foreshore.expr.functions.system import DRAWN, SET_CONFIG
from foreshore.expr.ir import (
    AnySubquery,
    Call,
    Case,
    Column,
    Constant,
    Environment,
    Exists,
    Join,
    JoinOn,
    Let,
    LetRec,
    Literal,
    Map,
    Project,
    Recursive,
    Relation,
    Scalar,
    ScalarSubquery,
    TopK,
    Union,
)
from foreshore.expr.lazily import always_reached, evaluation_steps
from foreshore.expr.scalars import scalars_of
from foreshore.expr.split import columns_used
from foreshore.expr.traversal import (
    inputs_of,
    operands_of,
    walk_relations,
    walk_scalars,
    with_inputs,
    with_operands,
)
from foreshore.sql.bind.planning import Planning
from foreshore.sql.lower.outer_columns import Scopes, has_subquery
from foreshore.sql.rewrite.scalars import Replace, map_scalar
from foreshore.types import BOOL, INT4

# Functions that only read session state, which may stay anywhere.
_OF_SEEDS = frozenset(DRAWN.values())  # their first argument is made once (`random_rows.py`)
_READING = frozenset(("currval", "lastval"))


def has_side_effects(scalar: Scalar) -> bool:
    """Return whether `scalar` calls a function with side effects."""
    return any(map(_is_side_effecting, walk_scalars(scalar)))


def calls_in_scalars(scalars: Iterable[Scalar]) -> set[Scalar]:
    """Return the calls with side effects in `scalars`."""
    return {each for scalar in scalars for each in walk_scalars(scalar) if _is_side_effecting(each)}


def acts(scalar: Scalar) -> bool:
    """Return whether `scalar` itself is a call that does more than read the session's state."""
    return isinstance(scalar, Call) and scalar.number > 0 and scalar.function not in _READING


def split_calls(
    relation: Relation, shown: Sequence[int] | None = None
) -> tuple[Relation, tuple[Scalar, ...]] | None:
    """Return the relation to compute first, and the columns of `relation` over it, or None.

    `shown` are the columns that the query returns, if not all; the others have side effects only.
    """
    allow_depth()
    input, outputs = _split_relation(relation)
    if not any(map(has_side_effects, outputs)):
        return None
    hidden = [output for i, output in enumerate(outputs) if shown is not None and i not in shown]
    if _runs_before_query(input, outputs) and not any(map(has_side_effects, hidden)):
        return None
    return _without_calls(input, outputs)


def _is_side_effecting(scalar: Scalar) -> bool:
    return isinstance(scalar, Call) and scalar.number > 0


def _runs_before_query(input: Relation, outputs: Sequence[Scalar]) -> bool:
    """Return whether all calls in `outputs` can be made once, with known arguments."""
    return (
        input == Join(())
        and not any(map(has_subquery, outputs))
        and calls_in_scalars(outputs)
        == always_reached(evaluation_steps(outputs, _is_side_effecting))
    )


def _without_calls(
    input: Relation, outputs: Sequence[Scalar]
) -> tuple[Relation, tuple[Scalar, ...]]:
    """Return `input` with a column per output that needs no calls, and `outputs` over it."""
    below, over = _split_outputs(outputs)
    return _computed(input, below), over


def _computed(input: Relation, scalars: Sequence[Scalar]) -> Relation:
    """Return the relation that consists of `scalars` over `input`."""
    width = len(columns_of(input))
    places = tuple(range(width, width + len(scalars)))
    return Project(Map(input, tuple(scalars)), places)


def _split_outputs(outputs: Sequence[Scalar]) -> tuple[list[Scalar], tuple[Scalar, ...]]:
    """Return `outputs` with NULL for calls and the columns they need; and `outputs` over those."""
    below = [
        Literal(None, type_of(output)) if has_side_effects(output) else output for output in outputs
    ]
    over = [
        _split_output(output, below) if has_side_effects(output) else _column(below, i)
        for i, output in enumerate(outputs)
    ]
    return below, tuple(over)


def _split_output(scalar: Scalar, below: list[Scalar]) -> Scalar:
    """Return `scalar` over `below`, to which its columns and subqueries are added.

    All other parts stay together, so that branches not taken by Case are not evaluated.
    """
    match scalar:
        case AnySubquery() if has_side_effects(scalar):
            raise FeatureNotSupported(
                "a function with side effects cannot be compared with the rows of a subquery"
            )
        case Column() | Environment() | Exists() | ScalarSubquery() | AnySubquery():
            if scalar not in below:
                below.append(scalar)
            return _column(below, below.index(scalar))
        case _:
            return with_operands(
                scalar, tuple(_split_output(each, below) for each in operands_of(scalar))
            )


def _column(scalars: Sequence[Scalar], place: int) -> Column:
    return Column(place, type_of(scalars[place]))


def distinct_calls(planning: Planning) -> Replace:
    """Return a replacement that gives calls from another plan new numbers in this statement."""
    numbers: dict[int, int] = {}

    def replaced(scalar: Scalar, depth: int) -> Scalar | None:
        if not isinstance(scalar, Call) or not scalar.number:
            return None
        if scalar.number not in numbers:
            numbers[scalar.number] = planning.new_call()
        args = tuple(map_scalar(each, replaced, depth) for each in scalar.args)
        return replace(scalar, args=args, number=numbers[scalar.number])

    return replaced


def check_order_is_known(keys: Sequence[Scalar], over: Sequence[Scalar]) -> None:
    """Raise an error if rows are ordered by the result of a call per row."""
    for key in keys:
        if any(
            isinstance(each, Column) and has_side_effects(over[each.index])
            for each in walk_scalars(key)
        ):
            raise FeatureNotSupported(
                "ORDER BY the result of a function with side effects is not supported"
            )


# --- calls that remain in a query ------------------------------------------------------------


@dataclass
class RemainingCalls:
    """Calls that remain in a bound relation, and whether each is evaluated for one row only."""

    calls: list[tuple[Call, bool]] = field(default_factory=list)
    scopes: Scopes = field(default_factory=Scopes)

    @classmethod
    def of(cls, relation: Relation) -> "RemainingCalls":
        """Return the calls in `relation` and its subqueries."""
        allow_depth()
        remaining = cls()
        remaining._find(relation, True)
        return remaining

    def check(self) -> None:
        """Raise an error if a call is for several rows."""
        for call, once in self.calls:
            if not once:
                raise FeatureNotSupported(
                    f"{_name(call)}() cannot be called for each row here",
                    detail="It is called for the rows of a result: in a select list without "
                    "DISTINCT, set operations or aggregates around it, in what is written, and in "
                    "defaults.",
                )

    def check_all_used(self, optimized: Iterable[Relation]) -> None:
        """Raise an error if a call is in none of the relations that are computed."""
        if not self.calls:
            return
        made = {
            each.number
            for relation in optimized
            for node in walk_relations(relation)
            for scalar in scalars_of(node)
            for each in walk_scalars(scalar)
            if isinstance(each, Call)
        }
        for call, _ in self.calls:
            if call.number not in made and call.function not in DRAWN:
                raise FeatureNotSupported(
                    f"a call of {_name(call)}() whose value is not used is not supported here",
                    hint="Call it in the select list.",
                )

    def _find(self, relation: Relation, once: bool) -> None:
        """Collect the calls in `relation`, which is computed once or for each of several rows."""
        inputs = inputs_of(relation)
        scalars = tuple(scalars_of(relation))
        here = bool(scalars) and once and all(map(_is_one_row, inputs))
        bounds = (relation.limit, relation.offset) if isinstance(relation, TopK) else ()
        for scalar in scalars:
            is_bound = once and any(scalar is bound for bound in bounds)
            seeds = {
                id(each.args[0])
                for each in walk_scalars(scalar)
                if isinstance(each, Call) and each.function in _OF_SEEDS
            }
            for each in walk_scalars(scalar):
                match each:
                    case Call(function=function) if each.number and function not in _READING:
                        if function == SET_CONFIG or not any(map(_is_null, each.args)):
                            self.calls.append((each, here or is_bound or id(each) in seeds))
                    case (
                        Exists(relation=inner)
                        | ScalarSubquery(relation=inner)
                        | AnySubquery(relation=inner)
                    ):
                        self._find(inner, self._is_uncorrelated(inner))
        for input in inputs:
            again = (
                isinstance(relation, JoinOn)
                and relation.lateral
                and input is relation.right
                and not self._is_uncorrelated(input)
            ) or (
                (isinstance(relation, Recursive) and input is relation.step)
                or (isinstance(relation, LetRec) and input is not relation.body)
            )
            self._find(input, once and not again)

    def _is_uncorrelated(self, relation: Relation) -> bool:
        """Return whether `relation` is uncorrelated, and so computed once."""
        return not self.scopes.of_relation(relation)


def _name(call: Call) -> str:
    return call.function.partition("(")[0]


def _is_null(arg: Scalar) -> bool:
    """Return whether an argument is known to be NULL, so that a call has no effect."""
    return is_constant(arg) and constant(arg) == Literal(None, type_of(arg))


def _is_one_row(relation: Relation) -> bool:
    """Return whether `relation` has exactly one row by its form."""
    while True:
        match relation:
            case Map(input=input) | Project(input=input) | Let(body=input):
                relation = input
            case Constant(rows=rows):
                return [diff for _, diff in rows] == [1]
            case _:
                return relation == Join(())


# --- columns over the computed relation ---------------------------------------------------


Flat = tuple[Relation, tuple[Scalar, ...]]


def _split_relation(relation: Relation) -> Flat:
    """Return columns with calls as scalars over a relation without calls, as far as possible."""
    match relation:
        case Map(input=input, scalars=scalars):
            input, outputs = _split_relation(input)
            for scalar in scalars:
                outputs = (*outputs, _substitute(scalar, outputs))
            return input, outputs
        case Project(input=input, outputs=places):
            input, outputs = _split_relation(input)
            kept = tuple(outputs[i] for i in places)
            if calls_in_scalars(outputs) == calls_in_scalars(kept):
                return input, kept
        case Let(number=number, value=value, body=body):
            input, outputs = _split_relation(body)
            if any(map(has_side_effects, outputs)):
                input, outputs = _without_calls(input, outputs)
                return Let(number, value, input), outputs
        case TopK(group_key=(), input=input, order_key=keys):
            input, outputs = _split_relation(input)
            used = {i for key in keys for i in columns_used(key.expr)}
            if any(map(has_side_effects, outputs)) and not any(
                has_side_effects(outputs[i]) for i in used
            ):
                input, outputs = _without_calls(input, outputs)
                return with_inputs(relation, (input,)), outputs
        case Constant(rows=((row, 1),), columns=columns):
            pairs = zip(row, columns, strict=True)
            return Join(()), tuple(Literal(datum, column.type) for datum, column in pairs)
        case Union(inputs=inputs):
            branches = [_split_relation(each) for each in inputs]
            if any(
                any(map(has_side_effects, each[1])) and not _runs_before_query(*each)
                for each in branches
            ):
                return _split_union(branches)
    return relation, tuple(
        Column(i, column.type, column.nullable) for i, column in enumerate(columns_of(relation))
    )


def _split_union(branches: Sequence[Flat]) -> Flat:
    """Return the union of `branches`, with the number of the branch and the columns calls need."""
    width = len(branches[0][1])
    parts = [_split_outputs(outputs) for _, outputs in branches]
    branch = Column(width, INT4)
    needs = [scalar for below, _ in parts for scalar in below[width:]]
    relations: list[Relation] = []
    overs: list[list[Scalar]] = []
    start = 0  # of this branch's columns in `needs`
    for i, ((input, _), (below, over)) in enumerate(zip(branches, parts, strict=True)):
        own = below[width:]
        others: list[Scalar] = [Literal(None, type_of(scalar)) for scalar in needs]
        others[start : start + len(own)] = own
        relations.append(_computed(input, (*below[:width], Literal(i, INT4), *others)))
        places = [_column(below, place) for place in range(width)]
        places += [
            Column(width + 1 + start + place, type_of(scalar)) for place, scalar in enumerate(own)
        ]
        overs.append([_substitute(scalar, places) for scalar in over])
        start += len(own)
    outputs = tuple(
        Case(
            tuple(
                (Call("eq", (branch, Literal(i, INT4)), BOOL), over[column])
                for i, over in enumerate(overs)
            ),
            Literal(None, type_of(overs[0][column])),
            type_of(overs[0][column]),
        )
        if any(has_side_effects(over[column]) for over in overs)
        else overs[0][column]
        for column in range(width)
    )
    return Union(tuple(relations)), outputs


def _substitute(scalar: Scalar, values: Sequence[Scalar]) -> Scalar:
    def value(node: Scalar, depth: int) -> Scalar | None:
        return values[node.index] if isinstance(node, Column) and depth == 0 else None

    return map_scalar(scalar, value)
