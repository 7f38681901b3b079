"""All builtin relations, with ids that are constant within a process.

Ids of builtins are never stored: stored SQL names them, and is planned again at each start.
"""

from functools import cache
from itertools import chain

from foreshore.catalog.builtin import (
    further,
    information_schema,
    mz_catalog,
    mz_further,
    pg_catalog,
)
from foreshore.catalog.builtin.descriptions import descriptions
from foreshore.catalog.builtin.functions import function_oids
from foreshore.catalog.builtin.operators import RECORDED, constant_rows
from foreshore.catalog.builtin.relation import Builtin
from foreshore.errors import FeatureNotSupported
from foreshore.expr.ir import Relation
from foreshore.expr.traversal import sources_of
from foreshore.ids import GlobalId, is_builtin


@cache
def all_builtins() -> tuple[Builtin, ...]:
    """Return the builtin relations, in the order of their ids."""
    declared = chain(
        pg_catalog.relations(),
        further.system_relations(),
        information_schema.relations(),
        further.standard_relations(),
        mz_catalog.relations(),
        mz_further.relations(),
    )
    return tuple(each.with_id(number) for number, each in enumerate(declared))


BUILTINS: dict[GlobalId, Builtin] = {builtin.id: builtin for builtin in all_builtins()}


@cache
def builtins_by_name() -> dict[tuple[str, str], Builtin]:
    """Return the builtin relations by schema and name."""
    return {(builtin.schema, builtin.name): builtin for builtin in all_builtins()}


def load_recorded() -> None:
    """Read the rows that are recorded in files, which takes 30 ms once in a process."""
    function_oids()
    descriptions()
    for name in RECORDED:
        constant_rows(name)


def refuse_system_inputs(relation: Relation, what: str) -> None:
    """Raise FeatureNotSupported if `relation` reads system relations, which are not maintained."""
    if any(is_builtin(id) for id in sources_of(relation)):
        raise FeatureNotSupported(f"{what} over system relations is not supported")
