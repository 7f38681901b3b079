"""Where a text is parsed and planned: short ones on the event loop, all others on a thread.

Planning a short text over tables takes about a millisecond, and handing it to a thread a tenth of
that. Views, relations of the catalog and functions with SQL bodies are put in where they are named,
so the length of a text says nothing about their cost. Which words a text has decides only where it
is planned, never what it means.

Of one login role, few plannings have a thread at a time.
"""

import re

from foreshore.adapter.statement.roles import SessionRoles
from foreshore.adapter.transaction.locks import Locks
from foreshore.adapter.transaction.transaction import Transaction
from foreshore.catalog.builtin.registry import BUILTINS
from foreshore.catalog.state import State
from foreshore.sql.bind.sql_functions import sql_function_names
from foreshore.types import REG_NAMES

LONG_TEXT = 512  # characters: some ten milliseconds of parsing and planning at worst

MOST_QUERIES = 4  # SELECTs and joins, each of which takes a millisecond or more
MOST_PARTS = 60  # items of lists, of which FROM's are joined

_WORD = re.compile(r"[a-z_][a-z0-9_]*")
_QUERY = frozenset(("select", "join", "values", "table", "exists", "in", "union", "except"))
_DEFINING = frozenset(("create", "alter", "drop", "comment", "explain", "show", "subscribe"))
_CATALOG = frozenset(each.name for each in BUILTINS.values())
_REFERENCES = frozenset(REG_NAMES)
# CUBE of 12 columns groups 4,096 times, ROWS FROM and LATERAL join for each row.
_MULTIPLYING = frozenset(("cube", "rollup", "grouping", "lateral", "recursive", "merge", "rows"))
_COSTLY = _MULTIPLYING | _DEFINING | _CATALOG | _REFERENCES | sql_function_names()


class PlanningCost:
    """Tells which texts are planned quickly."""

    def is_small(self, text: str, state: State) -> bool:
        """Return whether `text` may be planned on the event loop."""
        if not is_short(text):
            return False
        found = _WORD.findall(text.lower())
        if sum(map(_QUERY.__contains__, found)) > MOST_QUERIES or text.count(",") > MOST_PARTS:
            return False
        words = set(found)
        return words.isdisjoint(_COSTLY) and not any(map(state.has_view, words))


def planning_owner(locks: Locks, running: Transaction | None, roles: SessionRoles) -> str | None:
    """Return the role of whose share of threads a planning takes one.

    It is None, for no share, under the catalog lock, for which other roles may wait.
    """
    return None if running is not None and locks.holds_catalog(running) else roles.login.id


def is_short(text: str) -> bool:
    """Return whether `text` may be parsed on the event loop."""
    return len(text) < LONG_TEXT
