"""Functions that act, over rows: taken out of a query, and called when its rows are there.

    SELECT nextval('s') + x FROM t     the rows of   SELECT NULL, x FROM t
                                       then   (nextval('s') + #1)   for each of them, in their order

No engine can give a number to each row once, or set something or signal a session for each. So
what is left to an engine has NULL in place of a column that calls such a function, and beside its
columns what the call needs of the row; the adapter computes the column from that, row by row, in
the order in which the client sees them. This is for calls in a select list, in what is written, and
in defaults. What stands over one row that is there in any case, as without FROM, is called once
before the query, and nothing has to be taken out. Elsewhere calls are refused when the statement is
planned (`RemainingCalls`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from foreshore.errors import FeatureNotSupported
from foreshore.expr.evaluate import constant, is_constant
from foreshore.expr.functions.system import SET_CONFIG
from foreshore.expr.ir import (
    TRUE,
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
    Literal,
    Map,
    Project,
    Recursive,
    Relation,
    Scalar,
    ScalarSubquery,
    TopK,
    Union,
    columns_of,
    inputs_of,
    operands_of,
    type_of,
    walk_relations,
    walk_scalars,
    with_inputs,
    with_operands,
)
from foreshore.expr.lazily import conditions
from foreshore.expr.scalars import scalars_of
from foreshore.expr.share import allow_depth
from foreshore.expr.split import columns_used
from foreshore.sql.lower.outer_columns import Scopes, has_subquery
from foreshore.sql.planning import Planning
from foreshore.sql.rewrite.scalars import Replace, map_scalar
from foreshore.types import BOOL, INT4

# Those that only read what the session knows may stay anywhere.
_READING = frozenset(("currval", "lastval"))


def has_side_effects(scalar: Scalar) -> bool:
    """Whether `scalar` calls a function that acts."""
    return any(map(_is_side_effecting, walk_scalars(scalar)))


def split_calls(
    relation: Relation, shown: Sequence[int] | None = None
) -> tuple[Relation, tuple[Scalar, ...]] | None:
    """Return what to compute first, and the columns of `relation` over that; None: all at once.

    `shown` are the columns that are asked for, if not all are; others are for what they do.
    """
    allow_depth()
    input, outputs = _split_relation(relation)
    if not any(map(has_side_effects, outputs)):
        return None
    hidden = [output for i, output in enumerate(outputs) if shown is not None and i not in shown]
    if _runs_before_query(input, outputs) and not any(map(has_side_effects, hidden)):
        return None
    for call, places in conditions(outputs, _is_side_effecting).items():
        if any(map(has_side_effects, places)):
            assert isinstance(call, Call), call
            raise FeatureNotSupported(
                f"whether {_name(call)}() is called cannot depend on another such call"
            )
    return _without_calls(input, outputs)


def _is_side_effecting(scalar: Scalar) -> bool:
    return isinstance(scalar, Call) and scalar.number > 0


def _runs_before_query(input: Relation, outputs: Sequence[Scalar]) -> bool:
    """Whether all calls in `outputs` are to be made, once, with arguments that are known."""
    return (
        input == Join(())
        and not any(map(has_subquery, outputs))
        and all(TRUE in places for places in conditions(outputs, _is_side_effecting).values())
    )


def _without_calls(
    input: Relation, outputs: Sequence[Scalar]
) -> tuple[Relation, tuple[Scalar, ...]]:
    """Return `input` with what needs no calls, column for column, and `outputs` over that."""
    below, over = _split_outputs(outputs)
    return _computed(input, below), over


def _computed(input: Relation, scalars: Sequence[Scalar]) -> Relation:
    """Return just `scalars` over `input`."""
    width = len(columns_of(input))
    places = tuple(range(width, width + len(scalars)))
    return Project(Map(input, tuple(scalars)), places)


def _split_outputs(outputs: Sequence[Scalar]) -> tuple[list[Scalar], tuple[Scalar, ...]]:
    """Return `outputs` with NULL where they act, and what they need; and them over that."""
    below = [
        Literal(None, type_of(output)) if has_side_effects(output) else output for output in outputs
    ]
    over = [
        _split_output(output, below) if has_side_effects(output) else _column(below, i)
        for i, output in enumerate(outputs)
    ]
    return below, tuple(over)


def _split_output(scalar: Scalar, below: list[Scalar]) -> Scalar:
    """Return `scalar` over `below`, to which the columns and subqueries in it are added.

    The rest stays together, so that what Case leaves out is not computed and does not fail.
    """
    match scalar:
        case AnySubquery() if has_side_effects(scalar):
            raise FeatureNotSupported(
                "a function that acts cannot be compared with the rows of a subquery"
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
    """Return what tells calls that were bound elsewhere apart from all others of the statement."""
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
    """Raise if rows are to be ordered by what is known only when they are ordered."""
    for key in keys:
        if any(
            isinstance(each, Column) and has_side_effects(over[each.index])
            for each in walk_scalars(key)
        ):
            raise FeatureNotSupported(
                "ORDER BY what a function that acts gives for each row is not supported"
            )


# --- calls that stay in a query ------------------------------------------------------------


@dataclass
class RemainingCalls:
    """The calls that stay in a bound relation, and whether each is for one row only."""

    calls: list[tuple[Call, bool]] = field(default_factory=list)
    scopes: Scopes = field(default_factory=Scopes)

    @classmethod
    def within(cls, relation: Relation) -> "RemainingCalls":
        """Return those in `relation`, subqueries included; raises if one is for several rows."""
        allow_depth()
        remaining = cls()
        remaining._find(relation, True)
        for call, once in remaining.calls:
            if not once:
                raise FeatureNotSupported(
                    f"{_name(call)}() cannot be called for each row here",
                    detail="It is called for the rows of a result: in a select list without "
                    "DISTINCT, set operations or aggregates around it, in what is written, and in "
                    "defaults.",
                )
        return remaining

    def check_all_used(self, optimized: Iterable[Relation]) -> None:
        """Raise if one is in none of the relations that are to be computed."""
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
            if call.number not in made:
                raise FeatureNotSupported(
                    f"a call of {_name(call)}() whose value is not used is not supported here",
                    hint="Call it in the select list.",
                )

    def _find(self, relation: Relation, once: bool) -> None:
        """Find those in `relation`, which is computed once or for each of several rows."""
        inputs = inputs_of(relation)
        here = once and all(map(_is_one_row, inputs))
        for scalar in scalars_of(relation):
            for each in walk_scalars(scalar):
                match each:
                    case Call(function=function) if each.number and function not in _READING:
                        if function == SET_CONFIG or not any(map(_is_null, each.args)):
                            self.calls.append((each, here))
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
            ) or (isinstance(relation, Recursive) and input is relation.step)
            self._find(input, once and not again)

    def _is_uncorrelated(self, relation: Relation) -> bool:
        """Whether `relation` is the same for all rows around it, and so computed once."""
        return not self.scopes.of_relation(relation)


def _name(call: Call) -> str:
    return call.function.partition("(")[0]


def _is_null(arg: Scalar) -> bool:
    """Whether an argument is known to be NULL, for which a call does nothing."""
    return is_constant(arg) and constant(arg) == Literal(None, type_of(arg))


def _is_one_row(relation: Relation) -> bool:
    """Whether the form of `relation` alone says that it has exactly one row."""
    while True:
        match relation:
            case Map(input=input) | Project(input=input) | Let(body=input):
                relation = input
            case Constant(rows=rows):
                return [diff for _, diff in rows] == [1]
            case _:
                return relation == Join(())


# --- columns over what is computed first ---------------------------------------------------


Flat = tuple[Relation, tuple[Scalar, ...]]


def _split_relation(relation: Relation) -> Flat:
    """Return columns that act as scalars over a relation that does not, as far as they can be."""
    match relation:
        case Map(input=input, scalars=scalars):
            input, outputs = _split_relation(input)
            for scalar in scalars:
                outputs = (*outputs, _substitute(scalar, outputs))
            return input, outputs
        case Project(input=input, outputs=places):
            input, outputs = _split_relation(input)
            kept = tuple(outputs[i] for i in places)
            if (
                conditions(outputs, _is_side_effecting).keys()
                == conditions(kept, _is_side_effecting).keys()
            ):
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
    """Return the sum of `branches`: beside its columns the number of the branch, and its needs."""
    width = len(branches[0][1])
    parts = [_split_outputs(outputs) for _, outputs in branches]
    branch = Column(width, INT4)
    needs = [scalar for below, _ in parts for scalar in below[width:]]
    relations: list[Relation] = []
    overs: list[list[Scalar]] = []
    start = 0  # of the branch's own in `needs`
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
