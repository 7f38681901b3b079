"""Long texts are parsed piece by piece, with the same statements, positions and errors."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foreshore.errors import DatabaseError
from foreshore.sql.parse import pieces as pieces_of_texts
from foreshore.sql.parse import script as scripts
from foreshore.sql.parse.parse import Statement, parse
from foreshore.sql.parse.pieces import pieces
from foreshore.sql.parse.script import Script, Unread

TEXTS = [
    "select 1;select 2;select 3",
    "select ';' ; select E'a\\';' ; select e'\\\\'; select $$;$$; select $a$;$$;$a$; select 1",
    'select 1 as ";"; select "a"";" from t; -- ; select\nselect 2',
    "select /* ; /* ; */ ; */ 1; select 2 /* ; */; /* ; */ select 3;",
    "select name'x'; select fooe';' ; select 1",
    "create function f() returns int begin atomic select 1; /* ; */ end; select 2",
    "begin; insert into t values (1); commit; end; select 1",
    "select a$b from t; select $1; select $2;",
    "select u&';' ; select b'1'; select n';'; select x'1f'",
    ";;; select 1;; -- nothing\n;",
    "select 'a'\n';' ; select 1",
    "values " + ", ".join(f"({i}, 'a;')" for i in range(100)) + "; select x in (1, 2, 3)",
    "select 1; select 2 where x in (" + ", ".join(map(str, range(100))) + "); select 3",
    "insert into t values " + ", ".join(["($1::int, ';')"] * 50) + "; select 1",
]
WRONG = [
    "select 1; select 2; selec 3; select 4",
    "select 1; select 'a; select 2",
    "select 1; /* ; /* */ select 2",
    'select 1; select "; select 2',
    "select 1; select (2; select 3",
    "select 1; select 1e; select 0x1",
    "select 1; select $a$; select 2",
    "select 1; select 12abc; select 2",
    "select 1; select b'12'; select 2",
    "select 1; values " + ", ".join(["(1, 'a')"] * 50) + ", (; select 2",
]


def error_of(text: str) -> tuple[str, int | None]:
    with pytest.raises(DatabaseError) as caught:
        parse(text)
    return str(caught.value), caught.value.position


def taken(script: Script) -> list[Statement]:
    """Return all statements of a script, as they are run."""
    found = []
    for _ in range(script.count):
        script.go_on()
        each = script.waiting.popleft()
        found.append(script.read(each) if isinstance(each, Unread) else each)
    return found


def shown(statements: list[Statement]) -> list[str]:
    """Return all that there is in statements, as text."""
    return [
        re.sub(r"<[\w.]*(?:ConstantList|FormRows) object at \w+>", "rows", repr(each))
        for each in statements
    ]


@pytest.mark.parametrize("text", TEXTS)
def test_statements_are_those_of_the_whole_text(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = parse(text)
    monkeypatch.setattr(pieces_of_texts, "PIECE", 1)
    monkeypatch.setattr(scripts, "KEPT", 1)
    ranges = list(pieces(text))
    assert len(ranges) > 1
    assert "".join(text[start:end] for start, end in ranges) == text
    of_shapes = [
        taken(Script("postgres", text, lambda key: True)),
        taken(Script("postgres", text, lambda key: False)),
    ]
    for found in (parse(text), taken(Script("postgres", text)), *of_shapes):
        assert shown(found) == shown(whole)


@pytest.mark.parametrize("text", WRONG)
def test_errors_are_those_of_the_whole_text(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = error_of(text)
    monkeypatch.setattr(pieces_of_texts, "PIECE", 1)
    assert error_of(text) == whole
    with pytest.raises(DatabaseError) as caught:
        Script("postgres", text, lambda key: False)
    assert (str(caught.value), caught.value.position) == whole
    with pytest.raises(DatabaseError):  # before the first statement is given
        Script("postgres", text)


# What a text is made of: where a semicolon ends no statement, what begins there, what ends it.
PARTS = (
    "select 1", "select 'a'", "select a$b from t", "create function f() returns int begin atomic",
    "end", "begin", ";", ";", ";", " ", "\n", "'", "''", "e'", "E'\\'", "\\", "u&'", "n'", '"', "$$",
    "$a$", "$1", "--", "/*", "*/", "/", "-", "a", "1", ",", "(", ")", "é", "x'1f'",
)  # fmt: skip


def outcome(text: str) -> list[str] | None:
    """Return the statements of a text; None if it is refused."""
    try:
        return shown(parse(text))
    except DatabaseError:
        return None


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(PARTS), max_size=16).map("".join))
def test_random_text_is_parsed_as_its_pieces_are(text: str) -> None:
    whole = outcome(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces_of_texts, "PIECE", 1)
        ranges = list(pieces(text))
        assert "".join(text[start:end] for start, end in ranges) == text
        assert outcome(text) == whole
        if whole is not None:
            assert shown(taken(Script("postgres", text, lambda key: True))) == whole


def test_script_keeps_few_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces_of_texts, "PIECE", 90)
    monkeypatch.setattr(scripts, "KEPT", 15)
    script = Script("postgres", "select 1;" * 200)
    assert script.count == 200
    assert len(script.waiting) == 20
    assert [each.position for each in taken(script)] == [9 * i for i in range(200)]


@pytest.mark.parametrize(
    "text",
    [" " * 9999, "a," * 9999, "(" * 9999, "é;" * 9999, "values " * 9999, "e " * 9999],
)
def test_a_step_over_plain_text_is_bounded(text: str) -> None:
    """No other thread can run meanwhile."""
    step = pieces_of_texts._STEP.match(text)
    assert step is not None
    assert step.end() <= 7000
