"""Calls of nextval, currval, lastval and setval."""

from collections.abc import Sequence

from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.statement.planner import Planner
from foreshore.adapter.statement.read_only import require_writable
from foreshore.catalog.builtin.relation import Builtin
from foreshore.catalog.item import Item, Role
from foreshore.catalog.needs import require_all
from foreshore.catalog.sequence_numbers import generation_of
from foreshore.errors import (
    NumericValueOutOfRange,
    ObjectNotInPrerequisiteState,
    UndefinedTable,
    WrongObjectType,
)
from foreshore.ids import GlobalId
from foreshore.privileges import Need
from foreshore.sequence import Numbers, Position
from foreshore.sequence import Sequence as Definition
from foreshore.settings import split_names
from foreshore.sql.bind.sequence_calls import RIGHTS_OF_CALLS
from foreshore.types import Datum

FUNCTIONS = ("nextval", "currval", "lastval", "setval")


async def value(context: StatementContext, function: str, args: Sequence[Datum]) -> Datum:
    """Return the value of a call."""
    if function == "lastval":
        last = context.session.last_values.last
        if last is None or last not in context.planner.reader().state.objects:
            raise ObjectNotInPrerequisiteState("lastval is not yet defined in this session")
        _require(context.planner, context.role, last, function)
        return context.session.last_values.by_sequence[last]
    if None in args:
        return None
    named = args[0]
    assert isinstance(named, int | str), named
    item, sequence = find(context, named)
    if isinstance(named, str):
        _require(context.planner, context.role, item.id, function)
    if function == "nextval":
        return int((await next_numbers(context, item, sequence, 1))[0])
    if function == "currval":
        if item.id not in context.session.last_values.by_sequence:
            raise ObjectNotInPrerequisiteState(
                f'currval of sequence "{item.name}" is not yet defined in this session'
            )
        return context.session.last_values.by_sequence[item.id]
    require_writable(context, "setval()", item.id)
    to, called = int(str(args[1])), args[2] is True
    if not sequence.minimum <= to <= sequence.maximum:
        raise NumericValueOutOfRange(
            f'setval: value {to} is out of bounds for sequence "{item.name}" '
            f"({sequence.minimum}..{sequence.maximum})"
        )
    await context.tables.sequences.set(generation_of(item), Position(to, called), item.name)
    if called:
        context.session.last_values.by_sequence[item.id] = to
    return to


def _require(planner: Planner, role: Role, id: GlobalId, function: str) -> None:
    """Require the right to call a function of a sequence that planning did not know."""
    first, *others = RIGHTS_OF_CALLS[function]
    reader = planner.reader()
    need = Need(id, first, instead=tuple(others))
    require_all(reader.state, reader.planned, role, (need,))


def find(context: StatementContext, named: int | str) -> tuple[Item, Definition]:
    """Return the sequence with an oid or a name; raises PostgreSQL's errors."""
    planner, change = context.planner, context.transaction.staged.catalog
    found: Item | Builtin | None
    if isinstance(named, str):
        found = planner.reader().find(split_names(named, "."))
        if found is None:
            raise UndefinedTable(f'relation "{named}" does not exist')
    else:
        found = planner.state.item_with(named)
        if found is None:
            raise UndefinedTable(f"could not open relation with OID {named}")
        if found.temporary:
            planner.reader().check_own(found)
    sequence = None
    if isinstance(found, Item):
        planned = None if change is None else change.planned.get(found.id)
        sequence = (planned or context.names.catalog.planned[found.id]).sequence
    if not isinstance(found, Item) or sequence is None:
        raise WrongObjectType(f'"{found.name}" is not a sequence')
    return found, sequence


async def next_numbers(
    context: StatementContext, item: Item, sequence: Definition, count: int
) -> Numbers:
    """Return the next numbers of a sequence; the last is the session's current value."""
    if context.variables.settings.is_read_only:
        require_writable(context, "nextval()", item.id)
    found = await context.tables.sequences.take(generation_of(item), sequence, count, item.name)
    context.session.last_values.by_sequence[item.id] = int(found[-1])
    context.session.last_values.last = item.id
    return found
