"""DROP: the objects that go with its targets, and the dependents that prevent it."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from foreshore.catalog.groups import using
from foreshore.catalog.item import (
    ColumnOf,
    Connection,
    Database,
    ForeignKeyOf,
    Item,
    Object,
    Replica,
    Schema,
    Secret,
)
from foreshore.catalog.state import State, is_system
from foreshore.errors import (
    DependentObjectsStillExist,
    FeatureNotSupported,
    InsufficientPrivilege,
)
from foreshore.foreign_key import ForeignKey
from foreshore.ids import GlobalId
from foreshore.sources.outputs import PROGRESS

Target = Object | ColumnOf | ForeignKeyOf
CASCADE_HINT = "Use DROP ... CASCADE to drop the dependent objects too."


@dataclass(frozen=True, slots=True)
class Dropped:
    """The objects to drop: the targets, and with CASCADE their dependents."""

    objects: tuple[Target, ...]  # each after its dependents
    cascaded: tuple[str, ...]  # descriptions, for messages, of objects dropped by CASCADE


def objects_to_drop(
    state: State,
    targets: Sequence[Target],
    cascade: bool,
    describe: Callable[[Target], str],
    drop_default: Callable[[Item, Item], str] | None = None,
) -> Dropped:
    """Return `targets` and, if `cascade`, all that depends on them.

    Without `cascade`, dependents are an error unless they are parts of a target: an index of its
    relation, the schemas and items of a database, the replicas of a cluster, the parts of a column.
    `describe` returns text such as `table s.t`. If a sequence is dropped, tables that use it in
    defaults remain: `drop_default` describes these defaults and, with CASCADE, removes them.
    """
    drop_default = drop_default or (lambda table, _: describe(table))
    for target in targets:
        if is_required(target):
            raise InsufficientPrivilege(
                f"cannot drop {target.kind} {target.name} because it is required by the "
                "database system",
                sqlstate="2BP01",
            )
    found = _Found(state, targets)
    for target in targets:
        found.visit(target)
        found.forget_own_foreign_keys()
        if not cascade and (found.cascaded or found.defaults):
            others = [(describe(each), on) for each, on in found.cascaded.values()]
            others += [(drop_default(*pair), pair[1]) for pair in found.defaults]
            raise DependentObjectsStillExist(
                "cannot drop desired object(s) because other objects depend on them"
                if len(targets) > 1
                else f"cannot drop {describe(target)} because other objects depend on it",
                detail="\n".join(f"{each} depends on {describe(on)}" for each, on in others),
                hint=CASCADE_HINT,
            )
    _refuse_columns(found, describe)
    described = tuple(describe(each) for each, _ in found.cascaded.values())
    described += tuple(drop_default(*pair) for pair in found.defaults)
    return Dropped(tuple(found.order), described)


def _refuse_columns(found: "_Found", describe: Callable[[Target], str]) -> None:
    """Raise if a type or function goes that tables use that would remain without it."""
    for table, on in found.cascaded.values():
        if not (isinstance(table, Item) and isinstance(on, Item)):
            continue
        if table.type != "table" or found.has_schema_of(table):
            continue
        if on.is_function:
            raise FeatureNotSupported(
                f"{describe(on)} cannot be dropped, because {describe(table)} uses it",
                hint="Drop the defaults, constraints or columns first.",
            )
        if on.is_type:
            raise FeatureNotSupported(
                f"{describe(on)} cannot be dropped together with columns of {describe(table)}",
                hint="Drop these columns first.",
            )


class _Found:
    """The objects found below the targets, depth first."""

    def __init__(self, state: State, targets: Sequence[Target]) -> None:
        self.order: list[Target] = []
        self.cascaded: dict[
            str, tuple[Object | ForeignKeyOf, Target]
        ] = {}  # with the object that they depend on
        self._state = state
        self._entered: set[str] = set()
        self._unbound: list[tuple[Item, Item]] = []
        self._asked = {target.id for target in targets}
        for target in targets:
            if isinstance(target, Database):
                for schema in state.children(target.id):
                    self._asked |= {schema.id, *(item.id for item in state.children(schema.id))}

    @property
    def defaults(self) -> list[tuple[Item, Item]]:
        """Return the tables that remain, with the sequences that their defaults lose."""
        return [pair for pair in self._unbound if pair[0].id not in self._entered]

    def forget_own_foreign_keys(self) -> None:
        """Leave out the foreign keys of tables that are dropped anyway."""
        gone = self._entered | self._asked
        own = {
            each.id
            for each in self.order
            if isinstance(each, ForeignKeyOf) and each.table.id in gone
        }
        self.order = [each for each in self.order if each.id not in own]
        self.cascaded = {id: pair for id, pair in self.cascaded.items() if id not in own}

    def has_schema_of(self, item: Item) -> bool:
        """Return whether the schema of an item is dropped too."""
        return item.schema in self._entered or item.schema in self._asked

    def visit(self, each: Target) -> None:
        """Add an object after all that depends on it."""
        if each.id in self._entered:
            return
        self._entered.add(each.id)
        for dependent, part in _dependents(self._state, each):
            is_asked = dependent.id in self._asked
            if isinstance(each, Item) and each.type == "sequence" and not is_asked:
                assert isinstance(dependent, Item)
                if dependent.id not in self._entered:
                    self._unbound.append((dependent, each))
                continue
            if not is_asked and not part:
                self.cascaded.setdefault(dependent.id, (dependent, each))
            self.visit(dependent)
        self.order.append(each)
        for sequence in self._state.sequences_of(each.id):
            self.visit(sequence)


def _dependents(state: State, each: Target) -> list[tuple[Object | ForeignKeyOf, bool]]:
    """Return the objects dropped with `each`, and whether this needs no CASCADE."""
    if isinstance(each, ForeignKeyOf):
        return []
    if isinstance(each, ColumnOf):
        return [
            *((part, True) for part in each.parts),
            *((user, False) for user in each.users),
            *(
                (foreign_key_of(state, table, key), False)
                for table, key in state.references_to(each.table.id)
                if each.name in key.referenced
            ),
        ]
    if isinstance(each, Item):
        items = sorted(map(state.item, state.dependents(each.id)), key=lambda item: item.oid)
        referring = [foreign_key_of(state, *pair) for pair in state.references_to(each.id)]
        found: list[tuple[Object | ForeignKeyOf, bool]] = [
            (key, False) for key in referring if key.table.id != each.id
        ]
        if each.feed and each.feed.reference == PROGRESS:  # without it a source does not go on
            found.append((state.item(each.feed.source), False))
        if each.type == "subscription" and each.part_of:  # nor without that to its input
            found.append((state.item(each.part_of), False))
        return found + [
            (item, each.id in (item.on, item.part_of, item.policy and item.policy.table))
            for item in items
        ]
    if isinstance(each, Connection | Secret):
        users: list[Object] = [*state.items_of(using(each))]
        users += [user for user in state.grouped(using(each)) if isinstance(user, Connection)]
        return [(user, False) for user in users]
    return [
        (child, isinstance(child, Replica) or (isinstance(child, Item) and child.is_policy))
        for child in state.children(each.id)
    ]


def foreign_key_of(state: State, table: GlobalId, key: ForeignKey) -> ForeignKeyOf:
    """Return a foreign key of `table` as an object to drop."""
    return ForeignKeyOf(f"{table}.{key.name}", key.name, state.item(table))


def is_required(target: Target) -> bool:
    """Return whether users must not change an object: the system's, or a temporary schema."""
    return is_system(target.id) or (isinstance(target, Schema) and target.temporary)


def check_identity_sequences(state: State, targets: Iterable[Object]) -> None:
    """Raise if `targets` have the sequence of an identity column that remains."""
    ids = {each.id for each in targets}
    for each in targets:
        owner = each.owned_by if isinstance(each, Item) else None
        if owner and owner.identity and owner.table not in ids:
            column = f"column {owner.column} of table {state.item(owner.table).name}"
            raise DependentObjectsStillExist(
                f"cannot drop sequence {each.name} because {column} requires it",
                hint=f"You can drop {column} instead.",
            )
