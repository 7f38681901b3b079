"""dbt with the Materialize adapter: seeds, views, materialized views, indexes, contracts, tests, docs."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import dbt.adapters.materialize  # noqa: F401
import psycopg2
from steps import equal, parts, run, step, url

ROOT = Path(tempfile.mkdtemp(prefix="dbt-materialize-"))
GROUPED = "select customer, sum(amount) as total, count(*) as n from {{ ref('orders') }} group by customer"
FILES = {
    "dbt_project.yml": """
name: shop
version: "1.0"
profile: shop
config-version: 2
flags: {send_anonymous_usage_stats: false}
models:
  +persist_docs: {relation: true, columns: true}
""",
    "seeds/raw_orders.csv": """id,customer,amount,placed,paid
1,ann,10.5,2024-01-01,true
2,bob,20,2024-01-02,false
3,ann,7.25,2024-01-03,true
4,cid,,2024-01-04,
""",
    "models/orders.sql": "select id, customer, amount, paid from {{ ref('raw_orders') }}",
    "models/indexed.sql": "{{ config(indexes=[{'columns': ['customer']}]) }}" + GROUPED,
    "models/live.sql": "{{ config(materialized='materialized_view', indexes=[{'default': true},"
    " {'columns': ['customer', 'n'], 'name': 'live_by_customer'}]) }}" + GROUPED,
    "models/as_table.sql": "{{ config(materialized='table') }} select * from {{ ref('live') }}",
    "models/paid.sql": "{{ config(materialized='ephemeral') }}"
    " select customer from {{ ref('orders') }} where paid",
    "models/payers.sql": "{{ config(materialized='materialized_view', retain_history='1 day') }}"
    " select distinct customer from {{ ref('paid') }}",
    "models/contracted.sql": "select id, customer from {{ ref('orders') }}",
    "models/schema.yml": """
models:
  - name: orders
    description: "Orders, the seed's 'view' with %s"
    columns:
      - name: id
        description: The key
        data_tests: [unique, not_null]
      - name: customer
        data_tests:
          - accepted_values: {arguments: {values: [ann, bob, cid]}}
          - relationships: {arguments: {to: ref('live'), field: customer}}
  - name: contracted
    config: {contract: {enforced: true}, materialized: materialized_view}
    columns:
      - {name: id, data_type: int, constraints: [{type: not_null}]}
      - {name: customer, data_type: text}
unit_tests:
  - name: sums
    model: live
    given:
      - input: ref('orders')
        rows: [{customer: a, amount: 1}, {customer: a, amount: 2}]
    expect:
      rows: [{customer: a, total: 3, n: 2}]
""",
    "tests/positive.sql": "select * from {{ ref('live') }} where total < 0",
}


def tool(*args, fails=False):
    """Run dbt in the project; shows the end of what it printed if its outcome is not as expected."""
    done = subprocess.run(
        [sys.executable, "-m", "dbt.cli.main", "--no-use-colors", *args, "--profiles-dir", "."],
        cwd=ROOT,
        env={**os.environ, "DBT_SEND_ANONYMOUS_USAGE_STATS": "false"},
        capture_output=True,
        text=True,
        check=False,
    )
    errors = [line for line in done.stdout.splitlines() if "rror" in line] or [done.stderr]
    assert (done.returncode != 0) == fails, " / ".join(errors)[:250]
    return done.stdout


def rows(query):
    """Return the rows of a query."""
    connection = psycopg2.connect(url())
    with connection, connection.cursor() as cursor:
        cursor.execute(query)
        found = cursor.fetchall()
    connection.close()
    return found


@step
def build():
    to = parts()
    profile = {
        "type": "materialize", "host": to["host"], "port": to["port"], "user": to["user"],
        "pass": "none", "dbname": to["database"], "schema": "shop", "threads": 2,
        "sslmode": "disable",
    }  # fmt: skip
    files = {
        **FILES,
        "profiles.yml": json.dumps({"shop": {"target": "it", "outputs": {"it": profile}}}),
    }
    for name, text in files.items():
        (ROOT / name).parent.mkdir(exist_ok=True)
        (ROOT / name).write_text(text)
    assert "ERROR=0" in tool("build")
    for view in ("indexed", "live", "as_table"):
        equal(rows(f"SELECT total FROM shop.{view} WHERE customer = 'bob'"), [(20,)])
    indexes = {name for (name,) in rows("SELECT name FROM mz_indexes")}
    assert {"live_by_customer", "live_primary_idx", "indexed_customer_idx"} <= indexes, indexes


@step
def views_follow_the_seed():
    connection = psycopg2.connect(url())
    with connection, connection.cursor() as cursor:
        cursor.execute("INSERT INTO shop.raw_orders VALUES (5, 'dan', 1, '2024-01-05', true)")
    connection.close()
    equal(rows("SELECT total FROM shop.as_table WHERE customer = 'dan'"), [(1,)])
    equal(rows("SELECT count(*) FROM shop.payers"), [(2,)])


@step
def build_again():
    assert "ERROR=0" in tool("build", "--full-refresh")
    equal(rows("SELECT count(*) FROM shop.orders"), [(4,)])


@step
def contracts_are_held():
    (ROOT / "models/contracted.sql").write_text(
        "select id::text as id, customer from {{ ref('orders') }}"
    )
    assert "contract" in tool("run", "--select", "contracted", fails=True)
    (ROOT / "models/contracted.sql").write_text(FILES["models/contracted.sql"])


@step
def failing_tests_are_stored():
    (ROOT / "tests/positive.sql").write_text("select * from {{ ref('live') }} where total > 18")
    tool("test", "--select", "positive", "--store-failures", fails=True)
    equal(rows("SELECT customer FROM shop_dbt_test__audit.positive"), [("bob",)])


@step
def docs():
    tool("docs", "generate")
    catalog = json.loads((ROOT / "target/catalog.json").read_text())
    found = {name.rpartition(".")[2]: each for name, each in catalog["nodes"].items()}
    kinds = {name: each["metadata"]["type"] for name, each in found.items()}
    equal((kinds["orders"], kinds["raw_orders"], kinds["live"]),
          ("view", "table", "materialized_view"))  # fmt: skip
    equal(found["orders"]["metadata"]["comment"], "Orders, the seed's 'view' with %s")
    equal(found["orders"]["columns"]["id"]["comment"], "The key")


run()
