"""dbt: seeds, models of all kinds, snapshots, tests, contracts, docs, run after run."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import dbt.adapters.postgres  # noqa: F401
import psycopg2
from steps import equal, parts, run, step, url

ROOT = Path(tempfile.mkdtemp(prefix="dbt-"))
ORDERS = """id,customer,amount,placed,paid
1,ann,10.5,2024-01-01,true
2,bob,20,2024-01-02,false
3,ann,7.25,2024-01-03,true
4,cid,,2024-01-04,
"""
INCREMENTAL = """{{{{ config(materialized='incremental', incremental_strategy='{strategy}', {key}
             on_schema_change='append_new_columns') }}}}
select id, customer, amount {{% if var('wide', false) %}}, 1 as extra{{% endif %}}
from {{{{ ref('orders') }}}}
{{% if is_incremental() %}} where id >= (select max(id) from {{{{ this }}}}) {{% endif %}}
"""
GROUPED = (
    "select customer, sum(amount) as total, count(*) as n from {{ ref('%s') }} group by customer"
)
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
    "seeds/raw_orders.csv": ORDERS,
    "seeds/schema.yml": """
seeds:
  - name: raw_orders
    config: {column_types: {amount: "numeric(10,2)"}}
""",
    "models/orders.sql": "select id, customer, amount, placed, paid from {{ ref('raw_orders') }}",
    "models/totals.sql": "{{ config(materialized='table', indexes=[{'columns': ['customer'], 'unique': true}"
    ", {'columns': ['total'], 'type': 'btree'}]) }}" + GROUPED % "orders",
    "models/live_totals.sql": "{{ config(materialized='materialized_view', "
    "indexes=[{'columns': ['customer']}]) }}" + GROUPED % "raw_orders",
    "models/appended.sql": INCREMENTAL.format(strategy="append", key=""),
    "models/replaced.sql": INCREMENTAL.format(strategy="delete+insert", key="unique_key='id',"),
    "models/merged.sql": INCREMENTAL.format(strategy="merge", key="unique_key=['id', 'customer'],"),
    "models/paid.sql": "{{ config(materialized='ephemeral') }}"
    " select customer from {{ ref('orders') }} where paid",
    "models/payers.sql": "select distinct customer from {{ ref('paid') }}",
    "models/contracted.sql": "{{ config(materialized='table') }}"
    " select id, customer::text as customer, amount from {{ ref('orders') }}",
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
          - relationships: {arguments: {to: ref('totals'), field: customer}}
  - name: totals
    description: Totals
    columns: [{name: total, description: The sum}]
  - name: live_totals
    description: Live
  - name: contracted
    config: {contract: {enforced: true}, grants: {select: [USER]}}
    constraints:
      - {type: check, expression: "id > 0", name: positive}
    columns:
      - {name: id, data_type: integer, constraints: [{type: not_null}, {type: primary_key}]}
      - {name: customer, data_type: text}
      - {name: amount, data_type: "numeric(10,2)"}
unit_tests:
  - name: totals_are_sums
    model: totals
    given:
      - input: ref('orders')
        rows: [{customer: a, amount: 1}, {customer: a, amount: 2}]
    expect:
      rows: [{customer: a, total: "3.00", n: 2}]
""".replace("USER", str(parts()["user"])),
    "snapshots/snapshots.sql": """
{% snapshot by_check %}{{ config(unique_key='id', strategy='check', check_cols='all',
                                 hard_deletes='invalidate') }}
select * from {{ ref('raw_orders') }}{% endsnapshot %}
{% snapshot by_time %}{{ config(unique_key='id', strategy='timestamp', updated_at='placed',
                                hard_deletes='new_record') }}
select * from {{ ref('raw_orders') }}{% endsnapshot %}
""",
    "tests/positive.sql": "select * from {{ ref('totals') }} where total < 0",
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
def first_build():
    to = parts()
    profile = {
        "type": "postgres", "host": to["host"], "port": to["port"], "user": to["user"],
        "password": "none", "dbname": to["database"], "schema": "shop", "threads": 2,
    }  # fmt: skip
    files = {
        **FILES,
        "profiles.yml": json.dumps({"shop": {"target": "it", "outputs": {"it": profile}}}),
    }
    for name, text in files.items():
        (ROOT / name).parent.mkdir(exist_ok=True)
        (ROOT / name).write_text(text)
    tool("build")
    equal(len(rows("SELECT * FROM shop.contracted")), 4)
    equal(rows("SELECT customer FROM shop.payers"), [("ann",)])
    equal(rows("SELECT total FROM shop.live_totals WHERE customer = 'bob'"), [(20,)])


