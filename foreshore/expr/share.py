"""Sharing: binds repeated parts of a plan by Lets, and removes Lets that are used once.

All Lets are inlined, then the parts of the plan that occur more than once are bound again. So a Let
that is used once disappears, equal parts are computed once, and Lets are at the top of the plan,
each using only earlier ones. A part that only reads a collection row by row is too cheap to share,
unless it calls a function in Python, which takes long and perhaps answers otherwise the next time.
A product without a condition is not shared.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import count

from foreshore.deep_trees import allow_depth
from foreshore.expr.columns import columns_of
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
)
from foreshore.expr.python_calls import asks_hosts
from foreshore.expr.traversal import inputs_of, with_inputs
from foreshore.ids import GlobalId


def share(relation: Relation) -> Relation:
    """Return `relation` with Lets for exactly the parts that occur more than once."""
    bindings, (body,) = share_all((relation,))
    for number, value in reversed(bindings):
        body = Let(number, value, body)
    return body


def share_all(
    relations: Sequence[Relation],
) -> tuple[list[tuple[int, Relation]], list[Relation]]:
    """Return the common parts of `relations`, in dependency order, and the rest of each.

    A binding `(number, value)` defines `LocalGet(number)` in later ones and in the rest.
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
    """Return `relation` with the collections that it reads replaced by their definitions.

    Each definition is a single object wherever it occurs, so `share` makes it one Let.
    """
    if isinstance(relation, Get):
        return definitions.get(relation.id, relation)
    return with_inputs(relation, tuple(put_in(each, definitions) for each in inputs_of(relation)))


class _Interner:
    """Makes equal relations one object, with Lets inlined."""

    def __init__(self) -> None:
        self.canonical: dict[Relation, Relation] = {}
        self.bound: dict[int, Relation] = {}  # by the numbers of enclosing Lets
        self.meant: dict[int, Relation] = {}  # by the number of the first Let that uses it
        self.free = 0  # greater than all numbers of unbound LocalGets
        self.seen: dict[int, Relation] = {}  # by id(); `kept` keeps the objects alive
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
                    self.seen = {}  # earlier results may refer to another binding of this number
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
    """Return all nodes of `roots`, each once, inputs before their users."""
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
    """Whether `relation` is a collection read row by row, or a product without a condition.

    A product is shared through its inputs, because each user filters it differently.
    """
    inner = relation.input if isinstance(relation, Project) else relation
    if isinstance(inner, Join) and not inner.equivalences:
        return True
    while isinstance(relation, Map | Filter | Project):
        if asks_hosts(relation):
            return False
        relation = relation.input
    return isinstance(relation, Get | Constant | LocalGet)
