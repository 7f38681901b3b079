"""Calls of nextval and its kin."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from foreshore.adapter.coordinator import generation_of
from foreshore.adapter.session.variables import split_dotted
from foreshore.adapter.write.tables import require_writable
from foreshore.catalog.builtin.relation import Builtin
from foreshore.catalog.item import Item
from foreshore.errors import (
    NumericValueOutOfRange,
    ObjectNotInPrerequisiteState,
    UndefinedTable,
    WrongObjectType,
)
from foreshore.sequence import Numbers, Position
from foreshore.sequence import Sequence as Definition
from foreshore.types import Datum

if TYPE_CHECKING:
    from foreshore.adapter.session.session import Session

FUNCTIONS = ("nextval", "currval", "lastval", "setval")


async def value(session: "Session", function: str, args: Sequence[Datum]) -> Datum:
    """Return what a call gives."""
    if function == "lastval":
        last = session.last_sequence
        if last is None or last not in session.planner.reader().state.objects:
            raise ObjectNotInPrerequisiteState("lastval is not yet defined in this session")
        return session.numbers[last]
    if None in args:
        return None
    named = args[0]
    assert isinstance(named, int | str), named
    item, sequence = find(session, named)
    if function == "nextval":
        return int((await taken(session, item, sequence, 1))[0])
    if function == "currval":
        if item.id not in session.numbers:
            raise ObjectNotInPrerequisiteState(
                f'currval of sequence "{item.name}" is not yet defined in this session'
            )
        return session.numbers[item.id]
    require_writable(session, "setval()", item.id)
    to, called = int(str(args[1])), args[2] is True
    if not sequence.minimum <= to <= sequence.maximum:
        raise NumericValueOutOfRange(
            f'setval: value {to} is out of bounds for sequence "{item.name}" '
            f"({sequence.minimum}..{sequence.maximum})"
        )
    await session.coordinator.sequences.set(generation_of(item), Position(to, called), item.name)
    if called:
        session.numbers[item.id] = to
    return to


def find(session: "Session", named: int | str) -> tuple[Item, Definition]:
    """Return the sequence with an oid or a name; raises what PostgreSQL would."""
    reader = session.planner.reader()
    found: Item | Builtin | None
    if isinstance(named, str):
        found = reader.find(split_dotted(named))
        if found is None:
            raise UndefinedTable(f'relation "{named}" does not exist')
    else:
        found = reader.state.item_with(named)
        if found is None:
            raise UndefinedTable(f"could not open relation with OID {named}")
        reader.refuse_others(found)
    sequence = reader.planned[found.id].sequence if isinstance(found, Item) else None
    if not isinstance(found, Item) or sequence is None:
        raise WrongObjectType(f'"{found.name}" is not a sequence')
    return found, sequence


async def taken(session: "Session", item: Item, sequence: Definition, count: int) -> Numbers:
    """Return the next numbers of a sequence, of which the session keeps the last in mind."""
    require_writable(session, "nextval()", item.id)
    found = await session.coordinator.sequences.take(
        generation_of(item), sequence, count, item.name
    )
    session.numbers[item.id] = int(found[-1])
    session.last_sequence = item.id
    return found
