"""How the inputs of a join are arranged to be looked up.

An input that is a collection, perhaps filtered and mapped, is looked up in the collection itself,
which all dataflows of a replica share (`collection.py`); what filters and maps it is applied to the
rows found. Any other is arranged for this join alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foreshore.compute.flow.batch import Ints
from foreshore.compute.flow.collection import Import
from foreshore.compute.flow.compiler import Compiler
from foreshore.compute.flow.conditions import NO_CONDITIONS, Conditions, split_conditions
from foreshore.compute.flow.convert import is_direct
from foreshore.compute.flow.intern import Interner
from foreshore.compute.flow.join_plan import Keys
from foreshore.compute.flow.layout import Layout, layout_of, part_of
from foreshore.compute.flow.operators.arranged import Arranged, ArrangedOnce, Readable
from foreshore.compute.flow.operators.spread_join import SpreadArranged
from foreshore.compute.flow.program import Context
from foreshore.compute.flow.spine import Spine
from foreshore.expr import ir
from foreshore.expr.columns import type_of
from foreshore.expr.ir import Column, Scalar
from foreshore.expr.split import can_fail, columns_used
from foreshore.types import ColumnType


@dataclass(frozen=True, slots=True)
class Lookup:
    """One input as it is looked up.

    `outputs` are its demanded columns, `filters` what its rows must fulfil beside `where`
    (`conditions.py`), both over the stored columns; `numbers` are the numbers of the keys.
    """

    readable: Readable
    layout: Layout
    outputs: dict[int, Scalar]
    filters: tuple[Scalar, ...]
    where: Conditions
    numbers: dict[Keys, int]

    def added(self, columns: Sequence[int]) -> tuple[list[int], Ints, Layout]:
        """Return the stored columns for some outputs and the filters, their words and layout."""
        used: set[int] = set()
        for scalar in (*self.filters, *(self.outputs[i] for i in columns)):
            used |= columns_used(scalar)
        stored = sorted(used)
        words, layout = part_of(self.layout, stored)
        return stored, words, layout


def imported(
    source: Import,
    compiler: Compiler,
    chain: Sequence[ir.Relation],
    conditions: Sequence[Scalar],
    demanded: dict[int, int],
    keys: Sequence[Keys],
    unique: Sequence[Sequence[int]],
    interner: Interner,
) -> Lookup | None:
    """Return look-ups in a collection, None if it cannot be looked up like this.

    The compiler is over its rows, and so are `chain` and the `unique` keys; `conditions` and keys
    are over what comes out of the chain, of which `demanded` has the places of the join's columns.
    """
    filters: list[Scalar] = []
    for node in chain:
        match node:
            case ir.Map(scalars=scalars):
                compiler.map(scalars)
            case ir.Filter(predicates=predicates):
                filters += map(compiler.resolved, predicates)
            case ir.Project(outputs=outputs):
                compiler.project(outputs)
            case _:
                return None
    if any(map(can_fail, (*filters, *compiler.columns))):
        return None
    filters += map(compiler.resolved, conditions)
    layout = source.collection.layout
    places = [_direct(compiler, layout, each) for each in keys]
    if any(place is None for place in places):
        return None
    numbers = {
        key: source.collection.add_key(place)
        for key, place in sorted(
            zip(keys, places, strict=True), key=lambda each: not _is_unique(each[1], layout, unique)
        )
        if place is not None
    }
    columns = {column: compiler.columns[place] for column, place in demanded.items()}
    where, others = split_conditions(filters, layout, interner)
    return Lookup(source, layout, columns, others, where, numbers)


def _is_unique(words: Ints | None, layout: Layout, unique: Sequence[Sequence[int]]) -> bool:
    """Whether words of a key include those of a unique key.

    Look-ups by it are the most, and the best to have the rows in the order of.
    """
    assert words is not None
    return any(all(layout.places[i].word in words for i in each) for each in unique)


def _direct(compiler: Compiler, layout: Layout, keys: Keys) -> Ints | None:
    """Return the words of keys that are columns, None if others are needed."""
    words: list[int] = []
    for key in keys:
        scalar = compiler.resolved(key.scalar)
        if key.null_safe or not isinstance(scalar, Column) or not is_direct(scalar.type):
            return None
        place = layout.places[scalar.index]
        words.extend(range(place.word, place.word + place.width))
    return np.array(words, np.int64)


def arranged(
    compiler: Compiler,
    demanded: dict[int, int],
    keys: Sequence[Keys],
    context: Context,
    owner: Context | None,
) -> Lookup:
    """Return look-ups in rows arranged for one join, given a compiler over them.

    With an `owner`, its copies in all iterations of a recursion share them.
    """
    scalars = [compiler.columns[place] for place in demanded.values()]
    types = tuple(ColumnType(type_of(s), getattr(s, "nullable", True)) for s in scalars)
    layout = layout_of(types)
    compiler.put(types, scalars, "row")
    stored = {scalar: number for number, scalar in enumerate(scalars)}
    places = []
    for each in keys:
        resolved = [compiler.resolved(key.scalar) for key in each]
        words: list[int] = []
        for key, scalar in zip(each, resolved, strict=True):
            if scalar in stored and not key.null_safe and is_direct(type_of(scalar)):
                place = layout.places[stored[scalar]]
                words.extend(range(place.word, place.word + place.width))
            else:
                words = []
                break
        if not words and each:
            start = len(compiler.texts)
            compiler.put([key.column for key in each], resolved, "key")
            words = list(range(start, len(compiler.texts)))
        places.append(np.array(words, np.int64))
    program = compiler.program()
    spine = (owner or context).own(Spine([], program.texts, context.interner, context.seed))
    numbers = {key: spine.add_key(place) for key, place in zip(keys, places, strict=True)}
    outputs: dict[int, Scalar] = {
        column: Column(number, type.type, type.nullable)
        for number, (column, type) in enumerate(zip(demanded, types, strict=True))
    }
    kind = Arranged if owner is None else ArrangedOnce
    if context.peers is not None:
        kind = SpreadArranged
    return Lookup(kind(program, spine, context), layout, outputs, (), NO_CONDITIONS, numbers)
