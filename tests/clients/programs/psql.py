"""psql: scripts, variables, \\copy, cursors by FETCH_COUNT, an interrupt, the \\d family."""

import shutil
import signal
import subprocess
import time

from steps import equal, run, step, url

PSQL = shutil.which("psql") or "/usr/lib/postgresql/15/bin/psql"


def psql(script: str, *options: str) -> str:
    """Return what a script prints, unaligned and without titles; an error of psql is ours."""
    command = (PSQL, "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", *options, url())
    done = subprocess.run(command, input=script, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@step
def scripts_and_variables():
    psql("CREATE TABLE ps (i int PRIMARY KEY, t text DEFAULT 'x'); INSERT INTO ps VALUES (1), (2);")
    script = (
        "SELECT max(i) AS top FROM ps \\gset\n\\set name 'O''Neil'\n\\set column ps\n"
        "SELECT :top + 1, :'name', :\"column\".i FROM ps WHERE i = 1;"
    )
    equal(psql(script), "3|O'Neil|1\n")
    equal(psql("\\if :{?nosuch}\nSELECT 1;\n\\else\nSELECT 2;\n\\endif"), "2\n")
    equal(
        psql("SELECT format('SELECT %s', g) FROM generate_series(1, 3) AS g \\gexec"), "1\n2\n3\n"
    )
    equal(
        psql("SELECT i, t, 1.5::numeric(4,2) FROM ps \\gdesc"),
        "i|integer\nt|text\nnumeric|numeric(4,2)\n",
    )


@step
def transactions():
    script = "BEGIN; INSERT INTO ps VALUES (3);\n\\set ON_ERROR_ROLLBACK on\n\\set ON_ERROR_STOP off\nINSERT INTO ps VALUES (3);\nINSERT INTO ps VALUES (4);\nCOMMIT;\nSELECT count(*) FROM ps;"
    done = subprocess.run(
        (PSQL, "-X", "-q", "-A", "-t", url()), input=script, capture_output=True, text=True
    )
    equal(done.stdout, "4\n")
    assert "duplicate key value violates unique constraint" in done.stderr
    equal(psql("INSERT INTO ps VALUES (5); INSERT INTO ps VALUES (6);", "-1"), "")
    equal(psql("", "-c", "SELECT count(*) FROM ps", "-c", "SELECT 'again'"), "6\nagain\n")


@step
def copies():
    psql(
        'CREATE TABLE pcopy (i int, t text);\n\\copy pcopy from stdin with (format csv, header)\ni,t\n1,"a,b"\n2,\n\\.\nCOPY pcopy FROM STDIN;\n3\tx\n\\.\n'
    )
    equal(psql("\\copy (SELECT * FROM pcopy ORDER BY i) to stdout csv"), '1,"a,b"\n2,\n3,x\n')


@step
def fetches_by_a_cursor():
    equal(psql("SELECT count(*) FROM (SELECT 1) AS s;\nSELECT generate_series(1, 25);", "-v", "FETCH_COUNT=10"),
          "1\n" + "".join(f"{i}\n" for i in range(1, 26)))  # fmt: skip


@step
def is_interrupted():
    process = subprocess.Popen(
        (PSQL, "-X", "-A", "-t", url()), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    process.stdin.write("SELECT 'before';\nSELECT pg_sleep(60);\n")
    process.stdin.flush()
    equal(process.stdout.readline(), "before\n")
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate("", timeout=30)
    assert "canceling statement due to user request" in error, error


@step
def describes():
    psql("CREATE VIEW pview AS SELECT i FROM ps; CREATE MATERIALIZED VIEW pmat AS SELECT t FROM ps;"
         "CREATE INDEX ps_by_t ON ps (t); CREATE SEQUENCE pseq; COMMENT ON TABLE ps IS 'said';")  # fmt: skip
    found = psql("\\d ps\n", "-P", "tuples_only=off")
    for wanted in (
        "i|integer||not null|",
        "t|text|||'x'",
        '"ps_by_t" btree (t)',
        '"ps_pkey" PRIMARY KEY, btree (i)',
    ):
        assert wanted in found, found
    listed = psql("\\dt\n\\dv\n\\dm\n\\di\n\\ds\n")
    for wanted in (
        "|ps|table|",
        "|pview|view|",
        "|pmat|materialized view|",
        "|ps_by_t|index|",
        "|pseq|sequence|",
    ):
        assert wanted in listed, listed
    psql("\\d+ ps\n\\d+ pview\n\\d+ pmat\n\\d ps_by_t\n\\d pseq\n\\dn+\n\\du\n\\l\n\\df+ lower\n\\dT+\n\\dp\n\\dd\n\\dx\n\\do =\n"
         "\\db\n\\des\n\\dC\n\\dc\n\\dO\n\\dD\n\\dF\n\\dew\n\\dy\n\\drds\n\\dRp\n\\dRs\n\\dA\n\\dL\n\\ddp\n\\z\n\\sv pview\n\\conninfo\n\\encoding\n")  # fmt: skip
    assert psql("\\dt+ ps\n").rstrip().endswith("|said")


if __name__ == "__main__":
    run()
