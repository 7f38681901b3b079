"""Which maintained views cannot be read because of errors in their data, with these errors.

A text of an error has values of rows. It is shown to roles that may read all columns of the
relation whose data has the error.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from foreshore.adapter.services.collections import Maintained
from foreshore.adapter.services.names import Names
from foreshore.adapter.services.views import Views
from foreshore.catalog.builtin.relation import Row
from foreshore.catalog.item import Item, Role
from foreshore.catalog.rights import holds
from foreshore.catalog.row_security import is_subject
from foreshore.catalog.state import State
from foreshore.compute.controller.data_errors import Cause, causes
from foreshore.compute.controller.dataflow_rows import Failing
from foreshore.errors import DatabaseError, DataError
from foreshore.ids import GlobalId
from foreshore.sql.rewrite.full_names import dotted
from foreshore.update import Timestamp

if TYPE_CHECKING:
    from foreshore.adapter.statement.context import StatementContext

_HINT = (
    "mz_internal.mz_view_errors has the errors of views; SELECT * FROM FAILING_ROWS({})"
    " finds the rows."
)
_HINT_OF_SKIP = " ALTER MATERIALIZED VIEW {} SET (ON ERROR = SKIP) leaves them out."
_HINT_OF_PAST = "The view has no error now; mz_internal.mz_materialized_view_errors has past ones."


def causes_of(views: Views, id: GlobalId, now: Timestamp) -> list[Cause]:
    """Return the views and indexes whose errors make reads of `id` fail; itself first.

    It is there too with errors that it skips.
    """
    return list(causes(views.compute.maintained, id, now))


def failing_of(context: "StatementContext", id: GlobalId) -> Failing | None:
    """Return the error that reads of a view or index give, None if they give none."""
    state = context.planner.state
    now = context.times.oracle.read_ts()
    found = [each for each in causes_of(context.views, id, now) if not each.skipped]
    if not found:
        return None
    first = found[0]
    relation = _relation(state, first.id)
    if relation is None or not _sees(state, context.role, relation):
        return Failing(None)
    own = first.id == id or relation.id == id
    return Failing(first.message if own else f"{first.message}, in {relation.name}")


def for_state(names: Names, error: DataError) -> DataError:
    """Return an error in the data of a view for states, which everybody sees: without its text."""
    if error.collection is None:
        return error
    relation = _relation(names.state, error.collection)
    named = "its input" if relation is None else _named(names, relation)
    return DataError(
        f"{named} cannot be read for an error in its data ({error.sqlstate}):"
        " see mz_internal.mz_view_errors",
        sqlstate=error.sqlstate,
    )


def _named(names: Names, relation: Item) -> str:
    _, schema, name = names.state.full_name(relation)
    return f"{relation.type} {dotted((schema, name))}"


def explained(coordinator: Maintained, error: DatabaseError) -> DatabaseError:
    """Return an error in the data of a view with the view's name, and any other error as it is."""
    relation = None if error.collection is None else _relation(coordinator.state, error.collection)
    if relation is None:
        return error
    found = causes_of(coordinator, relation.id, coordinator.oracle.read_ts())
    fails = relation.type != "materialized view" or any(
        each.id == relation.id and not each.skipped for each in found
    )  # the errors of an index are a few seconds old
    _, schema, name = coordinator.state.full_name(relation)
    hint = _HINT + _HINT_OF_SKIP * (relation.type == "materialized view")
    view = dotted((schema, name))
    told = DataError(
        error.message,
        sqlstate=error.sqlstate,
        detail=f"The error is in the data of {_named(coordinator, relation)}.",
        hint=hint.format(view, view) if fails else _HINT_OF_PAST,
    )
    told.collection = error.collection
    return told


def view_errors(context: "StatementContext") -> Iterator[Row]:
    """Yield the errors that make reads of relations fail now, and those that they skip."""
    state, seen = context.planner.state, set[tuple[GlobalId, GlobalId]]()
    now = context.times.oracle.read_ts()
    for id in list(context.views.as_ofs):
        of = _relation(state, id)
        for cause in causes_of(context.views, id, now) if of is not None else ():
            relation = _relation(state, cause.id)
            if of is None or relation is None or (of.id, relation.id) in seen:
                continue  # several indexes of a view have the same errors
            seen.add((of.id, relation.id))
            sees = _sees(state, context.role, relation)
            for error in cause.errors:
                yield {
                    "object_id": of.id,
                    "cause_id": relation.id,
                    "sqlstate": error.text[:5],
                    "error": error.text[6:] if sees else None,
                    "rows": error.rows if cause.rows is not None else None,
                    "all_rows": cause.rows,
                    "skipped": cause.skipped,
                }


def _relation(state: State, id: str) -> Item | None:
    """Return a materialized view, or the relation of an index; None if it is dropped."""
    found = state.get(id)
    if isinstance(found, Item) and found.on is not None:
        found = state.get(found.on)
    return found if isinstance(found, Item) else None


def _sees(state: State, role: Role, relation: Item) -> bool:
    return not is_subject(state, relation, role) and holds(state, role, relation, "SELECT")
