"""The rows for which expressions of a plan fail, in place of the texts of their errors.

    Map(t, a / b)    the rows of t for which a / b fails, each with the error

An expression over rows that were filtered, computed and projected from one collection is written
as one over all columns of that collection. Other expressions, such as one over a join, are over
the rows that they are given.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from foreshore.deep_trees import allow_depth
from foreshore.expr.columns import columns_of, keeping_columns
from foreshore.expr.ir import (
    Column,
    Filter,
    Get,
    Join,
    Let,
    LocalGet,
    Map,
    Negate,
    Project,
    Reduce,
    Relation,
    Scalar,
    TemporalFilter,
    Threshold,
    TopK,
    Union,
    Window,
)
from foreshore.expr.split import Split, Splitter, Test, is_not_null, may_fail, reads_local
from foreshore.expr.traversal import operands_of, with_operands
from foreshore.ids import GlobalId
from foreshore.types import TEXT

Origin = tuple[GlobalId, int]  # a collection and a column of it


@dataclass(frozen=True, slots=True)
class FailingRows:
    """Rows, as `relation`, whose last column is the text of their error.

    `origins` says of which collection's column each of the other columns is; None: of none.
    """

    relation: Relation
    origins: tuple[Origin | None, ...]


def failing_rows(relation: Relation, fallible: Test = may_fail) -> list[FailingRows]:
    """Return the rows for which expressions of a lowered `relation` fail, a part for each place.

    They are as many as the errors of `split_errors`, with the same texts. The relation must have no
    recursion.
    """
    allow_depth()
    finder = _Finder(fallible)
    with keeping_columns():
        finder.split(relation)
    return finder.found


@dataclass
class _Finder(Splitter):
    found: list[FailingRows] = field(default_factory=list)
    values: dict[int, Relation] = field(default_factory=dict)  # of Lets, by number

    def split(self, relation: Relation) -> Split:
        """Split `relation`, with Lets around the parts that are found within them."""
        if not isinstance(relation, Let):
            return super().split(relation)
        start = len(self.found)
        value, errors = self.split(relation.value)
        if not reads_local(relation.body, relation.number):
            del self.found[start:]
            return self.split(relation.body)
        self.values[relation.number] = value
        self.negative[relation.number] = self.may_be_negative(value)
        start = len(self.found)
        body, inner = self.split(relation.body)
        self.found[start:] = [
            FailingRows(Let(relation.number, value, each.relation), each.origins)
            if reads_local(each.relation, relation.number)
            else each
            for each in self.found[start:]
        ]
        return Let(relation.number, value, body), [*errors, *inner]

    def failing(self, input: Relation, error: Scalar, width: int) -> Relation:
        """Note the rows, and return their errors."""
        rows, places = _chain(input) or (input, tuple(range(width)))
        origins = tuple(self._origin(rows, i) for i in range(len(columns_of(rows))))
        text = Column(len(origins), TEXT)
        failing: Relation = Filter(Map(rows, (_over(error, places),)), (is_not_null(text),))
        if self.may_be_negative(input):
            failing = Union((Threshold(failing), Threshold(Negate(failing))))
        self.found.append(FailingRows(failing, origins))
        return super().failing(input, error, width)

    def _origin(self, relation: Relation, at: int) -> Origin | None:
        """Return the collection's column that a column of `relation` is, None if it is computed."""
        match relation:
            case Get(id=id):
                return id, at
            case LocalGet(number=number):
                return self._origin(self.values[number], at)
            case Project(input=input, outputs=outputs):
                return self._origin(input, outputs[at])
            case Map(input=input) | Window(input=input):
                return self._origin(input, at) if at < len(columns_of(input)) else None
            case Reduce(input=input, group_key=keys):
                key = keys[at] if at < len(keys) else None
                return self._origin(input, key.index) if isinstance(key, Column) else None
            case Join(inputs=inputs):
                for input in inputs:
                    width = len(columns_of(input))
                    if at < width:
                        return self._origin(input, at)
                    at -= width
                return None
            case (
                Filter(input=input)
                | TemporalFilter(input=input)
                | TopK(input=input)
                | Threshold(input=input)
                | Negate(input=input)
            ):
                return self._origin(input, at)
            case _:
                return None


Chain = tuple[Relation, tuple[int, ...]]


def _chain(relation: Relation) -> Chain | None:
    """Return rows with all columns of one collection, and where those of `relation` are in them.

    None if it is not computed row by row from one collection.
    """
    match relation:
        case Get(columns=columns):
            return relation, tuple(range(len(columns)))
        case Filter(input=input, predicates=predicates):
            if (below := _chain(input)) is None:
                return None
            rows, places = below
            return Filter(rows, tuple(_over(each, places) for each in predicates)), places
        case Map(input=input, scalars=scalars):
            if (below := _chain(input)) is None:
                return None
            rows, places = below
            start, moved = len(columns_of(rows)), []
            for scalar in scalars:
                moved.append(_over(scalar, places))
                places = (*places, start + len(moved) - 1)
            return Map(rows, tuple(moved)), places
        case Project(input=input, outputs=outputs):
            if (below := _chain(input)) is None:
                return None
            rows, places = below
            return rows, tuple(places[i] for i in outputs)
        case _:
            return None


def _over(scalar: Scalar, places: Sequence[int]) -> Scalar:
    """Return `scalar` with column i moved to places[i]."""
    if isinstance(scalar, Column):
        return Column(places[scalar.index], scalar.type, scalar.nullable)
    operands = operands_of(scalar)
    if not operands:
        return scalar
    return with_operands(scalar, tuple(_over(each, places) for each in operands))
