"""Functions that act, over rows: taken out of a query, and called when its rows are there.

    SELECT nextval('s') + x FROM t     the rows of   SELECT NULL, x FROM t
                                       then   (nextval('s') + #1)   for each of them, in their order

No engine can give a number to each row once, or set something or signal a session for each. So
what is left to an engine has NULL in place of a column that calls such a function, and beside its
columns what the call needs of the row; the adapter computes the column from that, row by row, in
the order in which the client sees them. This is for calls in a select list, in what is written, and
in defaults. What stands over one row that is there in any case, as without FROM, is called once
before the query, and nothing has to be taken out. Elsewhere calls are refused when the statement is
planned (`Staying`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from foreshore.errors import FeatureNotSupported
from foreshore.expr.functions.system import SET_CONFIG, SIGNALS, SLEEP
from foreshore.expr.ir import (
    AnySubquery,
    Call,
    Column,
    Constant,
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
    columns_of,
    inputs_of,
    operands_of,
    scalars_of,
    type_of,
    walk_relations,
    walk_scalars,
    with_operands,
)
from foreshore.expr.share import allow_depth
from foreshore.sql.bind.sequence import FUNCTIONS
from foreshore.sql.lower_outer import Scopes, has_subquery
from foreshore.sql.planning import Planning
from foreshore.sql.rewrite import map_scalar
from foreshore.types import INT8

# By their keys; those that only read what the session knows may stay anywhere.
_ACTING = frozenset((*FUNCTIONS, *SIGNALS, SET_CONFIG, SLEEP))
_READING = frozenset(("currval", "lastval"))


def acts(scalar: Scalar) -> bool:
    """Whether `scalar` calls a function of sequences, or another that acts for each row."""
    return any(isinstance(each, Call) and each.function in _ACTING for each in walk_scalars(scalar))


def split_calls(relation: Relation) -> tuple[Relation, tuple[Scalar, ...]] | None:
    """Return what to compute first, and the columns of `relation` over that; None: all at once."""
    flat = _flat(relation)
    if flat is None:
        return None
    input, outputs = flat
    if not any(map(acts, outputs)):
        return None
    if input == Join(()) and not any(map(has_subquery, outputs)):
        return None
    below: list[Scalar] = [
        Literal(None, type_of(output)) if acts(output) else output for output in outputs
    ]
    over: list[Scalar] = []
    for i, output in enumerate(outputs):
        over.append(hoisted(output, below) if acts(output) else _column(below, i))
    width = len(columns_of(input))
    places = tuple(range(width, width + len(below)))
    return Project(Map(input, tuple(below)), places), tuple(over)


def hoisted(scalar: Scalar, below: list[Scalar]) -> Scalar:
    """Return `scalar` over `below`, to which what it needs of the row is added."""
    if isinstance(scalar, Literal):
        return scalar
    if not acts(scalar):
        if scalar not in below:
            below.append(scalar)
        return _column(below, below.index(scalar))
    return with_operands(scalar, tuple(hoisted(each, below) for each in operands_of(scalar)))


def _column(scalars: Sequence[Scalar], place: int) -> Column:
    return Column(place, type_of(scalars[place]))


def distinct_calls(planning: Planning, scalar: Scalar) -> Scalar:
    """Return `scalar` with its calls told apart from all others of the statement."""
    if not acts(scalar):
        return scalar
    operands = tuple(distinct_calls(planning, each) for each in operands_of(scalar))
    if isinstance(scalar, Call) and scalar.function in FUNCTIONS:
        planning.calls += 1
        operands = (*operands[:-1], Literal(planning.calls, INT8))
    return with_operands(scalar, operands)


def refuse_order(keys: Sequence[Scalar], over: Sequence[Scalar]) -> None:
    """Raise if rows are to be ordered by what is known only when they are ordered."""
    for key in keys:
        if any(isinstance(each, Column) and acts(over[each.index]) for each in walk_scalars(key)):
            raise FeatureNotSupported(
                "ORDER BY what a function that acts gives for each row is not supported"
            )


# --- calls that stay in a query ------------------------------------------------------------


@dataclass
class Staying:
    """The calls that stay in a bound relation, and whether each is for one row only."""

    calls: list[tuple[Call, bool]] = field(default_factory=list)
    scopes: Scopes = field(default_factory=Scopes)

    @classmethod
    def within(cls, relation: Relation) -> "Staying":
        """Return those in `relation`, subqueries included; raises if one is for several rows."""
        allow_depth()
        staying = cls()
        staying._find(relation, True)
        for call, once in staying.calls:
            if not once:
                raise FeatureNotSupported(
                    f"{_name(call)}() cannot be called for each row here",
                    detail="It is called for the rows of a result: in a select list without "
                    "DISTINCT, set operations or aggregates around it, in what is inserted, and "
                    "in defaults.",
                )
        return staying

    def refuse_left_out(self, optimized: Iterable[Relation]) -> None:
        """Raise if one is in none of the relations that are to be computed."""
        if not self.calls:
            return
        made = {
            _mark(each)
            for relation in optimized
            for node in walk_relations(relation)
            for scalar in scalars_of(node)
            for each in walk_scalars(scalar)
            if isinstance(each, Call)
        }
        for call, _ in self.calls:
            if _mark(call) not in made:
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
                    case Call(function=function) if function in _ACTING - _READING:
                        self.calls.append((each, here))
                    case (
                        Exists(relation=inner)
                        | ScalarSubquery(relation=inner)
                        | AnySubquery(relation=inner)
                    ):
                        self._find(inner, self._is_free(inner))
        for input in inputs:
            again = (
                isinstance(relation, JoinOn)
                and relation.lateral
                and input is relation.right
                and not self._is_free(input)
            ) or (isinstance(relation, Recursive) and input is relation.step)
            self._find(input, once and not again)

    def _is_free(self, relation: Relation) -> bool:
        """Whether `relation` is the same for all rows around it, and so computed once."""
        return not self.scopes.of_relation(relation)


def _name(call: Call) -> str:
    return call.function.partition("(")[0]


def _mark(call: Call) -> tuple[str, Scalar | None]:
    """Return what tells `call` from others whatever becomes of its other arguments."""
    return call.function, call.args[-1] if call.function in FUNCTIONS else None


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


def _flat(relation: Relation) -> tuple[Relation, tuple[Scalar, ...]] | None:
    """Return `relation` as scalars over the first of its inputs that only computes no columns."""
    chain: list[Map | Project] = []
    while isinstance(relation, Map | Project):
        chain.append(relation)
        relation = relation.input
    if not chain:
        return None
    outputs: tuple[Scalar, ...] = tuple(
        Column(i, column.type, column.nullable) for i, column in enumerate(columns_of(relation))
    )
    for node in reversed(chain):
        if isinstance(node, Project):
            outputs = tuple(outputs[i] for i in node.outputs)
            continue
        for scalar in node.scalars:
            outputs = (*outputs, _put_in(scalar, outputs))
    return relation, outputs


def _put_in(scalar: Scalar, values: Sequence[Scalar]) -> Scalar:
    def replace(node: Scalar, depth: int) -> Scalar | None:
        return values[node.index] if isinstance(node, Column) and depth == 0 else None

    return map_scalar(scalar, replace)
