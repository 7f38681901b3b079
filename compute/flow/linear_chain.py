"""Linear chains: Map, Filter, Project and Negate on top of something else."""

from foreshore.expr import ir

LINEAR = ir.Map | ir.Filter | ir.Project | ir.Negate


def linear_chain(relation: ir.Relation) -> tuple[tuple[ir.Relation, ...], ir.Relation]:
    """Return the linear operators on top of a relation, the lowest first, and that relation."""
    chain: list[ir.Relation] = []
    while isinstance(relation, LINEAR):
        chain.append(relation)
        relation = relation.input
    return tuple(reversed(chain)), relation
