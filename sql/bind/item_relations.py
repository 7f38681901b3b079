"""The relation that reads an item of the catalog, and its numbers within a plan."""

import msgspec

from foreshore.errors import (
    WrongObjectType,
)
from foreshore.expr.ir import (
    Get,
    Let,
    LetRec,
    LocalGet,
    Relation,
)
from foreshore.expr.scalars import scalars_of
from foreshore.expr.traversal import inputs_of, walk_relations, with_inputs
from foreshore.item_view import ItemView
from foreshore.sql.bind.planning import Planning
from foreshore.sql.bind.sequence_calls import sequence_relation
from foreshore.sql.bind.side_effects import distinct_calls, has_side_effects
from foreshore.sql.rewrite.scalars import map_relation


def relation_of_item(planning: Planning, view: ItemView, at: int = -1) -> Relation:
    """Return the relation that reads the item, which is named at an offset."""
    if view.kind in ("index", "subscription"):
        article = "an" if view.kind == "index" else "a"
        raise WrongObjectType(f'"{view.name.item}" is {article} {view.kind}')
    planning.depends_on.add(view.id)
    if view.kind == "sequence":
        return sequence_relation(planning, view)
    if view.reference is not None and planning.names_views:
        if view.in_zone is not None:
            planning.zone.was_used = True
        return view.reference
    if view.for_reader is not None:
        if view.in_zone is not None:
            planning.zone.was_used = True
        zone = planning.zone.name if view.in_zone is not None else "UTC"
        before, planning.securing.locking = (
            planning.securing.locking,
            (view.id, at) in planning.locking,
        )
        try:
            return renumbered(planning, view.for_reader(zone, planning.securing))
        finally:
            planning.securing.locking = before
    if view.in_zone is not None:
        planning.zone.was_used = True
        if not planning.zone.is_utc:
            return renumbered(planning, view.in_zone(planning.zone.name))
    definition = view.definition if view.expanded is None else view.expanded()
    if definition is None:
        desc = view.desc
        return Get(view.id, desc.columns, desc.keys, desc.append_only, desc.watermark)
    return renumbered(planning, definition)


def renumbered(planning: Planning, relation: Relation) -> Relation:
    """Return a view's relation with Lets and calls renumbered to be unique in this plan."""
    if any(
        has_side_effects(scalar) for node in walk_relations(relation) for scalar in scalars_of(node)
    ):
        relation = map_relation(relation, distinct_calls(planning), 0)
    if not any(isinstance(node, Let | LetRec) for node in walk_relations(relation)):
        return relation
    numbers: dict[int, int] = {}

    def rebuild(node: Relation) -> Relation:
        if isinstance(node, Let):
            numbers[node.number] = planning.new_let()
        elif isinstance(node, LetRec):
            numbers.update((number, planning.new_let()) for number in node.numbers)
        elif isinstance(node, LocalGet):
            return LocalGet(numbers[node.number], node.columns)
        new = with_inputs(node, tuple(rebuild(each) for each in inputs_of(node)))
        if isinstance(new, LetRec):
            return msgspec.structs.replace(
                new, numbers=tuple(numbers[number] for number in new.numbers)
            )
        return Let(numbers[new.number], new.value, new.body) if isinstance(new, Let) else new

    return rebuild(relation)
