"""EXPLAIN shows the Avro schemas that a sink would register, and reaches nothing for it."""

import json

from tests.adapter.harness import TestEnvironment

SINK = (
    "FROM t INTO KAFKA CONNECTION k (TOPIC 't') KEY (k) FORMAT AVRO USING CONFLUENT SCHEMA"
    " REGISTRY CONNECTION r (AVRO VALUE FULLNAME 'shop.Row')"
)


async def test_schemas_of_keys_and_values_are_shown(own_env: TestEnvironment) -> None:
    env = own_env
    await env.ran(
        "a",
        "CREATE CONNECTION k TO KAFKA (BROKER '127.0.0.1:1')",
        "CREATE CONNECTION r TO CONFLUENT SCHEMA REGISTRY (URL 'http://127.0.0.1:1')",
        "CREATE TABLE t (k int PRIMARY KEY, v text)",
        "CREATE TABLE other (k int)",
        "CREATE ROLE o",
    )

    async def shown(statement: str) -> dict[str, object]:
        text = await env.ran("a", statement)
        found: dict[str, object] = json.loads(text.rpartition("\n")[0])
        return found

    key = await shown(f"EXPLAIN KEY SCHEMA FOR CREATE SINK s {SINK}")
    assert key["fields"] == [{"name": "k", "type": "int"}]
    value = await shown(f"EXPLAIN VALUE SCHEMA AS JSON FOR CREATE SINK {SINK}")
    assert (value["namespace"], value["name"]) == ("shop", "Row")
    assert value["fields"] == [
        {"name": "k", "type": "int"},
        {"name": "v", "type": ["null", "string"], "default": None},
    ]
    change = await shown(f"EXPLAIN VALUE SCHEMA FOR CREATE SINK {SINK} ENVELOPE DEBEZIUM")
    assert [each["name"] for each in change["fields"]] == ["before", "after"]  # type: ignore[attr-defined]
    docs = "KEY DOC ON TYPE t 'a key', DOC ON COLUMN t.k = 'an id', VALUE DOC ON COLUMN public.t.k 'it'"
    said = SINK.replace("'shop.Row'", f"'shop.Row', {docs}")
    key = await shown(f"EXPLAIN KEY SCHEMA FOR CREATE SINK {said}")
    assert (key["doc"], key["fields"]) == ("a key", [{"name": "k", "type": "int", "doc": "an id"}])
    value = await shown(f"EXPLAIN VALUE SCHEMA FOR CREATE SINK {said} ENVELOPE UPSERT")
    assert "doc" not in value
    assert value["fields"][0] == {"name": "k", "type": "int", "doc": "it"}  # type: ignore[index]
    for wrong, error in (
        ("DOC ON TYPE o_t 'x'", '42P01: relation "o_t" does not exist'),
        ("DOC ON TYPE other 'x'", '22023: DOC ON "other" is of another relation'),
        ("DOC ON COLUMN t.none 'x'", '42703: column "none" does not exist'),
        ("KEY DOC ON COLUMN t.v 'x'", '22023: column "v" is not in the key'),
        ("DOC ON TYPE t 'x', DOC ON TYPE t 'y'", "42601: DOC ON is given twice"),
    ):
        refused = SINK.replace("'shop.Row'", f"'shop.Row', {wrong}")
        assert error in await env.query("a", f"EXPLAIN KEY SCHEMA FOR CREATE SINK {refused}"), wrong
    plain = "FROM t INTO KAFKA CONNECTION k (TOPIC 't') FORMAT JSON"
    none = await env.query("a", f"EXPLAIN VALUE SCHEMA FOR CREATE SINK {plain}")
    assert "ERROR 22023: the sink has no values in Avro" in none
    await env.ran("a", "SET ROLE o")
    unread = await env.query("a", f"EXPLAIN KEY SCHEMA FOR CREATE SINK {SINK}")
    assert "ERROR 42501: permission denied for table t" in unread
    await env.ran("a", "RESET ROLE", "GRANT SELECT ON t TO o", "SET ROLE o")
    hidden = await env.query("a", f"EXPLAIN KEY SCHEMA FOR CREATE SINK {SINK}")
    assert "ERROR 42501: permission denied for connection k" in hidden
