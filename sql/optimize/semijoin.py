"""Joins of a table with the keys by which its rows were found: they only repeat the keys.

    Join(Get t, Distinct(VALUES (1), (2))) on t.id = #0      Project(Map(Get t, t.id))

over the rows of t with id 1 or 2.
"""

from foreshore.expr.columns import columns_of, type_of
from foreshore.expr.equality import is_plain
from foreshore.expr.ir import Column, Join, Map, Project, Relation, Scalar, single_input
from foreshore.expr.split import columns_used, shift
from foreshore.expr.traversal import inputs_of, with_inputs
from foreshore.sql.optimize.key_steps import KeyStep
from foreshore.sql.optimize.lookup import definitions_of, without_widening
from foreshore.sql.optimize.properties import is_unique
from foreshore.sql.optimize.scalars import substitute


def without_semijoins(relation: Relation, step: KeyStep) -> Relation:
    """Return `relation` without joins of the table's rows with distinct keys, which found them."""
    if isinstance(relation, Join):
        for place, input in enumerate(relation.inputs):
            get = single_input(input)
            if get is not None and get.id == step.table:
                found = _without_semijoin(relation, place, step)
                if found is not None:
                    return found
    inputs = inputs_of(relation)
    kept = tuple(without_semijoins(input, step) for input in inputs)
    return relation if kept == inputs else with_inputs(relation, kept)


def _without_semijoin(join: Join, place: int, step: KeyStep) -> Relation | None:
    """Return the join's rows as Map and Project over the table's, if it pairs each with one key."""
    chain = join.inputs[place]
    definitions = definitions_of(chain)
    if len(join.inputs) != 2 or join.null_safe or definitions is None or step.keys:
        return None
    other = join.inputs[1 - place]
    own, theirs = len(columns_of(chain)), len(columns_of(other))
    if not is_unique(other, range(theirs)):
        return None
    start, there = (theirs, 0) if place else (0, own)
    partners: dict[int, Scalar] = {}
    found = set()
    for equivalence in join.equivalences:
        ours = [e for e in equivalence if columns_used(e) <= set(range(start, start + own))]
        keys = [e for e in equivalence if isinstance(e, Column) and 0 <= e.index - there < theirs]
        if len(equivalence) != 2 or len(ours) != 1 or len(keys) != 1:
            return None
        value = shift(ours[0], -start)
        bare = without_widening(substitute(value, definitions))
        if not isinstance(bare, Column) or not is_plain(type_of(keys[0])):
            return None
        partners[keys[0].index - there] = value
        found.add(bare.index)
    if len(partners) < theirs or found != set(step.columns) or len(found) < theirs:
        return None
    mapped = Map(chain, tuple(partners[i] for i in range(theirs)))
    keys_at, rows_at = tuple(range(own, own + theirs)), tuple(range(own))
    return Project(mapped, keys_at + rows_at if place else rows_at + keys_at)
