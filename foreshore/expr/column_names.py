"""Names of the columns of relations, for plans that people read.

    Filter eq(#0, 7)        becomes        Filter eq(id, 7)
      Get u1                                 Get shop.public.orders

A column that is computed has its call for a name, `sum(amount)`, or only the function's name where
that is long. Where two columns have one name, the position follows it:
`id#0`. Columns of relations that have no names are shown by their position alone.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from foreshore.expr.columns import columns_of
from foreshore.expr.ir import (
    Call,
    Column,
    Constant,
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
from foreshore.expr.traversal import inputs_of
from foreshore.ids import GlobalId

LONGEST_NAME = 60  # of a computed column
Names = tuple[str | None, ...]
NamesOf = Callable[[GlobalId], Sequence[str]]

_POSITION = re.compile(r"'(?:[^']|'')*'|(?<![\^\w\")])(\^*)#(\d+)")


class NamedColumns:
    """Finds the names of columns; `names_of` returns those of a collection, as SQL writes them."""

    def __init__(self, names_of: NamesOf) -> None:
        self._names_of = names_of
        self._local: dict[int, Names] = {}
        self._found: dict[int, tuple[Relation, Names]] = {}  # by identity

    def named(self, relation: Relation, head: str, outer: tuple[Names, ...] = ()) -> str:
        """Return an operator's line with names in place of positions; also of `outer` rows."""
        return with_names(head, self.read_by(relation), outer)

    def of(self, id: GlobalId) -> Names:
        """Return the names of a collection's columns."""
        return tuple(self._names_of(id))

    def names(self, relation: Relation) -> Names:
        """Return the name of each column, None for one without."""
        known = self._found.get(id(relation))
        if known is None:
            known = relation, self._names(relation)
            if not isinstance(relation, LocalGet):
                self._found[id(relation)] = known
        return known[1]

    def _names(self, relation: Relation) -> Names:
        names: Names
        match relation:
            case Get(id=id, columns=columns):
                names = tuple(self._names_of(id))
                return names if len(names) == len(columns) else (None,) * len(columns)
            case Constant(columns=columns):
                return tuple(f"column{i}" for i in range(1, len(columns) + 1))
            case LocalGet(number=number) if number in self._local:
                return self._local[number]
            case Let(number=number, value=value, body=body):
                self._local[number] = self.names(value)
                return self.names(body)
            case Map(input=input, scalars=scalars):
                names = self.names(input)
                for scalar in scalars:
                    names += (_name_of(scalar, names),)
                return names
            case Project(input=input, outputs=outputs):
                names = self.names(input)
                return tuple(names[i] for i in outputs)
            case Filter() | TopK() | TemporalFilter() | Negate() | Threshold():
                return self.names(relation.input)
            case Reduce(input=input, group_key=key, aggregates=calls):
                names = self.names(input)
                found = tuple(_name_of(scalar, names) for scalar in key)
                from foreshore.expr.explain import explain_aggregate

                made = (_called(each.function, explain_aggregate(each), names) for each in calls)
                return found + tuple(made)
            case Window(input=input, functions=functions):
                found = self.names(input)
                return found + tuple(f"{each.function}()" for each in functions)
            case FlatMap(input=input, function=function):
                found = self.names(input)
                given = len(columns_of(relation)) - len(found)
                return found + (function.partition("(")[0],) * given
            case Join() | JoinOn():
                found = self._joined(relation)
            case Union(inputs=inputs):
                found = self.names(inputs[0])
            case _:
                found = ()
        return found + (None,) * (len(columns_of(relation)) - len(found))

    def _joined(self, relation: Relation) -> Names:
        return tuple(name for each in inputs_of(relation) for name in self.names(each))

    def read_by(self, relation: Relation) -> Names:
        """Return the names of the columns that the scalars of an operator read."""
        if isinstance(relation, Join | JoinOn):
            return self._joined(relation)
        if isinstance(relation, Map):
            return self.names(relation)
        if isinstance(relation, Let):
            self._local[relation.number] = self.names(relation.value)
        inputs = inputs_of(relation)
        return self.names(inputs[0]) if inputs else ()


def _name_of(scalar: Scalar, names: Names) -> str | None:
    from foreshore.expr.explain import explain_scalar

    match scalar:
        case Column(index=index):
            return names[index]
        case Call(function=function):
            return _called(function, explain_scalar(scalar), names)
        case Literal():
            return explain_scalar(scalar)
        case _:
            return _called(type(scalar).__name__.lower(), explain_scalar(scalar), names)


def _called(function: str, text: str, names: Names) -> str | None:
    """Return the name of a computed column; None if it is made of columns without names."""
    name = with_names(text, names)
    if len(name) > LONGEST_NAME:
        return function.partition("(")[0]
    return None if any(found[2] for found in _POSITION.finditer(name)) else name


def with_names(text: str, names: Names, outer: tuple[Names, ...] = ()) -> str:
    """Return a text with names in place of `#0`, `#1` and so on, but not in its strings.

    `^#0` is a column of the first of `outer`, `^^#0` one of the second.
    """
    rows = (names, *outer)
    counts: Sequence[Mapping[str | None, int]] = list(map(Counter, rows))

    def named(found: re.Match[str]) -> str:
        if found[2] is None:
            return found[0]
        level, position = len(found[1]), int(found[2])
        row = rows[level] if level < len(rows) else ()
        name = row[position] if position < len(row) else None
        if name is None:
            return found[0]
        shown = name if counts[level][name] == 1 else f"{name}#{position}"
        return f"{found[1]}{shown}"

    return _POSITION.sub(named, text)
