"""How a cluster would maintain a relation, as text for EXPLAIN PHYSICAL PLAN."""

from foreshore.compute.bulk.evaluate import plans_of
from foreshore.compute.delta.describe import describe_plan
from foreshore.compute.delta.differentiate import differentiate
from foreshore.compute.replica.linear import is_linear
from foreshore.expr.explain import NameOf, explain_relation
from foreshore.expr.ir import Relation


def describe_maintenance(engine: str, relation: Relation, name_of: NameOf = str) -> str:
    """Return how a cluster with `engine` would maintain `relation`.

    What the arrangement engine does not have, and so DuckDB maintains, is marked.
    """
    if engine != "embedded":
        return describe_plan(engine, differentiate(plans_of(relation).all), name_of)
    if is_linear(relation):
        tree = explain_relation(relation, name_of, depth=1)
        return f"Engine: embedded\nRows, without any state:\n{tree}"
    # Imported here: the engine's kernels take 90 MB, which most environments never need.
    from foreshore.compute.flow.describe import describe_operators
    from foreshore.compute.flow.unsupported import Unsupported

    try:
        return f"Engine: embedded\n{describe_operators(relation, name_of)}"
    except Unsupported as error:
        plan = differentiate(plans_of(relation).all)
        title = f"duckdb, because embedded does not maintain {error}"
        return describe_plan(title, plan, name_of, mark=" on DuckDB")
