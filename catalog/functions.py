"""Changes of functions in the catalog."""

from collections.abc import Iterable

import msgspec

from foreshore.catalog.item import Item
from foreshore.catalog.state import with_objects
from foreshore.catalog.transaction import Transaction
from foreshore.ids import GlobalId, is_builtin
from foreshore.python_functions.handler import Handler


def alter_function(
    change: Transaction,
    function: Item,
    create_sql: str,
    depends_on: Iterable[GlobalId],
    handler: Handler | None,
) -> Item:
    """Let `create_sql` be the definition of a function, and `handler` its handler; return it."""
    state = change.state
    needs = tuple(sorted(each for each in depends_on if not is_builtin(each)))
    altered = msgspec.structs.replace(
        function,
        create_sql=create_sql,
        handler=handler or msgspec.UNSET,
        depends_on=needs,
        bound=state.bindings(needs),
        known=msgspec.UNSET,
        known_keys=msgspec.UNSET,
    )
    change.state = with_objects(state, {function.id: altered})
    return altered


def redefine_function(
    change: Transaction, function: Item, name: str, schema: str, create_sql: str
) -> Item:
    """Give a function another name, schema or statement with the same body; return it."""
    altered = msgspec.structs.replace(function, name=name, schema=schema, create_sql=create_sql)
    change.state = with_objects(change.state, {function.id: altered})
    return altered
