"""The programs of docs/tutorial.md run as they stand there."""

import contextlib
import io
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"


@pytest.mark.full
def test_tutorial_runs_and_prints_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```(python)?\n(.*?)```", PAGE.read_text(), re.DOTALL)
    program = "\n".join(text for language, text in blocks if language)
    printed = io.StringIO()
    names: dict[str, object] = {}
    with contextlib.redirect_stdout(printed):
        exec(compile(program, str(PAGE), "exec"), names)
    said = printed.getvalue()
    outputs = [text for language, text in blocks if not language]
    assert len(outputs) == 2
    for output in outputs:
        assert output.strip().removesuffix("...") in said
