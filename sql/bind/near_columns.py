"""The column that was probably meant by a name that no column has, by PostgreSQL's rules.

    SELECT amout FROM orders       HINT:  Perhaps you meant to reference the column "orders.amount".

A name that is qualified may have a wrong qualifier, whose distance counts as well. Two columns that
are equally near are both named; if there are more, none is.
"""

from typing import TYPE_CHECKING

from foreshore.near_names import MOST_DISTANCE, distance

if TYPE_CHECKING:
    from foreshore.sql.bind.scope import Scope


def hint_for(scope: "Scope | None", name: str, alias: str | None = None) -> str | None:
    """Return the hint for a column `name`, qualified by `alias`, in the row of a query."""
    best, found = MOST_DISTANCE + 1, list[str]()
    while scope is not None:
        for table in (*scope.tables, *scope.hidden):
            if table.unnamed:
                continue
            penalty = 0 if alias is None else distance(table.alias, alias, MOST_DISTANCE)
            for slot in table.slots:
                if penalty > best:
                    break
                near = distance(slot.name, name, best - penalty)
                if near > len(name.encode()) // 2 or near + penalty > min(best, MOST_DISTANCE):
                    continue
                if near + penalty < best:
                    best, found = near + penalty, []
                elif len(found) == 2:  # this near is too low a bar
                    best, found = best - 1, []
                    continue
                found.append(f'the column "{table.alias}.{slot.name}"')
        scope = scope.parent
    return f"Perhaps you meant to reference {' or '.join(found)}." if found else None
