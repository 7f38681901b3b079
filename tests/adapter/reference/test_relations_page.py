"""docs/reference/relations.md lists Foreshore's own relations; `GOLDEN=rewrite` writes it."""

from foreshore.catalog.builtin.descriptions import relation_description
from foreshore.catalog.builtin.registry import BUILTINS
from foreshore.catalog.builtin.relation import Builtin
from tests.adapter.harness import TestEnvironment
from tests.adapter.reference.generated import check_generated, table

OWN = [each for each in BUILTINS.values() if each.schema.startswith("mz_")]
SCHEMAS = ("mz_catalog", "mz_internal", "mz_introspection")


def test_each_relation_and_column_is_described() -> None:
    names = [(each.name, column) for each in OWN for column in (None, *each.desc.names)]
    assert [name for name in names if not relation_description(*name)] == []


def test_relations_are_those_of_the_catalog() -> None:
    lines: list[str] = []
    for schema in SCHEMAS:
        lines += [f"## {schema}", ""]
        for builtin in sorted(OWN, key=lambda each: each.name):
            if builtin.schema == schema:
                lines += [*section(builtin), ""]
    check_generated("relations.md", "relations", ["", *lines])


def section(builtin: Builtin) -> list[str]:
    """Return what is said of a relation and its columns."""
    columns = zip(builtin.desc.names, builtin.desc.columns, strict=True)
    rows = [
        (
            f"`{name}`",
            f"`{column.type}`" + (", may be NULL" if column.nullable else ""),
            relation_description(builtin.name, name) or "",
        )
        for name, column in columns
    ]
    told = relation_description(builtin.name) or ""
    return [f"### {builtin.name}", "", told, "", *table(("column", "type", ""), rows)]


async def test_psql_shows_the_descriptions(env: TestEnvironment) -> None:
    described = """
        SELECT obj_description(oid, 'pg_class'), col_description(oid, 3)
        FROM pg_class WHERE relname = 'mz_dataflow_statuses'
    """
    assert (await env.query("a", described)).splitlines()[0] == (
        "The dataflows on replicas: state, frontier, work and memory."
        "|pending, hydrating, running, failing, failed or stalled."
    )
