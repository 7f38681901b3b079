"""The meaning of a query: a digest that differs once the query stands for something else.

Who goes on with a copy of a query's result relies on the query having been the same meanwhile. The
names in it may stand for other objects by then, a view below may have been replaced, or row-level
security may show other rows.
"""

from hashlib import blake2b

from foreshore.adapter.plans.prepared import Prepared
from foreshore.catalog.item import Item
from foreshore.catalog.state import State
from foreshore.catalog.watch import policies_of
from foreshore.ids import GlobalId

BYTES = 8


def meaning_of(state: State, role: str, prepared: Prepared) -> str:
    """Return the digest of a prepared query for the role with this id, in hexadecimal."""
    found: dict[GlobalId, str] = {}
    waiting = list(prepared.made.used)
    while waiting:
        id = waiting.pop()
        item = state.get(id)
        if id not in found and isinstance(item, Item):
            found[id] = "" if item.type == "table" else item.create_sql
            waiting += item.depends_on
    policies = sorted(map(repr, policies_of(state, role, prepared.made.needs)))
    return blake2b(repr((sorted(found.items()), policies)).encode(), digest_size=BYTES).hexdigest()
