"""Find rows that conditions joined by OR name by different keys of a table.

    id = $1 OR email = $2       rows of t_or1: email = $2; of t: id = $1, or as in t_or1

The rows under each key are looked up as if it were a table of its own. They give the whole keys of
the rows of the table, each of which is found once.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from foreshore.expr.ir import Filter, Get, Or, Project, Relation
from foreshore.ids import GlobalId
from foreshore.sql.optimize.key_steps import KeyStep, Step, TableKey
from foreshore.sql.optimize.lookup import predicates_of

Find = Callable[[Relation], KeyStep | None]


def either_step(
    chain: Relation, get: Get, keys: Sequence[TableKey], find: Find
) -> tuple[KeyStep, ...]:
    """Return steps, the last one for the rows of a table under the keys that sides of an OR name.

    `chain` is Map, Filter and Project over the table, and `find` returns the step for conditions
    of constants. Nothing is returned if a side names no key, or if rows have no whole key.
    """
    whole = [each for each in keys if _has_every_row(each, get)]
    predicates = predicates_of(chain) if whole else []
    found = []
    for each in predicates:
        if isinstance(each, Or):
            others = [other for other in predicates if other is not each]
            sides = [find(Filter(get, (side, *others))) for side in each.args]
            known = [step for step in sides if step is not None]
            if len(known) == len(sides):
                found.append(_joined(_by_columns(known), get, whole))
    return min(found, key=lambda steps: (not are_unique(steps), len(steps)), default=())


def are_unique(steps: Sequence[Step]) -> bool:
    """Whether each key of some steps has one row."""
    return all(isinstance(step, KeyStep) and step.constraint is not None for step in steps)


def _has_every_row(key: TableKey, get: Get) -> bool:
    return key.constraint is not None and not any(get.columns[i].nullable for i in key.columns)


def _by_columns(steps: Sequence[KeyStep]) -> list[KeyStep]:
    """Return steps with the keys of those by the same columns in one, without those of no keys."""
    found: dict[tuple[str, tuple[int, ...]], KeyStep] = {}
    for step in steps:
        place = step.by.name, step.columns
        before = found[place].keys if place in found else ()
        if step.keys:
            found[place] = replace(step, keys=tuple(dict.fromkeys((*before, *step.keys))))
    return [*found.values()]


def _joined(steps: Sequence[KeyStep], get: Get, whole: Sequence[TableKey]) -> tuple[KeyStep, ...]:
    """Return steps for other names of the table, and the one by a whole key of it."""
    named = next((step for step in steps if step.constraint and step.by in whole), None)
    others = [
        replace(step, alias=GlobalId(f"{get.id}_or{number}"))
        for number, step in enumerate((each for each in steps if each is not named), 1)
    ]
    by = whole[0] if named is None else named.by
    sources = tuple(Project(Get(each.rows, get.columns), by.columns) for each in others)
    keys = () if named is None else named.keys
    return (*others, KeyStep(get.id, by, by.columns, keys, sources))
