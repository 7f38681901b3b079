"""pgcli: its prompt's executor, what it completes, its backslash commands, its command line."""

import os
import subprocess
import sys
import tempfile
import threading

from pgcli.completion_refresher import CompletionRefresher
from pgcli.pgexecute import PGExecute
from pgspecial.main import PGSpecial
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from steps import equal, parts, run, step, url

TO = parts()
SPECIAL = PGSpecial()


def executor() -> PGExecute:
    """Connect as the prompt does."""
    return PGExecute(TO["database"], TO["user"], None, TO["host"], TO["port"], None)


def results(text: str) -> list[tuple]:
    """Run statements or a backslash command; returns rows, headers and status of each result."""
    found = []
    for title, rows, headers, status, *_ in executor().run(text, SPECIAL):
        assert title is None or isinstance(title, str)
        found.append(([] if rows is None else [tuple(row) for row in rows], headers, status))
    return found


@step
def statements():
    results(
        "CREATE TABLE author (id serial PRIMARY KEY, name varchar(20) NOT NULL DEFAULT 'x');"
        "CREATE TABLE book (id int PRIMARY KEY, author int REFERENCES author, price numeric(8,2));"
        "CREATE VIEW dear AS SELECT id, price FROM book WHERE price > 10;"
        "CREATE TYPE mood AS ENUM ('sad', 'ok');"
        "CREATE FUNCTION doubled(n int) RETURNS int LANGUAGE sql AS 'SELECT n * 2'"
    )
    [(rows, headers, status)] = results("INSERT INTO author (name) VALUES ('Ann'), ('Bob')")
    equal((rows, headers, status), ([], None, "INSERT 0 2"))
    [(rows, headers, status)] = results("SELECT id, name FROM author ORDER BY id")
    equal((rows, headers, status), ([(1, "Ann"), (2, "Bob")], ["id", "name"], "SELECT 2"))


@step
def objects_for_completion():
    e = executor()
    equal(e.search_path(), ["pg_catalog", "public"])
    assert "public" in e.schemata()
    equal([n for s, n in e.tables() if s == "public"], ["author", "book"])
    equal([n for s, n in e.views() if s == "public"], ["dear"])
    columns = [tuple(each[1:5]) for each in e.table_columns() if each[0] == "public"]
    equal(
        sorted(columns),
        [
            ("author", "id", "integer", True), ("author", "name", "character varying", True),
            ("book", "author", "integer", False), ("book", "id", "integer", False),
            ("book", "price", "numeric", False),
        ],
    )  # fmt: skip
    equal(
        [tuple(each) for each in e.foreignkeys()],
        [("public", "author", "id", "public", "book", "author")],
    )
    functions = {each.func_name: each for each in e.functions()}
    equal(functions["doubled"].return_type, "integer")
    assert {"count", "lower", "generate_series"} <= set(functions)
    assert ("public", "mood") in set(e.datatypes())
    assert TO["database"] in e.databases()
    equal(e.get_timezone() != "", True)


@step
def completion():
    done, completers = threading.Event(), []

    def refreshed(completer):
        completers.append(completer)
        done.set()

    CompletionRefresher().refresh(executor(), SPECIAL, refreshed, settings={"single_connection": 0})
    assert done.wait(120), "not refreshed"
    for text, wanted in (
        ("SELECT * FROM au", "author"),
        ("SELECT  FROM dear", "price"),
        ("SELECT * FROM book JOIN ", "author ON author.id = book.author"),
        ("SELECT dou", "doubled"),
    ):
        at = len("SELECT ") if "  FROM" in text else len(text)
        offered = [
            each.text for each in completers[0].get_completions(Document(text, at), CompleteEvent())
        ]
        assert any(each.startswith(wanted) for each in offered), (text, offered[:10])


@step
def backslash_commands():
    for command, wanted in (
        ("\\dt", "author"), ("\\d book", "book_author_fkey"), ("\\d+ dear", "price > "),
        ("\\dv", "dear"), ("\\di", "book_pkey"), ("\\ds", "author_id_seq"), ("\\dn", "public"),
        ("\\du", TO["user"]), ("\\l", TO["database"]), ("\\df doubled", "integer"), ("\\dT", "mood"),
        ("\\dm", ""), ("\\dx", ""), ("\\dp", ""), ("\\ddp", ""), ("\\db", ""), ("\\dD", ""),
        ("\\dE", ""), ("\\sf doubled", "RETURNS int"),
    ):  # fmt: skip
        found = results(command)
        assert wanted in str(found), (command, found)


@step
def definitions():
    e = executor()
    assert "price > " in e.view_definition("dear"), e.view_definition("dear")
    assert "doubled(n integer)" in e.function_definition("doubled")


@step
def errors_leave_the_session_usable():
    e = executor()
    with open(os.devnull, "w") as nothing:
        for text in ("SELECT 1 / 0", "SELECT * FROM absent"):
            try:
                list(e.run(text, SPECIAL))
            except Exception as error:
                print(error, file=nothing)
            else:
                raise AssertionError("no error")
    [(_, rows, *_)] = e.run("SELECT 7", SPECIAL)
    equal([tuple(row) for row in rows], [(7,)])
    list(e.run("BEGIN", SPECIAL))
    equal(e.valid_transaction(), True)


@step
def command_line():
    with tempfile.TemporaryDirectory() as home:
        done = subprocess.run(
            [os.path.join(os.path.dirname(sys.executable), "pgcli"), url(), "--less-chatty",
             "-c", "SELECT name FROM author ORDER BY 1", "-c", "\\d author"],
            env={**os.environ, "HOME": home, "XDG_CONFIG_HOME": home},
            capture_output=True, text=True, timeout=300,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr[-500:]
    assert "Ann" in done.stdout and "author_pkey" in done.stdout, done.stdout


run()
