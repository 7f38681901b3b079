"""The rows of an INSERT ... VALUES, compiled: tuples of literals, arguments and expressions.

They are compiled when the statement is prepared.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, count, repeat
from operator import call, itemgetter

from foreshore.errors import DataError
from foreshore.expr.cost import LIGHT, SMALL, cost_of_call, is_demanding, most_size, size_of
from foreshore.expr.ir import (
    IN_STEP,
    Arguments,
    Call,
    Column,
    Constant,
    Filter,
    FlatMap,
    Join,
    Literal,
    Map,
    Project,
    Relation,
    Scalar,
    Union,
)
from foreshore.expr.pointwise import Cell, compiled
from foreshore.expr.scalars import bind_scalar
from foreshore.expr.traversal import inputs_of, walk_relations, walk_scalars
from foreshore.sql.rewrite.bind_parameters import Givens
from foreshore.table_rows import Row
from foreshore.types import Datum

MOST_IN_PASSING = 256  # rows that are made on the event loop


@dataclass(frozen=True, slots=True)
class Template:
    """Rows of cells over what is given: arguments, what the environment says, and calls' values.

    `calls` have side effects on the session, as nextval() has, and literals as arguments. A
    function that is `demanding`, given with its arguments, may take longer than these are long.
    `is_bounded` says that no value in the rows can. Cells that are `literals` stand after the
    values of the givens and the calls.
    """

    givens: Givens
    calls: tuple[Call, ...]
    cells: tuple[tuple[Cell, ...], ...]
    literals: tuple[Datum, ...] = ()
    is_bounded: bool = True
    demanding: tuple[tuple[str, tuple[Cell, ...]], ...] = ()

    def rows(self, given: Sequence[Datum]) -> list[Row]:
        """Return the rows over the values of the givens and the calls; raises DataError."""
        values = repeat([*given, *self.literals])
        return [tuple(map(call, row, values)) for row in self.cells]

    def is_large(self, given: Sequence[Datum]) -> bool:
        """Whether a value in the rows may take too long to make on the event loop."""
        if sum(map(size_of, given)) > LIGHT:
            return True
        try:  # the arguments of other functions come first, so they are known to be short
            for key, args in self.demanding:
                values = [arg(given) for arg in args]
                if sum(cost_of_call(key, values, [*map(size_of, values)])) > LIGHT:
                    return True
        except DataError:  # in a value that the rows may not need
            return True
        return False


def template_of(relation: Relation, calls: Sequence[Call] = ()) -> Template | None:
    """Return `relation` as a template if it is only rows of values, and not of many constants.

    `calls` are those in it with side effects on the session, in the order of their execution.
    """
    constants = [each for each in walk_relations(relation) if isinstance(each, Constant)]
    rows = None if sum(len(e.rows) for e in constants) > MOST_IN_PASSING else _rows(relation)
    if rows is None:
        return None
    if not all(isinstance(arg, Literal) for each in calls for arg in each.args):
        return None
    places: dict[Scalar, Scalar] = {each: Column(i, each.type) for i, each in enumerate(calls)}
    rows = [tuple(bind_scalar(scalar, places.get) for scalar in row) for row in rows]
    givens = Givens.of(chain.from_iterable(rows))
    rows = [tuple(map(givens.placed, row)) for row in rows]
    made = [each for scalar in chain.from_iterable(rows) for each in _calls_in(scalar)]
    demanding = [each for each in made if is_demanding(each.function)]
    if demanding and (calls or len(rows) > MOST_IN_PASSING):
        return None  # a large value is made in another way, and the calls only once
    literals = [each for row in rows for each in row if isinstance(each, Literal)]
    after = count(len(givens) + len(calls))
    cells = [
        [itemgetter(next(after)) if isinstance(each, Literal) else compiled(each) for each in row]
        for row in rows
    ]
    leaves = [leaf for each in made for leaf in walk_scalars(each) if isinstance(leaf, Column)]
    return Template(
        givens,
        tuple(calls),
        tuple(map(tuple, cells)),
        tuple([each.value for each in literals]),
        not demanding and all(most_size(each.type) <= SMALL for each in leaves),
        tuple((each.function, tuple(map(compiled, each.args))) for each in demanding),
    )


def _calls_in(scalar: Scalar) -> list[Call]:
    """Return the calls within `scalar`, arguments of others first."""
    return [each for each in walk_scalars(scalar) if isinstance(each, Call)][::-1]


def _rows(relation: Relation) -> list[tuple[Scalar, ...]] | None:
    """Return the rows of `relation` as scalars without columns, if it is only rows."""
    match relation:
        case Join(inputs=()):
            return [()]
        case Constant(rows=rows, columns=columns):
            if any(diff != 1 for _, diff in rows):
                return None
            return [
                tuple(Literal(datum, c.type) for datum, c in zip(row, columns, strict=True))
                for row, _ in rows
            ]
        case Map(input=input, scalars=scalars):
            below = _rows(input)
            return None if below is None else [_with(row, scalars) for row in below]
        case Project(input=input, outputs=outputs):
            below = _rows(input)
            return None if below is None else [tuple(row[i] for i in outputs) for row in below]
        case Union():
            found: list[tuple[Scalar, ...]] = []
            for input in inputs_of(relation):
                part = _rows(input)
                if part is None:
                    return None
                found += part
            return found
        case _:
            return None


def most_rows(relation: Relation) -> int | None:
    """Return how many rows `relation` has at most; None if that depends on its inputs."""
    match relation:
        case Join(inputs=()):
            return 1
        case Constant(rows=rows):
            return sum(diff for _, diff in rows if diff > 0)
        case Map() | Project() | Filter():
            return most_rows(relation.input)
        case FlatMap(input=Join(inputs=()), function=function, args=args) if function == IN_STEP:
            lengths = [_length(array) for array in args]
            return None if None in lengths else max(filter(None, lengths), default=0)
        case Union():
            parts = [most_rows(input) for input in inputs_of(relation)]
            return None if None in parts else sum(filter(None, parts))
        case _:
            return None


def _length(array: Scalar) -> int | None:
    """Return the number of elements of an array; None if it is not known."""
    match array:
        case Arguments(numbers=numbers):
            return len(numbers)
        case Literal(value=tuple() as value):
            return len(value)
        case _:
            return None


def _with(row: tuple[Scalar, ...], scalars: Iterable[Scalar]) -> tuple[Scalar, ...]:
    for scalar in scalars:
        row = (*row, bind_scalar(scalar, partial(_cell_of, row)))
    return row


def _cell_of(row: tuple[Scalar, ...], scalar: Scalar) -> Scalar | None:
    return row[scalar.index] if isinstance(scalar, Column) else None