@step
def second_build():
    tool("build")
    equal(rows("SELECT count(*) FROM shop.appended"), [(5,)])
    equal(rows("SELECT count(*) FROM shop.replaced"), [(4,)])
    equal(rows("SELECT count(*) FROM shop.merged"), [(4,)])


@step
def incremental_models_with_a_new_column():
    (ROOT / "seeds/raw_orders.csv").write_text(ORDERS + "5,ann,1,2024-01-05,true\n")
    tool("build", "--vars", "{wide: true}")
    for model in ("replaced", "merged"):
        equal(rows(f"SELECT id, extra FROM shop.{model} WHERE id >= 3 ORDER BY id"),
              [(3, None), (4, 1), (5, 1)])  # fmt: skip


@step
def snapshots_keep_what_was():
    changed = ORDERS.replace("2,bob,20,2024-01-02", "2,bob,21,2024-02-02")
    (ROOT / "seeds/raw_orders.csv").write_text(changed.replace("1,ann,10.5,2024-01-01,true\n", ""))
    tool("seed", "--full-refresh")
    tool("snapshot")
    history = "SELECT id, amount, dbt_valid_to IS NULL FROM shop.%s WHERE id < 3 ORDER BY 1, 3, 2"
    equal([(i, float(a), b) for i, a, b in rows(history % "by_check")],
          [(1, 10.5, False), (2, 20, False), (2, 21, True)])  # fmt: skip
    equal(rows("SELECT count(*) FROM shop.by_time WHERE dbt_is_deleted = 'True'"), [(2,)])


@step
def full_refresh():
    tool("build", "--full-refresh")
    equal(rows("SELECT count(*) FROM shop.appended"), [(3,)])


@step
def failing_tests_are_stored():
    (ROOT / "tests/positive.sql").write_text("select * from {{ ref('totals') }} where total > 20")
    tool("test", "--select", "positive", "--store-failures", fails=True)
    equal(rows("SELECT customer FROM shop_dbt_test__audit.positive"), [("bob",)])


@step
def contracts_are_held():
    (ROOT / "models/contracted.sql").write_text(
        "{{ config(materialized='table') }} select -id as id, customer::text as customer, amount"
        " from {{ ref('orders') }}"
    )
    assert "positive" in tool("run", "--select", "contracted", fails=True)
    equal(rows("SELECT min(id) FROM shop.contracted"), [(2,)])


@step
def docs():
    tool("docs", "generate")
    catalog = json.loads((ROOT / "target/catalog.json").read_text())
    found = {name.rpartition(".")[2]: each for name, each in catalog["nodes"].items()}
    kinds = {name: each["metadata"]["type"] for name, each in found.items()}
    equal((kinds["orders"], kinds["totals"], kinds["live_totals"]),
          ("VIEW", "BASE TABLE", "MATERIALIZED VIEW"))  # fmt: skip
    equal(found["orders"]["metadata"]["comment"], "Orders, the seed's 'view' with %s")
    equal(found["totals"]["columns"]["total"]["comment"], "The sum")


@step
def queries_and_operations():
    assert "cid" in tool("show", "--select", "totals", "--limit", "5")
    tool("debug")


run()
