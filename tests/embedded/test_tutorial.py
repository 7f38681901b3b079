"""The programs of docs/tutorial.md and docs/notebooks.md run as they stand there."""

import contextlib
import io
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.full
@pytest.mark.parametrize(("page", "outputs"), [("tutorial.md", 2), ("notebooks.md", 1)])
def test_page_runs_and_prints_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: str, outputs: int
) -> None:
    monkeypatch.chdir(tmp_path)
    text = (DOCS / page).read_text()
    blocks = re.findall(r"```(python)?\n(.*?)```", text, re.DOTALL)
    program = "\n".join(text for language, text in blocks if language)
    printed = io.StringIO()
    names: dict[str, object] = {}
    with contextlib.redirect_stdout(printed):
        exec(compile(program, page, "exec"), names)
    said = printed.getvalue()
    shown = [text for language, text in blocks if not language]
    assert len(shown) == outputs
    for output in shown:
        assert output.strip().removesuffix("...") in said
