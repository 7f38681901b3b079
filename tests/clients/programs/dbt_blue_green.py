"""dbt-postgres with materialized views over sources, and their blue/green swap, as docs/dbt.md has it."""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import dbt.adapters.postgres  # noqa: F401
import psycopg2
from steps import equal, parts, run, step, url

ROOT = Path(tempfile.mkdtemp(prefix="dbt-blue-green-"))
PAGE = (Path(__file__).parents[3] / "docs" / "dbt.md").read_text()
(MACROS,) = re.findall(r"```jinja\n(.*?)```", PAGE, re.DOTALL)
LARGE = "select * from {{ ref('totals') }} where total > %d"
FILES = {
    "dbt_project.yml": """
name: shop
version: "1.0"
profile: shop
config-version: 2
flags: {send_anonymous_usage_stats: false}
models:
  +materialized: materialized_view
""",
    "macros/deploy.sql": MACROS,
    "models/sources.yml": """
sources:
  - name: shop
    schema: blue_green_raw
    tables: [{name: orders}, {name: ticks}]
""",
    "models/totals.sql": "{{ config(indexes=[{'columns': ['customer']}]) }}"
    " select customer, sum(amount) as total from {{ source('shop', 'orders') }} group by customer",
    "models/large.sql": LARGE % 10,
    "models/last_tick.sql": "select max(counter) as counter from {{ source('shop', 'ticks') }}",
}


def tool(*args, target="live"):
    """Run dbt in the project."""
    done = subprocess.run(
        [sys.executable, "-m", "dbt.cli.main", "--no-use-colors", *args, "--profiles-dir", ".",
         "--target", target],
        cwd=ROOT,
        env={**os.environ, "DBT_SEND_ANONYMOUS_USAGE_STATS": "false"},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    errors = [line for line in done.stdout.splitlines() if "rror" in line] or [done.stderr]
    assert done.returncode == 0, " / ".join(errors)[:250]


def execute(*statements):
    """Run statements, each on its own; return the rows of the last one, if it has any."""
    connection = psycopg2.connect(url())
    connection.autocommit = True
    with connection.cursor() as cursor:
        for each in statements:
            cursor.execute(each)
        found = cursor.fetchall() if cursor.description else []
    connection.close()
    return found


@step
def models_over_a_table_and_a_source():
    execute(
        "CREATE SCHEMA blue_green_raw",
        "CREATE TABLE blue_green_raw.orders (id int PRIMARY KEY, customer text, amount int)",
        "INSERT INTO blue_green_raw.orders VALUES (1, 'ann', 5), (2, 'bob', 20)",
        "CREATE SOURCE blue_green_raw.ticks FROM LOAD GENERATOR COUNTER (TICK INTERVAL '100 ms')",
    )
    to = parts()
    profile = {
        "type": "postgres", "host": to["host"], "port": to["port"], "user": to["user"],
        "password": "none", "dbname": to["database"], "threads": 2,
    }  # fmt: skip
    outputs = {name: {**profile, "schema": name} for name in ("live", "next")}
    profiles = json.dumps({"shop": {"target": "live", "outputs": outputs}})
    for name, text in {**FILES, "profiles.yml": profiles}.items():
        (ROOT / name).parent.mkdir(exist_ok=True)
        (ROOT / name).write_text(text)
    tool("run")
    equal(execute("SELECT customer FROM live.large"), [("bob",)])
    tool("run")
    equal(execute("SELECT count(*) FROM live.last_tick"), [(1,)])


@step
def blue_green():
    (ROOT / "models/large.sql").write_text(LARGE % 4)
    tool("run", target="next")
    equal(execute("SELECT customer FROM live.large"), [("bob",)])
    tool("run-operation", "swap")
    changed = "INSERT INTO blue_green_raw.orders VALUES (3, 'cid', 7)"
    found = execute(changed, "SELECT customer FROM live.large ORDER BY 1")
    equal(found, [("ann",), ("bob",), ("cid",)])
    equal(execute("SELECT customer FROM next.large"), [("bob",)])


@step
def what_was_live_goes_and_the_next_one_comes():
    tool("run-operation", "drop_schema", "--args", "{name: next}")
    equal(execute("SELECT count(*) FROM pg_matviews WHERE schemaname = 'next'"), [(0,)])
    (ROOT / "models/large.sql").write_text(LARGE % 6)
    tool("run", target="next")
    tool("run-operation", "swap")
    equal(execute("SELECT customer FROM live.large ORDER BY 1"), [("bob",), ("cid",)])


run()
