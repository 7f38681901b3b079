"""Find recursions that read few rows: those of the base, and of each step, by keys.

WITH RECURSIVE w AS (SELECT * FROM t WHERE id = 7
UNION ALL SELECT t.* FROM t JOIN w ON t.id = w.boss) SELECT * FROM w

base    t: id = 7
step    t_2: id = boss of the rows of the step before
"""

from dataclasses import dataclass

from foreshore.expr.block import Block, Recursion
from foreshore.expr.ir import Relation
from foreshore.expr.traversal import sources_of
from foreshore.ids import GlobalId
from foreshore.sql.optimize.key_steps import KeysOf, Restricted, TableKeys
from foreshore.sql.optimize.restrict import Names, restricted


@dataclass(frozen=True, slots=True)
class RestrictedRecursion:
    """A recursion, and the steps that find the rows of its base and of its step."""

    recursion: Recursion
    base: Restricted
    step: Restricted


@dataclass(frozen=True, slots=True)
class RestrictedBlock:
    """The recursions of a block, and what is over their results."""

    recursions: tuple[RestrictedRecursion, ...]
    last: Restricted


def restricted_block(block: Block, keys: KeysOf) -> RestrictedBlock | None:
    """Return how a block with recursions is restricted; None if it reads a table whole."""
    known: set[GlobalId] = set()
    names = Names(lambda id: TableKeys(given=True) if id in known else keys(id))
    found = []
    for each in block.recursions:
        if not isinstance(each, Recursion) or each.base.recursions or each.step.recursions:
            return None
        base = _restricted(each.base.relation, names)
        known |= {each.working, each.result}
        step = _restricted(each.step.relation, names)
        if base is None or step is None:
            return None
        found.append(RestrictedRecursion(each, base, step))
    last = _restricted(block.relation, names)
    return None if last is None else RestrictedBlock(tuple(found), last)


def _restricted(relation: Relation, names: Names) -> Restricted | None:
    """Return how a part is restricted, of which each read has a name of its own."""
    apart = names.given_to(relation)
    if all(names.keys(id).given for id in sources_of(apart)):
        return Restricted((), apart)
    found = restricted(apart, names.keys)
    return None if found is None else Restricted(names.resolved(found.steps), found.relation)
