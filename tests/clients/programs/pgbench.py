"""pgbench: initialisation and its built-in scripts, in each query mode, and a script of one's own."""

import re
import shutil
import subprocess
import tempfile

from steps import equal, parts, run, step, url

FOLDER = "/usr/lib/postgresql/15/bin"


def program(name: str) -> str:
    return shutil.which(name) or f"{FOLDER}/{name}"


def pgbench(*options: str) -> str:
    at = parts()
    command = (program("pgbench"), "-h", at["host"], "-p", str(at["port"]), "-U", at["user"])
    done = subprocess.run((*command, *options, at["database"]), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-500:]
    return done.stdout + done.stderr


def query(text: str) -> str:
    command = (program("psql"), "-X", "-A", "-t", "-c", text, url())
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def transactions(*options: str) -> None:
    """Run 2 clients with 5 transactions each; none fails for good."""
    found = pgbench("-n", "-c", "2", "-t", "5", "--max-tries=100", *options)
    assert re.search(r"actually processed: 10/10", found), found
    assert re.search(r"number of failed transactions: 0 ", found), found


@step
def initialises():
    pgbench("-i", "-s", "1", "--foreign-keys", "-q")
    equal(query("SELECT count(*) FROM pgbench_accounts"), "100000")
    equal(
        query(
            "SELECT count(*) FROM pg_constraint WHERE contype = 'f' AND conrelid::regclass::text LIKE 'pgbench_%'"
        ),
        "5",
    )


@step
def initialises_on_the_server():
    pgbench("-i", "-s", "1", "-I", "dtGp", "-q")
    equal(query("SELECT count(*) FROM pgbench_accounts"), "100000")


@step
def tpcb_like_in_simple_mode():
    transactions("-M", "simple")


@step
def tpcb_like_in_extended_mode():
    transactions("-M", "extended")


@step
def tpcb_like_in_prepared_mode():
    transactions("-M", "prepared")
    equal(query("SELECT count(*), sum(bbalance) = (SELECT sum(delta) FROM pgbench_history) FROM pgbench_branches, "
                "(SELECT count(*) FROM pgbench_history) AS h(n) GROUP BY n"), "1|t")  # fmt: skip


@step
def simple_update_and_select_only():
    transactions("-N", "-M", "prepared")
    transactions("-S", "-M", "prepared")


@step
def a_script_with_a_pipeline():
    script = "\\set a random(1, 1000)\n\\startpipeline\nSELECT abalance FROM pgbench_accounts WHERE aid = :a;\n" \
             "UPDATE pgbench_accounts SET abalance = abalance + 1 WHERE aid = :a;\n\\endpipeline\n"  # fmt: skip
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as file:
        file.write(script)
        file.flush()
        transactions("-M", "extended", "-f", file.name)


if __name__ == "__main__":
    run()
