"""Builtin relations are well formed and show every object of the catalog."""

import pytest

from foreshore.catalog.bootstrap import first_state
from foreshore.catalog.builtin.registry import all_builtins, builtins_by_name
from foreshore.catalog.builtin.relation import Builtin, IntrospectionSnapshot
from foreshore.catalog.planned import Planned
from foreshore.types import INT4, TEXT, ColumnType, RelationDesc

SETTING = {"name": "TimeZone", "setting": "UTC", "reset_val": "UTC"}


def snapshot() -> IntrospectionSnapshot:
    state = first_state()
    desc = RelationDesc(("i", "t"), (ColumnType(INT4, False), ColumnType(TEXT)))
    return IntrospectionSnapshot(
        state=state,
        planned={item.id: Planned(desc) for item in state.items()},
        builtins=all_builtins(),
        database="foreshore",
        definition_of=lambda _: "SELECT 1",
        default_of=lambda _, i: "7" if i == 0 else None,
        live=lambda name: [SETTING] if name == "pg_settings" else [],
    )


@pytest.mark.parametrize("builtin", all_builtins(), ids=lambda b: f"{b.schema}.{b.name}")
def test_builtin_relation_returns_rows_of_its_description(builtin: Builtin) -> None:
    table = builtin.table(snapshot())
    assert table.column_names == list(builtin.desc.names)
    for name, column in zip(builtin.desc.names, builtin.desc.columns, strict=True):
        assert column.nullable or table[name].null_count == 0, name


def test_no_two_builtins_share_an_oid_or_a_name() -> None:
    assert len({builtin.oid for builtin in all_builtins()}) == len(all_builtins())
    assert len(builtins_by_name()) == len(all_builtins())


@pytest.mark.parametrize("relation", ["pg_type", "pg_class", "pg_proc", "pg_namespace"])
def test_no_two_rows_share_an_oid(relation: str) -> None:
    oids = builtins_by_name()["pg_catalog", relation].table(snapshot())["oid"].to_pylist()
    assert len(set(oids)) == len(oids)


def test_a_new_catalog_has_its_first_database_schema_and_cluster() -> None:
    def names(relation: str, column: str) -> list[str]:
        return list(
            builtins_by_name()["pg_catalog", relation].table(snapshot())[column].to_pylist()
        )

    assert names("pg_database", "datname") == ["foreshore", "postgres"]
    assert {"public", "pg_catalog", "information_schema"} <= set(names("pg_namespace", "nspname"))
    clusters = builtins_by_name()["mz_catalog", "mz_clusters"].table(snapshot())
    assert clusters["name"].to_pylist() == ["quickstart"]
