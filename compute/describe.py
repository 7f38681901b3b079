"""How a cluster would maintain a relation, as text for EXPLAIN PHYSICAL PLAN."""

from foreshore.compute.delta.describe import describe_plan
from foreshore.compute.delta.differentiate import differentiate
from foreshore.compute.delta.temporal import cut
from foreshore.compute.linear_dataflow import is_linear
from foreshore.compute.render.evaluate import plans_of
from foreshore.expr.column_names import NamedColumns
from foreshore.expr.explain import NameOf, explain_operator, explain_relation
from foreshore.expr.ir import Relation
from foreshore.expr.recursion import has_recursion
from foreshore.ids import GlobalId


def describe_maintenance(
    engine: str,
    relation: Relation,
    name_of: NameOf = str,
    workers: int = 1,
    columns: NamedColumns | None = None,
) -> str:
    """Return how a cluster with `engine`, and replicas of so many workers, maintains `relation`.

    What the arrangement engine does not have, and so DuckDB maintains, is marked.
    """
    if engine != "embedded":
        return _changes(engine, relation, name_of)
    if is_linear(relation):
        tree = explain_relation(relation, name_of, depth=1, columns=columns)
        return f"Engine: embedded\nRows, without any state:\n{tree}"
    # Imported here: the engine's kernels take 90 MB, which most environments never need.
    from foreshore.compute.flow.describe import describe_operators
    from foreshore.compute.flow.unsupported import Unsupported

    try:
        return f"Engine: embedded\n{describe_operators(relation, name_of, workers, columns)}"
    except Unsupported as error:
        title = f"duckdb, because embedded does not maintain {error}"
        return _changes(title, relation, name_of, " on DuckDB")


def operator_titles(
    relation: Relation,
    name_of: NameOf = str,
    workers: int = 1,
    columns: NamedColumns | None = None,
) -> list[str]:
    """Return the titles of the operators that maintain `relation`, none if it has no operators."""
    from foreshore.compute.flow.describe import operator_titles
    from foreshore.compute.flow.unsupported import Unsupported

    try:
        return [] if is_linear(relation) else operator_titles(relation, name_of, workers, columns)
    except Unsupported:
        return []


def _changes(engine: str, relation: Relation, name_of: NameOf, mark: str = "") -> str:
    """Return the plans of changes of an engine: of each temporal filter's input, then the rest."""
    cuts, rest = cut(relation)

    def described(relation: Relation) -> str:
        if not has_recursion(relation):
            return describe_plan(differentiate(plans_of(relation).all, relation), name, mark)
        tree = explain_relation(relation, name, depth=1)
        return f"Rows, computed anew at each change:\n{tree}"

    def name(id: GlobalId) -> str:
        return id if any(id == each.id for each in cuts) else name_of(id)

    parts = [f"Engine: {engine}"]
    for each in cuts:
        parts += [f"{each.id} = {explain_operator(each.filter)} on:"]
        parts += [described(each.relation)]
    if cuts:
        parts.append("Result:")
    return "\n".join([*parts, described(rest)])
