"""What a source defines, and which sources are refused."""

import pytest

from foreshore.errors import DatabaseError
from foreshore.python_functions.handler import Handler, handler_of


@pytest.mark.parametrize(
    ("source", "handler"),
    [
        ("def f(a): ...", Handler("f", False)),
        ("def f(a): ...\ndef g(a): ...", Handler("f", False)),
        ("def g(a): ...\ndef h(a): ...", Handler("h", False)),
        ("import pyarrow as pa\ndef f(a: pa.Array): ...", Handler("f", True)),
        ("def f(a) -> 'pa.Array': ...", Handler("f", True)),
        ("def f(*a): ...", Handler("f", False)),
        ("def f(a, b=1): ...", Handler("f", False)),
        (
            "class f:\n def init(self): ...\n def add(self, s, v): ...\n def finish(self, s): ...",
            Handler("f", False, True),
        ),
    ],
)
def test_function_of_source(source: str, handler: Handler) -> None:
    assert handler_of(source, "f", 1) == handler


@pytest.mark.parametrize(
    ("source", "state", "text"),
    [
        ("\n\ndef f(a:\n  pass", "42601", "in line 3"),
        ("return 1", "42601", "in line 1"),
        ("x = 1", "42P13", "defines no function"),
        ("async def f(a): ...", "42P13", "must not be async"),
        ("def f(): ...", "42P13", "does not take 1 arguments"),
        ("def f(a, b): ...", "42P13", "does not take 1 arguments"),
        ("def f(a, *, b): ...", "42P13", "does not take 1 arguments"),
        ("class f:\n def init(self): ...", "42P13", 'no method "add"'),
    ],
)
def test_refused_source(source: str, state: str, text: str) -> None:
    with pytest.raises(DatabaseError, match=text) as caught:
        handler_of(source, "f", 1)
    assert caught.value.sqlstate == state
