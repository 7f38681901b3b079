"""Sharing: what a plan says twice is said once, in a Let, and what is said once has none.

All Lets are put in where they are used and found anew, as the parts of the plan that occur more
than once: so a Let that is used once disappears, equal parts become one, and Lets stand at the very
top, each using only those above it. What merely reads a collection, column by column and row by
row, is not worth the name and stays where it is; so does a product without a condition.
"""

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import count

from foreshore.expr.ir import (
    Constant,
    Filter,
    Get,
    Join,
    Let,
    LocalGet,
    Map,
    Project,
    Relation,
    columns_of,
    inputs_of,
    with_inputs,
)
from foreshore.ids import GlobalId

DEEP = 20_000  # frames; plans are as deep as their text is long, and Python allows 1000


def allow_depth() -> None:
    """Let functions over plans recurse as deep as plans are."""
    if sys.getrecursionlimit() < DEEP:
        sys.setrecursionlimit(DEEP)


def share(relation: Relation) -> Relation:
    """Return `relation` with what occurs in it more than once bound by Lets, and nothing else."""
    bindings, (body,) = share_all((relation,))
    for number, value in reversed(bindings):
        body = Let(number, value, body)
    return body


def share_all(
    relations: Sequence[Relation],
) -> tuple[list[tuple[int, Relation]], list[Relation]]:
    """Return what `relations` have in common, each part using those before it, and their rest.

    A binding `(number, value)` is what `LocalGet(number)` stands for in later ones and in the rest.
    """
    allow_depth()
    interner = _Interner()
    roots = [interner.intern(relation) for relation in relations]
    order = _bottom_up(roots)
    uses = Counter(id(input) for node in order for input in inputs_of(node))
    uses.update(id(root) for root in roots)
    numbers = count(interner.free)
    bindings: list[tuple[int, Relation]] = []
    done: dict[int, Relation] = {}
    for node in order:
        built = with_inputs(node, tuple(done[id(input)] for input in inputs_of(node)))
        if uses[id(node)] > 1 and not _is_plain(node):
            number = next(numbers)
            bindings.append((number, built))
            built = LocalGet(number, columns_of(built))
        done[id(node)] = built
    return bindings, [done[id(root)] for root in roots]


def put_in(relation: Relation, definitions: Mapping[GlobalId, Relation]) -> Relation:
    """Return `relation` with definitions in place of the collections that it reads.

    Each is one object wherever it stands; `share` makes it one Let.
    """
    if isinstance(relation, Get):
        return definitions.get(relation.id, relation)
    return with_inputs(relation, tuple(put_in(each, definitions) for each in inputs_of(relation)))


class _Interner:
    """Makes one object of equal relations, with Lets put in."""

    def __init__(self) -> None:
        self.canonical: dict[Relation, Relation] = {}
        self.bound: dict[int, Relation] = {}  # by the Lets around
        self.meant: dict[int, Relation] = {}  # by the first Let of the number
        self.free = 0  # beyond all numbers that no Let binds
        self.seen: dict[int, Relation] = {}  # by id; `kept` keeps the ids from being used again
        self.kept: list[Relation] = []

    def intern(self, relation: Relation) -> Relation:
        found = self.seen.get(id(relation))
        if found is not None:
            return found
        match relation:
            case Let(number=number, value=value, body=body):
                interned = self.intern(value)
                outer, seen = self.bound.get(number), self.seen
                if self.meant.setdefault(number, interned) is not interned:
                    self.seen = {}  # what has been seen may have meant another by this number
                self.bound[number] = interned
                result = self.intern(body)
                self.seen = seen
                if outer is None:
                    del self.bound[number]
                else:
                    self.bound[number] = outer
            case LocalGet(number=number):
                if number in self.bound:
                    return self.bound[number]
                self.free = max(self.free, number + 1)
                return self.canonical.setdefault(relation, relation)
            case _:
                inputs = inputs_of(relation)
                interned_inputs = tuple(map(self.intern, inputs))
                if any(a is not b for a, b in zip(inputs, interned_inputs, strict=True)):
                    result = with_inputs(relation, interned_inputs)
                else:
                    result = relation
                result = self.canonical.setdefault(result, result)
        self.seen[id(relation)] = result
        self.kept.append(relation)
        return result


def _bottom_up(roots: Sequence[Relation]) -> list[Relation]:
    """Return all nodes below `roots`, each once, inputs before what uses them."""
    order: list[Relation] = []
    seen: set[int] = set()
    stack: list[tuple[Relation, bool]] = [(root, False) for root in reversed(roots)]
    while stack:
        node, ready = stack.pop()
        if ready:
            order.append(node)
        elif id(node) not in seen:
            seen.add(id(node))
            stack.append((node, True))
            stack.extend((input, False) for input in reversed(inputs_of(node)))
    return order


def _is_plain(relation: Relation) -> bool:
    """Whether `relation` is a collection, read row by row, or a product that waits for its use.

    A product is shared by its inputs: what is to become of it differs with what is asked of it.
    """
    inner = relation.input if isinstance(relation, Project) else relation
    if isinstance(inner, Join) and not inner.equivalences:
        return True
    while isinstance(relation, Map | Filter | Project):
        relation = relation.input
    return isinstance(relation, Get | Constant | LocalGet)
