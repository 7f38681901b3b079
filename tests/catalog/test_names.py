"""Names: what they mean for a session, and where new relations are created."""

import pytest
from msgspec.structs import replace

from foreshore.catalog.bootstrap import first_state
from foreshore.catalog.builtin.relation import Builtin
from foreshore.catalog.item import Item, Role
from foreshore.catalog.names import Names, effective_path
from foreshore.catalog.state import State
from foreshore.catalog.transaction import Transaction
from foreshore.errors import DatabaseError

OWN, OTHER = "pg_temp_7", "pg_temp_8"
ME = Role("o1", 1, "me")


@pytest.fixture(scope="module")
def state() -> State:
    """Return a catalog: t in public, t and own in a temporary schema, s.u, other's temporary x."""
    change = Transaction(first_state())
    database = change.state.database("foreshore")
    assert database is not None
    public = change.state.schema(database.id, "public")
    assert public is not None
    schemas = {
        "public": public,
        "s": change.create_schema(database.id, "s", "o1"),
        OWN: change.temporary_schema(OWN, database.id, "o1"),
        OTHER: change.temporary_schema(OTHER, database.id, "o1"),
    }
    for schema, name in (("public", "t"), (OWN, "t"), (OWN, "own"), ("s", "u"), (OTHER, "x")):
        change.create_item(
            change.allot_item(), "table", schemas[schema], name, "o1", "CREATE TABLE", []
        )
    return change.state


def names(state: State, setting: str = "public") -> Names:
    path = effective_path(state, "foreshore", ME, setting, OWN)
    return Names(state, "foreshore", path, OWN, ME)


def found(state: State, *parts: str, setting: str = "public") -> str | None:
    item = names(state, setting).find(parts)
    if item is None:
        return None
    if isinstance(item, Builtin):
        return f"{item.schema}.{item.name}"
    return ".".join(state.full_name(item)[1:])


def test_path_has_implicit_schemas_first_unless_named(state: State) -> None:
    def path(setting: str) -> tuple[str, ...]:
        return effective_path(state, "foreshore", replace(ME, name="s"), setting, OWN)

    assert path("public") == (OWN, "mz_catalog", "pg_catalog", "public")
    assert path("public, pg_temp, pg_catalog") == ("mz_catalog", "public", OWN, "pg_catalog")
    assert path('"$user", missing') == (OWN, "mz_catalog", "pg_catalog", "s")
    assert effective_path(state, "foreshore", ME, "public", "pg_temp_9") == (
        "mz_catalog",
        "pg_catalog",
        "public",
    )
    assert effective_path(state, "foreshore", ME, "pg_temp", "pg_temp_9")[-1] == "pg_temp_9"


def test_name_is_first_match_on_path(state: State) -> None:
    assert found(state, "t") == f"{OWN}.t"
    assert found(state, "t", setting="public, pg_temp") == "public.t"
    assert found(state, "public", "t") == "public.t"
    assert found(state, "foreshore", "pg_temp", "own") == f"{OWN}.own"
    assert found(state, "u") is None
    assert found(state, "u", setting="s") == "s.u"
    assert found(state, "pg_class") == "pg_catalog.pg_class"


@pytest.mark.parametrize(
    ("parts", "error"),
    [
        ((OTHER, "x"), "0A000 cannot access temporary tables of other sessions"),
        (("nowhere", "public", "t"), '3D000 database "nowhere" does not exist'),
        (
            ("a", "b", "c", "d"),
            "42601 improper qualified name (too many dotted names): a.b.c.d",
        ),
    ],
)
def test_name_of_inaccessible_relation_is_refused(
    state: State, parts: tuple[str, ...], error: str
) -> None:
    with pytest.raises(DatabaseError) as refused:
        names(state).find(parts)
    assert f"{refused.value.sqlstate} {refused.value.message}" == error


def test_new_name_has_first_permanent_schema_of_path(state: State) -> None:
    def new(*parts: str, setting: str = "public", temporary: bool = False) -> str:
        try:
            return ".".join(names(state, setting).resolve_new(parts, temporary=temporary).parts)
        except DatabaseError as error:
            return f"{error.sqlstate} {error.message}"

    assert new("n") == "foreshore.public.n"
    assert new("n", setting="pg_catalog, s") == "foreshore.s.n"
    assert new("n", setting="pg_catalog, pg_temp, s") == f"foreshore.{OWN}.n"
    assert new("n", temporary=True) == new("pg_temp", "n") == f"foreshore.{OWN}.n"
    assert new("n", setting="missing") == "3F000 no schema has been selected to create in"
    assert new("missing", "n") == '3F000 schema "missing" does not exist'
    assert new("s", "n", temporary=True) == (
        "42P16 cannot create temporary relation in non-temporary schema"
    )
    assert new(OTHER, "n") == (
        "42P16 cannot create relations in temporary schemas of other sessions"
    )


def test_hidden_relation_is_described_with_schema(state: State) -> None:
    seen = names(state)
    hidden, shown = seen.find(("public", "t")), seen.find(("t",))
    assert isinstance(hidden, Item)
    assert isinstance(shown, Item)
    assert seen.describe(hidden) == "table public.t"
    assert seen.describe(shown) == "table t"


@pytest.mark.parametrize(
    ("kind", "parts", "altered", "error"),
    [
        ("table", ("no",), False, '42P01 table "no" does not exist'),
        ("table", ("no",), True, '42P01 relation "no" does not exist'),
        ("index", ("no",), False, '42704 index "no" does not exist'),
        ("view", ("t",), False, '42809 "t" is not a view'),
        ("table", ("pg_class",), False, '42501 permission denied: "pg_class" is a system catalog'),
        ("schema", ("no",), False, '3F000 schema "no" does not exist'),
        ("cluster", ("no",), False, '42704 unknown cluster "no"'),
        ("cluster replica", ("quickstart", "no"), False, "42704 unknown cluster replica"),
    ],
)
def test_missing_object_is_refused_by_kind(
    state: State, kind: str, parts: tuple[str, ...], altered: bool, error: str
) -> None:
    with pytest.raises(DatabaseError) as refused:
        names(state).object_called(kind, parts, altered=altered)
    assert f"{refused.value.sqlstate} {refused.value.message}".startswith(error)
