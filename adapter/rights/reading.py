"""What a prepared statement reads, for callers that accept some statements only."""

from collections.abc import Iterator

from foreshore.adapter.client import Reading, ReadRelation
from foreshore.adapter.plans.calls import SETTINGS, calls_in, calls_of
from foreshore.adapter.plans.prepared import Prepared
from foreshore.catalog.item import Item
from foreshore.catalog.state import State
from foreshore.expr.functions.system import RANDOM, RANDOM_UUID, SET_SEED, SLEEP
from foreshore.ids import GlobalId, is_builtin
from foreshore.sql.parse.keywords import quote_identifier
from foreshore.sql.plan import Select, Subscribe

_RELATIONS = ("table", "view", "materialized view")
# Volatile functions that change nothing.
_HARMLESS = {*SETTINGS, RANDOM, RANDOM_UUID, SET_SEED, SLEEP}


def reading_of(state: State, prepared: Prepared) -> Reading:
    """Return what a statement reads; the relations are those that it names, in order."""
    return Reading(
        isinstance(prepared.made.plan, Select),
        tuple(_relations(state, sorted(prepared.made.used))),
        prepared.made.peek is not None and any(map(is_builtin, prepared.made.peek.sources)),
        tuple(sorted(set(_acting(prepared)))),
        prepared.made.plan.order if isinstance(prepared.made.plan, Subscribe) else (),
    )


def _relations(state: State, ids: list[GlobalId]) -> Iterator[ReadRelation]:
    for id in ids:
        item = state.get(id)
        if isinstance(item, Item) and item.type in _RELATIONS:
            _, schema, name = state.full_name(item)
            full = f"{quote_identifier(schema)}.{quote_identifier(name)}"
            indexed = any(each.type == "index" for each in state.indexes_on(id))
            yield ReadRelation(full, item.type, is_indexed=indexed)


def _acting(prepared: Prepared) -> Iterator[str]:
    """Yield the functions with side effects that a statement calls, as they are declared."""
    if prepared.made.peek is not None:
        query = prepared.made.peek.query
        calls = [*calls_in(query.relation), *calls_of(query.row_outputs)]
        yield from (call.function for call in calls if call.function not in _HARMLESS)
    for _, part in (*prepared.made.init_plans, *prepared.made.parts):
        yield from _acting(part)
