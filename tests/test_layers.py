"""The architecture, as a test: which layer may import which, and that all of them are shipped."""

import ast
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from foreshore.garbage import collection_paused

ROOT = Path(__file__).parent.parent
MAY_IMPORT: dict[str, set[str]] = {
    "storage": set(),
    "sql": set(),
    "compute": {"storage"},
    "catalog": {"storage"},
    "adapter": {"storage", "sql", "compute", "catalog"},
    "server": {"adapter"},
    "foreshore": set(),  # the vocabulary, which all may import
}
DATA_SOURCE = ROOT / "foreshore" / "spark"  # the way in for Spark jobs of users: beside the server
MOST_LINES = 600  # of a file; past these there are usually two ideas
MOST_FILES = 15  # in a folder of the adapter
COMPOSITION_ROOT = ROOT / "server" / "main.py"


def imported(file: Path) -> Iterator[str]:
    """Yield the dotted name of everything that `file` imports."""
    # What is logged when garbage is collected may parse code for its traceback, and a parse within
    # a parse fails in Python 3.11.
    with collection_paused():
        tree = ast.parse(file.read_text())
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module), names=aliases):
                yield from (f"{module}.{alias.name}" for alias in aliases)
            case ast.Import(names=aliases):
                yield from (alias.name for alias in aliases)


@pytest.mark.parametrize("layer", MAY_IMPORT)
def test_a_layer_imports_only_those_below(layer: str) -> None:
    allowed = tuple(f"{name}." for name in MAY_IMPORT[layer] | {layer})
    for file in sorted((ROOT / layer).rglob("*.py")):
        if file.is_relative_to(DATA_SOURCE):
            continue
        for name in imported(file) if file != COMPOSITION_ROOT else ():
            package, _, rest = name.partition(".")
            assert package not in MAY_IMPORT.keys() - {"foreshore"}, f"{file}: say foreshore.{name}"
            if package == "foreshore" and rest.partition(".")[0] in MAY_IMPORT:
                assert f"{rest}.".startswith(allowed), f"{file} imports {name}"


def test_the_data_source_reads_storage_only_and_nothing_imports_it() -> None:
    for file in DATA_SOURCE.glob("*.py"):
        layers = {name.split(".")[1] for name in imported(file) if name.startswith("foreshore.")}
        assert not layers & (MAY_IMPORT.keys() - {"storage", "catalog"}), file
    for layer in MAY_IMPORT:
        for file in (ROOT / layer).rglob("*.py"):
            inside = file.is_relative_to(DATA_SOURCE)
            assert inside or not any(n.startswith("foreshore.spark") for n in imported(file)), file


def test_every_package_is_shipped() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    inits = [init for layer in MAY_IMPORT for init in (ROOT / layer).rglob("__init__.py")]
    paths = [".".join(init.parent.relative_to(ROOT).parts) for init in inits]
    assert sorted(listed) == sorted(
        p if p.split(".")[0] == "foreshore" else f"foreshore.{p}" for p in paths
    )


def test_files_are_short_and_folders_of_the_adapter_small() -> None:
    files = [file for layer in MAY_IMPORT for file in (ROOT / layer).rglob("*.py")]
    lengths = {str(file): len(file.read_text().splitlines()) for file in files}
    assert {file: lines for file, lines in lengths.items() if lines > MOST_LINES} == {}
    folders = Counter(file.parent for file in files if file.is_relative_to(ROOT / "adapter"))
    assert {folder: n for folder, n in folders.items() if n > MOST_FILES} == {}


def test_a_server_loads_no_kernels() -> None:
    """They take a second to load, and only replicas run them."""
    check = "import sys, foreshore.server.main; sys.exit('numba' in sys.modules)"
    subprocess.run([sys.executable, "-c", check], check=True)
