"""Which executions of a statement may run as one: none may see what another one does.

INSERT ... VALUES            each adds rows of its own; a key that is there twice is an error
... ON CONFLICT DO UPDATE    no key is proposed, given up or taken by two of them
UPDATE, DELETE by a key      likewise, and none is looked up by two
foreign keys                 the table does not refer to itself, and what follows from keys that
                             are given up reaches each other table once
"""

from collections.abc import Iterable, Iterator

from foreshore.adapter.plans.prepared import Prepared
from foreshore.adapter.plans.target import Target
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.statement.executions import Apart, require_distinct
from foreshore.adapter.write.returning import compiled_list
from foreshore.adapter.write.stage import key_index
from foreshore.catalog.state import State
from foreshore.expr.functions.system import RANDOM, RANDOM_UUID
from foreshore.ids import GlobalId
from foreshore.sql.plan import Delete, Insert, Update
from foreshore.table_rows import Row

_REPEATABLE = frozenset(("nextval", RANDOM, RANDOM_UUID))  # calls that may be made again in vain

Key = tuple[str, Row | None]  # the name of a constraint, and a key; None collides with nothing
Touched = tuple[Iterable[Key], Iterable[Row], Iterable[Row]]  # keys that are named; old, new rows


def may_run_together(prepared: Prepared, state: State) -> bool:
    """Whether executions of a planned statement may run as one, but for the keys they touch."""
    plan, programs = prepared.made.plan, prepared.made.programs
    if not isinstance(plan, Insert | Update | Delete) or prepared.made.takes_names:
        return False
    if plan.returning is not None and compiled_list(plan.returning) is None:
        return False
    if any(each.references == plan.table for each in state.foreign_keys_of(plan.table)):
        return False
    match plan:
        case Insert(as_of=None, checks=(), on_conflict=conflict):
            if conflict is not None and (conflict.existing_checks or conflict.checks):
                return False  # of row-level security
            if conflict is not None and conflict.update is not None and programs.upsert is None:
                return False
            template = programs.template
            calls = () if template is None else template.calls
            return template is not None and all(e.function in _REPEATABLE for e in calls)
        case Update(checks=()) | Delete():
            return programs.locked_read is not None and programs.locked_read.is_by_whole_key
        case _:
            return False


def require_apart(context: StatementContext, target: Target, executions: Iterable[Touched]) -> None:
    """Raise Apart if an execution touches a key that an earlier one does."""
    layouts = [
        key_index(context, target.id, target.desc, each).layout for each in target.planned.unique
    ]
    if not all(layout.takes_tuples for layout in layouts):
        raise Apart(1)

    def keys_of(rows: Iterable[Row]) -> set[Key]:
        found: set[Key] = {(e.constraint.name, e.key(row)) for row in rows for e in layouts}
        return found - {(each.constraint.name, None) for each in layouts}

    gives_up = False

    def touched() -> Iterator[set[Key]]:
        nonlocal gives_up
        for named, old, new in executions:
            before, after = keys_of(old), keys_of(new)
            gives_up |= not before <= after
            yield {*named, *before, *after}

    require_distinct(touched())
    if gives_up and not _acts_apart(context.planner.state, target.id):
        raise Apart(1)


def _acts_apart(state: State, table: GlobalId) -> bool:
    """Whether what follows from keys that a table gives up reaches each other table once."""
    reached, left = {table}, [table]
    while left:
        for child, _ in state.references_to(left.pop()):
            if child in reached:
                return False
            reached.add(child)
            left.append(child)
    return True
