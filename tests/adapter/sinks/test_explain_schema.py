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
    plain = "FROM t INTO KAFKA CONNECTION k (TOPIC 't') FORMAT JSON"
    none = await env.query("a", f"EXPLAIN VALUE SCHEMA FOR CREATE SINK {plain}")
    assert "ERROR 22023: the sink has no values in Avro" in none
    await env.ran("a", "SET ROLE o")
    unread = await env.query("a", f"EXPLAIN KEY SCHEMA FOR CREATE SINK {SINK}")
    assert "ERROR 42501: permission denied for table t" in unread
    await env.ran("a", "RESET ROLE", "GRANT SELECT ON t TO o", "SET ROLE o")
    hidden = await env.query("a", f"EXPLAIN KEY SCHEMA FOR CREATE SINK {SINK}")
    assert "ERROR 42501: permission denied for connection k" in hidden
