"""The Python examples of README.md and docs/ pass the type checkers that readers use."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.python_blocks import lay_out, programs


def written(folder: Path) -> list[str]:
    """Write the programs of the pages; return the names of the files."""
    lay_out(folder / "package")
    names = []
    for page, text in programs():
        name = page.replace("/", "_").replace("-", "_").removesuffix(".md") + ".py"
        (folder / name).write_text(text)
        names.append(name)
    return names


def test_pages_with_python_are_found() -> None:
    pages = dict(programs())
    assert {"README.md", "docs/embedded.md", "docs/tutorial.md", "docs/notebooks.md"} <= set(pages)
    for page, text in pages.items():
        compile(text, page, "exec")


@pytest.mark.full
def test_mypy_accepts_what_pages_show(tmp_path: Path) -> None:
    names = written(tmp_path)
    (tmp_path / "mypy.ini").write_text(
        "[mypy]\nmypy_path = package\ncheck_untyped_defs = true\nexplicit_package_bases = true\n"
        "[mypy-foreshore.*]\nfollow_imports = silent\n"
        "[mypy-pyarrow.*,pandas.*,pyspark.*,duckdb.*]\nfollow_imports = skip\n"
        "ignore_missing_imports = true\n"
    )
    command = [sys.executable, "-m", "mypy", "--config-file=mypy.ini", *names]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.full
def test_pyright_accepts_what_pages_show(tmp_path: Path) -> None:
    pyright = shutil.which("pyright")
    if pyright is None:
        pytest.skip("there is no pyright")
    names = written(tmp_path)
    configuration = {
        "include": names,
        "extraPaths": ["package"],
        "reportMissingImports": False,
        "reportMissingModuleSource": False,
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(configuration))
    command = [pyright, "--pythonpath", sys.executable]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
