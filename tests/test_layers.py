"""The architecture, as a test: which layer may import which, and that all of them are shipped."""

import subprocess
import sys
import tomllib

import pytest

from tests.imports import ROOT, files_of, imported

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
COMPOSITION_ROOT = ROOT / "server" / "main.py"


@pytest.mark.parametrize("layer", MAY_IMPORT)
def test_a_layer_imports_only_those_below(layer: str) -> None:
    allowed = tuple(f"{name}." for name in MAY_IMPORT[layer] | {layer})
    for file in files_of(layer):
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
        for file in files_of(layer):
            inside = file.is_relative_to(DATA_SOURCE)
            assert inside or not any(n.startswith("foreshore.spark") for n in imported(file)), file


def test_every_package_is_shipped() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    inits = [init for layer in MAY_IMPORT for init in (ROOT / layer).rglob("__init__.py")]
    paths = [".".join(init.parent.relative_to(ROOT).parts) for init in inits]
    assert sorted(listed) == sorted(
        p if p.split(".")[0] == "foreshore" else f"foreshore.{p}" for p in paths
    )


def test_a_server_loads_no_kernels() -> None:
    """They take a second to load, and only replicas run them."""
    check = "import sys, foreshore.server.main; sys.exit('numba' in sys.modules)"
    subprocess.run([sys.executable, "-c", check], check=True)
