"""Derive properties of relations without running them: unique keys and monotonicity.

A *unique key* is a set of columns in all of which no two rows agree, NULLs counting as equal; the
empty set means that there is at most one row. All analyses are conservative, and hold for relations
in which every row has a positive multiplicity. For a `Union` that removes rows (`Negate`) they
assume that the removed rows existed.
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import accumulate, pairwise, product

from foreshore.expr.columns import columns_of
from foreshore.expr.equality import has_one_form
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
    LetRec,
    Literal,
    LocalGet,
    Map,
    Negate,
    Parameter,
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
)

Key = frozenset[int]
Keys = tuple[Key, ...]
Locals = Mapping[int, Relation]

MAX_KEYS = 4  # bounds the number of keys considered; the first ones are the most useful


def unique_keys(relation: Relation, locals: Locals | None = None) -> Keys:
    """Return some minimal unique keys of `relation`, smallest first."""
    return Analysis(dict(locals or {})).keys(relation)


def is_unique(relation: Relation, columns: Iterable[int], locals: Locals | None = None) -> bool:
    """Return whether no two rows agree in all `columns`."""
    given = frozenset(columns)
    return any(key <= given for key in unique_keys(relation, locals))


def default_key(relation: Relation) -> tuple[int, ...]:
    """Return the default columns to index `relation` by: a unique key, otherwise all."""
    for key in unique_keys(relation):
        if key:
            return tuple(sorted(key))
    return tuple(range(len(columns_of(relation))))


def _smallest(keys: Iterable[Key]) -> Keys:
    """Return the minimal ones of `keys`, smallest first, up to the maximum considered."""
    minimal: list[Key] = []
    for key in sorted(set(keys), key=lambda key: (len(key), sorted(key))):
        if not any(other <= key for other in minimal):
            minimal.append(key)
    return tuple(minimal[:MAX_KEYS])


class Analysis:
    """Find unique keys, and cache those of local relations."""

    def __init__(self, locals: dict[int, Relation]) -> None:
        self.locals = locals
        self.known: dict[int, Keys] = {}  # keys of locals, by number

    def keys(self, relation: Relation) -> Keys:
        """Return some minimal unique keys of `relation`."""
        match relation:
            case Constant(rows=rows, columns=columns):
                if sum(abs(count) for _, count in rows) <= 1:
                    return (frozenset(),)
                # Types with several representations have equal values that are not identical.
                places = [i for i, column in enumerate(columns) if has_one_form(column.type)]
                shown = {tuple(row[i] for i in places) for row, _ in rows}
                once = all(count == 1 for _, count in rows) and len(shown) == len(rows)
                return (frozenset(places),) if once else ()
            case Get(keys=keys):
                return _smallest(map(frozenset, keys))
            case LocalGet(number=number):
                if number not in self.known and number in self.locals:
                    self.known[number] = self.keys(self.locals[number])
                return self.known.get(number, ())
            case Let(number=number, value=value, body=body):
                self.known[number] = self.keys(value)
                return self.keys(body)
            case Map(input=input) | TemporalFilter(input=input) | Threshold(input=input):
                return self.keys(input)
            case Filter(input=input, predicates=predicates):
                fixed = frozenset(map(_fixed, predicates))
                return _smallest(key - fixed for key in self.keys(input))
            case Project(input=input, outputs=outputs):
                place = {column: position for position, column in reversed([*enumerate(outputs)])}
                return _smallest(
                    frozenset(place[column] for column in key)
                    for key in self.keys(input)
                    if key <= place.keys()
                )
            case Join():
                return self._join_keys(relation)
            case Reduce(input=input, group_key=group_key):
                place = {s.index: i for i, s in enumerate(group_key) if isinstance(s, Column)}
                inherited = (
                    frozenset(place[column] for column in key)
                    for key in self.keys(input)
                    if key <= place.keys()
                )
                return _smallest([frozenset(range(len(group_key))), *inherited])
            case TopK(input=input, group_key=group, limit=limit):
                found = self.keys(input)
                if isinstance(limit, Literal) and limit.value is not None and limit.value <= 1:
                    found = _smallest([*found, frozenset(group)])
                return found
            case Window(input=input, partition=partition, functions=functions):
                width = len(columns_of(input))
                numbered = (
                    frozenset((*partition, width + i))
                    for i, function in enumerate(functions)
                    if function.function == "row_number"
                )
                return _smallest([*self.keys(input), *numbered])
            case Union(inputs=inputs):  # assumes that only existing rows are removed
                added = [input for input in inputs if not isinstance(input, Negate)]
                return self.keys(added[0]) if len(added) == 1 else ()
            case Negate() | FlatMap() | JoinOn() | LetRec() | Recursive():
                return ()

    def _join_keys(self, join: Join) -> Keys:
        """Return the keys of inputs that, by the equivalences, determine all other inputs' rows."""
        ends = [0, *accumulate(len(columns_of(input)) for input in join.inputs)]
        spans = [range(a, b) for a, b in pairwise(ends)]
        each = [
            [frozenset(column + span.start for column in key) for key in self.keys(input)]
            for input, span in zip(join.inputs, spans, strict=True)
        ]
        if not all(each):
            return ()
        classes = [
            (
                frozenset(s.index for s in equivalence if isinstance(s, Column)),
                any(isinstance(s, Literal | Parameter) for s in equivalence),
            )
            for equivalence in join.equivalences
        ]

        def closure(start: Key) -> set[int]:
            known = set(start)
            while True:
                more = set(known)
                for columns, constant in classes:
                    if constant or columns & more:
                        more |= columns
                for keys, span in zip(each, spans, strict=True):
                    if any(key <= more for key in keys):
                        more.update(span)
                if more == known:
                    return known
                known = more

        everything = set(range(ends[-1]))
        candidates: list[Key] = [frozenset()]
        candidates += [key for keys in each for key in keys]
        sufficient = [key for key in candidates if closure(key) == everything]
        if not sufficient:
            for choice in product(*(keys[:2] for keys in each[:6])):
                rest = [keys[0] for keys in each[6:]]
                sufficient.append(_pruned(frozenset().union(*choice, *rest), closure, everything))
        return _smallest(sufficient)


def _pruned(key: Key, closure: Callable[[Key], set[int]], everything: set[int]) -> Key:
    """Return `key` without columns that the others determine."""
    for column in sorted(key, reverse=True):
        if closure(key - {column}) == everything:
            key -= {column}
    return key


def _fixed(predicate: Scalar) -> int:
    """Return the column that `predicate` fixes to one constant, or -1."""
    match predicate:
        case Call(function="eq", args=(Column(index=index), Literal() | Parameter())):
            return index
        case Call(function="eq", args=(Literal() | Parameter(), Column(index=index))):
            return index
        case _:
            return -1
